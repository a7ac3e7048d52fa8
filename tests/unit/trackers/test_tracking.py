"""Trackers during and after a sweep, and trackers that fail, hang or are not installed."""

import dataclasses
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
    SessionFinished,
    TrialEnded,
    TrialPaused,
    TrialResumed,
    TrialStarted,
)
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.types import Point, TrialStatus
from raysweep.storage.folder import LocalFolder
from raysweep.trackers import opening, tracking
from raysweep.trackers.tracker import FrontPage, Step, TrackedTrial, Tracker
from raysweep.trackers.tracking import SweepEvents
from support.command_line import raysweep_here
from support.ledgers import INFO, StoredSweep, StoredTrial, start_session, write_ledger
from support.points import make_scores

TRIALS = [
    StoredTrial(
        {"loss": "triplet", "learning_rate": 1e-5},
        "completed",
        "done",
        [(0.70, 0.44), (0.75, 0.43)],
    ),
    StoredTrial({"loss": "softmax", "learning_rate": 2e-5}, "paused", "waits", [(0.72, 0.435)]),
    StoredTrial({"loss": "softmax", "learning_rate": 1.0}, "failed", "diverged", []),
]


class Recorder(Tracker):
    """Records its calls."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, Step]] = []
        self.statuses: list[tuple[int, str]] = []
        self.fronts: list[FrontPage] = []
        self.ends: list[tuple[str, str]] = []
        self.is_closed = threading.Event()

    def log_step(self, trial: TrackedTrial, step: Step) -> None:
        assert trial.steps[-1] is step
        self.steps.append((trial.number, step))

    def log_status(self, trial: TrackedTrial) -> None:
        self.statuses.append((trial.number, f"{trial.status}: {trial.reason}"))

    def log_front(self, front: FrontPage) -> None:
        self.fronts.append(front)

    def log_end(self, status: str, reason: str) -> None:
        self.ends.append((status, reason))

    def close(self) -> None:
        self.is_closed.set()


def point(kind: str, polarity: float, similarity: float, **others: Any) -> Point:
    fields = {"trial": 0, "step": 1, "value": None, **others}
    scores = make_scores(polarity, similarity, retention=similarity / 0.5)
    return Point(kind=kind, split="dev", width=8, scores=scores, **fields)


def rung(*points: Point) -> RungFinished:
    return RungFinished(
        trial=0, step=1, examples_seen=64, seconds=2.0, loss=0.5, stop=None, points=points
    )


def feed(run: Path, tracker: Tracker, events: Sequence[Event]) -> SweepEvents:
    sweep_events = SweepEvents(tracker, LocalFolder(run))
    for event in events:
        sweep_events.take(event)
    return sweep_events


def test_step_contains_best_and_plain_point(tmp_path: Path) -> None:
    reference = point("reference", 0.6, 0.5, trial=None, step=None)
    points = (point("plain", 0.9, 0.2), point("concat", 0.8, 0.4, value=0.3))
    recorder = Recorder()
    feed(
        tmp_path,
        recorder,
        [
            start_session(tmp_path),
            PointsScored(points=(reference,)),
            TrialStarted(trial=0, config={"loss": "triplet"}),
            rung(*points),
        ],
    )
    ((number, step),) = recorder.steps
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


def test_feasible_point_ranks_above_infeasible(tmp_path: Path) -> None:
    info = dataclasses.replace(INFO, constraints={"retention": 0.9})
    reference = point("reference", 0.6, 0.5, trial=None, step=None)
    recorder = Recorder()
    feed(
        tmp_path,
        recorder,
        [
            start_session(tmp_path, info),
            PointsScored(points=(reference,)),
            TrialStarted(trial=0, config={"loss": "triplet"}),
            rung(point("plain", 0.9, 0.4), point("concat", 0.62, 0.46, value=0.3)),
        ],
    )
    assert recorder.steps[0][1].metrics["polarity"] == 0.62


def test_pauses_and_ends_are_logged_but_not_resumes(tmp_path: Path) -> None:
    recorder = Recorder()
    feed(
        tmp_path,
        recorder,
        [
            start_session(tmp_path),
            TrialStarted(trial=0, config={"loss": "triplet"}),
            TrialPaused(trial=0, reason="waits"),
            TrialResumed(trial=0),
            TrialEnded(trial=0, status=TrialStatus.COMPLETED, reason="done"),
        ],
    )
    assert recorder.statuses == [(0, "paused: waits"), (0, "completed: done")]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Replace TensorBoard with a recording tracker."""
    recorder = Recorder()
    monkeypatch.setattr(
        tracking, "tracker_openers", lambda config, to: {"tensorboard": lambda: recorder}
    )
    return recorder


CONFIG = TrackersConfig.model_validate({"tensorboard": {}})


def test_events_arrive_as_appended_and_front_at_the_end(tmp_path: Path, recorder: Recorder) -> None:
    write_ledger(tmp_path, TRIALS[:1])
    warnings: list[str] = []
    ledger = Ledger(tmp_path)
    events = ledger.open()
    tracker_session = tracking.Tracking(CONFIG, ledger.run, "s", warnings.append)
    tracker_session.take_all(events)
    ledger.listeners.append(tracker_session.take)
    ledger.append(TrialStarted(trial=1, config={"loss": "softmax"}))
    ledger.append(TrialEnded(trial=1, status=TrialStatus.FAILED, reason="it broke"))
    ledger.append(SessionFinished(status="budget", reason="time", seconds=9.0))
    ledger.close()
    tracker_session.finish()
    assert recorder.is_closed.is_set()
    assert [(number, step.number) for number, step in recorder.steps] == [(0, 1), (0, 2)]
    assert recorder.statuses[-1] == (1, "failed: it broke")
    (front,) = recorder.fronts
    assert len(front.rows) == front.metrics["members"] == 2
    assert front.png.startswith(b"\x89PNG")
    assert front.metrics["dev/hypervolume"] > 0
    assert recorder.ends == [("budget", "time")]
    assert warnings == []


