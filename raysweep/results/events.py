"""Events in a run's ledger, as dataclasses that convert to and from JSON.

``ledger.jsonl`` in the run folder contains one JSON object per line and is the source of truth. The ``event`` key
is the kind of event, and the other keys are the fields of the corresponding class:

``run``     :class:`SessionStarted`
``trial``   :class:`TrialStarted`
``rung``    :class:`RungFinished`
``watched`` :class:`RungWatched`
``pause``   :class:`TrialPaused`
``resume``  :class:`TrialResumed`
``cut``     :class:`TrialInterrupted`
``again``   :class:`TrialContinued`
``end``     :class:`TrialEnded`
``freed``   :class:`CheckpointsRemoved`
``mean``    :class:`ReplicatesAveraged`
``points``  :class:`PointsScored`
``guards``  :class:`GuardsMeasured`
``stage``   :class:`StageBegan`
``nodes``   :class:`NodesCounted`
``node``    :class:`NodeExcluded`
``steer``   :class:`SweepSteered`
``finish``  :class:`SessionFinished`
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import TypeAdapter, ValidationError

from raysweep.errors import InputError
from raysweep.results.scores import flatten, nest
from raysweep.results.types import (
    MEAN_FIELDS,
    SCHEMA,
    Calibration,
    Cost,
    GuardScore,
    Mean,
    Measure,
    Node,
    NodeTime,
    Point,
    RunInfo,
    StageName,
    TrialStatus,
    calibration_problem,
    flat_point,
    measure_problem,
    measure_values,
    nested_point,
    scores_problem,
)
from raysweep.results.watched import Watched


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class for events. ``at`` is the sweep's total running time in seconds, over all sessions."""

    kind: ClassVar[str]  # value stored under the key ``event``

    at: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object to store, without optional fields that are None."""
        values = dataclasses.asdict(self)
        values["at"] = values.pop("at")
        for field in dataclasses.fields(self):
            if field.default is None and values[field.name] is None:
                del values[field.name]
        return {"event": self.kind, **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Parse an event from its JSON object in the ledger. Unknown keys are ignored.

        Raises:
            ValidationError, ValueError: If a value is invalid or missing.
        """
        event: Self = _validated(cls, values)
        return event


@dataclass(frozen=True, kw_only=True)
class SessionStarted(Event):
    """A session of the run started with these settings. A ledger starts with this event.

    ``config_digest`` is the SHA-256 of the session's ``config.yaml``.
    """

    kind = "run"

    info: RunInfo
    config_digest: str

    def to_json(self) -> dict[str, Any]:
        info = dataclasses.asdict(self.info)
        for name in ("active_sets", "tasks"):
            if not info[name]:
                del info[name]
        return {"event": self.kind, **info, "config_digest": self.config_digest}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Parse the event. Raise ``InputError`` if the ledger's schema version is different."""
        if values.get("schema") != SCHEMA:
            raise InputError(
                f"written with schema {values.get('schema')}; this version reads {SCHEMA}"
            )
        if not isinstance(values["config_digest"], str):
            raise ValueError(f"config_digest is {values['config_digest']!r}; allowed: a string")
        return cls(info=_validated(RunInfo, values), config_digest=values["config_digest"])


@dataclass(frozen=True, kw_only=True)
class TrialStarted(Event):
    """A trial started, either with a new configuration or as a replicate.

    ``num_rungs`` is the number of rungs of the complete trial. A replicate repeats the trial ``replicate_of`` with a
    seed derived from ``run``, the replicate's number (starting at 1). For a requested configuration, ``origin`` is its
    position under ``first`` or the ID of the request.
    """

    kind = "trial"

    trial: int
    config: Mapping[str, Any]
    num_rungs: int = 0
    replicate_of: int | None = None
    run: int | None = None
    origin: str | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        event = super().from_json(values)
        _check_plain(event.config)
        return event


