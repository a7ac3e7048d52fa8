"""Recordings by name, and the criterion for using one in a claim about searches."""

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.foreign_tables import read
from raysweep.errors import InputError
from raysweep.metrics.pareto import hypervolume
from raysweep.replay.recordings import RecordedSweep, RecordedTrial

PUBLISHED = ("minilm-6", "e5-small", "gte-small", "gte-base")  # the models of the published scores
FOLDERS = ("recordings", "")  # below benchmarks/, in this order
SUFFIXES = ("*.parquet", "*.csv")
TUNED_ALONE = ":kind=plain"  # only the points that are not mixtures with the reference

NEAR = 0.9  # of the best configuration's own hypervolume: within a tenth of the best
MIN_NEAR = 5
MAX_ALONE = 0.9  # of the recording's hypervolume


@dataclass(frozen=True)
class Criterion:
    """Whether a recording has several good configurations.

    A search of a recording with one outstanding configuration only measures how long it takes to hit it. ``num_near_best``
    configurations have at least NEAR of the best one's own hypervolume, itself included, and the best has the share
    ``greatest_alone`` of the recording's.
    """

    num_near_best: int
    greatest_alone: float

    @classmethod
    def of(cls, sweep: RecordedSweep) -> "Criterion":
        areas = [_own_area(trial, sweep) for trial in sweep.trials]
        best = max(areas)
        return cls(sum(area >= NEAR * best for area in areas), best / sweep.area)

    @property
    def is_met(self) -> bool:
        return self.num_near_best >= MIN_NEAR and self.greatest_alone <= MAX_ALONE

    def __str__(self) -> str:
        near = f"{self.num_near_best} configuration{'s' * (self.num_near_best != 1)} within a tenth of the best"
        verdict = (
            "it counts"
            if self.is_met
            else f"it does not count (required: {MIN_NEAR}, at most {MAX_ALONE:.0%})"
        )
        return f"{near}, the best has {self.greatest_alone:.1%} of the hypervolume alone: {verdict}"


def _own_area(trial: RecordedTrial, sweep: RecordedSweep) -> float:
    points = [point for rung in trial.rungs for point in rung.points]
    return hypervolume(points, sweep.reference_point)


@dataclass(frozen=True)
class Recorded:
    """A recording by name."""

    name: str
    sweep: RecordedSweep

    @classmethod
    def of(cls, argument: str) -> "Recorded":
        """Read FILE or FILE:column=value."""
        file, _, where = (
            argument.rpartition(":") if "=" in argument.rpartition(":")[2] else (argument, "", "")
        )
        column, _, value = where.partition("=")
        sweep = read(Path(file), {column: value} if where else None)
        return cls(Path(file).stem + (f" {value}" if where else ""), sweep)

    def part(self, num_configurations: int, seed: int) -> "Recorded":
        """Return a random sample of the configurations."""
        trials = self.sweep.trials
        if num_configurations >= len(trials):
            return self
        chosen = np.sort(np.random.default_rng(seed).permutation(len(trials))[:num_configurations])
        part = dataclasses.replace(self.sweep, trials=tuple(trials[index] for index in chosen))
        return Recorded(f"{self.name}, {num_configurations} of {len(trials)}", part)

    @cached_property
    def digest(self) -> str:
        """Return a digest of everything that a search of the recording depends on."""
        sweep = self.sweep
        trials = [(sorted(trial.values.items()), trial.rungs) for trial in sweep.trials]
        known = (trials, sweep.reference_point, sweep.reference, sorted(sweep.ranges))
        return hashlib.sha256(repr(known).encode()).hexdigest()[:12]

    @cached_property
    def criterion(self) -> Criterion:
        return Criterion.of(self.sweep)


def located() -> list[str]:
    """Return the available recordings: raysweep's own, twice for those in recordings/, then the published ones.

    A trial of a sweep that measures mixtures with the reference model has its own front, so the best trial has nearly all
    of the recording's hypervolume. Such a recording is therefore used once complete and once with the tuned encoders'
    points alone. Missing recordings are printed.
    """
    folder = Path(__file__).parent
    paths = [
        path for part in FOLDERS for kind in SUFFIXES for path in sorted((folder / part).glob(kind))
    ]
    if not paths:
        print(
            f"no recordings in {folder.name}/ ({', '.join(SUFFIXES)}); only the published scores are used"
        )
    names = [name for path in paths for name in _ways_to_take(path)]
    data_folder = os.environ.get("RAYSWEEP_DATA_DIR")
    data = Path(data_folder) if data_folder else measure.ROOT.parent / "shared" / "data"
    published = data / "replay" / "sst2_published_epochs.csv"
    if published.is_file():
        names += [f"{published}:model={model}" for model in PUBLISHED]
    else:
        print(f"published scores are missing: {published}")
    if not names:
        raise InputError("no recording exists; pass some with --tables FILE...")
    return names


def _ways_to_take(path: Path) -> list[str]:
    is_in_tables = path.parent.name == FOLDERS[0]
    return [str(path), f"{path}{TUNED_ALONE}"] if is_in_tables else [str(path)]
