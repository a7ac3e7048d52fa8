"""What trackers are given of a ledger, while a sweep runs and afterwards; and what of one that fails, hangs or is missing."""

import importlib.util
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raysweep.config.trackers import TRACKERS, TrackersConfig
from raysweep.errors import InputError
from raysweep.results.events import (
    Event,
    PointsScored,
    RungFinished,
    SessionStarted,
    TrialEnded,
    TrialPaused,
    TrialResumed,
    TrialStarted,
)
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.types import Point, TrialStatus
from raysweep.storage.folder import LocalFolder
from raysweep.trackers import opening, tracking
from raysweep.trackers.sweep_events import SweepEvents
from raysweep.trackers.tracker import FrontPage, Step, TrackedTrial, Tracker
from support.command_line import raysweep_here
from support.ledgers import INFO, StoredTrial, write_ledger

TRIALS = [
    StoredTrial({"loss": "triplet", "learning_rate": 1e-5}, "completed", "done", [(0.70, 0.44), (0.75, 0.43)]),
    StoredTrial({"loss": "softmax", "learning_rate": 2e-5}, "paused", "waits", [(0.72, 0.435)]),
    StoredTrial({"loss": "softmax", "learning_rate": 1.0}, "failed", "diverged", []),
]


class Notes(Tracker):
    """Writes down what it is given."""

    name = "notes"

    def __init__(self) -> None:
        self.steps: list[tuple[int, Step]] = []
        self.rests: list[tuple[int, str]] = []
        self.fronts: list[FrontPage] = []
        self.is_closed = threading.Event()

    def step(self, trial: TrackedTrial, step: Step) -> None:
        assert trial.steps[-1] is step
        self.steps.append((trial.number, step))

    def rest(self, trial: TrackedTrial) -> None:
        self.rests.append((trial.number, f"{trial.status}: {trial.reason}"))

    def front(self, front: FrontPage) -> None:
        self.fronts.append(front)

    def close(self) -> None:
        self.is_closed.set()


def point(kind: str, polarity: float, similarity: float, **others: Any) -> Point:
    given = {"trial": 0, "step": 1, "value": None, **others}
    scores = {"polarity": polarity, "polarity_std": 0.1, "similarity": similarity, "similarity_std": 0.1}
    return Point(kind=kind, split="dev", width=8, retention=similarity / 0.5, **scores, **given)


def rung(*points: Point) -> RungFinished:
    return RungFinished(trial=0, step=1, examples_seen=64, seconds=2.0, loss=0.5, stop=None, points=points)


def feed(run: Path, tracker: Tracker, events: Sequence[Event]) -> SweepEvents:
    passed_on = SweepEvents(tracker, LocalFolder(run))
    for event in events:
        passed_on.take(event)
    return passed_on


def test_a_step_has_the_best_point_and_the_plain_one(tmp_path: Path) -> None:
    reference = point("reference", 0.6, 0.5, trial=None, step=None)
    points = (point("plain", 0.9, 0.2), point("concat", 0.8, 0.4, value=0.3))
    notes = Notes()
    feed(
        tmp_path,
        notes,
        [
            SessionStarted(info=INFO),
            PointsScored(points=(reference,)),
            TrialStarted(trial=0, config={"loss": "triplet"}),
            rung(*points),
        ],
    )
    ((number, step),) = notes.steps
    assert (number, step.number) == (0, 1)
    assert step.metrics == {
        "loss": 0.5,
        "examples_seen": 64.0,
        "seconds": 2.0,
        "polarity": 0.8,
        "similarity": 0.4,
        "retention": 0.8,
        "objective": pytest.approx(0.6),
        "plain/polarity": 0.9,
        "plain/similarity": 0.2,
        "plain/retention": 0.4,
    }


def test_a_point_that_meets_the_constraints_is_better_than_any_that_does_not(tmp_path: Path) -> None:
    import dataclasses

    info = dataclasses.replace(INFO, constraints={"retention": 0.9})
    reference = point("reference", 0.6, 0.5, trial=None, step=None)
    notes = Notes()
    feed(
        tmp_path,
        notes,
        [
            SessionStarted(info=info),
            PointsScored(points=(reference,)),
            TrialStarted(trial=0, config={"loss": "triplet"}),
            rung(point("plain", 0.9, 0.4), point("concat", 0.62, 0.46, value=0.3)),
        ],
    )
    assert notes.steps[0][1].metrics["polarity"] == 0.62


def test_a_trials_rests_are_told_and_its_revivals_are_not(tmp_path: Path) -> None:
    notes = Notes()
    feed(
        tmp_path,
        notes,
        [
            SessionStarted(info=INFO),
            TrialStarted(trial=0, config={"loss": "triplet"}),
            TrialPaused(trial=0, reason="waits"),
            TrialResumed(trial=0),
            TrialEnded(trial=0, status=TrialStatus.COMPLETED, reason="done"),
        ],
    )
    assert notes.rests == [(0, "paused: waits"), (0, "completed: done")]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """A tracker that stands for TensorBoard."""
    notes = Notes()
    monkeypatch.setattr(tracking, "openers", lambda config, to: {"tensorboard": lambda: notes})
    return notes


CONFIG = TrackersConfig.model_validate({"tensorboard": {}})


