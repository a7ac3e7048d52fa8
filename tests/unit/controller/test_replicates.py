"""Configurations near the front that are run again with other seeds: which, how often, and what is made of it."""

import json
import re
import statistics
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysweep.config.sweep import PlateauConfig
from raysweep.config.trial import TrialConfig
from raysweep.controller import warm_start
from raysweep.controller.resume import load_resumed
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import GOALS, Pair
from raysweep.replay import recording_files
from raysweep.report import write
from raysweep.report.summary import summarize
from raysweep.report.tables import kind_name, mean_table
from raysweep.results.account import build_account, sentence
from raysweep.results.events import PointsScored, TrialStarted
from raysweep.results.ledger import Ledger, point_name, read_events
from raysweep.results.reader import load
from raysweep.results.views import averaged, varied_parameters
from raysweep.search.replicates import Replicates
from raysweep.search.scheduler import Scheduler
from raysweep.training.trial import trial_seed
from support.landscape import POLICIES, Player
from support.landscape import make as make_decisions
from support.ledgers import change_settings
from support.sweep_files import MINIMAL, read
from support.sweeps import REFERENCE, assemble, make, rung, settings

OVERRIDES = {
    "replicates__trials": "9",
    "early_stopping__policy": "growth",
    "early_stopping__first_examples": "2048",
    "space__examples_per_rung": "2048",
}


def line_of(sweep: Sweep) -> str:
    """Return the final account of a run."""
    return sentence(build_account(load(sweep.run.path)), sweep.scheduler.replicates.trials)


def noisy(config: TrialConfig, step: int, run: int, scale: float = 0.02) -> dict[str, Any]:
    """Two operating points with noise that derives from the configuration and the run, as a seed does."""
    made = rung(config, step)
    noise = np.random.default_rng(zlib.crc32(f"{config}{step}{run}".encode())).normal(
        scale=scale, size=2
    )
    (point,) = made["points"]
    other = {**point, "kind": "concat", "value": 0.3}
    for each, shift in ((point, 0.0), (other, -0.03)):
        each["polarity"] += shift + float(noise[0])
        each["similarity"] += -shift / 3 + float(noise[1]) / 10
        each["retention"] = each["similarity"] / REFERENCE[1]
    return {**made, "points": [point, other]}


def play(
    sweep: Sweep, failing: tuple[int, ...] = (), scale: float = 0.02, finish: bool = True
) -> list[tuple[int, int]]:
    """Run all trials and return the replicates as (trial, original). Trials in ``failing`` fail at rung 1."""
    while (assigned := sweep.assign()) is not None:
        number, config = assigned
        run = sweep.scheduler.trials[number].run
        for step in range(sweep.progress.steps_done(number) + 1, 5):
            if number in failing:
                break
            (sweep.run.path / "points" / point_name(number, step)).mkdir(exist_ok=True)
            if sweep.record_rung(number, noisy(config, step, run, scale)):
                break
        sweep.release(number, failure="it was to fail" if number in failing else None)
    if finish:
        sweep.finish("completed", "all trials are done")
    trials = sweep.scheduler.trials.values()
    return [
        (trial.number, trial.replicate_of) for trial in trials if trial.replicate_of is not None
    ]


def story(folder: Path) -> Any:
    """Return the content of a run's folder without durations."""
    results = load(folder)
    trials = [(t.trial, dict(t.config), t.status, t.reason, t.replicate_of) for t in results.trials]
    return (
        trials,
        sorted((r.trial, r.step, r.examples_seen) for r in results.rungs),
        set(results.points),
        results.means,
    )


# What is decided.


def decide(trials: int, runs: int = 3, **options: Any) -> Scheduler:
    scheduler = make_decisions("random", "none", num_trials=options.pop("num_trials", 6), **options)
    scheduler.replicates = Replicates(trials, runs)
    return scheduler


