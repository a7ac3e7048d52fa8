"""The run folder: an append-only ledger of what happened, and the tables that the report reads.

``ledger.jsonl`` holds one JSON object a line and is the source of truth. Events, told apart by ``event``:

``run``     the sweep's settings, written first: see :class:`RunInfo`
``trial``   a configuration was proposed: ``trial``, ``config``
``rung``    a trial was evaluated: a :class:`Rung`'s fields and ``points``, a list of :class:`Point`
``end``     a trial ended: ``trial``, ``status``, ``reason``, ``seconds``, ``gpu_seconds``
``points``  operating points of no rung: the reference, the oracle, and test scores of front members
``finish``  the sweep ended: ``status`` (``completed``, ``interrupted``, ``budget``), ``reason``, ``seconds``
"""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from raysweep.errors import InputError
from raysweep.pareto import non_dominated

SCHEMA = 1
Split = Literal["dev", "test"]
PointKey = tuple[str, float | None]  # an operating point's kind and value


@dataclass(frozen=True)
class RunInfo:
    """What a sweep was: everything the report states about it. Scores are means over ``num_queries`` queries."""

    name: str
    version: str
    dataset: str
    model: str
    reference: str
    k: int
    rank_weights: str
    polarity_weight: float
    similarity: str  # what the objective weighs against polarity: "similarity" or "retention"
    num_trials: int
    num_queries: dict[str, int]  # by split
    num_pool: dict[str, int]  # by split
    label_names: tuple[str, ...]
    seed: int
    schema: int = SCHEMA

    def objective(self, point: "Point") -> float:
        """What the sweep judged this point by."""
        return objective(point, self.polarity_weight, self.similarity)


@dataclass(frozen=True)
class Point:
    """One operating point: a retrievable encoder and its scores on one split, all in [0, 1].

    ``kind`` is one of :mod:`raysweep.operating` (``plain`` is the tuned encoder as it is), ``reference`` (R itself) or
    ``oracle`` (the limit no encoder can pass); ``value`` is the kind's parameter, or None. ``trial`` and ``step`` are None
    for points that no trial made. ``width`` is the embedding's dimension, None for the oracle.
    """

    trial: int | None
    step: int | None
    kind: str
    value: float | None
    split: Split
    width: int | None
    polarity: float
    polarity_std: float
    similarity: float
    similarity_std: float
    retention: float

    @property
    def key(self) -> PointKey:
        return self.kind, self.value

    @property
    def name(self) -> str:
        """``TRIAL:STEP`` of a plain point, ``TRIAL:STEP:KIND=VALUE`` of another: what ``export --point`` takes."""
        return f"{self.trial}:{self.step}" + ("" if self.kind == "plain" else f":{key_name(self.key)}")


def key_name(key: PointKey) -> str:
    """An operating point's kind and value as one word, such as ``concat=0.3``."""
    return key[0] if key[1] is None else f"{key[0]}={key[1]:g}"


def point_values(point: Point) -> dict[str, Any]:
    """A point as a rung's event holds it: without the trial and step, which the event has."""
    values = dataclasses.asdict(point)
    del values["trial"], values["step"]
    return json.loads(json.dumps(values, allow_nan=False))  # type: ignore[no-any-return]


def objective(point: Point, polarity_weight: float, similarity: str) -> float:
    """``polarity_weight * P + (1 - polarity_weight) * S``, or with the retention for S if ``similarity`` names that."""
    other = point.retention if similarity == "retention" else point.similarity
    return polarity_weight * point.polarity + (1 - polarity_weight) * other


@dataclass(frozen=True)
class Rung:
    """One evaluation of a trial at a training budget of ``examples_seen`` examples; ``seconds`` it took to get there."""

    trial: int
    step: int
    examples_seen: int
    seconds: float
    loss: float


@dataclass(frozen=True)
class Trial:
    """One configuration. ``status`` is running, completed, stopped, failed or interrupted; ``reason`` says why."""

    trial: int
    config: Mapping[str, Any]
    status: str = "running"
    reason: str = ""
    seconds: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True)
class Results:
    """A run's stored results, as read back by :func:`load`."""

    folder: Path
    info: RunInfo
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    points: tuple[Point, ...]
    status: str  # running, completed, interrupted or budget
    reason: str
    seconds: float


@dataclass
class Ledger:
    """Appends events to ``folder/ledger.jsonl``, each on disk before :meth:`append` returns."""

    folder: Path
    _file: Any = field(default=None, repr=False)

    def append(self, event: str, **values: Any) -> None:
        if self._file is None:
            self._file = (self.folder / "ledger.jsonl").open("a", encoding="utf-8")
        self._file.write(json.dumps({"event": event, **values}, allow_nan=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def point_name(trial: int, step: int) -> str:
    """The name of the folder under ``RUN/points`` that keeps a rung's weights and per-query scores."""
    return f"trial-{trial:04d}-step-{step:03d}"


def checkpoints_of(folder: Path, trial: int) -> Path:
    """Where a trial of the run in ``folder`` keeps its state while it runs."""
    return folder / "checkpoints" / f"trial-{trial:04d}"


def _events(path: Path) -> Iterable[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):  # no newline: the writer was killed inside this line, so it never counted
                return
            raise InputError(
                f"{path}: line {number} is not JSON ({error.msg}); the ledger was changed by hand?"
            ) from None


def load(folder: Path) -> Results:
    """Read a run's ledger, also one of a sweep that was interrupted or is still running.

    Raises InputError when the folder holds no run. A run without a single finished rung is fine: it has no points.
    """
    path = folder / "ledger.jsonl"
    if not path.is_file():
        raise InputError(f"{folder}: not a run folder (no ledger.jsonl in it)")
    info: RunInfo | None = None
    trials: dict[int, Trial] = {}
    rungs: list[Rung] = []
    points: list[Point] = []
    status, reason, seconds = "running", "", 0.0
    for event in _events(path):
        kind = event.pop("event")
        if kind == "run":
            if event["schema"] != SCHEMA:
                raise InputError(f"{path}: written with schema {event['schema']}; this version reads {SCHEMA}")
            info = RunInfo(**{**event, "label_names": tuple(event["label_names"])})
        elif kind == "trial":
            trials[event["trial"]] = Trial(event["trial"], event["config"])
        elif kind == "rung":
            points += [Point(**point) for point in event.pop("points")]
            rungs.append(Rung(**event))
        elif kind == "end":
            trials[event["trial"]] = dataclasses.replace(trials[event["trial"]], **event)
        elif kind == "points":
            points += [Point(**point) for point in event["points"]]
        elif kind == "finish":
            status, reason, seconds = event["status"], event["reason"], event["seconds"]
    if info is None:
        raise InputError(f"{path}: holds no settings; the sweep ended before it began")
    return Results(folder, info, tuple(trials.values()), tuple(rungs), tuple(points), status, reason, seconds)


def front_members(points: Iterable[Point]) -> list[Point]:
    """The trials' non-dominated points on dev, by falling similarity: what selection may choose from."""
    candidates = [point for point in points if point.split == "dev" and point.trial is not None]
    kept = non_dominated([(point.polarity, point.similarity) for point in candidates])
    return sorted((candidates[i] for i in kept), key=lambda point: (-point.similarity, point.polarity))