@dataclass(frozen=True, kw_only=True)
class RungFinished(Event):
    """A trial was evaluated after ``examples_seen`` training examples and ``seconds`` seconds.

    ``stop`` is the reason if the trial's own stopping rule ended it at this rung. ``may_begin`` is True if there were
    still trials to start, which affects early stopping. ``cost`` is the trial's cost so far. ``calibration`` is the
    softmax head's calibration on dev. ``labeled`` holds the points that use the pool's labels. ``measures`` holds the
    measures on dev, and ``watched`` those on watched data. ``tasks`` holds the points for single data sets in a
    sequence. Before the last data set, ``points`` is empty.
    """

    kind = "rung"

    trial: int
    step: int
    examples_seen: int
    seconds: float
    loss: float
    stop: str | None
    points: tuple[Point, ...]
    node: Node | None = None
    may_begin: bool | None = None
    cost: Cost | None = None
    calibration: Calibration | None = None
    labeled: tuple[Point, ...] | None = None
    measures: tuple[Measure, ...] | None = None
    watched: Watched | None = None
    tasks: tuple[Point, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Nested objects omit the event's trial and step."""
        values = _with_flat_points(self, super().to_json())
        if self.measures is not None:
            values["measures"] = [measure_values(measure) for measure in self.measures]
        if self.watched is not None:
            values["watched"] = self.watched.to_json()
        calibrations = [values["calibration"]] if "calibration" in values else []
        for scores in (
            *values["points"],
            *calibrations,
            *values.get("labeled", ()),
            *values.get("tasks", ()),
        ):
            del scores["trial"], scores["step"]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        rung = {"trial": values["trial"], "step": values["step"]}
        fields = {"stop": None, **_with_nested_points(values, **rung)}
        calibration = values.get("calibration")
        if isinstance(calibration, Mapping):
            fields["calibration"] = {**calibration, **rung}
        if values.get("measures") is not None:
            fields["measures"] = _objects_in(values, "measures", **rung)
        event = super().from_json(fields)
        if event.step < 1:
            raise ValueError(f"step is {event.step}; allowed: an integer above 0")
        _check_calibration(event.calibration)
        _check_measures(event.measures)
        return event


@dataclass(frozen=True, kw_only=True)
class RungWatched(Event):
    """The encoder from a trial's last rung was measured on watched data after the search."""

    kind = "watched"

    trial: int
    step: int
    watched: Watched

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "watched": self.watched.to_json()}


@dataclass(frozen=True, kw_only=True)
class TrialPaused(Event):
    """A trial was paused."""

    kind = "pause"
    status: ClassVar = TrialStatus.PAUSED

    trial: int
    reason: str = ""
    cost: Cost | None = None


@dataclass(frozen=True, kw_only=True)
class TrialResumed(Event):
    """A paused trial was resumed."""

    kind = "resume"
    status: ClassVar = TrialStatus.RUNNING
    reason: ClassVar = ""

    trial: int


@dataclass(frozen=True, kw_only=True)
class TrialInterrupted(Event):
    """A running trial was interrupted, for example because its worker was lost or the session ended."""

    kind = "cut"
    status: ClassVar = TrialStatus.INTERRUPTED

    trial: int
    reason: str = ""
    cost: Cost | None = None


@dataclass(frozen=True, kw_only=True)
class TrialContinued(Event):
    """A trial that had been interrupted, or was running when the driver died, was resumed."""

    kind = "again"
    status: ClassVar = TrialStatus.RUNNING
    reason: ClassVar = ""

    trial: int