def play_points(
    scheduler: Scheduler, scores: dict[int, list[list[tuple[float, float]]]]
) -> list[int]:
    """Trials of a single rung whose points, by original, are those of its runs in turn. What was run again, in order."""
    again = []
    while (course := scheduler.ask()) is not None:
        original = course.number if course.replicate_of is None else course.replicate_of
        if course.replicate_of is not None:
            again.append(original)
        scheduler.rung(course.number, 10, scores[original][course.run], [])
        scheduler.end(course.number, "completed")
    return again


def test_means_and_spreads_match_numpy() -> None:
    draws = np.random.default_rng(0).uniform(0.5, 0.9, size=(3, 2, 2))  # run, point, P and S
    scheduler = decide(9, num_trials=1)
    assert play_points(scheduler, {0: [[(p, s) for p, s in run] for run in draws.tolist()]}) == [
        0,
        0,
    ]
    ((seen, means),) = scheduler.replicates.means(0).items()
    assert (seen, list(means)) == (10, [0, 1])
    for index, each in means.items():
        assert each.runs == 3
        assert each.mean == pytest.approx(np.mean(draws[:, index], axis=0))
        assert each.spread == pytest.approx(np.std(draws[:, index], axis=0, ddof=1))


def test_front_is_replicated_by_fewest_runs_then_largest_area() -> None:
    same = {
        0: (0.7, 0.40),
        1: (0.8, 0.35),
        2: (0.75, 0.3),
        3: (0.9, 0.2),
        4: (0.6, 0.3),
        5: (0.65, 0.41),
    }
    scores = {number: [[pair]] * 3 for number, pair in same.items()}
    assert play_points(decide(99), scores) == [1, 0, 5, 3, 1, 0, 5, 3], (
        "the front, until each has had three runs"
    )
    assert play_points(decide(5), scores) == [1, 0, 5, 3, 1], "or the budget is spent"
    assert play_points(decide(99, runs=2), scores) == [1, 0, 5, 3]
    assert play_points(decide(0), scores) == []


def test_points_enter_the_front_when_a_mean_leaves_it() -> None:
    scores = {0: [[(0.9, 0.4)], [(0.6, 0.3)]], 1: [[(0.8, 0.35)]] * 3, 2: [[(0.5, 0.2)]] * 3}
    assert play_points(decide(2, num_trials=3), scores) == [0, 1]
    scheduler = decide(9, num_trials=3)
    assert play_points(scheduler, {**scores, 0: [*scores[0], [(0.6, 0.3)]]})[:3] == [0, 1, 1]
    known = scheduler.proposer.known_trial(0)
    assert known.fronts == {10: (pytest.approx((0.7, 1 / 3)),)}, "the sampler is told the mean"


def test_points_within_a_standard_error_of_the_front_are_replicated() -> None:
    noisy = [[(0.81, 0.4)], [(0.79, 0.4)], [(0.80, 0.4)]]  # a standard deviation of 0.01 in P
    scores = {0: noisy, 1: [[(0.791, 0.4)]] * 3, 2: [[(0.70, 0.4)]] * 3}
    assert play_points(decide(9, num_trials=3), scores) == [0, 0, 1], (
        "its error falls with its runs"
    )
    exact = {**scores, 0: [[(0.80, 0.4)]] * 3}
    assert play_points(decide(9, num_trials=3), exact) == [0, 0]


def test_equal_configurations_share_a_seed_and_are_replicated_once() -> None:
    scheduler = decide(9, 2, num_trials=2)
    values = scheduler.propose().values
    assert scheduler.adopt(values).number == 1
    for number in range(2):
        scheduler.rung(number, 10, [(0.8, 0.4)], [])
        scheduler.end(number, "completed")
    assert play_points(scheduler, {0: [[], [(0.7, 0.3)]]}) == [0]


