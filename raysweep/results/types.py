"""Types for the values in a run's ledger."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from raysweep.metrics.scores import Goals, Pair, spec_of
from raysweep.results.scores import Score, flatten, nest
from raysweep.results.watched import WatchedRung

SCHEMA = 2  # version of the ledger's format

LOCAL = "local"  # the node type if the cluster defines none

ScoredSplit = Literal["dev", "test"]

MASK = "mask"
"""The kind of points for a single data set in a sequence; the value is the data set's number, from 1."""

BASELINES = ("probe", "setfit", "published")
"""Kinds of baseline points; see :mod:`raysweep.ray_tune.baselines`."""

OWN_KINDS = ("plain", "query")
"""Kinds of points that retrieve with the tuned encoder alone. Each rung has one such point."""

QUERY_KINDS = ("query", "query_concat")
"""Kinds of points that keep the reference encoder's document embeddings, so that stored indexes stay valid."""

JOINED_KINDS = ("concat", "class_concat", "labeled", "query_concat", "probe")
"""Kinds of points that encode each query with both the tuned and the reference encoder."""

PointKey = tuple[str, float | None]  # an operating point's kind and value

Prompt: TypeAlias = str | dict[str, str]
"""A prefix for all sentences, or separate prefixes, keyed by ``query`` and ``document``."""


@dataclass(frozen=True)
class RunInfo:
    """The sweep settings that the report shows."""

    name: str
    version: str
    dataset: str
    model: str
    reference: str
    k: int
    rank_weights: str
    polarity_weight: float
    # the score that serves as S, such as "similarity" or "retention"
    similarity: str
    num_trials: int
    num_queries: dict[str, int]  # keyed by split
    num_pool: dict[str, int]  # keyed by split
    label_names: tuple[str, ...]
    seed: int
    schema: int = SCHEMA
    # required minimums, keyed by score
    constraints: Mapping[str, float] = field(default_factory=dict)
    # package versions on the driver's machine, keyed by name
    packages: Mapping[str, str] = field(default_factory=dict)
    # minimum scores, keyed by guard; None if there is no limit
    guards: Mapping[str, float | None] = field(default_factory=dict)
    prompt: Prompt = ""  # prefix for sentences that the model embeds
    reference_prompt: Prompt = ""  # prefix for sentences that the reference encoder embeds
    searched: tuple[str, ...] = ()  # parameters with more than one value in the space
    logarithmic: tuple[str, ...] = ()  # parameters with a range on a logarithmic scale
    polarity: str = "polarity"  # the score that serves as P
    data_kind: str = "labeled"  # labeled sentences, retrieval data or pairs
    active_sets: tuple[
        tuple[str, float], ...
    ] = ()  # each expert's name and the share of pairs whose target it provides
    tasks: tuple[str, ...] = ()  # names of the data sets in a sequence, in order

    @property
    def is_related(self) -> bool:
        """Return whether the run uses retrieval data or pairs instead of labeled sentences."""
        return self.data_kind != "labeled"

    @property
    def goals(self) -> Goals:
        """Return the scores that serve as P and S."""
        return Goals.of(self.polarity, self.similarity)

    def objective(self, point: "Point") -> float:
        """Return a point's objective value: ``polarity_weight * P + (1 - polarity_weight) * S``."""
        return (
            self.polarity_weight * point[self.polarity]
            + (1 - self.polarity_weight) * point[self.similarity]
        )


@dataclass(frozen=True)
class RungProgress:
    """A trial's progress within a rung: ``num_seen`` of ``num_examples`` examples."""

    step: int
    num_seen: int
    num_examples: int
    examples_per_second: float

    @property
    def seconds_left(self) -> float:
        """Return the estimated time until the rung's last example, excluding evaluation."""
        return (self.num_examples - self.num_seen) / self.examples_per_second