@dataclass(frozen=True, kw_only=True)
class TrialEnded(Event):
    """A trial ended permanently. ``traceback`` is set if an exception was raised."""

    kind = "end"

    trial: int
    status: TrialStatus
    reason: str = ""
    cost: Cost | None = None
    traceback: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointsRemoved(Event):
    """The checkpoints of paused or interrupted ``trials`` were removed, so these trials cannot be resumed."""

    kind = "freed"
    status: ClassVar[TrialStatus] = TrialStatus.STOPPED
    reason: ClassVar[str] = "its checkpoint was removed"

    trials: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ReplicatesAveraged(Event):
    """The scores of ``trial`` and its replicates were averaged.

    ``points`` holds the mean scores of the points that at least two of the ``runs`` runs reached.
    """

    kind = "mean"

    trial: int
    runs: int
    points: tuple[Mean, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object. Points omit the event's trial."""
        points = []
        for point in self.points:
            fields = {name: getattr(point, name) for name in MEAN_FIELDS if name != "trial"}
            points.append({**fields, **flatten(point.scores, "spread")})
        return {**super().to_json(), "points": points}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        points = _objects_in(values, "points", trial=values["trial"])
        nested = [nest(point, MEAN_FIELDS, "spread") for point in points]
        return super().from_json({**values, "points": nested})


@dataclass(frozen=True, kw_only=True)
class PointsScored(Event):
    """Operating points were scored outside a rung: the reference, the oracle, baselines, or front members on test.

    For front members, ``calibration`` is the softmax head's calibration on test, ``labeled`` holds the rung's points that
    use the pool's labels, and ``measures`` holds the measures on test. For the reference, ``measures`` holds the measures
    on both splits. ``tasks`` holds the points for single data sets in a sequence.
    """

    kind = "points"

    points: tuple[Point, ...]
    calibration: Calibration | None = None
    labeled: tuple[Point, ...] | None = None
    measures: tuple[Measure, ...] | None = None
    tasks: tuple[Point, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return _with_flat_points(self, super().to_json())

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        event = super().from_json(_with_nested_points(values))
        _check_calibration(event.calibration)
        _check_measures(event.measures)
        return event


@dataclass(frozen=True, kw_only=True)
class GuardsMeasured(Event):
    """Front members were scored on guards. A later score for the same member and guard replaces an earlier one."""

    kind = "guards"

    scores: tuple[GuardScore, ...]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        event = super().from_json(values)
        for score in event.scores:
            if not math.isfinite(score.score):
                raise ValueError(
                    f"score of {score.guard} is {score.score}; allowed: a finite number"
                )
        return event


@dataclass(frozen=True, kw_only=True)
class NodesCounted(Event):
    """Node time since the previous event of this kind, including ``prepare``, at current prices."""

    kind = "nodes"

    nodes: tuple[NodeTime, ...]


@dataclass(frozen=True, kw_only=True)
class NodeExcluded(Event):
    """A node was excluded for the rest of the session after ``errors`` consecutive errors; ``reason`` is the last one."""

    kind = "node"

    node: str
    errors: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class StageBegan(Event):
    """A post-search stage with ``count`` steps started. The event is used only to display progress."""

    kind = "stage"

    stage: StageName
    count: int


@dataclass(frozen=True, kw_only=True)
class SweepSteered(Event):
    """A user's request to the running sweep took effect.

    ``request`` is the request's ID. A request whose ID is already in the ledger is not executed again. ``workers`` is
    the maximum number of concurrent trials, ``trial`` is the trial to stop, and ``config`` is the complete or partial
    configuration to try next.
    """

    kind = "steer"

    request: str
    action: Literal["pause", "resume", "workers", "stop-trial", "try"]
    workers: int | None = None
    trial: int | None = None
    config: Mapping[str, Any] | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        event = super().from_json(values)
        needed_keys = {"workers": "workers", "stop-trial": "trial", "try": "config"}
        needed_key = needed_keys.get(event.action)
        if needed_key is not None and getattr(event, needed_key) is None:
            raise ValueError(f"{needed_key} is missing; action {event.action} requires it")
        _check_plain(event.config or {})
        return event


@dataclass(frozen=True, kw_only=True)
class SessionFinished(Event):
    """A session ended. ``status`` is completed, interrupted, budget, plateau or failed.

    ``is_final`` is True if the sweep gave up because too many trials failed. Retrying the same command is then pointless.
    ``limit`` holds the key and value of the limit that ended the session, such as ``budget.minutes``.
    """

    kind = "finish"

    status: str
    reason: str
    seconds: float
    is_final: bool | None = None
    limit: dict[str, float] | None = None


StatusChange = TrialPaused | TrialResumed | TrialInterrupted | TrialContinued | TrialEnded
"""Events that change the status of a trial; each has ``trial``, ``status`` and ``reason``."""

PaidEvent = RungFinished | TrialPaused | TrialInterrupted | TrialEnded
"""Events whose ``cost`` is the trial's cost so far."""

EVENTS: Mapping[str, type[Event]] = {
    event.kind: event
    for event in (
        SessionStarted,
        TrialStarted,
        RungFinished,
        RungWatched,
        TrialPaused,
        TrialResumed,
        TrialInterrupted,
        TrialContinued,
        TrialEnded,
        CheckpointsRemoved,
        ReplicatesAveraged,
        PointsScored,
        GuardsMeasured,
        StageBegan,
        NodesCounted,
        NodeExcluded,
        SweepSteered,
        SessionFinished,
    )
}


def read_event(values: Mapping[str, Any]) -> Event:
    """Parse an event from its JSON object in the ledger.

    Raises:
        InputError: If the ledger's schema version is different.
        ValueError: If the event is invalid.
    """
    kind = values["event"]
    if not isinstance(kind, str) or kind not in EVENTS:
        allowed = ", ".join(EVENTS)
        raise ValueError(f"event is {kind!r}; allowed: {allowed}")
    try:
        return EVENTS[kind].from_json(values)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None
    except ValidationError as error:
        problem = error.errors()[0]
        keys = map(str, problem["loc"])
        name = ".".join(keys)
        if problem["type"] == "missing":
            raise ValueError(f"{name} is missing") from None
        value = problem["input"]
        message = problem["msg"].lower()
        raise ValueError(f"{name} is {value!r}: {message}") from None


def _objects_in(values: Mapping[str, Any], key: str, **shared: Any) -> list[dict[str, Any]]:
    """Return the objects in the list ``key``, with the keys in ``shared`` added to each."""
    objects = values[key]
    if not isinstance(objects, list) or not all(isinstance(item, Mapping) for item in objects):
        raise ValueError(f"{key} is {objects!r}; allowed: a list of objects")
    return [{**values, **shared} for values in objects]


def _check_plain(config: Mapping[str, Any]) -> None:
    for name, value in config.items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(
                f"config.{name} is a {type(value).__name__}; allowed: a string, a number or null"
            )


def _with_flat_points(
    event: RungFinished | PointsScored, values: Mapping[str, Any]
) -> dict[str, Any]:
    flat = {**values, "points": [flat_point(point) for point in event.points]}
    for key, points in (("labeled", event.labeled), ("tasks", event.tasks)):
        if points is not None:
            flat[key] = [flat_point(point) for point in points]
    return flat


def _with_nested_points(values: Mapping[str, Any], **shared: Any) -> dict[str, Any]:
    """Nest the scores of an event's points. Raise ``ValueError`` if a score is invalid."""
    nested = {**values}
    for key in ("points", "labeled", "tasks"):
        if key == "points" or values.get(key) is not None:
            nested[key] = [nested_point(point) for point in _objects_in(values, key, **shared)]
            for point in nested[key]:
                if problem := scores_problem(point["scores"]):
                    raise ValueError(problem)
    return nested


def _check_calibration(calibration: Calibration | None) -> None:
    if calibration is not None and (problem := calibration_problem(calibration)):
        raise ValueError(problem)


def _check_measures(measures: Iterable[Measure] | None) -> None:
    for measure in measures or ():
        if problem := measure_problem(measure):
            raise ValueError(problem)


def _validated(kind: Any, values: Mapping[str, Any]) -> Any:
    return _adapter(kind).validate_python(values)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
