"""Decisions of a sweep on simulated rungs, without Ray or an encoder."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from raysweep.config.trial import trial_config
from raysweep.controller.failures import Blame, Loss
from raysweep.controller.progress import Verdict
from raysweep.controller.status import Activity
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.ray_tune.run import ending_of
from raysweep.results.events import TrialPaused, TrialResumed
from raysweep.results.ledger import Ledger, checkpoint_folder, point_folder, point_name, read_events
from raysweep.results.reader import load
from raysweep.results.types import RungProgress, TrialStatus
from raysweep.search.scheduler import make_scheduler
from raysweep.terminal import duration
from support.paths import TESTS
from support.sweeps import REFERENCE, assemble, make, play, rung, settings


def test_ledger_has_each_trial_once_with_its_end(tmp_path: Path) -> None:
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
        assert "not in the top 1/2" in trial.reason or trial.reason == "all 4 rungs are done"
        assert trial.gpu_seconds == pytest.approx(trial.seconds / 2)
        assert trial.cpu_seconds == pytest.approx(trial.seconds * 2)
    assert results.status == "completed"


def test_only_weights_of_the_front_are_kept(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    play(sweep)
    front = {
        point_name(p.trial, p.step)
        for p in sweep.front
        if p.trial is not None and p.step is not None
    }
    assert {path.name for path in (tmp_path / "points").iterdir()} == front


def test_configurations_depend_on_the_seed_only(tmp_path: Path) -> None:
    runs = [
        play(make(tmp_path / name, seed=seed)[0])
        for name, seed in (("a", "0"), ("b", "0"), ("c", "1"))
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_sweep_continues_after_a_failed_trial(tmp_path: Path) -> None:
    sweep, out = make(tmp_path)
    number, _ = sweep.assign() or pytest.fail("no trial")
    sweep.release(number, failure="the loss became nan in rung 1")
    play(sweep)
    results = load(tmp_path)
    assert (results.trials[0].status, results.trials[0].reason) == (
        "failed",
        "the loss became nan in rung 1",
    )
    assert len(results.trials) == 12
    assert "reason=the loss became nan" in out.getvalue()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("polarity", float("nan"), "polarity is nan"),
        ("similarity", float("inf"), "similarity is inf"),
        ("polarity", None, "polarity is missing"),
        ("retention", "0.5", "retention is '0.5'"),
        ("polarity", 63.0, "P is 63.0"),
    ],
)
def test_invalid_scores_fail_the_trial_and_are_not_recorded(
    tmp_path: Path, key: str, value: object, problem: str
) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.assign() or pytest.fail("no trial")
    bad = rung(config, 1)
    bad["points"][0][key] = value
    assert sweep.record_rung(number, bad)
    sweep.release(number)
    results = load(tmp_path)
    assert results.rungs == ()
    assert results.trials[0].status == "failed"
    assert f"rung 1: {problem}" in results.trials[0].reason


def test_interrupted_trials_keep_their_rungs(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.assign() or pytest.fail("no trial")
    sweep.record_rung(number, rung(config, 1))
    sweep.finish("interrupted", "Ctrl-C or a signal")
    results = load(tmp_path)
    assert (results.status, results.trials[0].status, len(results.rungs)) == (
        "interrupted",
        "interrupted",
        1,
    )


def test_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.assign() or pytest.fail("no trial")
    sweep.record_rung(number, rung(config, 1))
    whole = load(tmp_path)
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write(json.dumps({"event": "rung", "trial": number})[:20])
    assert load(tmp_path) == whole


def test_trial_with_a_checkpoint_ahead_of_the_ledger_fails(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.assign() or pytest.fail("no trial")
    assert not sweep.record_rung(number, rung(config, 1))
    assert sweep.record_rung(number, rung(config, 3))
    sweep.release(number)
    (trial,) = load(tmp_path).trials
    assert (trial.status, len(load(tmp_path).rungs)) == ("failed", 1)
    assert trial.reason == "its checkpoint resumes at rung 3, but its last rung in the ledger is 1"


def test_sweep_stops_on_a_ledger_write_error_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = {"early_stopping__policy": "none"}
    sweep, _ = make(tmp_path, **overrides)
    number, config = sweep.assign() or pytest.fail("no trial")
    assert not sweep.record_rung(number, rung(config, 1))
    (
        tmp_path / "points" / point_name(number, 7)
    ).mkdir()  # of no rung on the front; the end of a sweep removes it

    def fail(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(InputError, match="No space left on device"):
        sweep.record_rung(number, rung(config, 2))
    monkeypatch.undo()
    sweep.finish("failed", "no room")
    assert (tmp_path / "points" / point_name(number, 7)).is_dir()
    again, _ = assemble(*settings(tmp_path, **overrides), Ledger(tmp_path))
    again.replay(list(read_events(tmp_path / "ledger.jsonl")))
    assert again.assign() == (number, config)
    assert not again.record_rung(number, rung(config, 2))


def test_time_budget_interrupts_trials_at_their_next_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(tmp_path, budget__minutes="0.001", early_stopping__policy="none")
    number, config = sweep.assign() or pytest.fail("no trial")
    now[0] += 60
    assert sweep.record_rung(number, rung(config, 1))
    sweep.release(number)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("interrupted", "budget.minutes=0.001 is used up")
    assert sweep.assign() is None
    assert sweep.cause == ("budget.minutes", trial.reason, 0.001)
    sweep.finish("budget", trial.reason)
    assert load(tmp_path).limit == {"budget.minutes": 0.001}


@pytest.mark.parametrize("minutes", ["null", "1.5"])
def test_scoring_on_test_prints_that_it_is_not_in_the_budget(minutes: str, tmp_path: Path) -> None:
    sweep, out = make(tmp_path, budget__minutes=minutes)
    sweep.begin_stage("test", 7)
    assert ("budget.minutes 1.5 covers only the search" in out.getvalue()) == (minutes != "null")
    sweep.ledger.close()


def test_time_off_the_clock_does_not_count_toward_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds for a resumed session."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(tmp_path, early_stopping__policy="none")
    number, config = sweep.assign() or pytest.fail("no trial")
    now[0] += 60
    sweep.record_rung(number, rung(config, 1))
    with sweep.off_the_clock():
        now[0] += 1000
        assert sweep.seconds == 60, "for events within"
    assert sweep.seconds == 60
    sweep.finish("budget", "")
    again, _ = assemble(*settings(tmp_path), Ledger(tmp_path))
    again.replay(list(read_events(tmp_path / "ledger.jsonl")))
    assert again.seconds == pytest.approx(60)


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [
        ({"budget__minutes": "11"}, 11),
        ({"budget__cpu_hours": "0.35"}, 10.5),  # a trial holds 2 CPUs
        ({"budget__gpu_hours": "0.11"}, 13.2),  # and half a GPU
        # and so a quarter of a big node
        (
            {"budget__money": "0.39", "budget__prices": "{big: 8.0, default: 99.0}"},
            11.7,
        ),
    ],
)
def test_each_budget_stops_the_sweep_within_one_rung(
    tmp_path: Path, limit: dict[str, str], minutes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rung takes a simulated minute, alone on its node."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(tmp_path, budget__trials="99", early_stopping__policy="none", **limit)
    done = 0
    while (assigned := sweep.assign()) is not None:
        number, config = assigned
        sweep.place(number)
        for step in range(1, 5):
            now[0] += 60
            done += 1
            (sweep.run.path / "points" / point_name(number, step)).mkdir()
            if sweep.record_rung(
                number, {**rung(config, step), "node": {"type": "big", "cpus": 8, "gpus": 4}}
            ):
                break
        sweep.release(number)
    assert sweep.cause is not None
    assert sweep.cause.key.replace(".", "__") in limit
    sweep.finish("budget", sweep.cause.reason)
    assert minutes <= done < minutes + 1
    trials = load(tmp_path).trials
    assert (
        sum(trial.seconds for trial in trials)
        == pytest.approx(sweep.costs.total.seconds)
        == 60 * done
    )
    assert sum(trial.money for trial in trials) == pytest.approx(sweep.costs.total.money)
    if "budget__money" in limit:
        assert sweep.costs.total.money == pytest.approx(done / 60 * 2)


@pytest.mark.parametrize(("num_trials", "status"), [(2, "completed"), (3, "budget")])
def test_limit_reached_at_the_last_rung_does_not_end_the_sweep_early(
    tmp_path: Path, num_trials: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trials of four rungs, each of a simulated minute on 2 CPUs, spend 16 CPU-minutes."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(
        tmp_path,
        budget__trials=str(num_trials),
        budget__cpu_hours=str(15.9 / 60),
        early_stopping__policy="none",
    )
    while (assigned := sweep.assign()) is not None:
        number, config = assigned
        sweep.place(number)
        for step in range(1, 5):
            now[0] += 60
            sweep.record_rung(number, rung(config, step))
        sweep.release(number)
    assert sweep.cause is not None and sweep.cause.key == "budget.cpu_hours"
    assert ending_of(sweep).status == status


def test_money_budget_requires_prices(tmp_path: Path) -> None:
    from raysweep.errors import InputError

    with pytest.raises(InputError, match="budget: money.*prices"):
        make(tmp_path, budget__money="3")


def test_grid_runs_each_combination_once(tmp_path: Path) -> None:
    config, space = settings(tmp_path, "published_grid", budget__trials="99")
    scheduler = make_scheduler(config, space, REFERENCE)
    assert scheduler.num_trials == 17
    drawn = [trial_config(dict(scheduler.propose().values)) for _ in range(17)]
    assert len(set(drawn)) == 17


@pytest.mark.parametrize("sampler", ["mfgp", "tpe"])
def test_samplers_learn_from_reported_scores(tmp_path: Path, sampler: str) -> None:
    sweep, _ = make(tmp_path, budget__trials="60", early_stopping__policy="none", sampler=sampler)
    configs = play(sweep)
    late = [abs(_log10(config.learning_rate) + 4) for config in configs[-20:]]
    early = [abs(_log10(config.learning_rate) + 4) for config in configs[:10]]
    assert sum(late) / len(late) < sum(early) / len(early) / 2


def _log10(value: float) -> float:
    import math

    return math.log10(value)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (75, "1:15"), (3600, "1:00:00"), (3725.4, "1:02:05")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_repeated_rung_counts_once(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.assign() or pytest.fail("nothing proposed")
    for step in (1, 1, 2, 1, 2, 3):
        (sweep.run.path / "points" / point_name(number, step)).mkdir(exist_ok=True)
        sweep.record_rung(number, rung(config, step))
    sweep.release(number)
    sweep.finish("completed", "")
    assert [rung.step for rung in load(tmp_path).rungs] == [1, 2, 3]


def test_self_stopped_trial_keeps_its_reason_and_no_checkpoint(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number, config = sweep.assign() or pytest.fail("nothing proposed")
    (sweep.run.path / "points" / point_name(number, 1)).mkdir()
    checkpoint = sweep.run.path / "checkpoints" / f"trial-{number:04d}" / "000000064"
    checkpoint.mkdir(parents=True)
    assert sweep.record_rung(number, {**rung(config, 1), "stop": "idle for 2 rungs"})
    sweep.release(number)
    assert not checkpoint.parent.exists()
    sweep.finish("completed", "")
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("stopped", "idle for 2 rungs")


def test_weights_beyond_the_limit_are_removed_with_a_warning(tmp_path: Path) -> None:
    sweep, out = make(tmp_path, storage__max_gib="0.000001")
    number, config = sweep.assign() or pytest.fail("nothing proposed")
    for step in (1, 2, 3):
        place = sweep.run.path / "points" / point_name(number, step)
        place.mkdir()
        (place / "trained.safetensors").write_bytes(bytes(1000))
        sweep.record_rung(number, rung(config, step))
    assert len(sweep.front) == 3
    assert len(sweep.kept_front()) == 1
    assert "weights removed (point=0:" in out.getvalue()


def _store(folder: Path, name: str, num_bytes: int) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "tensors").write_bytes(bytes(num_bytes))


@pytest.mark.parametrize("end", ["", "interrupted", "budget"])
def test_checkpoints_of_running_trials_do_not_count_toward_the_limit(
    end: str, tmp_path: Path
) -> None:
    """Neither do those of trials interrupted by a lost node or the sweep's end, which need them to resume."""
    sweep, out = make(tmp_path, storage__max_gib=str(9000 / 2**30))
    running = [sweep.assign() or pytest.fail("nothing proposed") for _ in range(3)]
    for number, _ in running:
        _store(tmp_path, checkpoint_folder(number), 10**6)
    sweep.lose(running[2][0], Loss(Blame.NODE, "its node went away"))
    number, config = running[0]
    for step in (1, 2, 3):
        _store(tmp_path, point_folder(number, step), 1000)
        sweep.record_rung(number, rung(config, step))
    if end:
        sweep.finish(end, "")
    assert len(sweep.kept_front()) == len(sweep.front) == 3
    assert all(
        (tmp_path / checkpoint_folder(number) / "tensors").is_file() for number, _ in running
    )
    assert "storage.max_gib" not in out.getvalue()


