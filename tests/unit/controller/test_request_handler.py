"""Requests to a running sweep: what they do, that a resume knows of them, and that nothing hostile does anything. No Ray."""

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
    """A sweep whose requests are read when the test says so."""

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

    def ask(self, action: str, **values: Any) -> Answer:
        identity = self.queue.add(Request.model_validate({"action": action, **values}))
        self.handler.serve()
        answer = self.queue.answer_to(identity)
        assert answer is not None
        assert self.queue.pending() == []
        return answer

    def done(self, action: str, **values: Any) -> str:
        answer = self.ask(action, **values)
        assert answer.accepted, answer.text
        return answer.text

    def rejected(self, action: str, **values: Any) -> str:
        answer = self.ask(action, **values)
        assert not answer.accepted, answer.text
        return answer.text

    def next(self) -> int:
        asked = self.sweep.ask()
        assert asked is not None
        self.sweep.place(asked[0])
        return asked[0]

    def rung(self, number: int, step: int) -> bool:
        folder = self.sweep.folder / "points" / point_name(number, step)
        folder.mkdir(exist_ok=True)
        return self.sweep.rung(number, rung(self.sweep.progress.configs[number], step))


def steered(folder: Path) -> list[SweepSteered]:
    return [event for event in read_events(folder / "ledger.jsonl") if isinstance(event, SweepSteered)]


