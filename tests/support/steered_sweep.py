"""Start or resume a sweep of 8 invented trials on a local Ray in FOLDER, to be steered from another process.

python -m support.steered_sweep FOLDER
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysweep.cluster.connection import connected
from raysweep.cluster.resources import Request
from raysweep.config.sweep import EvaluationConfig, ResourcesConfig
from raysweep.controller.sweep import Sweep
from raysweep.ray_tune import tune
from raysweep.ray_tune.workers import WorkbenchSpec
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.types import RungProgress
from raysweep.training.workbench import RungResult
from support.faulty_trials import NUM_RUNGS, FaultyTrials, InventedScores
from support.sweeps import assemble, make, settings

NUM_TRIALS = 8
PART_SECONDS = 0.2  # of a rung, which has two
OVERRIDES = {
    "budget__trials": str(NUM_TRIALS),
    "early_stopping__policy": "none",
    "sampler": "random",
}


class SteadyTrials(FaultyTrials):
    """Trials without faults that resume from where they stopped."""

    def _rungs(self) -> Iterator[RungResult | RungProgress]:
        self.bench = InventedScores()
        done = self._counted("rungs")
        if done:
            yield self._result(done)
        for step in range(done + 1, NUM_RUNGS + 1):
            time.sleep(PART_SECONDS)
            self.has_checkpoint = False
            yield RungProgress(step, 1, 2, 5.0)
            time.sleep(PART_SECONDS)
            self._count("rungs")
            yield self._result(step)


def opened(folder: Path) -> Sweep:
    """Return the sweep resumed from its ledger, or a new one."""
    if not (folder / "ledger.jsonl").is_file():
        return make(folder, **OVERRIDES)[0]
    sweep, _ = assemble(*settings(folder, **OVERRIDES), Ledger(folder))
    sweep.ledger.open()
    sweep.replay(list(read_events(folder / "ledger.jsonl")))
    return sweep


def main(folder: Path) -> None:
    unused: Any = None
    request = Request(cpus=1, gpus=0, count=2)
    with connected(ResourcesConfig(num_cpus=2), show_workers=False):
        sweep = opened(folder)
        sweep.num_workers = request.count
        tune.search(sweep, WorkbenchSpec(unused, EvaluationConfig(), request), SteadyTrials)
        sweep.finish("completed", "all trials are done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