@pytest.mark.parametrize("at_end", [False, True])
def test_paused_trials_end_before_weights_of_the_front_are_removed(
    at_end: bool, tmp_path: Path
) -> None:
    sweep, _ = make(tmp_path, storage__max_gib=str(9000 / 2**30))
    while not (
        paused := [trial.trial for trial in load(tmp_path).trials if trial.status == "paused"]
    ):
        number, config = sweep.assign() or pytest.fail("nothing proposed")
        step = 1
        while not sweep.record_rung(number, rung(config, step)):
            step += 1
        sweep.release(number)
    _store(tmp_path, checkpoint_folder(paused[0]), 10**6)
    number, config = sweep.assign() or pytest.fail("nothing proposed")
    assert number not in paused
    _store(tmp_path, point_folder(number, 1), 1000)
    sweep.finish("budget", "") if at_end else sweep.record_rung(number, rung(config, 1))
    (ended,) = [trial for trial in load(tmp_path).trials if trial.trial == paused[0]]
    assert (ended.status, "storage.max_gib" in ended.reason) == ("stopped", True)
    assert not (tmp_path / checkpoint_folder(paused[0])).exists()


def test_resumed_sweep_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, _ = make(tmp_path / "whole")
    expected = play(whole)
    for cut_after in (1, 3, 7, 12, 20):
        folder = tmp_path / str(cut_after)
        sweep, _ = make(folder)
        _play_some(sweep, cut_after)
        sweep.ledger.close()  # the driver is gone, with no word of farewell
        again, _ = assemble(*settings(tmp_path), Ledger(folder))
        again.replay(list(read_events(folder / "ledger.jsonl")))
        assert play(again) == expected
        assert _story(load(folder)) == _story(load(tmp_path / "whole"))