def test_a_pause_begins_nothing_and_running_trials_end_their_rung(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    number = driver.next()
    assert not driver.rung(number, 1)
    assert "no trial and no rung begins; trials that end their rung first: 1" in driver.done("pause")
    assert driver.sweep.ask() is None
    assert not driver.sweep.take_progress(number, WITHIN), "the rung that it is in it ends"
    assert driver.rung(number, 2)
    driver.sweep.rest(number)
    (trial,) = load(tmp_path).trials
    assert (trial.status, trial.reason) == ("interrupted", "the sweep is paused")
    assert load(tmp_path).is_paused
    assert driver.sweep.ask() is None
    assert driver.sweep.status().text.startswith("search: paused, 1 of 12 trials begun, 0 running, 1 paused")
    assert driver.done("resume") == "resumed: trials start and continue"
    assert not load(tmp_path).is_paused
    assert driver.done("resume") == "the sweep was not paused; it continues"
    assert driver.next() == number, "what was cut off goes on first"
    assert not driver.rung(number, 3)


def test_a_trial_that_waited_for_its_worker_does_not_begin_a_rung_in_a_pause(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    number, _ = driver.sweep.ask() or pytest.fail("no trial")
    driver.done("pause")
    time.sleep(0.01)
    driver.sweep.place(number)
    assert driver.sweep.take_progress(number, WITHIN)
    driver.sweep.rest(number)
    assert load(tmp_path).trials[0].status == "interrupted"


def test_a_pause_is_not_billed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    driver = Driver.begin(tmp_path, budget__minutes="10")
    number = driver.next()
    now[0] += 60
    assert driver.sweep.status().text.endswith("at most 9:00 left"), "no trial has rested, so there is no pace"
    driver.done("pause")
    now[0] += 60
    assert driver.sweep.seconds == 120, "a trial still runs"
    assert driver.rung(number, 1)
    driver.sweep.rest(number)
    now[0] += 3600
    assert driver.sweep.seconds == 120
    assert driver.sweep.status().text.endswith("2:00 so far")
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path, budget__minutes="10")
    now[0] += 3600
    assert again.sweep.ask() is None and again.sweep.cause is None
    again.done("resume")
    assert again.sweep.seconds == pytest.approx(120)
    now[0] += 5
    assert again.next() == number
    assert again.sweep.seconds == pytest.approx(125)


def test_a_paused_sweep_stays_paused_when_it_is_resumed_and_ends_the_same(tmp_path: Path) -> None:
    expected = play(make(tmp_path / "whole", **PLAIN)[0])
    driver = Driver.begin(tmp_path / "run")
    number = driver.next()
    driver.rung(number, 1)
    driver.done("pause")
    driver.rung(number, 2)
    driver.sweep.rest(number)
    driver.sweep.finish("interrupted", "Ctrl-C")
    again = Driver.resumed(tmp_path / "run")
    assert again.sweep.ask() is None
    again.done("resume")
    assert play(again.sweep) == expected
    assert load(tmp_path / "run").status == "completed"


def test_fewer_workers_let_running_trials_end(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    driver.sweep.num_workers = 3
    numbers = [driver.next() for _ in range(3)]
    assert "running: 3" in driver.done("workers", workers=1)
    for number in numbers[:2]:
        assert not driver.rung(number, 1), "it goes on"
        driver.sweep.rest(number, failure="x")
        assert driver.sweep.ask() is None
    driver.sweep.rest(numbers[2], failure="x")
    driver.next()
    assert driver.sweep.ask() is None
    assert "at most 1 at a time" in driver.sweep.status().text
    refusal = driver.rejected("workers", workers=4)
    assert "at most 3 trials at a time" in refusal and "allowed: 1 to 3" in refusal
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path)
    again.sweep.num_workers = 3
    assert (again.next(), again.sweep.ask()) == (3, None)
    again.done("workers", workers=2)
    again.next()
    assert load(tmp_path).workers == 2


def test_a_trial_is_stopped_at_its_next_sign_of_life(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    running, between, lost, done = (driver.next() for _ in range(4))
    assert not driver.rung(running, 1)
    for step in range(1, 5):
        driver.rung(done, step)
    driver.sweep.rest(done)
    for number in (running, between, lost):
        assert driver.done("stop-trial", trial=number) == f"trial {number} stops at its next sign of life"
    assert driver.sweep.take_progress(running, WITHIN)
    driver.sweep.rest(running)
    assert driver.rung(between, 1)
    driver.sweep.rest(between)
    driver.sweep.lose(lost, Loss(Blame.PROCESS, "it died"))
    results = load(tmp_path)
    assert [trial.status for trial in results.trials] == ["stopped", "stopped", "stopped", "completed"]
    assert {trial.reason for trial in results.trials[:3]} == {"a person asked for it, with raysweep control"}
    assert [rung.trial for rung in results.rungs] == [running, *[done] * 4, between], "what was scored stays"
    for number, refusal in ((done, "completed"), (running, "stopped")):
        assert f"trial {number} has ended by now: {refusal}" in driver.rejected("stop-trial", trial=number)
    assert "there is no trial 9; those that have begun are 0 to 3" in driver.rejected("stop-trial", trial=9)


def test_trials_at_rest_are_stopped_at_once(tmp_path: Path) -> None:
    overrides = {"early_stopping__policy": "growth", "sampler": "random"}
    driver = Driver.begin(tmp_path, **overrides)
    paused = driver.next()
    assert driver.rung(paused, 1)
    driver.sweep.rest(paused)
    cut = driver.next()
    driver.done("pause")
    driver.rung(cut, 1)
    driver.sweep.rest(cut)
    assert driver.done("stop-trial", trial=paused) == f"trial {paused} stops for good"
    driver.done("stop-trial", trial=cut)
    assert [trial.status for trial in load(tmp_path).trials] == ["stopped", "stopped"]
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path, **overrides)
    again.done("resume")
    assert again.next() == 2
    assert [trial.status for trial in again.sweep.scheduler.trials.values()] == ["stopped", "stopped", "running"]


def test_a_driver_that_died_after_it_was_told_to_stop_a_trial_stops_it_when_it_is_resumed(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    number = driver.next()
    driver.rung(number, 1)
    driver.done("stop-trial", trial=number)
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path)
    assert load(tmp_path).trials[0].status == "stopped"
    assert again.next() == 1


def test_tried_configurations_come_next_and_a_resume_proposes_the_same(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    driver.next()
    wanted = [{"loss": "triplet", "margin": 0.1, "learning_rate": 1e-4}, {"loss": "softmax"}]
    for config in wanted:
        assert "to be the next new trial: loss " in driver.done("try", config=config)
    trial = driver.next()
    assert wanted[0].items() <= driver.sweep.scheduler.trials[trial].values.items()
    assert "trial 1: begins, as raysweep control asked for" in driver.out.getvalue()
    proposed = [driver.sweep.scheduler.trials[driver.next()].values for _ in range(3)]
    assert wanted[1].items() <= proposed[0].items()
    driver.sweep.ledger.close()
    stored = list(read_events(tmp_path / "ledger.jsonl"))
    told = next(i for i, event in enumerate(stored) if isinstance(event, SweepSteered) and event.config == wanted[1])
    for name, adopt in (("same", False), ("adopted", True)):
        folder = tmp_path / name
        (folder / "points").mkdir(parents=True)
        again, _ = assemble(*settings(tmp_path, **PLAIN), Ledger(folder))
        again.replay(stored[: told + 1], adopt=adopt)
        values = [again.scheduler.propose().values for _ in range(4)]
        assert wanted[0].items() <= values[0].items() and wanted[1].items() <= values[1].items()
        if not adopt:
            assert values[1:] == [driver.sweep.scheduler.trials[n].values for n in (2, 3, 4)]


def test_what_cannot_be_tried_is_refused_with_the_reason(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path, budget__trials="3")
    values = driver.sweep.scheduler.trials[driver.next()].values
    assert "trial 0 has this very configuration" in driver.rejected("try", config=dict(values))
    assert "--try: margin is 7; allowed: a number from" in driver.rejected(
        "try", config={"loss": "triplet", "margin": 7}
    )
    assert "names no parameter" in driver.rejected("try", config={})
    assert "--try: los: unknown key (did you mean loss?); allowed: " in driver.rejected("try", config={"los": 2})
    assert "--try: l [2J: unknown key" in driver.rejected("try", config={"l\x1b[2J": 1}), (
        "nothing that a terminal acts on"
    )
    whole = {**values, "learning_rate": 1e-4}
    driver.done("try", config=whole)
    assert "waits to be tried already" in driver.rejected("try", config=whole)
    driver.done("try", config={"loss": "softmax"})
    refusal = driver.rejected("try", config={"loss": "triplet"})
    assert "budget.trials is 3, of which 1 have begun and 2 are spoken for" in refusal
    assert f"raysweep run --resume {tmp_path} --budget.trials TOTAL" in refusal
    assert len(steered(tmp_path)) == 2, "what was refused is not in the ledger"


def test_what_a_grid_has_tried_is_refused(tmp_path: Path) -> None:
    choices = {"loss": "{choices: [softmax, cosine_similarity]}", "learning_rate": "{choices: [1e-5, 1e-4]}"}
    single = {"freezing": "none", "batch_size": "32", "warmup_fraction": "0.1"}
    space = {f"space__{name}": value for name, value in {**choices, **single}.items()}
    driver = Driver.begin(tmp_path, sampler="grid", **space)
    for _ in range(2):
        driver.done("try", config={"loss": "softmax"})
        driver.next()
    assert driver.rejected("try", config={"loss": "softmax"}) == (
        "--try: the grid has no combination with these values left to try"
    )


def test_first_in_a_file_is_trial_0_also_when_resumed_with_a_space_that_grew(tmp_path: Path) -> None:
    first = "[{loss: triplet, margin: 0.1}, {loss: softmax}, {loss: contrastive}]"
    driver = Driver.begin(tmp_path, first=first)
    for _ in range(2):
        driver.sweep.rest(driver.next(), failure="x")
    assert "trial 0: begins, as first[0] of the sweep's file says" in driver.out.getvalue()
    driver.sweep.ledger.close()
    for adopt in (False, True):
        again = Driver.resumed(tmp_path, first=first, adopt=adopt)
        assert [trial.origin for trial in again.sweep.scheduler.trials.values()] == ["first[0]", "first[1]"]
        trial = again.sweep.scheduler.propose()
        assert (trial.origin, trial.values["loss"]) == ("first[2]", "contrastive")
        assert again.sweep.scheduler.propose().origin is None


def test_each_request_acts_once_though_the_driver_dies_before_it_answers(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)

    def dies(identity: str, answer: Answer) -> None:
        raise KeyboardInterrupt

    driver.queue.answer = dies  # type: ignore[method-assign]
    identity = driver.queue.add(Request(action="try", config={"loss": "softmax"}))
    with pytest.raises(KeyboardInterrupt):
        driver.handler.serve()
    driver.sweep.ledger.close()
    again = Driver.resumed(tmp_path)
    assert len(again.sweep.scheduler.requested) == 1
    again.handler.serve()
    answer = again.queue.answer_to(identity)
    assert answer == Answer(accepted=True, text="it was done before the driver was started again")
    assert len(again.sweep.scheduler.requested) == len(steered(tmp_path)) == 1
    assert again.queue.pending() == []


def test_a_request_that_comes_twice_is_answered_once(tmp_path: Path) -> None:
    """The thread that polls for requests may have read one just before it was answered."""
    driver = Driver.begin(tmp_path)
    identity = driver.queue.add(Request(action="stop-trial", trial=0))
    (queued,) = driver.queue.pending()
    new_requests = [queued, queued]
    RequestHandler(driver.sweep, driver.queue, lambda: new_requests).serve()
    assert not (driver.queue.answer_to(identity) or pytest.fail("none")).accepted
    assert (driver.queue.answer_to(identity), driver.out.getvalue().count("refused")) == (None, 1)


def test_nothing_is_tried_once_the_search_is_over(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path, early_stopping__plateau="{trials: 1, growth: 0.5}")
    driver.sweep.is_over = True
    assert "the search is over" in driver.rejected("try", config={"loss": "softmax"})
    driver.sweep.is_over = False
    for _ in range(3):
        number = driver.next()
        for step in range(1, 5):
            driver.rung(number, step)
        driver.sweep.rest(number)
        if driver.sweep.scheduler.on_plateau:
            break
    assert "the search is over" in driver.rejected("try", config={"loss": "softmax"})


def test_storage_that_fails_to_take_an_answer_does_not_end_the_sweep(tmp_path: Path) -> None:
    driver = Driver.begin(tmp_path)
    answer_of = driver.queue.answer

    def fails(identity: str, answer: Answer) -> None:
        raise OSError(28, "No space left on device")

    driver.queue.answer = fails  # type: ignore[method-assign]
    identity = driver.queue.add(Request(action="workers", workers=2))
    for _ in range(2):
        driver.handler.serve()
    driver.queue.answer = answer_of  # type: ignore[method-assign]
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
        (b'{"action": "try", "config": {"margin": 1' + b"0" * 5000 + b"}}", "is not a valid request: "),
        (b"!!python/object/apply:os.system ['true']", "is not a valid request: "),
        (b'{"action": "\x1b[2Jboo"}', "is not a valid request: "),
    ],
)
def test_what_is_no_request_is_rejected_and_set_aside(tmp_path: Path, content: bytes, problem: str) -> None:
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
    assert {path.name for path in folder.iterdir()} == {link.name, pipe.name, subfolder.name, "other.txt"}
