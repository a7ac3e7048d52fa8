"""Losses derived from the messages of Ray 2.60 about dead actors, and the jobs that Tune receives."""

from pathlib import Path

import pytest

from raysweep.control.request_queue import RequestQueue
from raysweep.controller.failures import Blame, Loss
from raysweep.controller.front_scores import FrontRung, FrontScores
from raysweep.controller.request_handler import RequestHandler
from raysweep.ray_tune.tune import Assignment, TuneSearcher, _Error
from raysweep.results.events import SweepSteered
from support.sweeps import make, play

TRACEBACK = "Traceback (most recent call last):\n  File ...\n"
KILLED_FOR_MEMORY = (
    "ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory. Memory on the node "
    "(IP: 192.0.2.2, ID: 6ed7) was 11.83GB used / 23.54GB limit (0.502475)\nOOM kill reason: Memory usage 12642779136B "
    "exceeded threshold of 12638257152B\n22851\t3.11\tray::A.f"
)
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: X\n"
NODE = "The actor died because its node has died. Node Id: 6ed7"


@pytest.mark.parametrize(
    ("text", "had_begun", "blame", "needs_memory"),
    [
        (TRACEBACK + KILLED_FOR_MEMORY, True, Blame.PROCESS, True),
        (
            TRACEBACK + DIED + "Worker unexpectedly exits with a connection error code 2.",
            True,
            Blame.PROCESS,
            False,
        ),
        (TRACEBACK + DIED + NODE, True, Blame.NODE, False),
        (TRACEBACK + DIED + "It was killed by SIGKILL.", False, Blame.NODE, False),
        (
            TRACEBACK + "The actor died because of an error raised in its creation task",
            False,
            Blame.PROCESS,
            False,
        ),
    ],
)
def test_blame_for_a_lost_actor(
    text: str, had_begun: bool, blame: Blame, needs_memory: bool
) -> None:
    error = _Error(text, had_begun, None)
    assert not error.is_raised
    loss = error.loss
    assert (loss.blame, loss.needs_memory) == (blame, needs_memory)
    assert "\n" not in loss.reason
    assert loss.needs_memory or not had_begun or text.splitlines()[-1] in loss.reason


def test_reason_for_a_kill_replaces_the_message_of_ray() -> None:
    assert _Error(TRACEBACK + NODE, True, "it was silent").loss.reason == "it was silent"


def test_trials_recompute_activations_if_configured(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, resources__recompute_activations="true")
    searcher = TuneSearcher(
        sweep,
        FrontScores(sweep, has_test=False),
        RequestHandler(sweep, RequestQueue(sweep.run), list),
    )
    assert searcher.suggest("a")["job"].recomputes


def test_a_pause_after_the_search_starts_no_scoring(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, budget__trials="2")
    play(sweep, finish=False)
    searcher = TuneSearcher(
        sweep,
        FrontScores(sweep, has_test=True),
        RequestHandler(sweep, RequestQueue(sweep.run), list),
    )
    assert isinstance(searcher.suggest("a")["job"], FrontRung)
    sweep.steer(SweepSteered(request="1", action="pause"))
    assert searcher.suggest("b") is None
    sweep.steer(SweepSteered(request="2", action="resume"))
    assert isinstance(searcher.suggest("c")["job"], FrontRung)


def test_trial_killed_for_memory_resumes_with_recomputation(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    request_handler = RequestHandler(sweep, RequestQueue(sweep.run), list)
    searcher = TuneSearcher(sweep, FrontScores(sweep, has_test=False), request_handler)
    first: Assignment = searcher.suggest("a")["job"]
    second: Assignment = searcher.suggest("b")["job"]
    for trial in (first, second):
        sweep.lose(trial.number, Loss(Blame.PROCESS, "it died", needs_memory=trial is second))
    again = [searcher.suggest(name)["job"] for name in ("c", "d")]
    assert [(assignment.number, assignment.recomputes) for assignment in again] == [
        (first.number, False),
        (second.number, True),
    ]
