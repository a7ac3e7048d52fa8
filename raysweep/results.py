"""The run folder: an append-only ledger of what happened, and the tables that the report reads.

``ledger.jsonl`` holds one JSON object a line and is the source of truth. Events, told apart by ``event``:

``run``     the sweep's settings, written first and again at each resume: see :class:`RunInfo`
``trial``   a configuration was proposed, and begins: ``trial``, ``config``, ``num_rungs``, which it has if it runs to its
            end; a replicate, which runs one again with another seed, has ``replicate_of``, the trial it repeats, and
            ``run``, from 1, which the seed derives from
``rung``    a trial was evaluated: a :class:`Rung`'s fields, ``points``, a list of :class:`Point`; ``stop``, the trial's own
            reason to end here, or null; ``node``, where it ran; ``may_begin``, whether trials were left to begin
``hold``    a trial was stopped for now: ``trial``, ``reason``
``revive``  a held trial goes on
``cut``     a running trial was paused, by the budget or since the search ended: ``trial``, ``reason``
``again``   a trial that was cut, or was running when the driver died, goes on
``end``     a trial will not go on: ``trial``, ``status``, ``reason``
``mean``    a replicate is about to end: ``trial``, its original, ``runs`` that count, and ``points``, those that several
            runs reached: a :class:`Mean`'s fields but for the trial
``points``  operating points of no rung: the reference, the oracle, and test scores of front members
``finish``  the sweep ended: ``status`` (``completed``, ``interrupted``, ``budget``, ``plateau``, ``failed``), ``reason``,
            ``seconds``

``at`` is the time in seconds that the sweep had run, ``cost`` what the trial had cost so far.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from raysweep.errors import InputError
from raysweep.ledger import events
from raysweep.pareto import non_dominated
from raysweep.records import checked, said

SCHEMA = 2
Split = Literal["dev", "test"]
MAIN_PARAMETERS = ("loss", "margin", "scale", "learning_rate", "freezing", "batch_size")
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
    """One configuration. ``reason`` says why it has its status.

    ``status`` is running, held (stopped for now), completed, stopped, failed, or interrupted (running when the sweep ended).
    """

    trial: int
    config: Mapping[str, Any]
    status: str = "running"
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: float = 0.0
    money: float = 0.0
    replicate_of: int | None = None
    num_rungs: int = 0  # to its end; 0 where an older ledger does not say


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
class Results:
    """A run's stored results, as read back by :func:`load`."""

    folder: Path
    info: RunInfo
    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    points: tuple[Point, ...]
    status: str  # running, or as in the ``finish`` event
    reason: str
    seconds: float
    means: tuple[Mean, ...] = ()  # of trials that have replicates


def point_name(trial: int, step: int) -> str:
    """The name of the folder under ``RUN/points`` that keeps a rung's weights and per-query scores."""
    return f"trial-{trial:04d}-step-{step:03d}"


def checkpoints_of(folder: Path, trial: int) -> Path:
    """Where a trial of the run in ``folder`` keeps its state while it runs."""
    return folder / "checkpoints" / f"trial-{trial:04d}"


def point_problem(point: Mapping[str, Any]) -> str | None:
    """What is wrong with a point's scores, None if nothing. Nothing that is wrong may reach the ledger."""
    for name in ("polarity", "polarity_std", "similarity", "similarity_std", "retention"):
        value = point.get(name)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return f"{name} {value!r}, not a finite number"
    if not -0.001 <= point["polarity"] <= 1.001 or not -1.001 <= point["similarity"] <= 1.001:
        return f"P {point['polarity']} and S {point['similarity']}, beyond their ranges"
    return None


def points_of(trial: int, rung: Mapping[str, Any]) -> list[Point]:
    """The operating points of a trial's ``rung`` event."""
    return [checked(Point, {**point, "trial": trial, "step": rung["step"]}) for point in rung["points"]]