def test_failed_replicate_counts_toward_the_budget_but_not_the_mean() -> None:
    scheduler = decide(9, num_trials=1)
    first = scheduler.ask()
    assert first is not None
    scheduler.rung(0, 10, [(0.8, 0.4)], [])
    scheduler.end(0, "completed")
    for _ in range(2):
        again = scheduler.ask()
        assert again is not None and again.replicate_of == 0
        scheduler.rung(again.number, 10, [(0.1, 0.1)], [])
        scheduler.end(again.number, "failed")
    assert scheduler.ask() is None, "a configuration that keeps failing comes to an end"
    ((mean,),) = (list(points.values()) for points in scheduler.replicates.means(0).values())
    assert (mean.runs, mean.mean) == (1, (0.8, 0.4))


def test_failed_trial_is_not_replicated() -> None:
    scheduler = decide(9, num_trials=2)
    for number, status in ((0, "failed"), (1, "completed")):
        scheduler.ask()
        scheduler.rung(number, 10, [(0.9 - number / 10, 0.4)], [])
        scheduler.end(number, status)  # type: ignore[arg-type]
    again = scheduler.ask()
    assert again is not None and again.replicate_of == 1


def test_replicates_wait_for_trials_and_running_replicates_count() -> None:
    scheduler = decide(3, num_trials=2)
    begun = [scheduler.ask() for _ in range(2)]
    assert [course.number for course in begun if course] == [0, 1]
    scheduler.rung(0, 10, [(0.9, 0.4)], [])
    assert scheduler.ask() is None, "nobody is at rest"
    scheduler.end(0, "completed")
    flying = [scheduler.ask() for _ in range(3)]
    assert [course and course.replicate_of for course in flying] == [0, 0, None], (
        "a third run would be its fourth"
    )
    assert [course and course.run for course in flying] == [1, 2, None]


def test_infeasible_points_are_not_replicated_if_a_feasible_one_exists() -> None:
    def area(front: Sequence[Pair]) -> float:  # as of a goal with a least polarity of 0.75
        met = [pair for pair in front if pair[0] >= 0.75]
        return hypervolume(met, (0.5, 0.2)) if met else max(p for p, _ in front) - 0.75

    for feasible in (True, False):
        replicates = Replicates(9, 2)
        fronts = [(0.60, 0.50), (0.70, 0.45), *([(0.80, 0.40), (0.90, 0.35)] if feasible else [])]
        for number, pair in enumerate(fronts):
            replicates.original(number, number)
            replicates.rung(number, 10, {"plain": pair})
        begun = []
        while (original := replicates.next(lambda _: True, area)) is not None:
            begun.append(original)
            replicates.replicate(10 + len(begun), original)
        assert sorted(begun) == ([2, 3] if feasible else [0, 1])


@pytest.mark.parametrize("policy", POLICIES)
def test_replicates_follow_the_search_and_do_not_change_it(policy: str) -> None:
    plain = Player(make_decisions("tpe", policy), 1).play().events
    scheduler = make_decisions("tpe", policy)
    num_trials = scheduler.num_trials
    scheduler.replicates = Replicates(5, 3)
    events = Player(scheduler, 1).play().events
    assert events[: len(plain)] == plain
    assigned = [number for kind, number, _ in events[len(plain) :] if kind == "ask"]
    assert assigned == list(range(num_trials, num_trials + len(assigned))), (
        "none is revived by a replicate"
    )
    assert 0 < len(assigned) <= 5


def test_replicates_follow_a_plateau() -> None:
    scheduler = decide(2, num_trials=99)
    scheduler.plateau = PlateauConfig(trials=3, growth=0.0)
    assert play_points(scheduler, {number: [[(0.8, 0.4)]] * 3 for number in range(9)}) == [0, 1]
    assert len(scheduler.trials) == 6


# In a sweep.


