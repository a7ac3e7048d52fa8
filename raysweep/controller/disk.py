"""Disk usage of a run, and removal of its checkpoints and weights."""

from dataclasses import dataclass

from raysweep.controller.kept_files import CHECKPOINTS, POINTS
from raysweep.results.events import CheckpointsRemoved
from raysweep.results.ledger import Ledger
from raysweep.results.reader import build_results, load
from raysweep.results.types import RESUMABLE, Results
from raysweep.storage.folder import Folder


@dataclass(frozen=True)
class RunSize:
    """The sizes of a run's files, in bytes."""

    weights: int
    checkpoints: int
    others: int

    @property
    def total(self) -> int:
        return self.weights + self.checkpoints + self.others

    def __str__(self) -> str:
        kinds = {
            "weights": self.weights,
            "checkpoints": self.checkpoints,
            "other files": self.others,
        }
        parts = [f"{name} {_format_size(num_bytes)}" for name, num_bytes in kinds.items()]
        return f"{_format_size(self.total)} ({', '.join(parts)})"


def _format_size(num_bytes: int) -> str:
    if num_bytes < 2**30:
        return f"{num_bytes / 2**20:,.1f} MiB"
    return f"{num_bytes / 2**30:,.2f} GiB"


def measure_size(run: Folder) -> RunSize:
    """Return the sizes of a run's files."""
    totals = {POINTS: 0, CHECKPOINTS: 0}
    others = 0
    for name, num_bytes in run.sizes().items():
        folder = name.partition("/")[0]
        if folder in totals:
            totals[folder] += num_bytes
        else:
            others += num_bytes
    return RunSize(totals[POINTS], totals[CHECKPOINTS], others)


def prune(run: Folder, *, checkpoints: bool, weights: bool) -> None:
    """Remove a run's checkpoints, its front's weights, or both.

    Removing checkpoints stops unfinished trials for good.

    Raises:
        InputError: If the folder does not contain a run, or if another process is driving it.
    """
    load(run)  # raises unless the folder contains a run
    ledger = Ledger(run)
    events = ledger.open()
    try:
        if checkpoints:
            trials = find_unfinished(build_results(events, run))
            if trials:
                ledger.append(CheckpointsRemoved(trials=trials))
            run.remove(CHECKPOINTS)
        if weights:
            run.remove(POINTS)
    finally:
        ledger.close()


def find_unfinished(results: Results) -> tuple[int, ...]:
    """Return the trials that a resumed sweep could continue. Replicates are excluded because they start over."""
    originals = [trial for trial in results.trials if trial.replicate_of is None]
    return tuple(trial.trial for trial in originals if trial.status in RESUMABLE)
