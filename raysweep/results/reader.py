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
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raysweep.errors import InputError
from raysweep.results.ledger import events
from raysweep.results.types import SCHEMA, Mean, Point, Results, Rung, RunInfo, Trial
from raysweep.trial_status import TrialStatus


def checked(kind: Any, values: Mapping[str, Any]) -> Any:
    """A ``kind``, a dataclass, of the values that it has fields for. ValueError when one is of another type or missing."""
    fields = {each.name: values[each.name] for each in dataclasses.fields(kind) if each.name in values}
    return _adapter(kind).validate_python(fields)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def said(error: Exception) -> str:
    """What is wrong with a record, of the error that reading it raised."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))} is {first['input']!r}: {first['msg'].lower()}"
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


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
            if event["step"] < 1:
                raise ValueError(f"step is {event['step']}, not a whole number above 0")
            self._add(points_of(self._trial(number).trial, event))
            self.rungs.append(checked(Rung, event))
        elif kind in _STATUS:
            status = TrialStatus(event.get("status", _STATUS[kind]))
            self._change(number, {"status": status, "reason": event.get("reason", "")})
        elif kind == "mean":
            self.means[number] = [checked(Mean, {**point, "trial": number}) for point in event["points"]]
        elif kind == "points":
            self._add(checked(Point, point) for point in event["points"])
        elif kind == "finish":
            if not isinstance(event["status"], str):
                raise ValueError(f"status is {event['status']!r}, not a word")
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