def test_ledger_has_replicates_with_means_and_spreads(tmp_path: Path) -> None:
    sweep, out = make(tmp_path, **OVERRIDES)
    replicates = play(sweep)
    assert [number for number, _ in replicates] == list(range(12, 12 + len(replicates)))
    assert 0 < len(replicates) <= 9
    results = load(tmp_path)
    stored = read_events(tmp_path / "ledger.jsonl")
    told = {event.trial: event for event in stored if isinstance(event, TrialStarted)}
    for number, original in replicates:
        assert results.trials[number].replicate_of == told[number].replicate_of == original
        assert told[number].config == told[original].config
        steps = [[r.step for r in results.rungs if r.trial == n] for n in (number, original)]
        assert steps[0] == steps[1], "at equal budgets"
        assert results.trials[number].status == ("completed" if len(steps[0]) == 4 else "stopped")
        if len(steps[0]) < 4:
            assert (
                results.trials[number].reason
                == f"reached the last rung of trial {original}, which it repeats"
            )
    assert not {"replicate_of", "run"} & set(told[0].to_json())
    assert {mean.trial for mean in results.means} == {original for _, original in replicates}
    for mean in results.means:
        runs = [mean.trial, *(number for number, original in replicates if original == mean.trial)]
        polarities = [
            (point["polarity"], point["similarity"])
            for point in results.points
            if point.trial in runs
            and (point.step, *point.key) == (mean.step, mean.kind, mean.value)
        ]
        assert len(polarities) == len(runs) == mean.runs
        assert (mean["polarity"], mean["similarity"]) == pytest.approx(np.mean(polarities, axis=0))
        assert [mean.scores[name].std for name in ("polarity", "similarity")] == pytest.approx(
            np.std(polarities, axis=0, ddof=1)
        )
    text = out.getvalue()
    assert f"trial 12: started (replicate of trial {replicates[0][1]}, with another seed)" in text
    assert re.search(rf"{len(replicates)} of at most 9 replicates", line_of(sweep))
    sweep.display.seconds_between_lines = 0.0
    sweep.show()
    assert (
        f"search: 12 of 12 trials started, {len(replicates)} of at most 9 replicates"
        in out.getvalue()
    )


def test_a_run_that_reaches_another_rung_is_averaged_where_it_went(tmp_path: Path) -> None:
    """A replicate that stopped itself early says nothing about later rungs."""
    sweep, _ = make(tmp_path, **{**OVERRIDES, "budget__trials": "1", "replicates__trials": "1"})
    number, config = sweep.assign() or pytest.fail("nothing")
    (tmp_path / "points").mkdir(exist_ok=True)
    for step in (1, 2, 3, 4):
        (tmp_path / "points" / point_name(number, step)).mkdir()
        if sweep.record_rung(number, noisy(config, step, 0)):
            sweep.release(number)
            assigned = sweep.assign()
            if assigned is None or sweep.scheduler.trials[assigned[0]].replicate_of is not None:
                break
    assert assigned is not None and assigned[0] == 1
    reached = sweep.progress.steps_done(0)
    assert reached > 1
    (tmp_path / "points" / point_name(1, 1)).mkdir()
    assert sweep.record_rung(1, {**noisy(config, 1, 1), "stop": "idle for 2 rungs"})
    sweep.release(1)
    sweep.finish("completed", "")
    assert {mean.step for mean in load(tmp_path).means} == {1}
    assert set(sweep.scheduler.proposer.known_trial(0).fronts) == {
        2048 * step for step in range(1, reached + 1)
    }


def test_ledger_is_unchanged_without_replicates(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path / "none", **{**OVERRIDES, "replicates__trials": "0"})
    assert play(sweep) == []
    text = (tmp_path / "none" / "ledger.jsonl").read_text()
    assert "replicate" not in text and '"mean"' not in text and "replicate" not in line_of(sweep)
    with_some, _ = make(tmp_path / "some", **OVERRIDES)
    play(with_some)
    trials, rungs, points, _ = story(tmp_path / "some")
    first = [trial for trial in trials if trial[4] is None]
    assert (
        first,
        [r for r in rungs if r[0] < 12],
        {p for p in points if p.trial < 12},
        (),
    ) == story(tmp_path / "none")


