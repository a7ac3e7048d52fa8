"""Requests to a running sweep: their effects, their replay on resume, and the rejection of hostile files."""

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from raysweep.control.request import MAX_BYTES, Answer, Request
from raysweep.control.request_queue import FOLDER, REJECTED, RequestQueue
from raysweep.controller.failures import Blame, Loss
from raysweep.controller.front_scores import FrontScores
from raysweep.controller.request_handler import RequestHandler
from raysweep.controller.sweep import Sweep
from raysweep.results.events import SweepSteered
from raysweep.results.ledger import Ledger, point_name, read_events
from raysweep.results.reader import load
from raysweep.results.types import RungProgress
from support.sweeps import assemble, make, play, rung, settings

PLAIN = {"sampler": "random", "early_stopping__policy": "none", "space__examples_per_rung": "2048"}
PLAIN["resources__max_failed_share"] = "1"
WITHIN = RungProgress(1, 10, 100, 5.0)


class Driver:
    """A sweep whose requests are handled when a test calls :meth:`request`."""

    def __init__(self, sweep: Sweep, out: io.StringIO) -> None:
        self.sweep, self.out = sweep, out
        self.queue = RequestQueue(sweep.run)
        self.handler = RequestHandler(sweep, self.queue, self.queue.pending)

    @classmethod
    def begin(cls, folder: Path, **overrides: str) -> "Driver":
        return cls(*make(folder, **{**PLAIN, **overrides}))

    @classmethod
    def resumed(cls, folder: Path, *, adopt: bool = False, **overrides: str) -> "Driver":
        sweep, out = assemble(*settings(folder, **{**PLAIN, **overrides}), Ledger(folder))
        sweep.replay(list(read_events(folder / "ledger.jsonl")), adopt=adopt)
        return cls(sweep, out)

    def request(self, action: str, **values: Any) -> Answer:
        identity = self.queue.add(Request.model_validate({"action": action, **values}))
        self.handler.serve()
        answer = self.queue.answer_to(identity)
        assert answer is not None
        assert self.queue.pending() == []
        return answer

    def done(self, action: str, **values: Any) -> str:
        answer = self.request(action, **values)
        assert answer.accepted, answer.text
        return answer.text

    def rejected(self, action: str, **values: Any) -> str:
        answer = self.request(action, **values)
        assert not answer.accepted, answer.text
        return answer.text

    def next(self) -> int:
        number, _ = self.sweep.assign() or pytest.fail("no trial")
        self.sweep.place(number)
        return number

    def rung(self, number: int, step: int) -> bool:
        folder = self.sweep.run.path / "points" / point_name(number, step)
        folder.mkdir(exist_ok=True)
        return self.sweep.record_rung(number, rung(self.sweep.progress.configs[number], step))


def steered(folder: Path) -> list[SweepSteered]:
    return [
        event for event in read_events(folder / "ledger.jsonl") if isinstance(event, SweepSteered)
    ]