@dataclass(frozen=True)
class Point:
    """An operating point, which is an encoder for retrieval, and its scores on one split.

    ``kind`` is a kind from :mod:`raysweep.evaluation.operating_points` or ``BASELINES``, or
    ``reference`` or ``oracle``. ``value`` is the kind's parameter, if it has one. ``trial`` and
    ``step`` are None for points outside trials. ``width`` is the embedding dimension, or None for
    the oracle. ``scores`` is keyed by the names in :data:`raysweep.metrics.scores.SCORES`. Standard
    deviations are 0 if only the means are known. ``label`` is set only for SetFit models and
    published scores.
    """

    trial: int | None
    step: int | None
    kind: str
    value: float | None
    split: ScoredSplit
    width: int | None
    scores: Mapping[str, Score] = field(hash=False)
    label: str | None = None

    def __getitem__(self, name: str) -> float:
        """Return a score's mean. Raise ``KeyError`` if it is unknown."""
        return self.scores[name].mean

    def get(self, name: str) -> float | None:
        """Return a score's mean, or None if it is unknown."""
        score = self.scores.get(name)
        return None if score is None else score.mean

    def std(self, name: str) -> float:
        """Return a score's standard deviation over queries, or 0 if it has none."""
        return self.scores[name].std or 0.0

    def has(self, goals: Goals) -> bool:
        """Return whether the point has scores for both goals."""
        return goals.p in self.scores and goals.s in self.scores

    def pair(self, goals: Goals) -> Pair:
        """Return P and S."""
        return self[goals.p], self[goals.s]

    @property
    def key(self) -> PointKey:
        return self.kind, self.value

    @property
    def num_encoders(self) -> int:
        """Return the number of encoders that encode each query."""
        return 2 if self.kind in JOINED_KINDS else 1

    @property
    def name(self) -> str:
        """Return the name for ``export --point``: ``TRIAL:STEP``, plus ``:KIND=VALUE`` unless the point is plain."""
        return f"{self.trial}:{self.step}" + (
            "" if self.kind == "plain" else f":{key_name(self.key)}"
        )


def key_name(key: PointKey) -> str:
    """Format an operating point's kind and value as a single word, such as ``concat=0.3``."""
    return key[0] if key[1] is None else f"{key[0]}={key[1]:g}"


_POINT_FIELDS = tuple(field.name for field in dataclasses.fields(Point) if field.name != "scores")


def flat_point(point: Point) -> dict[str, Any]:
    """Return a point's fields, with scores flattened by :func:`raysweep.results.scores.flatten`."""
    values = {name: getattr(point, name) for name in _POINT_FIELDS}
    label = values.pop("label")
    return {**values, **flatten(point.scores), "label": label}


def point_values(point: Point) -> dict[str, Any]:
    """Return a point as stored in a ``rung`` event, without label, trial and step."""
    values = flat_point(point)
    del values["trial"], values["step"], values["label"]
    return json.loads(json.dumps(values, allow_nan=False))  # type: ignore[no-any-return]