@pytest.mark.parametrize("cut_after", [3, 7, 12, 20])
def test_verdict_survives_an_interruption_before_the_trial_leaves(
    cut_after: int, tmp_path: Path
) -> None:
    """Ctrl-C charges every trial on a worker and logs it as interrupted."""
    whole, _ = make(tmp_path / "whole")
    expected = play(whole)
    sweep, _ = make(tmp_path / "run")
    _play_some(sweep, cut_after, rest=False)
    sweep.finish("interrupted", "Ctrl-C")
    again, _ = assemble(*settings(tmp_path), Ledger(tmp_path / "run"))
    again.replay(list(read_events(tmp_path / "run" / "ledger.jsonl")))
    assert play(again) == expected
    assert _story(load(tmp_path / "run")) == _story(load(tmp_path / "whole"))


def _play_some(sweep: Sweep, num_rungs: int, *, rest: bool = True) -> None:
    """Play N rungs; without ``rest``, the trial of the last rung does not leave its worker."""
    while (assigned := sweep.assign()) is not None:
        number, config = assigned
        for step in range(sweep.progress.steps_done(number) + 1, 5):
            if not num_rungs:
                return
            num_rungs -= 1
            (sweep.run.path / "points" / point_name(number, step)).mkdir()
            if sweep.record_rung(number, rung(config, step)):
                break
        if not num_rungs and not rest:
            return
        sweep.release(number)


