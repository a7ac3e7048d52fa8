"""Tables of other tools, read as recordings.

Two kinds are supported. The published scores of *Margins in Contrastive Learning* have a row for each epoch, with
scores x100. Other tables have a row for each configuration and a description in ``NAME.table.yaml`` next to
``NAME.parquet``::

    polarity: {column: val_acc, direction: maximize, range: [0.55, 0.97]}
    similarity: {column: train_time, direction: minimize, range: [0.4, 310.0], log: true}
    cost: train_time              # seconds that a simulated worker spends on a trial
    parameters: [depth, width]
    ranges: [width]               # numeric columns to search as ranges even if few of their values were recorded

Both metrics are scaled to [0, 1], from the worse end of the range to the better one. The reference point of hypervolumes is
(0, 0).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import Field

from raysweep.config.strict import StrictModel
from raysweep.metrics.scores import Pair
from raysweep.replay import recording_files
from raysweep.replay.recordings import RecordedSweep

if TYPE_CHECKING:
    import pandas as pd

SUFFIX = ".table.yaml"
WORST: Pair = (0.0, 0.0)  # P and S at the worse ends of their ranges


class Metric(StrictModel):
    """A column that holds P or S, and its minimum and maximum value."""

    column: str
    direction: Literal["maximize", "minimize"]
    range: list[float] = Field(min_length=2, max_length=2)
    log: bool = False

    def scores(self, frame: "pd.DataFrame") -> "pd.Series[float]":
        """Return the metric scaled to [0, 1], with 1 at the better end."""
        values = recording_files.number_column(frame, self.column)
        low, high = self.range
        if self.log:
            values = values.map(math.log)
            low, high = math.log(low), math.log(high)
        shares = ((values - low) / (high - low)).clip(0.0, 1.0)  # rounding may leave the interval
        return shares if self.direction == "maximize" else 1 - shares


class Description(StrictModel):
    """The columns of P and S, of the cost and of the parameters."""

    polarity: Metric
    similarity: Metric
    cost: str
    parameters: list[str]
    ranges: list[str]

    def to_recording(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return the columns of a recording in which every trial has one rung."""
        return frame[self.parameters].assign(
            trial=range(len(frame)),
            examples_seen=1,
            seconds=frame[self.cost],
            kind="plain",
            polarity=self.polarity.scores(frame),
            similarity=self.similarity.scores(frame),
        )


def read(path: Path, where: Mapping[str, str] | None = None) -> RecordedSweep:
    """Read a recording or a foreign table, keeping rows whose columns have the values in ``where``."""
    frame = recording_files.read_frame(path)
    description_path = path.with_name(path.stem + SUFFIX)
    if description_path.exists():
        content: Any = yaml.safe_load(description_path.read_text(encoding="utf-8"))
        description = Description.model_validate(content)
        recording = recording_files.from_frame(description.to_recording(frame), str(path), where)
        return replace(recording, reference_point=WORST, ranges=frozenset(description.ranges))
    if "epoch" in frame:
        frame = _published_recording(frame)
    return recording_files.from_frame(frame, str(path), where)


def _published_recording(frame: "pd.DataFrame") -> "pd.DataFrame":
    parameters = ["model", "loss", "margin"]
    return frame[parameters].assign(
        trial=frame.groupby(parameters, sort=False, dropna=False).ngroup(),
        examples_seen=frame["epoch"],
        seconds=frame["epoch"],
        kind="plain",
        polarity=frame["polarity"] / 100,
        similarity=frame["similarity"] / 100,
    )
