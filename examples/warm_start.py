"""Let a new sweep learn from an older run, which may have used other data or another model.

python warm_start.py RUN
"""

import sys

import raysweep


def main(older_run: str) -> None:
    sweep = raysweep.load_sweep("smoke", {"name": "warm", "budget.trials": 2, "seed": 1})
    results = raysweep.run_sweep(sweep, warm_start=[older_run], on_progress=print)
    older = raysweep.load_run(older_run)
    for name, run in (("older", older), ("warm", results)):
        print(
            f"{name}: {len(run.trials)} trials, best dev P on the front {100 * run.front.dev_polarity.max():.1f}"
        )


if __name__ == "__main__":
    main(sys.argv[1])
