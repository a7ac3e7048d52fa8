"""Trials that lose their workers go on elsewhere, as often as is right; and a sweep in which most trials fail ends."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.config.sweep import ResourcesConfig
from raysweep.controller.failures import MAX_STARTS_ON_DEAD_NODES, PATIENCE_SECONDS, Blame, Failures, Loss
from raysweep.controller.sweep import Sweep
from raysweep.errors import InputError
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.reader import load
from raysweep.results.types import RungProgress
from support.sweeps import assemble, make, play, rung, settings

DIED = Loss(Blame.PROCESS, "its process died: killed")
NODE_LOST = Loss(Blame.NODE, "its node went away: spot")
NO_ROOM = Loss(Blame.STORAGE, "/runs: No space left on device")


def asked(sweep: Sweep) -> int:
    number, _ = sweep.ask() or pytest.fail("no trial")
    sweep.place(number)
    return number


def test_a_lost_trial_goes_on_before_new_ones_and_counts_once(tmp_path: Path) -> None:
    sweep, out = make(tmp_path)
    number = asked(sweep)
    config = sweep.progress.configs[number]
    assert not sweep.rung(number, rung(config, 1))
    sweep.lose(number, DIED)
    assert sweep.ask() == (number, config)
    play(sweep, finish=False)
    for step in (2, 3, 4):
        if sweep.rung(number, rung(config, step)):
            break
    sweep.rest(number)
    sweep.finish("completed", "all trials are done")
    results = load(tmp_path)
    assert len(results.trials) == 12
    assert results.trials[number].status != "failed"
    assert f"trial {number}: its process died: killed; it resumes from its checkpoint" in out.getvalue()
    steps = [each.step for each in results.rungs if each.trial == number]
    assert steps == list(range(1, len(steps) + 1))


def test_processes_may_die_so_often_in_a_row_and_a_rung_counts_from_the_start(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, resources__max_failures="1")
    number = asked(sweep)
    config = sweep.progress.configs[number]
    sweep.lose(number, DIED)
    assert asked(sweep) == number
    assert not sweep.rung(number, rung(config, 1))
    sweep.lose(number, DIED)
    assert asked(sweep) == number
    assert not sweep.rung(number, rung(config, 1))  # what its checkpoint repeats is no progress
    sweep.lose(number, DIED)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == (
        "failed",
        "its process died: killed (lost 2 times without a rung between)",
    )


def test_nodes_that_go_away_are_not_the_trials_fault_up_to_a_point(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, resources__max_failures="0")
    for _ in range(MAX_STARTS_ON_DEAD_NODES):
        sweep.lose(asked(sweep), NODE_LOST)
    assert load(tmp_path).trials[0].status == "interrupted"
    sweep.lose(asked(sweep), NODE_LOST)
    assert load(tmp_path).trials[0].status == "failed"


def test_a_trial_that_was_about_to_leave_gets_its_verdict(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, resources__max_failures="0")
    number = asked(sweep)
    config = sweep.progress.configs[number]
    for step in (1, 2, 3, 4):
        if sweep.rung(number, rung(config, step)):
            break
    sweep.lose(number, DIED)
    assert load(tmp_path).trials[0].status in ("completed", "paused", "stopped")


def test_a_driver_that_dies_after_a_loss_resumes_the_trial_once(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    number = asked(sweep)
    config = sweep.progress.configs[number]
    assert not sweep.rung(number, rung(config, 1))
    sweep.lose(number, DIED)
    sweep.ledger.close()
    again, _ = assemble(*settings(tmp_path), Ledger(tmp_path))
    again.replay(list(read_events(tmp_path / "ledger.jsonl")))
    assert again.ask() == (number, config)
    assert (again.ask() or (None,))[0] != number


def test_storage_that_fails_pauses_the_sweep_and_what_failed_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, out = make(tmp_path, resources__max_failures="0")
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    first, second = asked(sweep), asked(sweep)
    sweep.lose(first, NO_ROOM)
    sweep.lose(second, NO_ROOM)
    assert sweep.ask() is None
    assert out.getvalue().count("no trial is handed out for 2 s") == 1
    now[0] = 2.5
    assert asked(sweep) == first
    sweep.lose(first, NO_ROOM)
    assert "no trial is handed out for 4 s" in out.getvalue()
    now[0] = 7.0
    assert (asked(sweep), asked(sweep)) == (second, first)
    assert not sweep.rung(first, rung(sweep.progress.configs[first], 1))
    sweep.lose(second, NO_ROOM)
    assert out.getvalue().count("no trial is handed out for 2 s") == 2  # from the start, as a rung was stored between
    assert {trial.status for trial in load(tmp_path).trials} == {"interrupted", "running"}


def test_storage_that_never_works_again_ends_the_sweep_so_that_it_can_be_resumed(
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
                sweep.lose(asked(sweep), NO_ROOM)

    with pytest.raises(InputError, match=r"No space left on device; once storage works: raysweep run --resume"):
        fail_for_ever()
    assert PATIENCE_SECONDS <= now[0] - 100 + 30 <= PATIENCE_SECONDS + 60
    assert load(tmp_path).trials[0].status == "interrupted"


@given(num_failed=st.integers(0, 50), num_other=st.integers(0, 50), share=st.floats(0, 1))
def test_the_share_of_failed_trials_is_what_it_says(num_failed: int, num_other: int, share: float) -> None:
    failures = Failures(ResourcesConfig(max_failed_share=share))
    reason = failures.too_many(num_failed, num_failed + num_other)
    is_more = num_failed > share * (num_failed + num_other)
    assert (reason is not None) == (is_more and num_failed >= 3)


def test_a_sweep_in_which_most_trials_fail_hands_out_no_more(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    for _ in range(3):
        sweep.rest(asked(sweep), failure="ValueError: no", traceback="Traceback:\n  line 1\nValueError: no")
    assert sweep.ask() is None
    assert sweep.given_up == "3 of 3 trials failed, which is more than resources.max_failed_share allows, 0.5"
    assert load(tmp_path).trials[2].traceback == "Traceback:\n  line 1\nValueError: no"


def test_trials_whose_scores_are_none_count_among_those_that_failed(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    for _ in range(3):
        number = asked(sweep)
        result = rung(sweep.progress.configs[number], 1)
        result["points"][0]["polarity"] = 63.0
        assert sweep.rung(number, result)
        sweep.rest(number)
    assert sweep.given_up == "3 of 3 trials failed, which is more than resources.max_failed_share allows, 0.5"


def test_only_time_on_a_worker_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, _ = make(tmp_path)
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number, config = sweep.ask() or pytest.fail("no trial")
    now[0] = 7200.0  # it waited for a node
    sweep.place(number)
    now[0] = 7210.0
    sweep.rung(number, rung(config, 1))
    sweep.lose(number, NODE_LOST)
    assert load(tmp_path).trials[0].seconds == 10
    assert sweep.ask() == (number, config)
    now[0] = 9000.0
    sweep.finish("interrupted", "Ctrl-C")
    assert load(tmp_path).trials[0].seconds == 10


def test_a_rung_may_take_many_times_the_slowest_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, _ = make(tmp_path)
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number = asked(sweep)
    config = sweep.progress.configs[number]
    now[0] = 1e6
    assert sweep.overdue(number) is None, "no rung yet, so nobody knows how long one takes"
    now[0] = 400
    sweep.rung(number, rung(config, 1))
    now[0] = 400 + 4000
    assert sweep.overdue(number) is None
    now[0] += 1
    assert sweep.overdue(number) == "its rung took more than 1:06:40, and its process was killed"
    waiting, _ = sweep.ask() or pytest.fail("no trial")
    now[0] = 1e6
    assert sweep.overdue(waiting) is None, "it waits for a worker"


def test_the_limit_of_a_rung_may_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, _ = make(tmp_path, resources__rung_minutes="2")
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number = asked(sweep)
    now[0] = 121
    assert sweep.overdue(number) == "its rung took more than 2:00, and its process was killed"


def test_time_that_is_up_ends_a_trial_within_its_rung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, _ = make(tmp_path, budget__minutes="10")
    now = [0.0]
    monkeypatch.setattr(Sweep, "seconds", property(lambda self: now[0]))
    number = asked(sweep)
    now[0] = 599
    assert not sweep.take_progress(number, RungProgress(1, 1280, 4096, 38.4))
    now[0] = 600
    assert sweep.take_progress(number, RungProgress(1, 1290, 4096, 38.4))
    sweep.rest(number)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("interrupted", "the budget of 10 minutes is spent")


def test_trials_that_diverge_are_results_like_any_other(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    for _ in range(4):
        sweep.rest(asked(sweep), failure="the loss became nan", diverged=True)
    assert sweep.given_up is None
    assert sweep.ask() is not None


def test_a_sweep_that_is_given_up_cuts_off_its_running_trials(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    running = asked(sweep)
    for _ in range(3):
        sweep.rest(asked(sweep), failure="no", traceback="no")
    assert sweep.rung(running, rung(sweep.progress.configs[running], 1))
    sweep.rest(running)
    assert load(tmp_path).trials[running].status == "interrupted"


def test_storage_that_worked_for_long_is_given_all_its_time_again() -> None:
    failures = Failures(ResourcesConfig())
    assert not failures.begin_pause(0).is_hopeless
    later = failures.begin_pause(700)
    assert (later.began, later.seconds, later.is_hopeless) == (700, 2, False)