def test_a_sweep_without_an_end_has_no_status(tmp_path: Path, recorder: Recorder) -> None:
    write_ledger(tmp_path, TRIALS[:1], StoredSweep(finish=None))
    tracking.fill(CONFIG, LocalFolder(tmp_path))
    assert len(recorder.fronts) == 1
    assert recorder.ends == []


@pytest.mark.parametrize("moment", ["open", "step", "front"])
def test_failing_tracker_warns_once_and_others_continue(
    moment: str, tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Recorder):
        def __init__(self) -> None:
            super().__init__()
            if moment == "open":
                raise OSError("the server\nis down")

        def log_step(self, trial: TrackedTrial, step: Step) -> None:
            if moment == "step":
                raise OSError("the server\nis down")

        def log_front(self, front: FrontPage) -> None:
            if moment == "front":
                raise OSError("the server\nis down")

    write_ledger(tmp_path, TRIALS)
    monkeypatch.setattr(
        tracking,
        "tracker_openers",
        lambda config, to: {"mlflow": Broken, "tensorboard": lambda: recorder},
    )
    warnings: list[str] = []
    tracker_session = tracking.Tracking(CONFIG, LocalFolder(tmp_path), "s", warnings.append)
    tracker_session.take_all(read_events(tmp_path / "ledger.jsonl"))
    tracker_session.finish()
    (warning,) = warnings
    assert warning.startswith("trackers: mlflow") and "the server is down" in warning
    assert warning.endswith(f"raysweep track {tmp_path} --to mlflow")
    assert len(recorder.steps) == 3
    assert recorder.is_closed.is_set()


def test_hanging_tracker_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    class Hanging(Recorder):
        def log_step(self, trial: TrackedTrial, step: Step) -> None:
            end.wait()

    write_ledger(tmp_path, TRIALS)
    monkeypatch.setattr(tracking, "tracker_openers", lambda config, to: {"mlflow": Hanging})
    monkeypatch.setattr(tracking, "FINISH_SECONDS", 0.2)
    warnings: list[str] = []
    tracker_session = tracking.Tracking(CONFIG, LocalFolder(tmp_path), "s", warnings.append)
    began = time.monotonic()
    tracker_session.take_all(read_events(tmp_path / "ledger.jsonl"))
    assert time.monotonic() - began < 5
    tracker_session.finish()
    end.set()
    (warning,) = warnings
    assert warning.startswith("trackers: mlflow abandoned") and "0.2" in warning


def test_missing_client_is_reported_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in TRACKERS:
        config = TrackersConfig.model_validate({name: {}})
        with pytest.raises(
            InputError, match=rf"trackers\.{name}: .* pip install 'raysweep\[{name}\]'"
        ):
            opening.check_trackers(config, "/runs")
    opening.check_trackers(TrackersConfig(), "/runs")


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_runs_in_bucket_require_destination(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match=f"trackers.{name}: .* not set.*s3://bucket/runs"):
        opening.check_trackers(TrackersConfig.model_validate({name: {}}), "s3://bucket/runs")
    named = {"uri": "http://host"} if name == "mlflow" else {"folder": "/tmp/x"}
    opening.check_trackers(TrackersConfig.model_validate({name: named}), "s3://bucket/runs")


REJECTED = {
    "trackers": {
        "[tensorboard, mlfow]": "contains 'mlfow'; allowed: tensorboard, mlflow, wandb, trackio",
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


@pytest.mark.parametrize("value", REJECTED["trackers"])
def test_invalid_settings_are_rejected(value: str) -> None:
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document
    from support.paths import SPACES

    document = Document.read(SPACES / "smoke.yaml")
    document.override("trackers", value)
    with pytest.raises(InputError) as caught:
        configuration.parse(document)
    assert REJECTED["trackers"][value] in str(caught.value)
    assert str(caught.value).startswith("--trackers")


def test_list_of_names_enables_trackers_with_defaults() -> None:
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
        (
            ["--to", "tensorbord"],
            "--to is 'tensorbord'; allowed: tensorboard, mlflow, wandb, trackio",
        ),
        (
            ["--to", "tensorboard", "--uri", "http://host"],
            "--uri: unknown setting for tensorboard; allowed: folder",
        ),
        (
            ["--to", "wandb", "--mode", "sometimes"],
            "--mode is 'sometimes'; allowed: 'offline' or 'online'",
        ),
    ],
)
def test_invalid_options_of_track_are_rejected(
    options: list[str], message: str, tmp_path: Path
) -> None:
    write_ledger(tmp_path, TRIALS)
    done = raysweep_here(tmp_path, "track", str(tmp_path), *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "ledger.jsonl"]


@pytest.mark.parametrize("uri", ["raysweep-runs/mlruns", "/data/mlruns", "file:///data/mlruns"])
def test_folder_is_rejected_as_mlflow_uri(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    config = TrackersConfig.model_validate({"mlflow": {}})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(InputError, match=rf"trackers\.mlflow: uri is '{uri}'"):
        opening.check_trackers(config, "/runs")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    opening.check_trackers(config, "/runs")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    for allowed in (
        "sqlite:///mlflow.db",
        "http://host:5000",
        "databricks",
        "databricks://profile",
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", allowed)
        opening.check_trackers(config, "/runs")
