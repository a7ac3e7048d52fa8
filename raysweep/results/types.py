"""Value types for the content of a run's ledger."""

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

SCHEMA = 2  # of the ledger's format

LOCAL = "local"  # node type if the cluster does not define any

ScoredSplit = Literal["dev", "test"]

BASELINES = ("probe", "setfit", "published")
"""Kinds of baseline points, made without trials, for comparison with fronts; see :mod:`raysweep.ray_tune.baselines`."""

OWN_KINDS = ("plain", "query")
"""Kinds of the point that retrieves by the tuned encoder itself. Each rung has one."""

QUERY_KINDS = ("query", "query_concat")
"""Kinds of points whose documents keep the reference encoder's embeddings, so that stored indexes stay valid."""

JOINED_KINDS = ("concat", "class_concat", "labeled", "query_concat")
"""Kinds of points for which each query passes through two encoders, the tuned one and the reference encoder."""

PointKey = tuple[str, float | None]  # kind and value of an operating point

Prompt: TypeAlias = str | dict[str, str]
"""The prefix of every sentence, or the prefixes of queries and documents, keyed by ``query`` and ``document``."""


@dataclass(frozen=True)
class RunInfo:
    """The settings of a sweep that the report shows. Scores are means over ``num_queries`` queries."""

    name: str
    version: str
    dataset: str
    model: str
    reference: str
    k: int
    rank_weights: str
    polarity_weight: float
    similarity: str  # score that the objective weighs as S, such as "similarity" or "retention"
    num_trials: int
    num_queries: dict[str, int]  # keyed by split
    num_pool: dict[str, int]  # keyed by split
    label_names: tuple[str, ...]
    seed: int
    schema: int = SCHEMA
    constraints: Mapping[str, float] = field(default_factory=dict)  # minimum scores of a point, if set
    packages: Mapping[str, str] = field(default_factory=dict)  # package versions on the driver's machine, keyed by name
    guards: Mapping[str, float | None] = field(default_factory=dict)  # minimum score of front members, keyed by guard
    prompt: Prompt = ""  # prefix of the sentences embedded by the model
    reference_prompt: Prompt = ""  # the same for the reference encoder
    searched: tuple[str, ...] = ()  # parameters with more than one value in the space
    polarity: str = "polarity"  # score that the objective weighs as P
    data_kind: str = "labeled"  # labeled sentences, retrieval data, or pairs
    active_sets: tuple[tuple[str, float], ...] = ()  # each expert, and the share of pairs that it sets the target of

    @property
    def is_related(self) -> bool:
        """Return whether encoders rank the documents of each query, instead of retrieving labeled sentences."""
        return self.data_kind != "labeled"

    @property
    def goals(self) -> Goals:
        """The two scores of the sweep's front."""
        return Goals.of(self.polarity, self.similarity)

    def objective(self, point: "Point") -> float:
        """Return the value of the sweep's objective for a point: ``polarity_weight * P + (1 - polarity_weight) * S``."""
        return self.polarity_weight * point[self.polarity] + (1 - self.polarity_weight) * point[self.similarity]


@dataclass(frozen=True)
class RungProgress:
    """A trial's progress within the rung ``step``: ``num_seen`` of the rung's ``num_examples`` examples."""

    step: int
    num_seen: int
    num_examples: int
    examples_per_second: float

    @property
    def seconds_left(self) -> float:
        """Return the estimated seconds until the rung's last example, excluding the evaluation."""
        return (self.num_examples - self.num_seen) / self.examples_per_second