def test_stable_front_leaves_replicates_unused(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, **{**OVERRIDES, "replicates__trials": "500"})
    replicates = play(sweep, scale=0.0)
    front = {(point["polarity"], point["similarity"]) for point in sweep.front}
    on_front = [
        number
        for number, trial in sweep.scheduler.trials.items()
        if number < 12 and front & set(trial.front)
    ]
    assert sorted(original for _, original in replicates) == sorted([*on_front, *on_front])
    assert load(tmp_path).status == "completed"


def test_report_shows_means_and_spreads_of_front_points(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, **OVERRIDES)
    original = dict(play(sweep))
    results = load(tmp_path)
    runs: dict[tuple[object, ...], list[float]] = {}
    for point in results.points:
        if point.trial is not None:
            key = (original.get(point.trial, point.trial), point.step, *point.key)
            runs.setdefault(key, []).append(100 * point["polarity"])
    rows = mean_table(summarize(results)).rows
    assert rows and len(rows) <= len(sweep.front)
    front = {(str(point.trial), str(point.step), kind_name(point)): point for point in sweep.front}
    for trial, step, kind, p, _, count, mean, _ in rows:
        point = front[trial, step, kind]
        polarities = runs[original.get(int(trial), int(trial)), point.step, *point.key]
        assert (p, count) == (f"{100 * point['polarity']:.1f}", str(len(polarities)))
        assert mean == f"{statistics.mean(polarities):.1f} ± {statistics.stdev(polarities):.1f}"
    write.write(tmp_path)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Replicates" in page and rows[0][6] in page
    assert f"<small>of 12, and {len(original)} replicates</small>" in page
    assert page.count("repeats trial") == len(original)
    assert rows[0][6] in (tmp_path / "report" / "front.md").read_text()


def test_failed_replicate_is_excluded_from_the_mean(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, **OVERRIDES)
    replicates = play(sweep, failing=(12, 14))
    results = load(tmp_path)
    assert [t.trial for t in results.trials if t.status == "failed"] == [12, 14]
    runs: dict[int, int] = {}
    for number, original in replicates:
        runs[original] = runs.get(original, 1) + (number not in (12, 14))
    for original, count in runs.items():
        assert {mean.runs for mean in results.means if mean.trial == original} == (
            {count} if count > 1 else set()
        )


def fronts_known_to_the_sampler(scheduler: Scheduler) -> dict[int, dict[int, tuple[Pair, ...]]]:
    """Return the scores by trial of the search, then by examples seen."""
    originals = [number for number, trial in scheduler.trials.items() if trial.replicate_of is None]
    return {number: scheduler.proposer.known_trial(number).fronts for number in originals}


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.recovery
def test_sweep_killed_after_any_event_ends_the_same(tmp_path: Path, adopt: bool) -> None:
    overrides = {**OVERRIDES, "budget__trials": "4", "replicates__trials": "3"}
    whole, _ = make(tmp_path / "whole", **overrides)
    assert len(play(whole, failing=(5,))) == 3
    lines = (tmp_path / "whole" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line) for line in lines]
    # After an adoption the sampler proposes something else, so there the search is to be over.
    first = next(i for i, event in enumerate(kinds) if "replicate_of" in event) if adopt else 1
    for cut_after in range(first, len(lines)):
        folder = tmp_path / f"cut-{cut_after}"
        (folder / "points").mkdir(parents=True)
        (folder / "ledger.jsonl").write_bytes(b"".join(lines[:cut_after]))
        again, _ = assemble(*settings(tmp_path, **overrides), Ledger(folder))
        again.replay(list(read_events(folder / "ledger.jsonl")), adopt=adopt)
        play(again, failing=(5,))
        assert story(folder) == story(tmp_path / "whole"), (
            cut_after,
            kinds[cut_after - 1]["event"],
        )
        known, expected = (fronts_known_to_the_sampler(sweep.scheduler) for sweep in (again, whole))
        assert known == expected