def test_pause_starts_no_trial_and_running_trials_finish_their_rung(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    number = driver.next()
    assert not driver.rung(number, 1)
    assert "still finishing their rung: 1" in driver.done("pause")
    assert driver.sweep.assign() is None
    assert not driver.sweep.record_progress(number, WITHIN), "the current rung finishes"
    assert driver.rung(number, 2)
    driver.sweep.release(number)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("interrupted", "the sweep is paused")
    assert load(tmp_path).is_paused
    assert driver.sweep.assign() is None
    assert driver.sweep.status().text.startswith(
        "search: paused, 1 of 12 trials started, 0 running, 1 paused"
    )
    assert driver.done("resume") == "sweep resumed"
    assert not load(tmp_path).is_paused
    assert driver.done("resume") == "sweep was not paused"
    assert driver.next() == number, "the interrupted trial resumes first"
    assert not driver.rung(number, 3)


def test_pause_after_the_search_needs_rungs_that_are_left_to_score(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    number = driver.next()
    driver.rung(number, 1)
    driver.rung(number, 2)
    scores = FrontScores(driver.sweep, has_test=True)
    num_rungs = len({(point.trial, point.step) for point in driver.sweep.kept_front()})
    assert num_rungs == 2
    driver.sweep.is_over = True
    scores.next()
    assert driver.done("pause").endswith("(rungs left to score: 1)")
    driver.done("resume")
    scores.next()
    assert "there is nothing to pause" in driver.rejected("pause")
    assert not driver.sweep.steering.is_paused


def test_waiting_trial_starts_no_rung_during_a_pause(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    number, _ = driver.sweep.assign() or pytest.fail("no trial")
    driver.done("pause")
    time.sleep(0.01)
    driver.sweep.place(number)
    assert driver.sweep.record_progress(number, WITHIN)
    driver.sweep.release(number)
    assert load(tmp_path).trials[0].status == "interrupted"


def test_pause_does_not_count_toward_budget_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    driver = Driver.begin(tmp_path, budget__minutes="10")
    number = driver.next()
    now[0] += 60
    assert driver.sweep.status().text.endswith("at most 9:00 left"), (
        "there is no pace before a trial has left its worker"
    )
    driver.done("pause")
    now[0] += 60
    assert driver.sweep.seconds == 120, "a trial still runs"
    assert driver.rung(number, 1)
    driver.sweep.release(number)
    now[0] += 3600
    assert driver.sweep.seconds == 120
    assert driver.sweep.status().text.endswith("2:00 so far")
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path, budget__minutes="10")
    now[0] += 3600
    assert again.sweep.assign() is None and again.sweep.cause is None
    again.done("resume")
    assert again.sweep.seconds == pytest.approx(120)
    now[0] += 5
    assert again.next() == number
    assert again.sweep.seconds == pytest.approx(125)


def test_paused_sweep_stays_paused_on_resume_and_ends_the_same(tmp_path: Path) -> None:
    expected = play(make(tmp_path / "whole", **PLAIN)[0])
    driver = Driver.begin(tmp_path / "run")
    number = driver.next()
    driver.rung(number, 1)
    driver.done("pause")
    driver.rung(number, 2)
    driver.sweep.release(number)
    driver.sweep.finish("interrupted", "Ctrl-C")
    again = Driver.resumed(tmp_path / "run")
    assert again.sweep.assign() is None
    again.done("resume")
    assert play(again.sweep) == expected
    assert load(tmp_path / "run").status == "completed"


def test_running_trials_finish_after_a_request_for_fewer_workers(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    driver.sweep.num_workers = 3
    numbers = [driver.next() for _ in range(3)]
    assert "running: 3" in driver.done("workers", workers=1)
    for number in numbers[:2]:
        assert not driver.rung(number, 1), "it continues"
        driver.sweep.release(number, failure="x")
        assert driver.sweep.assign() is None
    driver.sweep.release(numbers[2], failure="x")
    driver.next()
    assert driver.sweep.assign() is None
    assert "at most 1 at a time" in driver.sweep.status().text
    rejection = driver.rejected("workers", workers=4)
    assert "--workers is 4; allowed: 1 to 3" in rejection
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path)
    again.sweep.num_workers = 3
    assert (again.next(), again.sweep.assign()) == (3, None)
    again.done("workers", workers=2)
    again.next()
    assert load(tmp_path).workers == 2


def test_running_trial_stops_at_its_next_report(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    running, between, lost, done = (driver.next() for _ in range(4))
    assert not driver.rung(running, 1)
    for step in range(1, 5):
        driver.rung(done, step)
    driver.sweep.release(done)
    for number in (running, between, lost):
        assert (
            driver.done("stop-trial", trial=number)
            == f"trial {number} will stop at its next report"
        )
    assert driver.sweep.record_progress(running, WITHIN)
    driver.sweep.release(running)
    assert driver.rung(between, 1)
    driver.sweep.release(between)
    driver.sweep.lose(lost, Loss(Blame.PROCESS, "it died"))
    results = load(tmp_path)
    assert [trial.status for trial in results.trials] == [
        "stopped",
        "stopped",
        "stopped",
        "completed",
    ]
    assert {trial.reason for trial in results.trials[:3]} == {"requested with raysweep control"}
    assert [rung.trial for rung in results.rungs] == [running, *[done] * 4, between], (
        "recorded rungs are kept"
    )
    for number, status in ((done, "completed"), (running, "stopped")):
        assert f"trial {number} has already ended ({status})" in driver.rejected(
            "stop-trial", trial=number
        )
    assert "--stop-trial is 9, an unknown trial; allowed: 0 to 3" in driver.rejected(
        "stop-trial", trial=9
    )


def test_paused_and_interrupted_trials_stop_at_once(tmp_path: Path) -> None:
    overrides = {"early_stopping__policy": "growth", "sampler": "random"}
    driver = Driver.begin(tmp_path, **overrides)
    paused = driver.next()
    assert driver.rung(paused, 1)
    driver.sweep.release(paused)
    cut = driver.next()
    driver.done("pause")
    driver.rung(cut, 1)
    driver.sweep.release(cut)
    assert driver.done("stop-trial", trial=paused) == f"trial {paused} stopped"
    driver.done("stop-trial", trial=cut)
    assert [trial.status for trial in load(tmp_path).trials] == ["stopped", "stopped"]
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path, **overrides)
    again.done("resume")
    assert again.next() == 2
    assert [trial.status for trial in again.sweep.scheduler.trials.values()] == [
        "stopped",
        "stopped",
        "running",
    ]


def test_logged_stop_request_is_executed_on_resume(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    number = driver.next()
    driver.rung(number, 1)
    driver.done("stop-trial", trial=number)
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path)
    assert load(tmp_path).trials[0].status == "stopped"
    assert again.next() == 1


def test_requested_configurations_run_next_also_after_resume(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    driver.next()
    wanted = [{"loss": "triplet", "margin": 0.1, "learning_rate": 1e-4}, {"loss": "softmax"}]
    for config in wanted:
        assert "next new trial: loss " in driver.done("try", config=config)
    trial = driver.next()
    assert wanted[0].items() <= driver.sweep.scheduler.trials[trial].values.items()
    assert "trial 1: started (requested by raysweep control)" in driver.out.getvalue()
    proposed = [driver.sweep.scheduler.trials[driver.next()].values for _ in range(3)]
    assert wanted[1].items() <= proposed[0].items()
    driver.sweep.ledger.close()
    stored = list(read_events(tmp_path / "ledger.jsonl"))
    last = next(
        i
        for i, event in enumerate(stored)
        if isinstance(event, SweepSteered) and event.config == wanted[1]
    )
    for name, adopt in (("same", False), ("adopted", True)):
        folder = tmp_path / name
        (folder / "points").mkdir(parents=True)
        again, _ = assemble(*settings(tmp_path, **PLAIN), Ledger(folder))
        again.replay(stored[: last + 1], adopt=adopt)
        values = [again.scheduler.propose().values for _ in range(4)]
        assert wanted[0].items() <= values[0].items() and wanted[1].items() <= values[1].items()
        if not adopt:
            assert values[1:] == [driver.sweep.scheduler.trials[n].values for n in (2, 3, 4)]


def test_invalid_configurations_are_rejected_with_the_reason(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path, budget__trials="3")
    values = driver.sweep.scheduler.trials[driver.next()].values
    assert "trial 0 has the same configuration" in driver.rejected("try", config=dict(values))
    assert "--try: margin is 7; allowed: a number from" in driver.rejected(
        "try", config={"loss": "triplet", "margin": 7}
    )
    assert "--try is empty" in driver.rejected("try", config={})
    assert "--try: los: unknown key (did you mean loss?); allowed: " in driver.rejected(
        "try", config={"los": 2}
    )
    with_escape_code = driver.rejected("try", config={"l\x1b[2J": 1})
    assert "unknown key" in with_escape_code and "\x1b" not in with_escape_code
    whole = {**values, "learning_rate": 1e-4}
    driver.done("try", config=whole)
    assert "already been requested" in driver.rejected("try", config=whole)
    driver.done("try", config={"loss": "softmax"})
    rejection = driver.rejected("try", config={"loss": "triplet"})
    assert "budget.trials is 3, and no trials are left (started: 1, requested: 2)" in rejection
    assert f"raysweep run --resume {tmp_path} --budget.trials 4" in rejection
    assert len(steered(tmp_path)) == 2, "rejected requests are not in the ledger"


def test_tried_grid_combination_is_rejected(tmp_path: Path) -> None:
    choices = {
        "loss": "{choices: [softmax, cosine_similarity]}",
        "learning_rate": "{choices: [1e-5, 1e-4]}",
    }
    single = {"freezing": "none", "batch_size": "32", "warmup_fraction": "0.1"}
    space = {f"space__{name}": value for name, value in {**choices, **single}.items()}
    driver = Driver.begin(tmp_path, sampler="grid", **space)
    for _ in range(2):
        driver.done("try", config={"loss": "softmax"})
        driver.next()
    assert "no untried combination" in driver.rejected("try", config={"loss": "softmax"})


def test_first_configurations_start_first_also_after_resume_with_a_larger_space(
    tmp_path: Path,
) -> None:
    first = "[{loss: triplet, margin: 0.1}, {loss: softmax}, {loss: contrastive}]"
    driver = Driver.begin(tmp_path, first=first)
    for _ in range(2):
        driver.sweep.release(driver.next(), failure="x")
    assert "trial 0: started (requested by first[0] in the sweep file)" in driver.out.getvalue()
    driver.sweep.ledger.close()
    for adopt in (False, True):
        again = Driver.resumed(tmp_path, first=first, adopt=adopt)
        assert [trial.origin for trial in again.sweep.scheduler.trials.values()] == [
            "first[0]",
            "first[1]",
        ]
        trial = again.sweep.scheduler.propose()
        assert (trial.origin, trial.values["loss"]) == ("first[2]", "contrastive")
        assert again.sweep.scheduler.propose().origin is None


def test_request_is_executed_once_if_the_driver_dies_before_answering(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)

    def interrupt(identity: str, answer: Answer) -> None:
        raise KeyboardInterrupt

    driver.queue.answer = interrupt  # type: ignore[method-assign]
    identity = driver.queue.add(Request(action="try", config={"loss": "softmax"}))
    with pytest.raises(KeyboardInterrupt):
        driver.handler.serve()
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path)
    assert len(again.sweep.scheduler.requested) == 1
    again.handler.serve()
    answer = again.queue.answer_to(identity)
    assert answer == Answer(accepted=True, text="already executed before the driver was restarted")
    assert len(again.sweep.scheduler.requested) == len(steered(tmp_path)) == 1
    assert again.queue.pending() == []


def test_duplicate_request_is_answered_once(tmp_path: Path) -> None:
    """The thread that polls for requests may have read one just before it was answered."""
    driver = Driver.begin(tmp_path)
    identity = driver.queue.add(Request(action="stop-trial", trial=0))
    (queued,) = driver.queue.pending()
    new_requests = [queued, queued]
    RequestHandler(driver.sweep, driver.queue, lambda: new_requests).serve()
    assert not (driver.queue.answer_to(identity) or pytest.fail("none")).accepted
    assert (driver.queue.answer_to(identity), driver.out.getvalue().count("rejected")) == (None, 1)


def test_try_is_rejected_after_the_search(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path, early_stopping__plateau="{trials: 1, growth: 0.5}")
    driver.sweep.is_over = True
    assert "the search is over" in driver.rejected("try", config={"loss": "softmax"})
    driver.sweep.is_over = False
    for _ in range(3):
        number = driver.next()
        for step in range(1, 5):
            driver.rung(number, step)
        driver.sweep.release(number)
        if driver.sweep.scheduler.on_plateau:
            break
    assert "the search is over" in driver.rejected("try", config={"loss": "softmax"})


def test_sweep_survives_a_storage_failure_while_answering(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    store_answer = driver.queue.answer

    def fail(identity: str, answer: Answer) -> None:
        raise OSError(28, "No space left on device")

    driver.queue.answer = fail  # type: ignore[method-assign]
    identity = driver.queue.add(Request(action="workers", workers=2))
    for _ in range(2):
        driver.handler.serve()
    driver.queue.answer = store_answer  # type: ignore[method-assign]
    driver.handler.serve()
    assert (driver.queue.answer_to(identity) or pytest.fail("none")).accepted
    assert len(steered(tmp_path)) == 1
    assert driver.out.getvalue().count("No space left on device") == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not a valid request: "),
        (b"\xff\xfe", "is not a valid request: "),
        (b"{" * 10_000, "is not a valid request: "),
        (b"x" * (MAX_BYTES + 1), "has more than 16,384 bytes"),
        (b'["pause"]', "is not a valid request: "),
        (b'{"action": "restart"}', "is not a valid request: action: "),
        (b'{"action": "pause", "rm": "-rf"}', "is not a valid request: rm: "),
        (b'{"action": "pause", "trial": 1}', "trial is not allowed for the action pause"),
        (b'{"action": "workers"}', "workers is missing for the action workers"),
        (b'{"action": "workers", "workers": 0}', "workers: "),
        (b'{"action": "workers", "workers": "2"}', "workers: "),
        (b'{"action": "workers", "workers": true}', "workers: "),
        (b'{"action": "stop-trial", "trial": 1.5}', "trial: "),
        (b'{"action": "stop-trial", "trial": -1}', "trial: "),
        (b'{"action": "try", "config": {"loss": ["a"]}}', "config"),
        (b'{"action": "try", "config": {"loss": {"a": 1}}}', "config"),
        (b'{"action": "try", "config": {"margin": NaN}}', "is not a valid request: "),
        (
            b'{"action": "try", "config": {"margin": 1' + b"0" * 5000 + b"}}",
            "is not a valid request: ",
        ),
        (b"!!python/object/apply:os.system ['true']", "is not a valid request: "),
        (b'{"action": "\x1b[2Jboo"}', "is not a valid request: "),
    ],
)
def test_invalid_request_is_rejected_and_set_aside(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    driver = Driver.begin(tmp_path)
    identity = f"{1:020d}-00000000"
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / f"{identity}.json").write_bytes(content)
    driver.handler.serve()
    answer = driver.queue.answer_to(identity)
    assert answer is not None and not answer.accepted
    assert problem in answer.text
    assert answer.text.isprintable() and driver.out.getvalue().replace("\n", "").isprintable()
    assert driver.queue.pending() == []
    if content:
        assert (tmp_path / REJECTED / f"{identity}.json").read_bytes() == content[:MAX_BYTES]
    assert steered(tmp_path) == []


def test_only_plain_files_are_requests(tmp_path: Path) -> None:
    run = tmp_path / "run"
    driver = Driver.begin(run)
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"action": "pause"}))
    folder = run / FOLDER
    folder.mkdir()
    link, pipe, subfolder = (folder / f"{number:020d}-00000000.json" for number in range(3))
    link.symlink_to(secret)
    os.mkfifo(pipe)
    subfolder.mkdir()
    (folder / "other.txt").write_text("other")
    driver.handler.serve()
    assert driver.queue.pending() == []
    assert not driver.sweep.steering.is_paused
    assert {path.name for path in folder.iterdir()} == {
        link.name,
        pipe.name,
        subfolder.name,
        "other.txt",
    }