def _story(results: Any) -> Any:
    trials = [(t.trial, dict(t.config), t.status, t.reason) for t in results.trials]
    return (
        trials,
        sorted((r.trial, r.step, r.examples_seen) for r in results.rungs),
        set(results.points),
    )


def play_among(
    sweep: Sweep, num_workers: int, folder: Path
) -> list[tuple[int, int | None, int | None]]:
    """Noisy trials on several workers; how long the ledger was before each rung, and what was to be revived then."""
    noise = np.random.default_rng(7).normal(0, 0.02, (1000, 5, 2))
    turns = np.random.default_rng(len(sweep.scheduler.trials))
    running: list[int] = []
    moments = []
    while True:
        while len(running) < num_workers and (assigned := sweep.assign()) is not None:
            running.append(assigned[0])
        if not running:
            return moments
        moments.append((sum(1 for _ in read_events(folder / "ledger.jsonl")), *revivals(sweep)))
        number = running[int(turns.integers(len(running)))]
        step = sweep.progress.steps_done(number) + 1
        event = rung(sweep.progress.configs[number], step)
        for name, value in zip(
            ("polarity", "similarity"), noise[number, step].tolist(), strict=True
        ):
            event["points"][0][name] += value
        (folder / "points" / point_name(number, step)).mkdir(exist_ok=True)
        if sweep.record_rung(number, event):
            running.remove(number)
            sweep.release(number)