@dataclass(frozen=True)
class Point:
    """One operating point: a retrievable encoder and its scores on one split.

    ``kind`` is one of :mod:`raysweep.evaluation.operating_points` (``plain`` is the unmodified tuned encoder; ``labeled``
    points use the pool's labels and are stored separately), ``reference`` (R itself), ``oracle`` (the limit that no encoder
    can exceed) or one of ``BASELINES``. ``value`` is the kind's parameter, or None. ``trial`` and ``step`` are None for
    points outside trials. ``width`` is the embedding's dimension, or None for the oracle. ``scores`` are keyed by the names
    in :data:`raysweep.metrics.scores.SCORES`; the oracle and published scores have no accuracy. Standard deviations are 0 if
    only means are known. ``label`` distinguishes SetFit models and published scores, and is None for all other kinds.
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
        """Return the mean of a score. Raise ``KeyError`` if it is unknown."""
        return self.scores[name].mean

    def get(self, name: str) -> float | None:
        """Return the mean of a score, or None if it is unknown."""
        score = self.scores.get(name)
        return None if score is None else score.mean

    def std(self, name: str) -> float:
        """Return the standard deviation of a score over queries; 0 if it is unknown."""
        return self.scores[name].std or 0.0

    def has(self, goals: Goals) -> bool:
        """Return whether both goals are scored."""
        return goals.p in self.scores and goals.s in self.scores

    def pair(self, goals: Goals) -> Pair:
        """Return P and S, the scores of the two goals."""
        return self[goals.p], self[goals.s]

    @property
    def key(self) -> PointKey:
        return self.kind, self.value

    @property
    def num_encoders(self) -> int:
        """Return how many encoders embed a query."""
        return 2 if self.kind in JOINED_KINDS else 1

    @property
    def name(self) -> str:
        """Return ``TRIAL:STEP`` for a plain point, else ``TRIAL:STEP:KIND=VALUE``, as used by ``export --point``."""
        return f"{self.trial}:{self.step}" + ("" if self.kind == "plain" else f":{key_name(self.key)}")


def key_name(key: PointKey) -> str:
    """Format an operating point's kind and value as one word, such as ``concat=0.3``."""
    return key[0] if key[1] is None else f"{key[0]}={key[1]:g}"


_POINT_FIELDS = tuple(field.name for field in dataclasses.fields(Point) if field.name != "scores")


def flat_point(point: Point) -> dict[str, Any]:
    """Return a point's fields, with its scores as :func:`raysweep.results.scores.flatten` does."""
    values = {name: getattr(point, name) for name in _POINT_FIELDS}
    label = values.pop("label")
    return {**values, **flatten(point.scores), "label": label}


def point_values(point: Point) -> dict[str, Any]:
    """Return a point as stored in a ``rung`` event: without label, and without trial and step, which are in the event."""
    values = flat_point(point)
    del values["trial"], values["step"], values["label"]
    return json.loads(json.dumps(values, allow_nan=False))  # type: ignore[no-any-return]