def test_replicates_can_be_raised_on_resume(tmp_path: Path) -> None:
    longer, _ = make(tmp_path / "longer", **OVERRIDES)
    assert len(play(longer)) == 9
    for before in ("0", "4"):
        folder = tmp_path / before
        play(make(folder, **{**OVERRIDES, "replicates__trials": before})[0])
        again, _ = assemble(*settings(tmp_path, **OVERRIDES), Ledger(folder))
        again.replay(list(read_events(folder / "ledger.jsonl")))
        play(again)
        assert story(folder) == story(tmp_path / "longer")


def test_sampler_knows_the_means_of_replicated_trials(tmp_path: Path) -> None:
    play(make(tmp_path, **OVERRIDES)[0])
    again, _ = assemble(
        *settings(tmp_path, **{**OVERRIDES, "budget__trials": "15"}), Ledger(tmp_path)
    )
    again.replay(list(read_events(tmp_path / "ledger.jsonl")))
    (view,) = again.scheduler.proposer.views
    told = {trial.number: trial for trial in view.study.get_trials(deepcopy=False)}
    originals = {mean.trial for mean in load(tmp_path).means}
    for original in originals:
        standings = again.scheduler.replicates.mean_fronts(original)
        worth = {seen: again.scheduler.objective.area(front) for seen, front in standings.items()}
        assert told[view.numbers[original]].intermediate_values == pytest.approx(worth)
    assert len(told) == 12, "a replicate is no trial of the sampler's"
    play(again)
    trials = load(tmp_path).trials
    assert [trial.trial for trial in trials] == list(range(len(trials)))
    assert sum(trial.replicate_of is None for trial in trials) == 15


def test_budget_interrupts_replicates(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, **OVERRIDES)
    while (assigned := sweep.assign()) is not None:
        number, config = assigned
        if (
            sweep.scheduler.trials[number].replicate_of is not None
            and sweep.progress.num_rungs[number] > 1
        ):
            break
        for step in range(sweep.progress.steps_done(number) + 1, 5):
            (tmp_path / "points" / point_name(number, step)).mkdir()
            if sweep.record_rung(number, noisy(config, step, sweep.scheduler.trials[number].run)):
                break
        sweep.release(number)
    sweep.costs.budget = sweep.costs.budget.model_copy(update={"cpu_hours": 1e-12})
    sweep.costs.total.cpu_seconds = 1.0
    (tmp_path / "points" / point_name(number, 1)).mkdir()
    assert sweep.record_rung(number, noisy(config, 1, 1))
    sweep.release(number)
    assert sweep.assign() is None
    assert sweep.cause is not None
    sweep.finish("budget", sweep.cause.reason)
    assert load(tmp_path).trials[number].status == "interrupted"
    again, _ = assemble(*settings(tmp_path, **OVERRIDES), Ledger(tmp_path))
    again.replay(list(read_events(tmp_path / "ledger.jsonl")))
    assert (again.assign() or pytest.fail("nothing"))[0] == number, "it goes on first"


def test_study_file_has_originals_of_replicates(tmp_path: Path) -> None:
    import optuna

    replicates = play(make(tmp_path, **OVERRIDES)[0])
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    trials = optuna.load_study(
        study_name="s", storage=optuna.storages.JournalStorage(backend)
    ).trials
    marked = [(trial.number, trial.user_attrs.get("replicate_of")) for trial in trials]
    assert [pair for pair in marked if pair[1] is not None] == replicates
    assert [trial.user_attrs["status"] for trial in trials] == [
        trial.status for trial in load(tmp_path).trials
    ]
    for number, original in replicates:
        assert trials[number].params == trials[original].params


