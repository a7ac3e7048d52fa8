"""Start or resume a sweep of 24 invented trials in FOLDER, which may be killed at any moment.

python -m support.killed_sweep FOLDER [SECONDS_PER_RUNG]
"""

import sys
import time
from pathlib import Path

from raysweep.results.ledger import Ledger, point_name, read_events
from support.sweeps import assemble, make, rung, settings

OVERRIDES = {
    "budget__trials": "24",
    "early_stopping__policy": "growth",
    "early_stopping__first_examples": "2048",
    "space__examples_per_rung": "2048",
}


def main(folder: Path, seconds: float) -> None:
    if (folder / "ledger.jsonl").is_file():
        sweep, _ = assemble(*settings(folder, **OVERRIDES), Ledger(folder))
        sweep.ledger.open()
        sweep.replay(list(read_events(folder / "ledger.jsonl")))
    else:
        sweep, _ = make(folder, **OVERRIDES)
    while (proposal := sweep.assign()) is not None:
        number, config = proposal
        for step in range(
            sweep.progress.steps_done(number) + 1,
            sweep.config.budget.rungs_of(config.examples_per_rung) + 1,
        ):
            time.sleep(seconds)
            (folder / "points" / point_name(number, step)).mkdir(exist_ok=True)
            if sweep.record_rung(number, rung(config, step)):
                break
        sweep.release(number)
    sweep.finish("completed", "all trials are done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
