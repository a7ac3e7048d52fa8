"""A sweep's status: the time left, checked against simulated sweeps, and its text."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from raysweep.controller.status import Activity, RunningRung, SweepStatus, Workload
from raysweep.results.types import Cost, RungProgress, TrialStatus
from raysweep.terminal import duration

RUNG_SECONDS = 10.0


def make_status(running: Sequence[RunningRung] = (), **values: Any) -> SweepStatus:
    counts = {TrialStatus.RUNNING: len(running), TrialStatus.PAUSED: 0, **values.pop("counts", {})}
    fields: dict[str, Any] = {
        "num_begun": len(running),
        "num_trials": len(running),
        "num_replicates": 0,
        "max_replicates": 0,
        "best": None,
        "front_size": 0,
        "seconds": 60.0,
        "limit_seconds_left": math.inf,
        "workload": Workload(),
        "cost": Cost(),
        **values,
    }
    return SweepStatus(counts=counts, running=running, **fields)


def training(step: int = 1, num_rungs: int = 4, **values: Any) -> RunningRung:
    return RunningRung(0, step, num_rungs, 4096, Activity.TRAINING, **values)


def simulate(
    seconds: float, trials_by_worker: Sequence[Sequence[int]], num_rungs: int
) -> SweepStatus:
    """Return the status of a sweep whose workers run trials of these numbers of rungs, each of RUNG_SECONDS."""
    running, finished, num_begun, num_done = [], [], 0, 0
    for trials in trials_by_worker:
        began = 0.0
        for length in trials:
            if seconds < began:
                break
            num_begun += 1
            done = min(length, int((seconds - began) / RUNG_SECONDS))
            num_done += done
            if done == length:
                finished.append(length)
            else:
                rung_began = began + done * RUNG_SECONDS
                previous = RUNG_SECONDS if done else None
                rung = training(
                    done + 1, num_rungs, seconds=seconds - rung_began, previous_seconds=previous
                )
                running.append(rung)
            began += length * RUNG_SECONDS
    workload = Workload(RUNG_SECONDS if num_done else None, num_rungs, Counter(finished))
    num_trials = sum(map(len, trials_by_worker))
    return make_status(
        running, num_begun=num_begun, num_trials=num_trials, seconds=seconds, workload=workload
    )


def test_time_left_is_exact_if_all_trials_complete() -> None:
    """Two workers run three trials of four rungs each, so the search takes 12 rungs."""
    for seconds in range(10, 120):
        status = simulate(seconds, [[4, 4, 4], [4, 4, 4]], num_rungs=4)
        assert status.seconds_left == pytest.approx(120 - seconds), seconds
        assert status.fraction == pytest.approx(seconds / 120)


def test_time_left_counts_down_once_all_trials_have_begun() -> None:
    """Two trials were stopped after a rung; whether the last two complete is not known until their second rung."""
    for seconds in range(10, 50):
        status = simulate(seconds, [[1, 4], [1, 4]], num_rungs=4)
        assert status.num_begun == 4
        # the trials' ends, if they are like the earlier two, or complete
        expected = 20 if seconds < 20 else 50
        assert status.seconds_left == pytest.approx(expected - seconds), seconds


def test_time_left_is_that_of_the_longest_trial_if_workers_are_idle() -> None:
    status = simulate(25, [[1], [4]], num_rungs=4)
    assert status.seconds_left == pytest.approx(15)


def test_time_left_is_unknown_before_the_first_rung() -> None:
    status = simulate(5, [[4], [4]], num_rungs=4)
    assert status.seconds_left == math.inf
    assert status.fraction == 0
    assert status.time_text == "0:05 so far"


def test_interrupted_trials_count() -> None:
    """One worker must run the rest of its rung, and three and one rungs of the trials that were interrupted."""
    rung = training(4, 4, seconds=6.0, previous_seconds=10.0)
    workload = Workload(RUNG_SECONDS, 4, {}, interrupted=[(1, 4), (3, 4)])
    assert make_status([rung], workload=workload).seconds_left == pytest.approx(4 + 30 + 10)


def test_trials_that_wait_for_a_worker_are_not_running() -> None:
    waiting = replace(training(), activity=Activity.WAITING)
    status = make_status([training(), waiting, waiting], workload=Workload(RUNG_SECONDS, 1))
    assert re.search(r"\b1 running, 2 waiting", status.counts_text)
    alone = make_status([training()], num_trials=3, workload=Workload(RUNG_SECONDS, 4))
    assert status.seconds_left == alone.seconds_left, "one at a time"


def test_a_limit_bounds_the_time_left() -> None:
    status = simulate(10, [[4], [4]], num_rungs=4)
    assert status.time_text == "about 0:30 left"
    limited = make_status(status.running, workload=status.workload, limit_seconds_left=20.0)
    assert limited.time_text == "about 0:20 left"
    assert make_status(status.running, limit_seconds_left=20.0).time_text == "at most 0:20 left"
    assert (
        make_status(status.running, limit_seconds_left=20.0, is_paused=True).time_text
        == "1:00 so far"
    )


def test_rungs_that_outlast_a_limit_do_not_exceed_the_whole() -> None:
    status = make_status([training()], limit_seconds_left=-5.0)
    assert (status.seconds_left, status.fraction) == (0, 1)
    assert status.time_text == "1:00 so far"


def test_time_left_is_a_minimum_while_paused_trials_may_resume() -> None:
    running = [training(4, 4, seconds=4.0, previous_seconds=10.0)]
    values: dict[str, Any] = {
        "workload": Workload(RUNG_SECONDS, 4, {2: 1}),
        "counts": {TrialStatus.PAUSED: 1},
    }
    assert make_status(running, **values).time_text == "at least 0:06 left"
    assert make_status(running, num_trials=9, **values).time_text.startswith("about")


def test_a_rung_ends_when_its_training_and_the_previous_rung_suggest() -> None:
    progress = RungProgress(1, 1024, 4096, examples_per_second=64.0)
    assert training(progress=progress, progress_age=8.0).seconds_left == pytest.approx(40)
    assert training(seconds=50.0, previous_seconds=60.0).seconds_left == pytest.approx(10)
    assert training(
        seconds=50.0, previous_seconds=60.0, progress=progress
    ).seconds_left == pytest.approx(48)
    assert training().seconds_left is None
    overdue = training(seconds=70.0, previous_seconds=60.0)
    assert overdue.seconds_left == 0


def test_rungs_in_evaluation_are_shown_as_such() -> None:
    progress = RungProgress(2, 4000, 4096, examples_per_second=64.0)
    evaluating = RunningRung(7, 2, 4, 4096, Activity.EVALUATING, progress=progress)
    text = make_status([evaluating]).text
    assert "trial 7 evaluating rung 2" in text
    assert "examples/s" not in text
    assert "2 trials evaluating" in make_status([evaluating, evaluating]).text


def test_a_status_without_news_moves_on_with_the_clock() -> None:
    progress = RungProgress(1, 1024, 4096, examples_per_second=64.0)
    before = make_status([training(progress=progress)], limit_seconds_left=100.0)
    after = before.after(12.0)
    assert after.seconds == before.seconds + 12
    assert after.seconds_left == pytest.approx(88)
    assert after.running[0].seconds_left == pytest.approx(48 - 12)
    paused = make_status(is_paused=True)
    assert paused.after(12.0) == paused


def test_durations_of_the_text_are_those_of_the_status() -> None:
    status = simulate(10, [[4, 4], [4, 4]], num_rungs=4)
    assert status.text.endswith(f"about {duration(status.seconds_left)} left")