def nested_point(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a point from its flat form, which are not checked."""
    return nest(values, _POINT_FIELDS)


def point_of(values: Mapping[str, Any], trial: int, step: int) -> Point:
    """Return a point of a rung from its stored form, undoing :func:`point_values`."""
    fields = nested_point(values)
    scores = {name: Score(**score) for name, score in fields.pop("scores").items()}
    return Point(**fields, trial=trial, step=step, scores=scores)


def scores_problem(scores: Mapping[str, Any], required: Iterable[str] = ()) -> str | None:
    """Return the problem with the scores of a point, given as in :func:`nested_point`, or None if they are valid."""
    for name in required:
        if name not in scores:
            return f"{name} is missing"
    for name, score in scores.items():
        if not name.isidentifier():
            return f"{name!r} is not a score; allowed: letters, digits and underscores"
        deviation = score["std"]
        for key, value in ((name, score["mean"]), (f"{name}_std", 0.0 if deviation is None else deviation)):
            if not isinstance(value, int | float) or not math.isfinite(value):
                return f"{key} is {value!r}; allowed: a finite number"
        spec = spec_of(name)
        if not spec.includes(score["mean"]):
            return f"{spec.heading} is {score['mean']}; allowed: {spec.minimum:g} to {spec.maximum:g}"
    return None


@dataclass(frozen=True)
class Rung:
    """One evaluation of a trial at a training budget of ``examples_seen`` examples, which it reached after ``seconds``."""

    trial: int
    step: int
    examples_seen: int
    seconds: float
    loss: float


@dataclass(frozen=True)
class Calibration:
    """The calibration of a rung's head on one split, before and after temperature scaling.

    The head's logits are divided by ``temperature``, which is fitted on dev, or 1 if the sweep does not use it.
    Cross-entropies are in nats per sentence; errors are expected calibration errors in [0, 1]. ``trial`` and ``step``
    identify the rung.
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
    """Return a calibration as stored in a ``rung`` event: without trial and step, which are in the event."""
    values = dataclasses.asdict(calibration)
    del values["trial"], values["step"]
    return values


def calibration_problem(calibration: Calibration) -> str | None:
    """Return the problem with the values of a calibration, or None if they are valid."""
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
    """A measure of a rung's tuned encoder on one split, in addition to the scores of its operating points.

    ``name`` is one of :data:`raysweep.metrics.pairs.MEASURES`. ``trial`` and ``step`` are None for the reference encoder.
    ``low`` and ``high`` bound its interval, and ``curve`` holds the heights of its curve at equal steps, if they were
    computed.
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
    """Return a measure as stored in an event: without trial, step and values that were not computed."""
    values = dataclasses.asdict(measure)
    del values["trial"], values["step"]
    return {key: value for key, value in values.items() if value is not None}


def measure_of(values: Mapping[str, Any], trial: int | None, step: int | None) -> Measure:
    """Return a measure of a rung from its stored form, undoing :func:`measure_values`."""
    curve = values.get("curve")
    fields = {**values, "curve": None if curve is None else tuple(curve)}
    return Measure(trial=trial, step=step, **fields)


def measure_problem(measure: Measure) -> str | None:
    """Return the problem with the values of a measure, or None if they are valid."""
    numbers = [measure.value, *(measure.curve or ())]
    numbers += [bound for bound in (measure.low, measure.high) if bound is not None]
    if not measure.name.isidentifier():
        return f"{measure.name!r} is not a measure; allowed: letters, digits and underscores"
    if not all(map(math.isfinite, numbers)):
        return f"{measure.name} is {measure.value}, or its interval or curve is not finite; allowed: finite numbers"
    return None


class TrialStatus(StrEnum):
    """Status of a trial, with the values that the ledger and the report use."""

    RUNNING = "running"
    PAUSED = "paused"  # paused with its checkpoint kept; may be resumed
    COMPLETED = "completed"  # reached its last rung
    STOPPED = "stopped"  # permanently: by early stopping, the trial's own rule, or lack of disk space
    INTERRUPTED = "interrupted"  # ended by a budget or the end of the search; continues when the run is resumed
    FAILED = "failed"


@dataclass(frozen=True)
class Trial:
    """One configuration. ``reason`` explains its status, and ``traceback`` is that of the exception, if one was raised."""

    trial: int
    config: Mapping[str, Any]
    status: TrialStatus = TrialStatus.RUNNING
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0
    replicate_of: int | None = None
    num_rungs: int = 0  # if it completes
    traceback: str = ""
    stop_was_requested: bool = False  # by a user request to the running sweep


@dataclass(frozen=True)
class Mean:
    """Means and sample standard deviations (``std``) of one operating point's goals on dev over several runs of a trial."""

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
    """A front member's score under a guard. ``at_least`` is the required minimum, or None without a limit.

    ``files`` is a digest of the guard's kind and files, which may change when a run is resumed.
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
    """Total boot time and uptime of all nodes of one type. ``price_per_hour`` is None if the type has no price."""

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
    """A stage after the search: the number of scores of rungs or front members so far, and in total."""

    name: StageName
    count: int
    num_done: int = 0


@dataclass(frozen=True)
class Results:
    """A run's stored results, as read back by :func:`load`."""

    folder: str  # path or URI of the run
    info: RunInfo
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    points: tuple[Point, ...]
    status: str  # running, or that of :class:`raysweep.results.events.SessionFinished`; failed if all trials failed
    reason: str
    seconds: float
    has_failed_for_good: bool = False  # too many trials, or all, failed
    means: tuple[Mean, ...] = ()  # of trials with replicates
    nodes: tuple[NodeTime, ...] = ()  # one per type and price, if the sweep had prices
    is_paused: bool = False  # by a user request
    workers: int | None = None  # maximum number of concurrent trials, if requested
    guards: tuple[GuardScore, ...] = ()  # of front members, if the sweep had guards
    calibrations: tuple[Calibration, ...] = ()  # one per rung and split
    measures: tuple[Measure, ...] = ()  # of rungs and of the reference encoder, on dev and test
    labeled: tuple[Point, ...] = ()  # points that use the pool's labels, excluded from ``points`` and from fronts
    watched: tuple[WatchedRung, ...] = ()  # rungs at which watched data was measured, in order
    stage: Stage | None = None  # current stage; None during the search and after the end
    has_driver: bool | None = None  # whether a process drives the run; None if not checked or unknown
    config_digests: tuple[str, ...] = ()  # SHA-256 of the settings of each session


@dataclass(frozen=True)
class Node:
    """The node that a trial ran on: its type in the cluster's file and its total numbers of CPUs and GPUs."""

    type: str = LOCAL
    cpus: float = 0.0
    gpus: float = 0.0


@dataclass
class Cost:
    """The cost of one or several trials. The unit of ``money`` is that of the prices in the sweep's file."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0

    def add(self, other: "Cost") -> None:
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.gpu_seconds += other.gpu_seconds
        self.money += other.money