def revivals(sweep: Sweep) -> tuple[int | None, int | None]:
    early_stopper = sweep.scheduler.early_stopper
    return early_stopper.next_to_resume(True), early_stopper.next_to_resume(False)


@pytest.mark.parametrize("policy", ["growth", "pareto", "asha", "median"])
@pytest.mark.parametrize("num_workers", [1, 8])
@pytest.mark.recovery
def test_replay_restores_the_state_from_any_prefix_of_the_ledger(
    policy: str, num_workers: int, tmp_path: Path
) -> None:
    """The ledger may end anywhere, and the sweep may have had fewer trials."""
    overrides = {"early_stopping__policy": policy, "sampler": "random", "budget__trials": "36"}
    overrides |= {"space__examples_per_rung": "2048", "early_stopping__first_examples": "2048"}
    sweep, _ = make(tmp_path, **overrides)
    told = verdicts(sweep)
    moments = play_among(sweep, num_workers, tmp_path)
    sweep.ledger.close()
    stored = list(read_events(tmp_path / "ledger.jsonl"))

    def replayed(
        name: str, length: int, num_trials: str = "36"
    ) -> tuple[Sweep, list[tuple[int, str | None]]]:
        folder = tmp_path / name
        folder.mkdir()
        again, _ = assemble(
            *settings(tmp_path, **{**overrides, "budget__trials": num_trials}), Ledger(folder)
        )
        anew = verdicts(again)
        again.replay(stored[:length])
        return again, anew

    for num_trials in ("36", "54"):
        assert replayed(num_trials, len(stored), num_trials)[1] == told
    for length, *revived in moments[:: max(1, len(moments) // 12)]:
        again, anew = replayed(f"first-{length}", length)
        assert anew == told[: len(anew)]
        assert list(revivals(again)) == revived


def verdicts(sweep: Sweep) -> list[tuple[int, str | None]]:
    """Record the scheduler's decisions after each rung, by trial."""
    told: list[tuple[int, str | None]] = []
    rung_of = sweep.scheduler.rung

    def noted(number: int, *rest: Any) -> str | None:
        told.append((number, rung_of(number, *rest)))
        return told[-1][1]

    sweep.scheduler.rung = noted  # type: ignore[method-assign]
    return told


def test_trials_added_on_resume_equal_those_of_a_longer_sweep(tmp_path: Path) -> None:
    policy = {"early_stopping__policy": "none"}
    longer = play(make(tmp_path / "longer", budget__trials="20", **policy)[0])
    play(make(tmp_path / "run", **policy)[0])
    again, _ = assemble(
        *settings(tmp_path, budget__trials="20", **policy), Ledger(tmp_path / "run")
    )
    again.replay(list(read_events(tmp_path / "run" / "ledger.jsonl")))
    assert play(again) == longer
    assert [trial.trial for trial in load(tmp_path / "run").trials] == list(range(20))


def test_larger_space_keeps_trials_and_proposes_new_values(tmp_path: Path) -> None:
    play(make(tmp_path / "run")[0])
    wider = {"budget__trials": "24", "space__learning_rate": "{low: 5e-7, high: 3e-4, log: true}"}
    again, _ = assemble(*settings(tmp_path, **wider), Ledger(tmp_path / "run"))
    before = load(tmp_path / "run")
    again.replay(list(read_events(tmp_path / "run" / "ledger.jsonl")), adopt=True)
    configs = play(again)
    assert [trial_config(dict(trial.config)) for trial in before.trials] == configs[:12]
    assert len(set(configs)) == 24


def test_paused_trial_resumes_at_its_last_rung(tmp_path: Path) -> None:
    sweep, out = make(
        tmp_path, space__examples_per_rung="2048", early_stopping__first_examples="2048"
    )
    play(sweep)
    stored = list(read_events(tmp_path / "ledger.jsonl"))
    revivals = [event for event in stored if isinstance(event, TrialResumed)]
    assert revivals
    for number in {event.trial for event in revivals}:
        paused = next(
            i
            for i, event in enumerate(stored)
            if isinstance(event, TrialPaused) and event.trial == number
        )
        revived = next(
            i for i, event in enumerate(stored) if event in revivals and event.trial == number
        )
        assert paused < revived
        steps = [r.step for r in load(tmp_path).rungs if r.trial == number]
        assert steps == list(range(1, len(steps) + 1))
    assert "resumed at rung" in out.getvalue()
    assert sweep.status().text.endswith(" so far"), (
        "once all are begun, nobody foretells how long paused trials go on"
    )


def test_plateau_ends_the_search(tmp_path: Path) -> None:
    sweep, _ = make(
        tmp_path, early_stopping__plateau="{trials: 3, growth: 0.5}", budget__trials="99"
    )
    configs = play(sweep)
    assert sweep.scheduler.on_plateau
    assert 4 <= len(configs) < 40


def test_search_is_not_done_while_a_trial_may_start_or_resume(tmp_path: Path) -> None:
    """Otherwise, a plateau did not end the search early."""
    sweep, _ = make(
        tmp_path,
        budget__trials="2",
        space__examples_per_rung="2048",
        early_stopping__first_examples="2048",
    )
    scheduler = sweep.scheduler
    for number, polarity in enumerate((0.7, 0.9)):
        assert scheduler.has_more
        assert (course := scheduler.ask()) is not None and course.number == number
        assert (scheduler.rung(number, 2048, [(polarity, 0.4)], [4096]) is None) == (number == 1)
    assert not scheduler.has_more, "the second goes on; of two the first is not the better half"
    scheduler.pause(0)
    scheduler.end(1, "failed")
    assert not scheduler.has_more
    sweep, _ = make(tmp_path / "other", budget__trials="1", early_stopping__policy="growth")
    scheduler = sweep.scheduler
    assert scheduler.ask() is not None
    scheduler.rung(0, 2048, [(0.7, 0.4)], [4096])
    scheduler.pause(0)
    assert scheduler.has_more, "paused, and nothing else to run"


def test_constraints_change_the_best_trials(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, objective__constraints="{polarity: 0.7, retention: 0.9}")
    objective = sweep.scheduler.objective
    assert objective.min_similarity == pytest.approx(0.9 * REFERENCE[1])
    assert (
        objective.best_value([(0.69, 0.47), (0.9, 0.3)]) < 0 < objective.best_value([(0.71, 0.43)])
    )
    assert objective.best_point([(0.69, 0.47), (0.71, 0.43), (0.9, 0.3)]) == (0.71, 0.43)
    assert objective.area([(0.69, 0.47)]) == pytest.approx(-0.01)


def test_status_shows_progress_within_rungs(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    (one, config), (two, _) = (sweep.assign() or pytest.fail("no trial") for _ in range(2))
    assert "examples/s" not in sweep.status().text
    sweep.record_progress(one, RungProgress(1, 1280, 4096, 38.4))
    assert "rung 1: 1,280 of 4,096, 38 examples/s, 1:13 left" in sweep.status().text
    sweep.record_progress(two, RungProgress(3, 4000, 4096, 9.6))
    assert "2 rungs under way, 48 examples/s, the first finishes in 0:10" in sweep.status().text
    sweep.record_rung(one, rung(config, 1))
    assert "rung 3: 4,000 of 4,096, 9.6 examples/s, 0:10 left" in sweep.status().text
    sweep.release(two, failure="it died")
    assert "examples/s" not in sweep.status().text


def test_status_shows_rungs_in_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(tmp_path)
    number, config = sweep.assign() or pytest.fail("no trial")

    def activity() -> Activity:
        return sweep.status().running[0].activity

    sweep.note_activity(number, Activity.LOADING, 0.0)
    assert activity() == Activity.WAITING, "it has no worker yet"
    sweep.place(number)
    now[0] += 5
    sweep.note_activity(number, Activity.LOADING, 2.0)
    assert activity() == Activity.LOADING
    now[0] += 25
    sweep.record_progress(number, RungProgress(1, 4000, 4096, 40.0))
    assert activity() == Activity.TRAINING
    now[0] += 2
    sweep.note_activity(number, Activity.LOADING, 3.0)
    assert activity() == Activity.TRAINING, "the news is from before its report"
    now[0] += 8
    sweep.note_activity(number, Activity.EVALUATING, 3.0)
    assert activity() == Activity.EVALUATING
    assert f"trial {number} evaluating rung 1" in sweep.status().text
    sweep.record_rung(number, rung(config, 1))
    sweep.note_activity(number, Activity.EVALUATING, 1.0)
    assert activity() == Activity.TRAINING, "the news is from before the end of the rung"
    running = sweep.status().running[0]
    assert (running.step, running.num_rungs, running.previous_seconds) == (2, 4, 40.0)


def test_time_left_counts_down_once_all_trials_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(tmp_path, budget__trials="1", early_stopping__policy="none")
    number, config = sweep.assign() or pytest.fail("no trial")
    sweep.place(number)
    now[0] += 100
    sweep.record_rung(number, rung(config, 1))
    assert sweep.status().text.endswith("about 5:00 left"), "three of four rungs"
    now[0] += 40
    sweep.record_progress(number, RungProgress(2, 1024, 4096, 1000.0))
    assert sweep.status().text.endswith("about 4:20 left")


@pytest.mark.parametrize(
    ("limit", "value"), [("cpu_hours", "1"), ("gpu_hours", "0.25"), ("minutes", "30")]
)
def test_time_left_is_bounded_by_each_limit(
    limit: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial has 2 CPUs and half a GPU, so each limit allows 30 minutes of a single trial."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(tmp_path, early_stopping__policy="none", **{f"budget__{limit}": value})
    number, config = sweep.assign() or pytest.fail("no trial")
    sweep.place(number)
    now[0] += 600
    sweep.record_rung(number, rung(config, 1))
    assert sweep.status().text.endswith("about 20:00 left")


def test_two_processes_cannot_run_one_sweep(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    with pytest.raises(InputError, match="another process is running this sweep"):
        Ledger(tmp_path).open()
    sweep.ledger.close()
    Ledger(tmp_path).open()


def test_study_file_has_the_state_of_each_trial(tmp_path: Path) -> None:
    play(make(tmp_path)[0])
    study, pairs = load_studies(tmp_path)
    trials = load(tmp_path).trials
    assert {trial.status for trial in trials} == {"completed", "stopped"}
    for stored in (study, pairs):
        assert {trial.state.name for trial in stored.trials} == {"COMPLETE"}
        assert [trial.user_attrs["status"] for trial in stored.trials] == [
            trial.status for trial in trials
        ]
    assert (
        pairs.metric_names == ["P", "S"]
        and [direction.name for direction in pairs.directions] == ["MAXIMIZE"] * 2
    )
    for trial, pair in zip(study.trials, pairs.trials, strict=True):
        points = [point for point in load(tmp_path).points if point.trial == trial.number]
        best = max(points, key=lambda point: point["polarity"] + point["similarity"])
        assert pair.values == pytest.approx([best["polarity"], best["similarity"]])
        assert pair.params == trial.params
    completed = [trial for trial in study.trials if trial.user_attrs["status"] == "completed"]
    assert {len(trial.intermediate_values) for trial in completed} == {4}


def load_studies(folder: Path) -> list[optuna.Study]:
    """Return the studies of a run's file: that of the sampler's values, and that of P and S if it is another."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.journal"))
    storage = optuna.storages.JournalStorage(backend)
    return [
        optuna.load_study(study_name=name, storage=storage)
        for name in optuna.get_all_study_names(storage)
    ]


@pytest.mark.parametrize("status", ["budget", "interrupted"])
def test_paused_and_interrupted_trials_are_complete_in_the_study_once_the_sweep_ends(
    status: str, tmp_path: Path
) -> None:
    sweep, _ = make(tmp_path, budget__trials="4", early_stopping__policy="none")
    # the last one ends without a rung
    configs = dict(sweep.assign() or pytest.fail("no trial") for _ in range(4))
    for number, verdict in enumerate((TrialStatus.PAUSED, TrialStatus.INTERRUPTED)):
        sweep.record_rung(number, rung(configs[number], 1))
        sweep.assignments[number].verdict = Verdict(verdict, "for this test")
        sweep.release(number)
    sweep.release(2, failure="it broke")
    study, _ = load_studies(tmp_path)
    assert [trial.state.name for trial in study.trials] == ["RUNNING", "RUNNING", "FAIL", "RUNNING"]
    sweep.finish(status, "")
    for stored in load_studies(tmp_path):
        assert [trial.state.name for trial in stored.trials] == [
            "COMPLETE",
            "COMPLETE",
            "FAIL",
            "PRUNED",
        ]
        statuses = [trial.user_attrs["status"] for trial in stored.trials]
        assert statuses == ["paused", "interrupted", "failed", "interrupted"]


@pytest.mark.parametrize(
    ("aim", "names"), [("front", [["hypervolume"], ["P", "S"]]), ("both", [["P", "S"]])]
)
def test_a_sampler_of_both_goals_has_a_single_study(
    aim: str, names: list[list[str]], tmp_path: Path
) -> None:
    sweep, _ = make(tmp_path, sampler="random", objective__proposals=aim)
    assert [study.metric_names for study in load_studies(tmp_path)] == names
    sweep.ledger.close()


def test_study_file_has_constraints_in_optunas_format(tmp_path: Path) -> None:
    constraints = {
        "objective__constraints__polarity": "0.74",
        "objective__constraints__retention": "0.95",
    }
    sweep, _ = make(tmp_path, early_stopping__policy="none", **constraints)
    play(sweep)
    study, _ = load_studies(tmp_path)
    results = load(tmp_path)
    are_feasible = set()
    for trial in study.trials:
        points = [point for point in results.points if point.trial == trial.number]
        # The best point is feasible or has the smallest total shortfall.
        missed = [
            (max(0, 0.74 - p["polarity"]), max(0, 0.95 * REFERENCE[1] - p["similarity"]))
            for p in points
        ]
        polarity, similarity = trial.system_attrs["constraints"]  # the key that the dashboard reads
        assert max(0, polarity) + max(0, similarity) == pytest.approx(min(map(sum, missed)))
        assert list(trial.constraints.values()) == [polarity, similarity]
        assert trial.user_attrs["constraints on"] == ["P", "S"]
        are_feasible.add(max(polarity, similarity) <= 0)
    assert are_feasible == {True, False}
    feasible = [trial for trial in study.trials if max(trial.system_attrs["constraints"]) <= 0]
    assert study.best_trial.number in {trial.number for trial in feasible}


@pytest.mark.recovery
def test_driver_killed_five_times_at_random_loses_and_repeats_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "support.killed_sweep"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=120, cwd=TESTS)
    folder = tmp_path / "killed"
    moments = random.Random(7)
    for kill in range(5):
        process = subprocess.Popen([*command, str(folder), "0.02"], cwd=TESTS)
        before = _num_rungs(folder)
        wanted = before + moments.randint(1, 8)
        until = time.monotonic() + 60
        while _num_rungs(folder) < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        # anywhere within a rung, or in the writing of its event
        time.sleep(moments.uniform(0, 0.03))
        assert process.poll() is None, f"the sweep ended before kill {kill}"
        process.kill()
        process.wait()
    subprocess.run([*command, str(folder)], check=True, timeout=120, cwd=TESTS)
    whole, killed = load(tmp_path / "whole"), load(folder)
    assert _story(killed) == _story(whole)
    assert len(killed.rungs) == len({(r.trial, r.step) for r in killed.rungs}), "each rung once"
    assert [trial.trial for trial in killed.trials] == list(range(24)), "each trial once"


def _num_rungs(folder: Path) -> int:
    ledger = folder / "ledger.jsonl"
    return ledger.read_text().count('"event": "rung"') if ledger.is_file() else 0
