"""Warm starts from older runs, which may have used different data or a different model.

Scores are rescaled from the old reference encoder to the new one: P keeps its relative position between the reference's
P and 1, and S keeps its ratio to the reference's S. Trials outside the new space are skipped.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raysweep.config.space import Space
from raysweep.config.trial import trial_config
from raysweep.errors import InputError
from raysweep.metrics.objective import front_of
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import Goals, Pair
from raysweep.output import counted
from raysweep.results.types import Results, Rung, Trial, TrialStatus
from raysweep.results.views import averaged
from raysweep.search.proposer import Proposer
from raysweep.storage.folder import Folder

FILE = "warm_start.json"

NUM_FIRST = 5  # number of configurations to try before the sampler's first proposal


@dataclass(frozen=True)
class Observation:
    """A trial of an older run, with scores rescaled for the new sweep's sampler."""

    values: Mapping[str, Any]
    # non-dominated points up to each rung, keyed by examples seen
    fronts: Mapping[int, tuple[Pair, ...]]
    status: TrialStatus  # completed or stopped

    @property
    def last_front(self) -> tuple[Pair, ...]:
        """Return the non-dominated points of all rungs."""
        return self.fronts[max(self.fronts)]


@dataclass(frozen=True)
class WarmStart:
    """Observations from older runs. ``first`` contains the indices of those to try first."""

    observations: list[Observation]
    first: list[int]
    num_left_out: int

    @property
    def summary(self) -> str:
        trials = counted(len(self.observations), "trial")
        skipped = (
            f"; skipped because outside the space: {self.num_left_out}" if self.num_left_out else ""
        )
        return f"warm start from {trials} (configurations to run first: {len(self.first)}{skipped})"


def gather(runs: Sequence[Results], space: Space, reference: Pair, goals: Goals) -> WarmStart:
    """Collect observations from older runs.

    ``space``, ``reference`` (P and S of the reference encoder on dev) and ``goals`` belong to the new sweep.

    Raises:
        InputError: If a run's reference encoder has no scores for ``goals``.
    """
    observations: list[Observation] = []
    num_left_out = 0
    for run in runs:
        old_reference = _reference_scores(run, goals)
        # keyed by trial and step
        pairs: defaultdict[tuple[int | None, int | None], list[Pair]] = defaultdict(list)
        for point in averaged(run):
            if point.split == "dev" and point.has(goals):
                rescaled = _rescale(point.pair(goals), old_reference, reference)
                pairs[point.trial, point.step].append(rescaled)
        for trial in run.trials:
            own_rungs = [rung for rung in run.rungs if rung.trial == trial.trial]
            rungs = sorted(own_rungs, key=lambda rung: rung.step)
            has_failed = trial.status == TrialStatus.FAILED
            if not rungs or has_failed or trial.replicate_of is not None:
                continue
            if not _contains(space, trial):
                num_left_out += 1
                continue
            pairs_by_rung = [pairs[trial.trial, rung.step] for rung in rungs]
            observation = _make_observation(trial, rungs, pairs_by_rung)
            observations.append(observation)
    first = _choose_first(observations, goals.reference_point(reference))
    return WarmStart(observations, first, num_left_out)


def _reference_scores(run: Results, goals: Goals) -> Pair:
    """Return P and S of a run's reference encoder on dev."""
    for point in run.points:
        if point.kind == "reference" and point.split == "dev" and point.has(goals):
            return point.pair(goals)
    raise InputError(
        f"{run.folder}: a warm start requires the reference encoder's scores on dev, but these are missing: "
        f"{' and '.join(goals)}"
    )


def _contains(space: Space, trial: Trial) -> bool:
    """Return whether the space contains the trial's configuration. Other parameters must have their defaults."""
    try:
        old = trial_config(dict(trial.config))
        suggester = space.suggest_fixed(old.flat)
    except ValueError:
        return False
    return trial_config(space.draw(suggester)) == old


def _make_observation(
    trial: Trial, rungs: Sequence[Rung], pairs_by_rung: Sequence[Sequence[Pair]]
) -> Observation:
    """Build an observation from a trial's rungs and the rescaled points (P, S) of each rung."""
    front: tuple[Pair, ...] = ()
    fronts = {}
    for rung, pairs in zip(rungs, pairs_by_rung, strict=True):
        front = front_of([*front, *pairs])
        fronts[rung.examples_seen] = front
    is_completed = trial.status == TrialStatus.COMPLETED
    status = TrialStatus.COMPLETED if is_completed else TrialStatus.STOPPED
    return Observation(dict(trial.config), fronts, status)


def _rescale(pair: Pair, old_reference: Pair, new_reference: Pair) -> Pair:
    polarity, similarity = pair
    old_polarity, old_similarity = old_reference
    new_polarity, new_similarity = new_reference
    old_range = max(1e-9, 1 - old_polarity)
    new_range = 1 - new_polarity
    old_distance = polarity - old_polarity
    new_distance = old_distance * new_range / old_range
    rescaled_polarity = new_polarity + new_distance
    rescaled_similarity = similarity * new_similarity / old_similarity
    return rescaled_polarity, rescaled_similarity


def _choose_first(observations: Sequence[Observation], reference_point: Pair) -> list[int]:
    """Return indices of distinct configurations, chosen greedily by the hypervolume that they add."""
    chosen: list[int] = []
    front: list[Pair] = []
    while len(chosen) < NUM_FIRST:
        chosen_values = [observations[index].values for index in chosen]
        areas = {
            index: hypervolume([*front, *observation.last_front], reference_point)
            for index, observation in enumerate(observations)
            if observation.values not in chosen_values
        }
        if not areas:
            return chosen
        best = max(areas, key=lambda index: areas[index])
        if chosen and areas[best] <= hypervolume(front, reference_point):
            return chosen
        chosen.append(best)
        front += observations[best].last_front
    return chosen


def apply(proposer: Proposer, warm_start: WarmStart) -> None:
    """Report the observations to the sampler, and queue the best ones to be tried first.

    Observations have negative trial numbers, to distinguish them from the sweep's own trials.
    """
    for index, observation in enumerate(warm_start.observations):
        number = -1 - index
        proposer.adopt(number, observation.values)
        for examples_seen, front in observation.fronts.items():
            proposer.report(number, examples_seen, front)
        proposer.tell(number, observation.status)
    for index in reversed(warm_start.first):
        proposer.try_first(-1 - index)


def write(run: Folder, warm_start: WarmStart) -> None:
    """Store the warm start in the run's folder, for use when the sweep is resumed."""
    (run.path / FILE).write_text(json.dumps(asdict(warm_start), indent=1), encoding="utf-8")
    run.store(FILE)


def read(run: Folder) -> WarmStart | None:
    """Return the run's warm start, or None if it has none. Raise ``InputError`` if the file is invalid."""
    path = run.fetch(FILE)
    if not path.is_file():
        return None
    try:
        content = path.read_text(encoding="utf-8")
        return TypeAdapter(WarmStart).validate_json(content)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 (byte {error.start}); was the file changed by hand?"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path}: {field}: {first['msg'].lower()}; was the file changed by hand?"
        ) from None