def test_events_come_as_the_ledger_takes_them_and_the_front_in_the_end(tmp_path: Path, notes: Notes) -> None:
    write_ledger(tmp_path, TRIALS[:1])
    warnings: list[str] = []
    ledger = Ledger(tmp_path)
    events = [event for event, _ in ledger.open()]
    followed = tracking.Tracking(CONFIG, ledger.run, "s", warnings.append)
    followed.take_all(events)
    ledger.on_append = followed.take
    ledger.append(TrialStarted(trial=1, config={"loss": "softmax"}))
    ledger.append(TrialEnded(trial=1, status=TrialStatus.FAILED, reason="it broke"))
    ledger.close()
    followed.finish()
    assert notes.is_closed.is_set()
    assert [(number, step.number) for number, step in notes.steps] == [(0, 1), (0, 2)]
    assert notes.rests[-1] == (1, "failed: it broke")
    (front,) = notes.fronts
    assert len(front.rows) == front.metrics["members"] == 2
    assert front.png.startswith(b"\x89PNG")
    assert front.metrics["dev/hypervolume"] > 0
    assert warnings == []


@pytest.mark.parametrize("moment", ["open", "step", "front"])
def test_one_that_fails_warns_once_and_the_others_go_on(
    moment: str, tmp_path: Path, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Notes):
        def __init__(self) -> None:
            super().__init__()
            if moment == "open":
                raise OSError("the server\nis down")

        def step(self, trial: TrackedTrial, step: Step) -> None:
            if moment == "step":
                raise OSError("the server\nis down")

        def front(self, front: FrontPage) -> None:
            if moment == "front":
                raise OSError("the server\nis down")

    write_ledger(tmp_path, TRIALS)
    monkeypatch.setattr(tracking, "openers", lambda config, to: {"mlflow": Broken, "tensorboard": lambda: notes})
    warnings: list[str] = []
    followed = tracking.Tracking(CONFIG, LocalFolder(tmp_path), "s", warnings.append)
    followed.take_all(read_events(tmp_path / "ledger.jsonl"))
    followed.finish()
    assert warnings == [
        f"trackers: mlflow is left out from now on: the server is down; later: raysweep track {tmp_path} --to mlflow"
    ]
    assert len(notes.steps) == 3
    assert notes.is_closed.is_set()


def test_one_that_hangs_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    until_the_end = threading.Event()

    class Hanging(Notes):
        def step(self, trial: TrackedTrial, step: Step) -> None:
            until_the_end.wait()

    write_ledger(tmp_path, TRIALS)
    monkeypatch.setattr(tracking, "openers", lambda config, to: {"mlflow": Hanging})
    monkeypatch.setattr(tracking, "FINISH_SECONDS", 0.2)
    warnings: list[str] = []
    followed = tracking.Tracking(CONFIG, LocalFolder(tmp_path), "s", warnings.append)
    began = time.monotonic()
    followed.take_all(read_events(tmp_path / "ledger.jsonl"))
    assert time.monotonic() - began < 5
    followed.finish()
    until_the_end.set()
    assert [warning.partition(";")[0] for warning in warnings] == [
        "trackers: mlflow does not come to an end and is left alone"
    ]


def test_what_is_not_installed_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in TRACKERS:
        config = TrackersConfig.model_validate({name: {}})
        with pytest.raises(InputError, match=rf"trackers\.{name}: .* pip install 'raysweep\[{name}\]'"):
            opening.check(config, "/runs")
    opening.check(TrackersConfig(), "/runs")


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_beside_a_bucket_a_place_has_to_be_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match=f"trackers.{name}: needs "):
        opening.check(TrackersConfig.model_validate({name: {}}), "s3://bucket/runs")
    named = {"uri": "http://host"} if name == "mlflow" else {"folder": "/tmp/x"}
    opening.check(TrackersConfig.model_validate({name: named}), "s3://bucket/runs")


REFUSED = {
    "trackers": {
        "[tensorboard, mlfow]": "has 'mlfow'; allowed: tensorboard, mlflow, wandb, trackio",
        "{mlfow: {}}": "unknown key (did you mean mlflow?)",
        "{mlflow: {folder: x}}": "unknown key; allowed: project, uri",
        "{mlflow: {uri: 'http://me:secret@host'}}": "contains a password",
        "{mlflow: {uri: ''}}": "trackers.mlflow.uri is empty; allowed: ",
        "{tensorboard: {folder: 's3://b/x'}}": "trackers.tensorboard.folder is 's3://b/x'; allowed: a local folder",
        "{wandb: {mode: sometimes}}": "allowed: 'offline' or 'online'",
        "{wandb: {project: ''}}": "at least 1 character",
        "all": "allowed: a mapping of tensorboard, mlflow, wandb, trackio",
    }
}


@pytest.mark.parametrize("value", REFUSED["trackers"])
def test_settings_that_are_none_are_refused(value: str) -> None:
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document
    from support.paths import SPACES

    document = Document.read(SPACES / "smoke.yaml")
    document.override("trackers", value)
    with pytest.raises(InputError) as caught:
        configuration.parse(document)
    assert REFUSED["trackers"][value] in str(caught.value)
    assert str(caught.value).startswith("--trackers")


def test_names_alone_stand_for_trackers_with_nothing_set() -> None:
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document
    from support.paths import SPACES

    document = Document.read(SPACES / "smoke.yaml")
    assert configuration.parse(document).trackers.named == ()
    document.override("trackers", "[mlflow, tensorboard]")
    config = configuration.parse(document)
    assert config.trackers.named == ("tensorboard", "mlflow")
    assert type(config).model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "tensorbord"], "--to is 'tensorbord'; allowed: tensorboard, mlflow, wandb, trackio"),
        (["--to", "tensorboard", "--uri", "http://host"], "--uri goes with none of tensorboard"),
        (["--to", "wandb", "--mode", "sometimes"], "--mode is 'sometimes'; allowed: 'offline' or 'online'"),
    ],
)
def test_bad_options_of_track_are_refused(options: list[str], message: str, tmp_path: Path) -> None:
    write_ledger(tmp_path, TRIALS)
    done = raysweep_here(tmp_path, "track", str(tmp_path), *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.jsonl"]
