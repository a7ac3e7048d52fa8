"""Warm starts: what older runs teach a new sweep, also over other data or another model.

Scores are carried over by their place between the reference encoder's and the best there could be: P from R's to 1, S as its
share of R's. An older trial that does not lie in the new space is left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raysweep.config.space import Space
from raysweep.config.trial import trial_config
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair, front_of
from raysweep.metrics.pareto import hypervolume
from raysweep.results.types import Point, Results, Rung, Trial
from raysweep.results.views import averaged
from raysweep.search.proposer import Proposer
from raysweep.storage.folder import Folder, as_folder
from raysweep.trial_status import TrialStatus

FILE = "warm_start.json"

NUM_FIRST = 5  # configurations to try before any of the sampler's own


@dataclass(frozen=True)
class Observation:
    """An older trial as the new sweep's sampler learns from it."""

    values: Mapping[str, Any]
    fronts: Mapping[int, tuple[Pair, ...]]  # its non-dominated points so far, by rising number of examples seen
    status: TrialStatus  # completed or stopped

    @property
    def last_front(self) -> tuple[Pair, ...]:
        """The non-dominated points of all its rungs."""
        return self.fronts[max(self.fronts)]


@dataclass(frozen=True)
class WarmStart:
    """``first`` are indices of observations whose configurations are tried before any of the sampler's own."""

    observations: list[Observation]
    first: list[int]
    num_left_out: int

    @property
    def summary(self) -> str:
        """How many trials there are to learn from, for the display."""
        left_out = f"; {self.num_left_out} do not lie in this space" if self.num_left_out else ""
        return (
            f"warm start from {len(self.observations)} trials, the best {len(self.first)} to be tried first{left_out}"
        )


def gather(runs: Sequence[Results], space: Space, reference: Pair) -> WarmStart:
    """What the runs teach a sweep over ``space`` whose reference encoder scores ``reference`` (P, S) on dev."""
    observations: list[Observation] = []
    num_left_out = 0
    for run in runs:
        old_reference = _reference_of(run)
        points = averaged(run)
        for trial, rungs in _finished_rungs(run):
            if _lies_in(space, trial):
                own = [point for point in points if point.trial == trial.trial and point.split == "dev"]
                observations.append(_observation(trial, rungs, own, old_reference, reference))
            else:
                num_left_out += 1
    reference_point = reference[0], reference[1] / 2
    return WarmStart(observations, _best(observations, reference_point), num_left_out)


def _reference_of(run: Results) -> Pair:
    """P and S of the run's reference encoder on dev."""
    for point in run.points:
        if point.kind == "reference" and point.split == "dev":
            return point.polarity, point.similarity
    raise InputError(f"{run.folder}: holds no scores of its reference encoder to compare by")


def _finished_rungs(run: Results) -> Iterator[tuple[Trial, list[Rung]]]:
    """The trials to learn from, each with its rungs in order. Failed trials and replicates are none."""
    for trial in run.trials:
        rungs = sorted((rung for rung in run.rungs if rung.trial == trial.trial), key=lambda rung: rung.step)
        if rungs and trial.status != TrialStatus.FAILED and trial.replicate_of is None:
            yield trial, rungs


def _lies_in(space: Space, trial: Trial) -> bool:
    """Whether a trial of the space may have this whole configuration, also in what the space leaves at its default."""
    try:
        suggester = space.suggest_fixed(trial.config)
        old = trial_config(dict(trial.config))
    except ValueError:
        return False
    return trial_config(space.draw(suggester)) == old


def _observation(
    trial: Trial, rungs: Iterable[Rung], points: Sequence[Point], old_reference: Pair, new_reference: Pair
) -> Observation:
    """A trial with its ``points`` on dev carried over from one reference encoder's scores to another's."""
    front: tuple[Pair, ...] = ()
    fronts = {}
    for rung in rungs:
        at_rung = [(point.polarity, point.similarity) for point in points if point.step == rung.step]
        carried = [_carried(pair, old_reference, new_reference) for pair in at_rung]
        front = front_of([*front, *carried])
        fronts[rung.examples_seen] = front
    is_completed = trial.status == TrialStatus.COMPLETED
    status = TrialStatus.COMPLETED if is_completed else TrialStatus.STOPPED
    return Observation(dict(trial.config), fronts, status)


def _carried(point: Pair, old_reference: Pair, new_reference: Pair) -> Pair:
    old_polarity, old_similarity = old_reference
    new_polarity, new_similarity = new_reference
    polarity = new_polarity + (point[0] - old_polarity) * (1 - new_polarity) / max(1e-9, 1 - old_polarity)
    similarity = point[1] * new_similarity / old_similarity
    return polarity, similarity


def _best(observations: Sequence[Observation], reference_point: Pair) -> list[int]:
    """The observations of different configurations that add most hypervolume to a joint front, one after the other."""
    chosen: list[int] = []
    front: list[Pair] = []
    while len(chosen) < NUM_FIRST:
        chosen_values = [observations[index].values for index in chosen]
        areas = {
            index: hypervolume([*front, *observation.last_front], reference_point)
            for index, observation in enumerate(observations)
            if observation.values not in chosen_values
        }
        best = max(areas, key=lambda index: areas[index], default=None)
        if best is None or (chosen and areas[best] <= hypervolume(front, reference_point)):
            return chosen
        chosen.append(best)
        front += observations[best].last_front
    return chosen


def apply(proposer: Proposer, warm_start: WarmStart) -> None:
    """Let the sampler know, and have the best tried before anything else.

    The sampler knows the observations by negative numbers, which no trial of the sweep has.
    """
    for index, observation in enumerate(warm_start.observations):
        number = -1 - index
        proposer.adopt(number, observation.values)
        for examples_seen, front in observation.fronts.items():
            proposer.report(number, examples_seen, front)
        proposer.tell(number, observation.status)
    for index in reversed(warm_start.first):
        proposer.try_first(-1 - index)


def write(place: Path | Folder, warm_start: WarmStart) -> None:
    """Keep the warm start with the run: a resume needs the same."""
    run = as_folder(place)
    (run.path / FILE).write_text(json.dumps(asdict(warm_start), indent=1), encoding="utf-8")
    run.store(FILE)


def read(place: Path | Folder) -> WarmStart | None:
    """The warm start that a run began with, or None. InputError where its file was changed."""
    path = as_folder(place).fetch(FILE)
    if not path.is_file():
        return None
    try:
        return TypeAdapter(WarmStart).validate_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte {error.start}); the file was changed by hand?") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {where}: {first['msg'].lower()}; the file was changed by hand?") from None