def load(folder: Path) -> Results:
    """Read a run's ledger, also one of a sweep that was interrupted or is still running.

    Raises InputError when the folder holds no run. A run without a single finished rung is fine: it has no points.
    """
    path = folder / "ledger.jsonl"
    if not path.is_file():
        raise InputError(f"{folder}: not a run folder (no ledger.jsonl in it)")
    read = _Reading()
    for line, event in enumerate(events(path), 1):
        if event["event"] == "run" and event.get("schema") != SCHEMA:
            raise InputError(f"{path}: written with schema {event.get('schema')}; this version reads {SCHEMA}")
        try:
            read.take(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path}: line {line}: {said(error)}; the ledger was changed by hand?") from None
    info, trials = read.info, tuple(read.trials.values())
    if info is None:
        raise InputError(f"{path}: holds no settings; the sweep ended before it began")
    if read.status != "running":
        cut: dict[str, Any] = {"status": "interrupted", "reason": "the sweep ended before it"}
        trials = tuple(dataclasses.replace(one, **cut) if one.status == "running" else one for one in trials)
    means = tuple(mean for _, found in sorted(read.means.items()) for mean in found)
    rungs, points = tuple(read.rungs), tuple(read.points)
    return Results(folder, info, trials, rungs, points, read.status, read.reason, read.seconds, means)


_STATUS = {"hold": "held", "revive": "running", "cut": "interrupted", "again": "running", "end": ""}


@dataclass
class _Reading:
    """What the events so far amount to."""

    info: RunInfo | None = None
    trials: dict[int, Trial] = field(default_factory=dict)
    rungs: list[Rung] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    means: dict[int, list[Mean]] = field(default_factory=dict)
    status: str = "running"
    reason: str = ""
    seconds: float = 0.0

    def take(self, event: Mapping[str, Any]) -> None:
        kind, number = event["event"], event.get("trial", -1)
        if kind == "run":
            self.info = checked(RunInfo, event)
        elif kind == "trial":
            self.trials[number] = checked(Trial, event)
        elif kind == "rung":
            self._add(points_of(self._trial(number).trial, event))
            self.rungs.append(checked(Rung, event))
        elif kind in _STATUS:
            self._change(number, {"status": event.get("status", _STATUS[kind]), "reason": event.get("reason", "")})
        elif kind == "mean":
            self.means[number] = [checked(Mean, {**point, "trial": number}) for point in event["points"]]
        elif kind == "points":
            self._add(checked(Point, point) for point in event["points"])
        elif kind == "finish":
            self.status, self.reason, self.seconds = event["status"], event["reason"], float(event["seconds"])
        else:
            raise ValueError(f"there is no event {kind!r}")
        if "cost" in event:
            self._change(number, event["cost"])
        if kind in ("run", "trial", *_STATUS):
            self.status, self.reason = "running", ""

    def _add(self, points: Iterable[Point]) -> None:
        for point in points:
            if problem := point_problem(vars(point)):
                raise ValueError(problem)
            self.points.append(point)

    def _change(self, number: int, values: Mapping[str, Any]) -> None:
        self.trials[number] = checked(Trial, {**vars(self._trial(number)), **values})

    def _trial(self, number: int) -> Trial:
        if number not in self.trials:
            raise ValueError(f"trial {number} has not begun")
        return self.trials[number]


def front_members(points: Iterable[Point]) -> list[Point]:
    """The trials' non-dominated points on dev, by falling similarity: what selection may choose from."""
    candidates = [point for point in points if point.split == "dev" and point.trial is not None]
    kept = non_dominated([(point.polarity, point.similarity) for point in candidates])
    return sorted((candidates[i] for i in kept), key=lambda point: (-point.similarity, point.polarity))


def varied_parameters(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Names of the parameters that differ among trials, the main ones first; of a single trial the main ones."""
    configs = [trial.config for trial in trials]
    names = list(dict.fromkeys(name for config in configs for name in config))
    varied = [name for name in names if any(config.get(name) != configs[0].get(name) for config in configs)]
    chosen = varied or [name for name in names if name in MAIN_PARAMETERS]
    return tuple(sorted(chosen, key=lambda n: MAIN_PARAMETERS.index(n) if n in MAIN_PARAMETERS else len(names)))
