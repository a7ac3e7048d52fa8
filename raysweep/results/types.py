"""What a run's ledger holds, read back as values."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from raysweep.trial_status import TrialStatus

SCHEMA = 2  # of the ledger's format

LOCAL = "local"  # the node type where the cluster names none

ScoredSplit = Literal["dev", "test"]

BASELINES = ("probe", "setfit", "published")
"""Kinds of points that no trial made and that a front is compared with: see :mod:`raysweep.ray_tune.baselines`."""

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
    constraints: Mapping[str, float] = field(default_factory=dict)  # the least of a point, where they are set
    packages: Mapping[str, str] = field(default_factory=dict)  # their versions on the driver's machine, by name
    guards: Mapping[str, float | None] = field(default_factory=dict)  # by name, the least of a front member, if any
    prompt: str = ""  # goes before every sentence that the model embeds
    reference_prompt: str = ""  # the same of the reference encoder
    searched: tuple[str, ...] = ()  # the parameters that have more than one value in the space

    def objective(self, point: "Point") -> float:
        """What the sweep judged this point by."""
        return objective(point, self.polarity_weight, self.similarity)


@dataclass(frozen=True)
class RungProgress:
    """How far a trial is within the rung ``step``: it has seen so many of the rung's examples, at this pace."""

    step: int
    num_seen: int
    num_examples: int
    examples_per_second: float

    @property
    def seconds_left(self) -> float:
        """Until the rung's last example, its evaluation excluded."""
        return (self.num_examples - self.num_seen) / self.examples_per_second


@dataclass(frozen=True)
class Point:
    """One operating point: a retrievable encoder and its scores on one split, all in [0, 1].

    ``kind`` is one of :mod:`raysweep.evaluation.operating_points` (``plain`` is the tuned encoder as it is; ``labelled``
    points are told the pool's labels, and kept apart), ``reference`` (R itself), ``oracle`` (the limit no encoder can pass)
    or one of ``BASELINES``; ``value`` is the kind's parameter, or None. ``trial`` and ``step`` are None for points that no
    trial made. ``width`` is the embedding's dimension, None for the oracle. ``accuracy`` is the share of queries whose label
    the retrieved sentences vote for, None of the oracle, of published scores and of what an older version measured.
    Standard deviations are 0 where only means are known. ``label`` tells SetFit models and published scores apart, and is
    None for all other kinds.
    """

    trial: int | None
    step: int | None
    kind: str
    value: float | None
    split: ScoredSplit
    width: int | None
    polarity: float
    polarity_std: float
    similarity: float
    similarity_std: float
    retention: float
    accuracy: float | None = None
    label: str | None = None

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
    """A point as a ``rung`` event stores it: without the trial and step, which the event has, and without a label."""
    values = dataclasses.asdict(point)
    del values["trial"], values["step"], values["label"]
    return json.loads(json.dumps(values, allow_nan=False))  # type: ignore[no-any-return]