def test_tables_and_warm_starts_use_means_once_per_configuration(tmp_path: Path) -> None:
    config, space = settings(tmp_path, **OVERRIDES)
    play(make(tmp_path, **OVERRIDES)[0])
    results = load(tmp_path)
    means = {(mean.trial, mean.step, mean.kind, mean.value): mean for mean in results.means}
    averages = {(p.trial, p.step, p.kind, p.value): p for p in averaged(results)}
    assert set(means) <= set(averages) and {key[0] for key in averages} == set(range(12))
    for key, mean in means.items():
        assert (averages[key]["polarity"], averages[key]["similarity"]) == (
            mean["polarity"],
            mean["similarity"],
        )
        assert averages[key]["retention"] == pytest.approx(mean["similarity"] / REFERENCE[1])
    frame = recording_files.to_frame(results)
    assert set(frame["trial"]) == set(range(12))
    assert not {"seed", "run", "replicate_of"} & {*frame, *varied_parameters(results.trials)}
    for name in varied_parameters(results.trials):
        types = {type(trial.config.get(name)) for trial in results.trials} - {type(None)}
        assert (frame[name].dtype == "Int64") == (types == {int}), name
    mean = results.means[0]
    row = frame[(frame["trial"] == mean.trial) & (frame["examples_seen"] == 2048 * mean.step)]
    assert row[row["kind"] == mean.kind]["polarity"].item() == pytest.approx(
        mean["polarity"], abs=1e-6
    )
    reference = {
        "trial": None,
        "step": None,
        "kind": "reference",
        "value": None,
        "split": "dev",
        "width": 1,
    }
    scores = {
        "polarity": 0.6,
        "polarity_std": 0.1,
        "similarity": 0.47,
        "similarity_std": 0.1,
        "retention": 1.0,
    }
    ledger = Ledger(tmp_path)
    ledger.append(PointsScored.from_json({"points": [{**reference, **scores}]}))
    ledger.close()
    lesson = warm_start.gather([load(tmp_path)], space, REFERENCE, GOALS)
    assert len(lesson.observations) == 12
    assert config.replicates.runs == 3


def test_each_run_has_its_own_seed() -> None:
    config = TrialConfig(loss="margin_mse", learning_rate=1e-4)
    assert len({trial_seed(0, config, run) for run in range(5)}) == 5
    assert trial_seed(0, config, 0) == trial_seed(0, config)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ({"replicates__trials": "-1"}, r"replicates\.trials is -1; allowed: "),
        ({"replicates__trials": "1.5"}, r"replicates\.trials is 1\.5; allowed: "),
        ({"replicates__runs": "1"}, r"replicates\.runs is 1; allowed: "),
        ({"replicates__seeds": "3"}, r"replicates\.seeds: unknown key; allowed: runs, trials"),
        ({"replicates": "3"}, r"replicates is 3; allowed: a mapping of trials, runs"),
    ],
)
def test_invalid_replicates_are_rejected(
    tmp_path: Path, override: dict[str, str], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        read(tmp_path, MINIMAL, **override)


def test_replicates_may_change_on_resume(tmp_path: Path) -> None:
    import yaml

    config, _ = settings(tmp_path)
    play(make(tmp_path)[0])
    change_settings(tmp_path, yaml.safe_dump(config.model_dump(mode="json")))
    (tmp_path / "prepared.json").touch()
    ledger = Ledger(tmp_path)
    ledger.append(PointsScored(points=()))
    ledger.close()
    after, resumed = load_resumed(
        tmp_path, None, [("replicates.trials", "7"), ("replicates.runs", "4")]
    )
    assert (after.config.replicates.trials, after.config.replicates.runs) == (7, 4)
    resumed.ledger.close()
    with pytest.raises(InputError, match="^--guards: the name polarity is reserved"):
        load_resumed(tmp_path, None, [("guards", "{polarity: {kind: sts, pairs: x.tsv}}")])
    with pytest.raises(InputError, match=r"allowed changes: .*replicates"):
        load_resumed(tmp_path, None, [("replicates.trials", "7"), ("seed", "3")])
