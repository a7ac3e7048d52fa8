"""TensorBoard tracker, with event files in one folder per trial."""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysweep.trackers.tracker import FRONT, FrontPage, Step, TrackedTrial, Tracker

EVENT_FILES = "events.out.tfevents.*"
FILE_VERSION = "brain.Event:2"  # stored in the first event of every file


class TensorBoardTracker(Tracker):
    """Tracker that writes event files to ``folder`` without TensorFlow.

    Each session deletes the event files from earlier sessions and writes all events again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, _EventFile] = {}
        for pattern in ("trial-*", FRONT):
            for path in folder.glob(f"{pattern}/{EVENT_FILES}"):
                path.unlink()

    def log_step(self, trial: TrackedTrial, step: Step) -> None:
        writer = self._writer_of(trial)
        writer.add(_scalars(step.metrics), step.number)

    def log_status(self, trial: TrackedTrial) -> None:
        writer = self._writer_of(trial)
        text = f"{trial.status}: {trial.reason}" if trial.reason else str(trial.status)
        writer.add(_text("status", text), len(trial.steps))

    def _writer_of(self, trial: TrackedTrial) -> "_EventFile":
        """Return a trial's event file, which starts with the trial's configuration."""
        is_new = trial.name not in self._writers
        writer = self._writer(trial.name)
        if is_new:
            bullets = [f"- {name}: {value}" for name, value in trial.settings.items()]
            writer.add(_text("configuration", "\n".join(bullets)), step=0)
        return writer

    def log_front(self, front: FrontPage) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        # the first chunk of a PNG contains its width and height
        width, height = struct.unpack(">II", front.png[16:24])
        image = Summary.Image(
            height=height, width=width, colorspace=4, encoded_image_string=front.png
        )
        picture = Summary.Value(tag=FRONT, image=image)
        writer = self._writer(FRONT)
        writer.add(_text(FRONT, front.markdown), step=0)
        writer.add(Summary(value=[picture]), step=0)
        writer.add(_scalars(front.metrics), step=0)

    def _writer(self, name: str) -> "_EventFile":
        if name not in self._writers:
            self._writers[name] = _EventFile(self._folder / name)
        return self._writers[name]


class _EventFile:
    """A new event file, which is opened for each write. TensorBoard's own writer would start a thread."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        folder.mkdir(parents=True, exist_ok=True)
        self._path = (
            folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        )
        self._write(Event(wall_time=time.time(), file_version=FILE_VERSION))

    def add(self, summary: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        with self._path.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())


def _scalars(metrics: Mapping[str, float]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
    return Summary(value=values)


def _text(tag: str, text: str) -> Any:
    """Return a summary for the text plugin, which renders it as Markdown."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.metadata import create_summary_metadata

    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    metadata = create_summary_metadata(display_name=tag, description="")
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])
