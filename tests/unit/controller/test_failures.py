"""Trials that lose their workers go on elsewhere, as often as is right; and a sweep in which most trials fail ends."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.config.sweep import ResourcesConfig
from raysweep.controller.failures import (
    MAX_STARTS_ON_DEAD_NODES,
    PATIENCE_SECONDS,
    Blame,
    Failures,
    Loss,
)
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.reader import load
from raysweep.results.types import RungProgress
from support.sweeps import assemble, make, play, rung, settings

DIED = Loss(Blame.PROCESS, "its process died: killed")
NODE_LOST = Loss(Blame.NODE, "its node went away: spot")
NO_ROOM = Loss(Blame.STORAGE, "/runs: No space left on device")


def assign(sweep: Sweep) -> int:
    number, _ = sweep.assign() or pytest.fail("no trial")
    sweep.place(number)
    return number


def test_lost_trial_resumes_before_new_trials_and_counts_once(tmp_path: Path) -> None:
    sweep, out = make(tmp_path)
    number = assign(sweep)
    config = sweep.progress.configs[number]
    assert not sweep.record_rung(number, rung(config, 1))
    sweep.lose(number, DIED)
    assert sweep.assign() == (number, config)
    play(sweep, finish=False)
    for step in (2, 3, 4):
        if sweep.record_rung(number, rung(config, step)):
            break
    sweep.release(number)
    sweep.finish("completed", "all trials are done")
    results = load(tmp_path)
    assert len(results.trials) == 12
    assert results.trials[number].status != "failed"
    assert (
        f"trial {number}: its process died: killed; it will resume from its checkpoint"
        in out.getvalue()
    )
    steps = [rung.step for rung in results.rungs if rung.trial == number]
    assert steps == list(range(1, len(steps) + 1))


def test_max_failures_counts_process_losses_since_the_last_rung(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, resources__max_failures="1")
    number = assign(sweep)
    config = sweep.progress.configs[number]
    sweep.lose(number, DIED)
    assert assign(sweep) == number
    assert not sweep.record_rung(number, rung(config, 1))
    sweep.lose(number, DIED)
    assert assign(sweep) == number
    # what its checkpoint repeats is no progress
    assert not sweep.record_rung(number, rung(config, 1))
    sweep.lose(number, DIED)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == (
        "failed",
        "its process died: killed (lost 2 times since its last rung)",
    )


def test_lost_nodes_end_a_trial_only_after_the_maximum(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, resources__max_failures="0")
    for _ in range(MAX_STARTS_ON_DEAD_NODES):
        sweep.lose(assign(sweep), NODE_LOST)
    assert load(tmp_path).trials[0].status == "interrupted"
    sweep.lose(assign(sweep), NODE_LOST)
    assert load(tmp_path).trials[0].status == "failed"


def test_lost_trial_with_a_verdict_ends_with_it(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, resources__max_failures="0")
    number = assign(sweep)
    config = sweep.progress.configs[number]
    for step in (1, 2, 3, 4):
        if sweep.record_rung(number, rung(config, step)):
            break
    sweep.lose(number, DIED)
    assert load(tmp_path).trials[0].status in ("completed", "paused", "stopped")


def test_trial_lost_before_the_driver_died_resumes_once(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number = assign(sweep)
    config = sweep.progress.configs[number]
    assert not sweep.record_rung(number, rung(config, 1))
    sweep.lose(number, DIED)
    sweep.ledger.close()
    again, _ = assemble(*settings(tmp_path), Ledger(tmp_path))
    again.replay(list(read_events(tmp_path / "ledger.jsonl")))
    assert again.assign() == (number, config)
    assert (again.assign() or (None,))[0] != number


def test_storage_failure_pauses_the_sweep_and_retries_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, out = make(tmp_path, resources__max_failures="0")
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    first, second = assign(sweep), assign(sweep)
    sweep.lose(first, NO_ROOM)
    sweep.lose(second, NO_ROOM)
    assert sweep.assign() is None
    assert out.getvalue().count("assignments paused for 2 s") == 1
    now[0] = 2.5
    assert assign(sweep) == first
    sweep.lose(first, NO_ROOM)
    assert "assignments paused for 4 s" in out.getvalue()
    now[0] = 7.0
    assert (assign(sweep), assign(sweep)) == (second, first)
    assert not sweep.record_rung(first, rung(sweep.progress.configs[first], 1))
    sweep.lose(second, NO_ROOM)
    # from the start, as a rung was stored between
    assert out.getvalue().count("assignments paused for 2 s") == 2
    assert {trial.status for trial in load(tmp_path).trials} == {"interrupted", "running"}


def test_lasting_storage_failure_ends_the_sweep_resumably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, _ = make(tmp_path)
    now = [100.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))

    def fail_for_ever() -> None:
        while True:
            if sweep.is_paused:
                now[0] += 1
            else:
                sweep.lose(assign(sweep), NO_ROOM)

    with pytest.raises(InputError, match=r"No space left on device.*raysweep run --resume"):
        fail_for_ever()
    assert PATIENCE_SECONDS <= now[0] - 100 + 30 <= PATIENCE_SECONDS + 60
    assert load(tmp_path).trials[0].status == "interrupted"


@given(num_failed=st.integers(0, 50), num_other=st.integers(0, 50), share=st.floats(0, 1))
def test_max_failed_share(num_failed: int, num_other: int, share: float) -> None:
    failures = Failures(ResourcesConfig(max_failed_share=share))
    reason = failures.reason_to_give_up(num_failed, num_failed + num_other)
    is_more = num_failed > share * (num_failed + num_other)
    assert (reason is not None) == (is_more and num_failed >= 3)


def test_sweep_gives_up_when_most_trials_fail(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    for _ in range(3):
        sweep.release(
            assign(sweep),
            failure="ValueError: no",
            traceback="Traceback:\n  line 1\nValueError: no",
        )
    assert sweep.assign() is None
    assert sweep.given_up == "3 of 3 trials failed; maximum share (resources.max_failed_share): 0.5"
    assert load(tmp_path).trials[2].traceback == "Traceback:\n  line 1\nValueError: no"


def test_trials_with_invalid_scores_count_as_failed(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    for _ in range(3):
        number = assign(sweep)
        result = rung(sweep.progress.configs[number], 1)
        result["points"][0]["polarity"] = 63.0
        assert sweep.record_rung(number, result)
        sweep.release(number)
    assert sweep.given_up == "3 of 3 trials failed; maximum share (resources.max_failed_share): 0.5"


def test_only_time_on_a_worker_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, _ = make(tmp_path)
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number, config = sweep.assign() or pytest.fail("no trial")
    now[0] = 7200.0  # it waited for a node
    sweep.place(number)
    now[0] = 7210.0
    sweep.record_rung(number, rung(config, 1))
    sweep.lose(number, NODE_LOST)
    assert load(tmp_path).trials[0].seconds == 10
    assert sweep.assign() == (number, config)
    now[0] = 9000.0
    sweep.finish("interrupted", "Ctrl-C")
    assert load(tmp_path).trials[0].seconds == 10


def test_rung_limit_is_a_multiple_of_the_slowest_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, _ = make(tmp_path)
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number = assign(sweep)
    config = sweep.progress.configs[number]
    now[0] = 1e6
    assert sweep.overdue_reason(number) is None, "no rung yet, so nobody knows how long one takes"
    now[0] = 400
    sweep.record_rung(number, rung(config, 1))
    now[0] = 400 + 4000
    assert sweep.overdue_reason(number) is None
    now[0] += 1
    assert (
        sweep.overdue_reason(number)
        == "its rung took more than 1:06:40, and its process was killed"
    )
    waiting, _ = sweep.assign() or pytest.fail("no trial")
    now[0] = 1e6
    assert sweep.overdue_reason(waiting) is None, "it waits for a worker"


def test_rung_minutes_set_the_rung_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, _ = make(tmp_path, resources__rung_minutes="2")
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number = assign(sweep)
    now[0] = 121
    assert (
        sweep.overdue_reason(number) == "its rung took more than 2:00, and its process was killed"
    )


def test_time_budget_interrupts_a_trial_within_its_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, _ = make(tmp_path, budget__minutes="10")
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number = assign(sweep)
    now[0] = 599
    assert not sweep.record_progress(number, RungProgress(1, 1280, 4096, 38.4))
    now[0] = 600
    assert sweep.record_progress(number, RungProgress(1, 1290, 4096, 38.4))
    sweep.release(number)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("interrupted", "budget.minutes=10 is used up")


def test_diverged_trials_do_not_count_as_failed(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    for _ in range(4):
        sweep.release(assign(sweep), failure="the loss became nan", diverged=True)
    assert sweep.given_up is None
    assert sweep.assign() is not None


def test_running_trials_are_interrupted_when_the_sweep_gives_up(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    running = assign(sweep)
    for _ in range(3):
        sweep.release(assign(sweep), failure="no", traceback="no")
    assert sweep.record_rung(running, rung(sweep.progress.configs[running], 1))
    sweep.release(running)
    assert load(tmp_path).trials[running].status == "interrupted"


def test_storage_pause_starts_over_after_a_recovery() -> None:
    failures = Failures(ResourcesConfig())
    assert not failures.begin_pause(0).is_hopeless
    later = failures.begin_pause(700)
    assert (later.began, later.seconds, later.is_hopeless) == (700, 2, False)
