"""A sweep's decisions with invented rungs: no Ray, no encoder."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from raysweep import config as configuration
from raysweep import space_parser
from raysweep.config import SweepConfig
from raysweep.document import Document
from raysweep.progress import Display, duration
from raysweep.proposals import Proposals
from raysweep.results import Ledger, RunInfo, load, point_name
from raysweep.space import Space
from raysweep.sweep import Sweep
from raysweep.trial import TrialConfig, trial_config

SPACES = Path(__file__).parents[2] / "search_spaces"


def settings(tmp_path: Path, space: str = "polarity", **overrides: str) -> tuple[SweepConfig, Space]:
    document = Document.read(SPACES / f"{space}.yaml")
    for key, value in {
        "budget__trials": "12",
        "budget__rungs": "4",
        "budget__examples_per_trial": "null",
        **overrides,
    }.items():
        document.override(key.replace("__", "."), value)
    config = configuration.parse(document)
    return config, space_parser.parse(document, config)


def make(tmp_path: Path, **overrides: str) -> tuple[Sweep, io.StringIO]:
    config, space = settings(tmp_path, **overrides)
    (tmp_path / "points").mkdir(parents=True)
    ledger = Ledger(tmp_path)
    info = RunInfo("s", "0", "d", "m", "r", 16, "uniform", 0.5, "similarity", 12, {"dev": 9}, {"dev": 9}, ("0", "1"), 0)
    ledger.append("run", **info.__dict__)
    out = io.StringIO()
    display = Display(Console(file=out, width=300))
    return Sweep(config, Proposals(space, config.sampler, config.seed), ledger, display, gpus_per_trial=0.5), out


def rung(config: TrialConfig, step: int) -> dict[str, Any]:
    """An invented landscape: polarity peaks at a learning rate of 1e-4 and grows with steps, similarity falls."""
    import math

    quality = 1 - abs(math.log10(config.learning_rate) + 4) / 4
    polarity, similarity = 0.6 + 0.08 * step * quality, 0.47 - 0.01 * step * quality
    point = {"kind": "plain", "value": None, "split": "dev", "width": 384, "polarity_std": 0.1, "similarity_std": 0.1}
    point |= {"polarity": polarity, "similarity": similarity, "retention": similarity / 0.47}
    seen = step * config.examples_per_rung
    return {"step": step, "examples_seen": seen, "seconds": 1.0 * step, "loss": 0.1, "points": [point]}


def play(sweep: Sweep) -> list[TrialConfig]:
    configs = []
    while (asked := sweep.ask()) is not None:
        number, config = asked
        configs.append(config)
        for step in range(1, sweep.config.budget.rungs + 1):
            (sweep.folder / "points" / point_name(number, step)).mkdir()
            if sweep.rung(number, rung(config, step)):
                break
        sweep.end(number)
    sweep.finish("completed", "all trials are done")
    return configs


def test_every_trial_is_in_the_ledger_once_with_its_ending(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    configs = play(sweep)
    results = load(tmp_path)
    assert [trial.trial for trial in results.trials] == list(range(12))
    assert [trial_config(dict(trial.config)) for trial in results.trials] == configs
    assert {trial.status for trial in results.trials} == {"completed", "stopped"}
    for trial in results.trials:
        steps = [r.step for r in results.rungs if r.trial == trial.trial]
        assert steps == list(range(1, len(steps) + 1))
        assert (trial.status == "completed") == (len(steps) == 4)
        assert "bar of the best 1 in 2" in trial.reason or trial.reason == "all 4 rungs done"
        assert trial.gpu_seconds == pytest.approx(trial.seconds / 2)
    assert results.status == "completed"


def test_only_the_fronts_weights_are_kept(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    play(sweep)
    front = {point_name(p.trial, p.step) for p in sweep.front() if p.trial is not None and p.step is not None}
    assert {path.name for path in (tmp_path / "points").iterdir()} == front


def test_same_seed_same_configurations_and_another_seed_others(tmp_path: Path) -> None:
    runs = [play(make(tmp_path / name, seed=seed)[0]) for name, seed in (("a", "0"), ("b", "0"), ("c", "1"))]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_failed_trial_is_told_and_the_sweep_goes_on(tmp_path: Path) -> None:
    sweep, out = make(tmp_path)
    number, _ = sweep.ask() or pytest.fail("no trial")
    sweep.end(number, failure="the loss became nan within rung 1")
    play(sweep)
    results = load(tmp_path)
    assert (results.trials[0].status, results.trials[0].reason) == ("failed", "the loss became nan within rung 1")
    assert len(results.trials) == 12
    assert "trial 0: failed: the loss became nan" in out.getvalue()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_never_reach_the_ledger(tmp_path: Path, value: float) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.ask() or pytest.fail("no trial")
    bad = rung(config, 1)
    bad["points"][0]["polarity"] = value
    with pytest.raises(ValueError, match="not JSON compliant"):
        sweep.rung(number, bad)
    assert load(tmp_path).rungs == ()


def test_interrupted_trials_keep_their_rungs(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.ask() or pytest.fail("no trial")
    sweep.rung(number, rung(config, 1))
    sweep.finish("interrupted", "Ctrl-C or a signal")
    results = load(tmp_path)
    assert (results.status, results.trials[0].status, len(results.rungs)) == ("interrupted", "interrupted", 1)


def test_a_line_cut_short_by_a_kill_does_not_count(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.ask() or pytest.fail("no trial")
    sweep.rung(number, rung(config, 1))
    whole = load(tmp_path)
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write(json.dumps({"event": "rung", "trial": number})[:20])
    assert load(tmp_path) == whole


def test_out_of_time_stops_trials_at_their_next_rung_and_asks_no_more(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, budget__minutes="0.001")
    number, config = sweep.ask() or pytest.fail("no trial")
    sweep.began -= 60
    assert sweep.rung(number, rung(config, 1))
    sweep.end(number)
    assert load(tmp_path).trials[0].reason == "the sweep's 0.001 minutes were spent"
    assert sweep.ask() is None


def test_the_last_rung_raises_the_bar_for_later_trials(tmp_path: Path) -> None:
    """Eight rungs of 2,048 end on a milestone of 4,096 * 2 ** n."""
    sweep, _ = make(
        tmp_path, space__examples_per_rung="2048", budget__examples_per_trial="8192", space__learning_rate="1e-4"
    )
    for worse in (0.0, 0.1):
        number, config = sweep.ask() or pytest.fail("no trial")
        for step in range(1, 5):
            result = rung(config, step)
            result["points"][0]["polarity"] -= worse
            if step == 4 and worse:
                result["points"][0]["polarity"] = 0.0
            stopped = sweep.rung(number, result)
            if stopped:
                break
        sweep.end(number)
    assert [trial.status for trial in load(tmp_path).trials] == ["completed", "stopped"]
    assert sweep._halving is not None
    assert sweep._halving.judge(8192, 0.01), "the first trial's last rung is the bar"


def test_a_grid_is_asked_once_through(tmp_path: Path) -> None:
    config, space = settings(tmp_path, "published_grid", budget__trials="99")
    proposals = Proposals(space, config.sampler, config.seed)
    assert proposals.limit == 17
    drawn = [proposals.ask()[1] for _ in range(17)]
    assert len(set(drawn)) == 17


def test_tpe_learns_from_what_it_is_told(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, budget__trials="60", early_stopping__policy="none")
    configs = play(sweep)
    late = [abs(_log10(config.learning_rate) + 4) for config in configs[-20:]]
    early = [abs(_log10(config.learning_rate) + 4) for config in configs[:10]]
    assert sum(late) / len(late) < sum(early) / len(early) / 2


def _log10(value: float) -> float:
    import math

    return math.log10(value)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (75, "1:15"), (3600, "1:00:00"), (3725.4, "1:02:05")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_rung_that_is_repeated_counts_once(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.ask() or pytest.fail("nothing proposed")
    for step in (1, 1, 2, 1, 2, 3):
        (sweep.folder / "points" / point_name(number, step)).mkdir(exist_ok=True)
        sweep.rung(number, rung(config, step))
    sweep.end(number)
    sweep.finish("completed", "")
    assert [each.step for each in load(tmp_path).rungs] == [1, 2, 3]


def test_a_trial_that_stops_itself_is_stopped_for_its_reason_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.ask() or pytest.fail("nothing proposed")
    (sweep.folder / "points" / point_name(number, 1)).mkdir()
    checkpoint = sweep.folder / "checkpoints" / f"trial-{number:04d}" / "000000064"
    checkpoint.mkdir(parents=True)
    assert sweep.rung(number, {**rung(config, 1), "stop": "idle for 2 rungs"})
    sweep.end(number)
    assert not checkpoint.parent.exists()
    sweep.finish("completed", "")
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("stopped", "idle for 2 rungs")


def test_weights_beyond_the_bound_are_dropped_and_said(tmp_path: Path) -> None:
    sweep, out = make(tmp_path, storage__max_gib="0.000001")
    number, config = sweep.ask() or pytest.fail("nothing proposed")
    for step in (1, 2, 3):
        place = sweep.folder / "points" / point_name(number, step)
        place.mkdir()
        (place / "trained.safetensors").write_bytes(bytes(1000))
        sweep.rung(number, rung(config, step))
    assert len(sweep.front()) == 3
    assert len(sweep.kept_front()) == 1
    assert "storage.max_gib, 1e-06, is reached: the weights of 0:" in out.getvalue()
