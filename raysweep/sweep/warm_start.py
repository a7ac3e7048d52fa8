"""Warm starts: what older runs teach a new sweep, also over other data or another model.

Scores are carried over by their place between the reference encoder's and the best there could be: P from R's to 1, S as its
share of R's. An older trial that does not lie in the new space is left out.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from raysweep.config.space import Space
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair, front_of
from raysweep.metrics.pareto import hypervolume
from raysweep.results.types import Results
from raysweep.results.views import averaged
from raysweep.search.proposer import Proposer

FILE = "warm_start.json"


NUM_FIRST = 5  # points to try before any of the sampler's own


@dataclass(frozen=True)
class WarmStart:
    """``observations`` are trials: ``values``, ``fronts`` (by examples seen) and ``status``; ``first`` indexes some."""

    observations: list[dict[str, Any]]
    first: list[int]
    num_left_out: int

    @property
    def summary(self) -> str:
        left = f"; {self.num_left_out} do not lie in this space" if self.num_left_out else ""
        return f"warm start from {len(self.observations)} trials, the best {len(self.first)} to be tried first{left}"


def gather(runs: Sequence[Results], space: Space, reference: Pair) -> WarmStart:
    """What the runs teach a sweep over ``space`` whose reference encoder scores ``reference`` (P, S) on dev."""
    observations: list[dict[str, Any]] = []
    left_out = 0
    for run in runs:
        own = next((p for p in run.points if p.kind == "reference" and p.split == "dev"), None)
        if own is None:
            raise InputError(f"{run.folder}: holds no scores of its reference encoder to compare by")
        points = averaged(run)
        for trial in run.trials:
            rungs = sorted((r for r in run.rungs if r.trial == trial.trial), key=lambda rung: rung.step)
            if not rungs or trial.status == "failed" or trial.replicate_of is not None:
                continue
            try:
                space.recall(trial.config)
            except ValueError:
                left_out += 1
                continue
            front: tuple[Pair, ...] = ()
            fronts = {}
            for rung in rungs:
                pairs = [
                    _carried((point.polarity, point.similarity), (own.polarity, own.similarity), reference)
                    for point in points
                    if (point.trial, point.step, point.split) == (trial.trial, rung.step, "dev")
                ]
                front = front_of([*front, *pairs])
                fronts[str(rung.examples_seen)] = front
            status = "completed" if trial.status == "completed" else "stopped"
            observations.append({"values": dict(trial.config), "fronts": fronts, "status": status})
    return WarmStart(observations, _best(observations, (reference[0], reference[1] / 2)), left_out)


def _carried(point: Pair, reference: Pair, onto: Pair) -> Pair:
    polarity = onto[0] + (point[0] - reference[0]) * (1 - onto[0]) / max(1e-9, 1 - reference[0])
    return polarity, point[1] * onto[1] / reference[1]


def _best(observations: Sequence[dict[str, Any]], reference_point: Pair) -> list[int]:
    """The observations that the joint front is worth most by, greedily."""
    chosen: list[int] = []
    front: list[Pair] = []
    seen: list[Any] = []
    while len(chosen) < NUM_FIRST:
        areas = {
            index: hypervolume([*front, *one["fronts"][max(one["fronts"], key=int)]], reference_point)
            for index, one in enumerate(observations)
            if one["values"] not in seen
        }
        best = max(areas, key=lambda index: areas[index], default=None)
        if best is None or (chosen and areas[best] <= hypervolume(front, reference_point)):
            return chosen
        chosen.append(best)
        seen.append(observations[best]["values"])
        front += observations[best]["fronts"][max(observations[best]["fronts"], key=int)]
    return chosen


def apply(proposals: Proposer, lesson: WarmStart, *, first: bool = True) -> None:
    """Let the sampler know; with ``first`` also have the best tried before anything else."""
    for index, one in enumerate(lesson.observations):
        number = -1 - index
        proposals.adopt(number, one["values"])
        for seen, front in one["fronts"].items():
            proposals.report(number, int(seen), tuple((polarity, similarity) for polarity, similarity in front))
        proposals.tell(number, one["status"])
    for index in lesson.first if first else ():
        proposals.try_first(-1 - index)


def write(folder: Path, lesson: WarmStart) -> None:
    """Keep the lesson with the run: a resume needs the same."""
    (folder / FILE).write_text(json.dumps(asdict(lesson), indent=1), encoding="utf-8")


def read(folder: Path) -> WarmStart | None:
    """The lesson that a run began with, or None."""
    path = folder / FILE
    return WarmStart(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
