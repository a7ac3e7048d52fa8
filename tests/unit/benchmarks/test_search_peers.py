"""Other libraries behind the replay's calls: each searches a recording to its end, the same with the same seed."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_peers import registry
from benchmarks.search_peers.flat import Given, flat, indexed
from benchmarks.search_peers.shown import Shown, longest, params_of
from raysweep.config.space import Choices, Range
from raysweep.metrics.pareto import hypervolume
from raysweep.replay.recordings import RecordedRung, RecordedSweep, RecordedTrial
from raysweep.replay.simulator import SearchSettings, Step, replay
from support.sweep_files import MINIMAL, read

ENTRIES = {entry.name: entry for entry in registry.entries()}


@pytest.fixture(scope="module", params=[1, 3], ids=["one rung", "three rungs"])
def recording(request: pytest.FixtureRequest) -> RecordedSweep:
    """Twelve configurations of a conditional space, with two points a rung."""
    random = np.random.default_rng(3)
    trials = []
    for number in range(12):
        loss = ("triplet", "softmax")[number % 2]
        rate, size = float(10 ** random.uniform(-6, -3)), int((32, 64, 128)[number % 3])
        values = {"loss": loss, "learning_rate": rate, "batch_size": size}
        if loss == "triplet":
            values["margin"] = float(random.uniform(0.1, 1.0))
        rungs = []
        for rung in range(1, request.param + 1):
            gain = math.exp(-((math.log10(rate) + 4) ** 2)) * rung / request.param
            points = ((0.6 + 0.2 * gain, 0.5 - 0.1 * gain), (0.6 + 0.1 * gain, 0.5 - 0.02 * gain))
            rungs.append(RecordedRung(256 * rung, 10.0 * rung * (1 + number % 2), points))
        trials.append(RecordedTrial(values, tuple(rungs)))
    return RecordedSweep(tuple(trials), (0.5, 0.25), (0.5, 0.5))


def steps(
    entry: registry.Entry, recording: RecordedSweep, seed: int, num_workers: int
) -> list[Step]:
    assert entry.make is not None
    registry.seed_globals(seed)
    return list(replay(recording, entry.make(recording, seed), num_workers))


@pytest.mark.parametrize("name", ENTRIES)
def test_a_row_searches_the_recording_and_is_determined_by_its_seed(
    name: str, recording: RecordedSweep
) -> None:
    entry = ENTRIES[name]
    if entry.make is None:
        pytest.skip(entry.missing)
    for num_workers in (1,) if entry.is_slow else (1, 3):
        run = steps(entry, recording, 1, num_workers)
        assert run == steps(entry, recording, 1, num_workers)
        budgets = [step.budget for step in run]
        assert budgets == sorted(budgets) and budgets[-1] <= recording.total_budget
        assert 0 < run[-1].area <= recording.area * (1 + 1e-9)
        has_no_stopping = (
            recording.num_rungs == 1 or name.endswith(", P and S") or name in ("random", "grid")
        )
        if has_no_stopping:
            assert budgets[-1] == recording.total_budget and run[-1].area == pytest.approx(
                recording.area
            )


def test_row_names_are_unique_and_the_default_equals_a_sweeps(tmp_path: Path) -> None:
    assert len(ENTRIES) == len(registry.entries())
    default = registry.default_search()
    assert next(iter(ENTRIES)).startswith(f"raysweep default: {default.policy}")
    config, _ = read(tmp_path, MINIMAL)
    assert default == SearchSettings(
        config.sampler,
        config.early_stopping.policy,
        config.objective.proposals,
        config.early_stopping.reduction_factor,
    )


def test_a_trials_value_is_that_of_its_points_so_far(recording: RecordedSweep) -> None:
    shown, trial = Shown(recording), recording.trials[0]
    seen: list[tuple[float, float]] = []
    for rung in trial.rungs:
        shown.add(7, rung.points)
        seen += rung.points
        assert shown.area(7) == pytest.approx(hypervolume(seen, recording.reference_point))
        assert shown.best_point(7) == max(seen, key=sum)
        assert shown.weighted_sum(7) == pytest.approx(max(p + s for p, s in seen) / 2)
    assert longest(recording) == recording.num_rungs


def test_a_flat_space_has_the_samplers_names(recording: RecordedSweep) -> None:
    parameters = flat(recording.space)
    by_name = {each.name: each for each in parameters}
    assert isinstance(by_name["loss"].parameter, Choices) and isinstance(
        by_name["learning_rate"].parameter, Range
    )
    margin = by_name["loss=triplet.margin"]
    assert (margin.parent, margin.option) == ("loss", "triplet")
    for trial in recording.trials:
        params = params_of(recording, trial.values)
        assert set(params) <= set(by_name)
        assert recording.space.draw(Given(indexed(parameters, params))) == dict(trial.values)