def point_problem(values: Mapping[str, Any]) -> str | None:
    """What is wrong with the scores of a point that is given by its fields, None if nothing is."""
    for name in ("polarity", "polarity_std", "similarity", "similarity_std", "retention"):
        value = values.get(name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return f"{name} {value!r}, not a finite number"
    accuracy = values.get("accuracy")
    if accuracy is not None and not (isinstance(accuracy, int | float) and -0.001 <= accuracy <= 1.001):
        return f"accuracy {accuracy!r}, not a share"
    polarity, similarity = values["polarity"], values["similarity"]
    if not -0.001 <= polarity <= 1.001 or not -1.001 <= similarity <= 1.001:
        return f"P {polarity} and S {similarity}, beyond their ranges"
    return None


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
class Calibration:
    """How well the class probabilities of a rung's head fit the labels of one split, before its temperature and with it.

    Its logits are divided by ``temperature``, which is fitted on dev; 1 where the sweep asked for none. Cross-entropies are
    in nats a sentence, errors are expected calibration errors, in [0, 1]. ``trial`` and ``step`` name the rung.
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
    """A calibration as a ``rung`` event stores it: without the trial and step, which the event has."""
    values = dataclasses.asdict(calibration)
    del values["trial"], values["step"]
    return values


def calibration_problem(calibration: Calibration) -> str | None:
    """What is wrong with the figures of a calibration, None if nothing is."""
    errors = calibration.error_before, calibration.error
    losses = calibration.cross_entropy_before, calibration.cross_entropy
    if not (math.isfinite(calibration.temperature) and calibration.temperature > 0):
        return f"temperature {calibration.temperature!r}, not a number above 0"
    if not all(math.isfinite(each) and each >= 0 for each in losses):
        return f"cross-entropies {losses}, not finite numbers from 0 on"
    if not all(0 <= each <= 1.001 for each in errors):
        return f"calibration errors {errors}, not shares"
    return None


@dataclass(frozen=True)
class Trial:
    """One configuration. ``reason`` says why it has its status, and ``traceback`` where what it raised came from."""

    trial: int
    config: Mapping[str, Any]
    status: TrialStatus = TrialStatus.RUNNING
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0
    replicate_of: int | None = None
    num_rungs: int = 0  # to its end
    traceback: str = ""
    stop_was_asked: bool = False  # by a person, of the running sweep


@dataclass(frozen=True)
class Mean:
    """One operating point of a trial on dev over several runs: the means and the sample standard deviations over them."""

    trial: int  # the original
    step: int
    kind: str
    value: float | None
    runs: int
    polarity: float
    polarity_spread: float
    similarity: float
    similarity_spread: float


@dataclass(frozen=True)
class GuardScore:
    """A front member's score under a guard of the sweep's; ``at_least`` is what it had to reach, None without a limit.

    ``files`` is a digest of the guard's kind and files: those that a resumed run names may be others.
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
    """How long nodes of one type booted and were up, all of them together; the price an hour is None where there is none."""

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


StageName = Literal["test", "guards"]


@dataclass(frozen=True)
class Stage:
    """What a sweep does after its search: how many scores of rungs or of front members it has, of how many."""

    name: StageName
    count: int
    num_done: int = 0


@dataclass(frozen=True)
class Results:
    """A run's stored results, as read back by :func:`load`."""

    folder: str  # where the run is kept: a path or a URI
    info: RunInfo
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    points: tuple[Point, ...]
    status: str  # running, or as :class:`raysweep.results.events.SessionFinished` has it; failed where every trial has
    reason: str
    seconds: float
    has_failed_for_good: bool = False  # too many of its trials failed, or all of them
    means: tuple[Mean, ...] = ()  # of trials that have replicates
    nodes: tuple[NodeTime, ...] = ()  # by type and price, where the sweep had prices
    is_paused: bool = False  # by a person: no trial is begun
    workers: int | None = None  # most trials at a time, where a person has said so
    guards: tuple[GuardScore, ...] = ()  # of front members, where the sweep had guards
    calibrations: tuple[Calibration, ...] = ()  # of heads, on the splits that they were measured on
    labelled: tuple[
        Point, ...
    ] = ()  # that are told the pool's labels: no part of the points above, nor of any front of theirs
    stage: Stage | None = None  # that it is in; None in its search and when it has ended
    has_driver: bool | None = None  # whether a process drives it; None where that was not asked, or cannot be told
    config_digests: tuple[str | None, ...] = ()  # of what each session wrote as the run's settings; None: not noted


@dataclass(frozen=True)
class Node:
    """The node a trial ran on: its type in the cluster's file, and how many CPUs and GPUs it has in all."""

    type: str = LOCAL
    cpus: float = 0.0
    gpus: float = 0.0


@dataclass
class Cost:
    """What one trial or several have cost. The unit of ``money`` is that of the prices in the sweep's file."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0

    def add(self, other: "Cost") -> None:
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.gpu_seconds += other.gpu_seconds
        self.money += other.money
