"""Ranges that a resume narrows or widens: new trials follow them, and earlier trials are kept as they are."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from raysweep.controller.resume import Resumed, load_resumed
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.results.events import PointsScored, SweepSteered
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.training.trial import trial_seed
from support.ledgers import change_settings
from support.sweeps import assemble, make, rung, settings

LOW, HIGH = 1e-6, 1e-4
BEFORE = {
    "space__learning_rate": f"{{low: {LOW}, high: {HIGH}, log: true}}",
    "early_stopping__policy": "none",
}


def run_trials(sweep: Sweep, count: int, num_rungs: int = 1) -> list[float]:
    """Run rungs of new trials, interrupt the trials, and return their learning rates."""
    rates = []
    for _ in range(count):
        number, config = sweep.assign() or pytest.fail("no trial")
        for step in range(1, num_rungs + 1):
            sweep.record_rung(number, rung(config, step))
        rates.append(config.learning_rate)
        if num_rungs == sweep.progress.num_rungs[number]:
            sweep.release(number)
    return rates


def search(folder: Path, **overrides: str) -> list[float]:
    """Complete six trials of a sweep that ends at its budget, and return their learning rates."""
    overrides = {**BEFORE, **overrides}
    sweep, _ = make(folder, **overrides)
    sweep.ledger.append(PointsScored(points=()))
    rates = run_trials(sweep, 6, num_rungs=4)
    sweep.finish("budget", "")
    config, _ = settings(folder, **overrides)
    change_settings(folder, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    (folder / "prepared.json").touch()
    return rates


@contextlib.contextmanager
def resumed_with(folder: Path, *overrides: tuple[str, str]) -> Iterator[tuple[Sweep, Resumed]]:
    loaded, resumed = load_resumed(folder, None, overrides)
    sweep, _ = assemble(loaded.config, loaded.space, resumed.ledger)
    sweep.replay(resumed.events, adopt=resumed.space_changed)
    yield sweep, resumed
    sweep.ledger.close()


@pytest.mark.parametrize("sampler", ["mfgp", "tpe", "random", "optuna.samplers:GPSampler"])
@pytest.mark.parametrize("bound", ["narrower", "wider"])
def test_new_trials_are_from_the_new_range_and_earlier_ones_stay(
    tmp_path: Path, sampler: str, bound: str
) -> None:
    before = search(tmp_path, sampler=sampler)
    if bound == "narrower":
        low, high = LOW, sorted(before)[1]
    else:
        low, high = 2 * HIGH, 100 * HIGH
    changes = [("space.learning_rate.low", str(low)), ("space.learning_rate.high", str(high))]
    configs = [trial.config for trial in load(tmp_path).trials]
    with resumed_with(tmp_path, *changes) as (sweep, resumed):
        assert resumed.space_changed
        assert len(sweep.scheduler.trials) == 6 and len(sweep.front) >= 1
        rates = run_trials(sweep, 6)
    assert all(low <= rate <= high for rate in rates)
    assert sum(not low <= rate <= high for rate in before) >= 4
    assert [trial.config for trial in load(tmp_path).trials][:6] == configs


def test_seeds_of_earlier_trials_do_not_move(tmp_path: Path) -> None:
    search(tmp_path)
    with resumed_with(tmp_path) as (sweep, _):
        seeds = [trial_seed(0, config) for config in sweep.progress.configs.values()]
    with resumed_with(tmp_path, ("space.learning_rate.high", "2e-6")) as (sweep, _):
        assert [trial_seed(0, config) for config in sweep.progress.configs.values()] == seeds


def test_requests_outside_a_narrower_range_are_dropped(tmp_path: Path) -> None:
    search(tmp_path)
    ledger = Ledger(tmp_path)
    ledger.append(SweepSteered(request="1", action="try", config={"learning_rate": 5e-5}))
    ledger.close()
    for high, num_requested in (("6e-5", 1), ("4e-5", 0)):
        with resumed_with(tmp_path, ("space.learning_rate.high", high)) as (sweep, _):
            assert len(sweep.scheduler.requested) == num_requested


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("space.learning_rate", "{choices: [1e-6, 1e-5]}", "learning_rate was a range"),
        ("space.learning_rate.high", "1e-7", "learning_rate"),
        ("space.learning_rate.hihg", "1e-5", "hihg"),
    ],
)
def test_other_changes_of_a_range_are_rejected(
    tmp_path: Path, key: str, value: str, problem: str
) -> None:
    search(tmp_path)
    with pytest.raises(InputError, match=problem):
        load_resumed(tmp_path, None, [(key, value)])