def nested_point(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point's fields from its flat form. The values are not validated."""
    return nest(values, _POINT_FIELDS)


def point_of(values: Mapping[str, Any], trial: int, step: int) -> Point:
    """Return a rung's point from its stored form, the inverse of :func:`point_values`."""
    fields = nested_point(values)
    scores = {name: Score(**score) for name, score in fields.pop("scores").items()}
    return Point(**fields, trial=trial, step=step, scores=scores)


def scores_problem(scores: Mapping[str, Any], required: Iterable[str] = ()) -> str | None:
    """Return an error message if the scores are invalid, or else None.

    ``scores`` has the form that :func:`nested_point` returns.
    """
    for name in required:
        if name not in scores:
            return f"{name} is missing"
    for name, score in scores.items():
        if not name.isidentifier():
            return f"{name!r} is not a score; allowed: letters, digits and underscores"
        deviation = score["std"]
        for key, value in (
            (name, score["mean"]),
            (f"{name}_std", 0.0 if deviation is None else deviation),
        ):
            if not isinstance(value, int | float) or not math.isfinite(value):
                return f"{key} is {value!r}; allowed: a finite number"
        spec = spec_of(name)
        if not spec.includes(score["mean"]):
            return (
                f"{spec.heading} is {score['mean']}; allowed: {spec.minimum:g} to {spec.maximum:g}"
            )
    return None


@dataclass(frozen=True)
class Rung:
    """A trial's evaluation after ``examples_seen`` training examples and ``seconds`` seconds."""

    trial: int
    step: int
    examples_seen: int
    seconds: float
    loss: float


@dataclass(frozen=True)
class Calibration:
    """Calibration of a rung's head on one split, before and after temperature scaling.

    The head's logits are divided by ``temperature``, which is fitted on dev, or 1 if it is not
    fitted. Cross-entropies are in nats per sentence. Errors are expected calibration errors in [0, 1].
    """

    trial: int | None
    step: int | None
    split: ScoredSplit
    temperature: float
    cross_entropy_before: float
    cross_entropy: float
    error_before: float
    error: float


def calibration_values(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as stored in a ``rung`` event, without trial and step."""
    values = dataclasses.asdict(calibration)
    del values["trial"], values["step"]
    return values


def calibration_problem(calibration: Calibration) -> str | None:
    """Return an error message if the calibration is invalid, or else None."""
    temperature = calibration.temperature
    losses = calibration.cross_entropy_before, calibration.cross_entropy
    errors = calibration.error_before, calibration.error
    if not (math.isfinite(temperature) and temperature > 0):
        return f"temperature is {temperature!r}; allowed: a number above 0"
    if not all(math.isfinite(loss) and loss >= 0 for loss in losses):
        return f"cross-entropies are {losses}; allowed: finite numbers of at least 0"
    if not all(0 <= error <= 1.001 for error in errors):
        return f"calibration errors are {errors}; allowed: 0 to 1"
    return None


@dataclass(frozen=True)
class Measure:
    """A measure of a rung's tuned encoder on one split.

    ``name`` is one of :data:`raysweep.metrics.pairs.MEASURES`. ``trial`` and ``step`` are None for
    the reference encoder. ``low`` and ``high`` are the bounds of an interval. ``curve`` holds the
    values of the measure's curve at equal steps.
    """

    trial: int | None
    step: int | None
    split: ScoredSplit
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    curve: tuple[float, ...] | None = None


def measure_values(measure: Measure) -> dict[str, Any]:
    """Return a measure as stored in an event, without trial, step and missing values."""
    values = dataclasses.asdict(measure)
    del values["trial"], values["step"]
    return {key: value for key, value in values.items() if value is not None}


def measure_of(values: Mapping[str, Any], trial: int | None, step: int | None) -> Measure:
    """Return a rung's measure from its stored form, the inverse of :func:`measure_values`."""
    curve = values.get("curve")
    fields = {**values, "curve": None if curve is None else tuple(curve)}
    return Measure(trial=trial, step=step, **fields)


def measure_problem(measure: Measure) -> str | None:
    """Return an error message if the measure is invalid, or else None."""
    numbers = [measure.value, *(measure.curve or ())]
    numbers += [bound for bound in (measure.low, measure.high) if bound is not None]
    if not measure.name.isidentifier():
        return f"{measure.name!r} is not a measure; allowed: letters, digits and underscores"
    if not all(map(math.isfinite, numbers)):
        return f"{measure.name} is {measure.value}, or its interval or curve is not finite; allowed: finite numbers"
    return None


class TrialStatus(StrEnum):
    """A trial's status, as written to the ledger and shown in the report."""

    RUNNING = "running"
    PAUSED = "paused"  # can be resumed from its checkpoint
    COMPLETED = "completed"  # reached its last rung
    STOPPED = "stopped"  # permanently, for example by early stopping or a user
    # for example by a budget; continues when the run is resumed
    INTERRUPTED = "interrupted"
    FAILED = "failed"


RESUMABLE = (TrialStatus.RUNNING, TrialStatus.PAUSED, TrialStatus.INTERRUPTED)
"""Statuses of trials that a resumed sweep may continue."""


@dataclass(frozen=True)
class Trial:
    """A trial. ``reason`` explains its status, and ``traceback`` is set if an exception was raised."""

    trial: int
    config: Mapping[str, Any]
    status: TrialStatus = TrialStatus.RUNNING
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0
    replicate_of: int | None = None
    num_rungs: int = 0  # if the trial completes
    traceback: str = ""
    stop_was_requested: bool = False  # by a user


@dataclass(frozen=True)
class Mean:
    """Means and sample standard deviations of a point's P and S on dev, over a trial and its replicates."""

    trial: int  # the original trial
    step: int
    kind: str
    value: float | None
    runs: int
    scores: Mapping[str, Score] = field(hash=False)

    def __getitem__(self, name: str) -> float:
        return self.scores[name].mean


MEAN_FIELDS = tuple(field.name for field in dataclasses.fields(Mean) if field.name != "scores")


@dataclass(frozen=True)
class GuardScore:
    """A front member's score under a guard.

    ``at_least`` is the required minimum, if there is one. ``files`` is a digest of the guard's kind
    and files, which may change when a run is resumed.
    """

    trial: int
    step: int
    kind: str
    value: float | None
    guard: str
    metric: str
    score: float
    at_least: float | None = None
    files: str = ""

    @property
    def is_met(self) -> bool:
        return self.at_least is None or self.score >= self.at_least


@dataclass(frozen=True)
class NodeTime:
    """The total boot time and uptime of all nodes of one type and price."""

    type: str
    boot_seconds: float
    up_seconds: float
    price_per_hour: float | None = None

    @property
    def boot_money(self) -> float:
        return self.boot_seconds / 3600 * (self.price_per_hour or 0.0)

    @property
    def up_money(self) -> float:
        return self.up_seconds / 3600 * (self.price_per_hour or 0.0)


StageName = Literal["test", "watch", "guards"]


@dataclass(frozen=True)
class Stage:
    """A stage after the search, with ``num_done`` of ``count`` scores finished."""

    name: StageName
    count: int
    num_done: int = 0


@dataclass(frozen=True)
class ExcludedNode:
    """A node that was excluded after ``errors`` consecutive errors. ``reason`` is the last error."""

    name: str
    errors: int
    reason: str


@dataclass(frozen=True)
class Results:
    """A run's stored results; see :func:`raysweep.results.reader.load`."""

    folder: str  # the run's path or URI
    info: RunInfo
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    points: tuple[Point, ...]
    status: str  # running, a status of :class:`raysweep.results.events.SessionFinished`, or failed if all trials failed
    reason: str
    seconds: float
    # the budget that ended the sweep: its key and value
    limit: Mapping[str, float] = field(default_factory=dict)
    has_failed_for_good: bool = False  # because too many or all trials failed
    means: tuple[Mean, ...] = ()  # for trials with replicates
    nodes: tuple[NodeTime, ...] = ()  # one per node type and price, if the sweep had prices
    excluded_nodes: tuple[ExcludedNode, ...] = ()  # in order of exclusion
    is_paused: bool = False  # by a user
    workers: int | None = None  # maximum number of concurrent trials, if requested
    guards: tuple[GuardScore, ...] = ()  # scores of front members
    calibrations: tuple[Calibration, ...] = ()  # one per rung and split
    measures: tuple[Measure, ...] = ()  # for rungs and the reference encoder, on dev and test
    labeled: tuple[
        Point, ...
    ] = ()  # points that use the pool's labels; not in ``points`` or on fronts
    tasks: tuple[
        Point, ...
    ] = ()  # points for single data sets in a sequence; not in ``points`` or on fronts
    watched: tuple[WatchedRung, ...] = ()  # rungs that were measured on watched data
    stage: Stage | None = None  # the current stage after the search
    has_driver: bool | None = None  # whether a process is driving the run; None if unknown
    without_checkpoints: tuple[
        int, ...
    ] = ()  # trials whose checkpoints were removed, so they cannot be resumed
    config_digests: tuple[str, ...] = ()  # SHA-256 of each session's settings


@dataclass(frozen=True)
class Node:
    """A trial's node, with its type from the cluster file and its total CPUs and GPUs."""

    type: str = LOCAL
    cpus: float = 0.0
    gpus: float = 0.0


@dataclass
class Cost:
    """The cost of one or more trials. ``money`` is in the currency of the sweep file's prices."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0

    def add(self, other: "Cost") -> None:
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.gpu_seconds += other.gpu_seconds
        self.money += other.money
