"""Other libraries behind the replay's calls: each searches a table to its end, the same with the same seed."""

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
def table(request: pytest.FixtureRequest) -> RecordedSweep:
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


def steps(entry: registry.Entry, table: RecordedSweep, seed: int, num_workers: int) -> list[Step]:
    assert entry.make is not None
    registry.seed_globals(seed)
    return list(replay(table, entry.make(table, seed), num_workers))


@pytest.mark.parametrize("name", ENTRIES)
def test_a_row_searches_the_table_and_is_determined_by_its_seed(name: str, table: RecordedSweep) -> None:
    entry = ENTRIES[name]
    if entry.make is None:
        pytest.skip(entry.missing)
    for num_workers in (1,) if entry.is_slow else (1, 3):
        found = steps(entry, table, 1, num_workers)
        assert found == steps(entry, table, 1, num_workers)
        budgets = [step.budget for step in found]
        assert budgets == sorted(budgets) and budgets[-1] <= table.total_budget
        assert 0 < found[-1].area <= table.area * (1 + 1e-9)
        has_no_stopping = table.num_rungs == 1 or name.endswith(", P and S") or name in ("random", "grid")
        if has_no_stopping:
            assert budgets[-1] == table.total_budget and found[-1].area == pytest.approx(table.area)


def test_rows_are_named_once_and_the_default_is_what_a_sweep_without_more_gets(tmp_path: Path) -> None:
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


def test_a_trial_is_worth_what_it_has_shown_so_far(table: RecordedSweep) -> None:
    shown, trial = Shown(table), table.trials[0]
    seen: list[tuple[float, float]] = []
    for rung in trial.rungs:
        shown.add(7, rung.points)
        seen += rung.points
        assert shown.area(7) == pytest.approx(hypervolume(seen, table.reference_point))
        assert shown.best_point(7) == max(seen, key=sum)
        assert shown.weighted_sum(7) == pytest.approx(max(p + s for p, s in seen) / 2)
    assert longest(table) == table.num_rungs


def test_a_flat_space_names_what_samplers_are_asked_for(table: RecordedSweep) -> None:
    parameters = flat(table.space)
    by_name = {each.name: each for each in parameters}
    assert isinstance(by_name["loss"].parameter, Choices) and isinstance(by_name["learning_rate"].parameter, Range)
    margin = by_name["loss=triplet.margin"]
    assert (margin.parent, margin.option) == ("loss", "triplet")
    for trial in table.trials:
        params = params_of(table, trial.values)
        assert set(params) <= set(by_name)
        assert table.space.draw(Given(indexed(parameters, params))) == dict(trial.values)
