"""CPU time per result of raysweep's searcher and early stopping as a sweep grows, simulated without training or files.

2,000 trials on 64 simulated workers over the space ``polarity``; each rung yields simulated scores of eight operating
points. The time covers everything that raysweep does between two results: recording and judging the rung, updating the
sampler, and proposing the next trial. It is printed by quarters of the sweep and must not grow faster than the number of
trials.
"""

import heapq
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.metrics.scores import Pair
from raysweep.results.types import TrialStatus
from raysweep.search.scheduler import make_scheduler

RUNGS = 5
REFERENCE = (0.63, 0.466)


def main() -> None:
    parser = measure.parser("benchmarks.search_overhead", __doc__)
    parser.add_argument("--trials", type=int, help="2000; with --quick 400")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument(
        "--samplers", type=lambda text: text.split(","), default=["mfgp", "tpe", "random", "nsga2"]
    )
    arguments = parser.parse_args()
    trials = arguments.trials or (400 if arguments.quick else 2000)
    machine = measure.machine()
    figures: dict[str, Any] = {"trials": trials, "workers": arguments.workers, "rows": {}}
    for policy in ("growth", "pareto", "asha"):
        for sampler in arguments.samplers:
            seconds = _play(sampler, policy, trials, arguments.workers)
            quarters = [1e3 * float(np.mean(part)) for part in np.array_split(seconds, 4)]
            figures["rows"][f"{sampler}, {policy}"] = {
                "milliseconds_by_quarter": quarters,
                "results": len(seconds),
            }
            print(
                f"{sampler:8} {policy:8} {len(seconds):6,} results; mean ms each, by quarter: "
                + ", ".join(f"{one:.2f}" for one in quarters),
                flush=True,
            )
    # growth, with mfgp unless other samplers are asked for
    default = next(iter(figures["rows"].values()))
    first, last = (default["milliseconds_by_quarter"][i] for i in (0, 3))
    figures["ratio"] = 20.0 / last
    print(
        f"\nratio: {20.0 / last:.2f} (20 ms over the default's in the last quarter; it grew {last / first:.1f}-fold)"
    )
    measure.finish("search_overhead", figures, machine, arguments.json)


def _play(sampler: str, policy: str, num_trials: int, num_workers: int) -> list[float]:
    """Return the seconds of each result."""
    document = Document.read(Path(__file__).parents[1] / "search_spaces" / "polarity.yaml")
    for key, value in {
        "sampler": sampler,
        "budget.trials": str(num_trials),
        "early_stopping.policy": policy,
        "early_stopping.first_examples": "4096",
        "space.examples_per_rung": "4096",
        "budget.examples_per_trial": str(4096 * RUNGS),
    }.items():
        document.override(key, value)
    config = configuration.parse(document)
    scheduler = make_scheduler(config, space_parser.parse(document, config), REFERENCE)
    random = np.random.default_rng(0)
    queue: list[tuple[float, int]] = []
    steps: dict[int, int] = {}
    taken: list[float] = []
    clock, idle = 0.0, True
    began = time.perf_counter()
    while idle or queue:
        while len(queue) < num_workers and (trial := scheduler.ask()) is not None:
            heapq.heappush(queue, (clock + 1 + random.random(), trial.number))
        if not idle:
            taken.append(time.perf_counter() - began)
        if not queue:
            break
        idle = False
        clock, number = heapq.heappop(queue)
        step = steps[number] = steps.get(number, 0) + 1
        points = _points(scheduler.trials[number].values, step, random)
        began = time.perf_counter()
        paused = scheduler.rung(
            number, 4096 * step, points, [4096 * later for later in range(step + 1, RUNGS + 1)]
        )
        if paused:
            scheduler.pause(number)
        elif step == RUNGS:
            scheduler.end(number, TrialStatus.COMPLETED)
        else:
            heapq.heappush(queue, (clock + 1 + random.random(), number))
    return taken


def _points(values: Any, step: int, random: np.random.Generator) -> Sequence[Pair]:
    quality = 1 - abs(math.log10(values["learning_rate"]) + 4) / 2 + 0.1 * random.random()
    gain = 0.3 * quality * step / RUNGS
    return [
        (REFERENCE[0] + gain * share, REFERENCE[1] - 0.1 * quality * share**3)
        for share in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
    ]


if __name__ == "__main__":
    main()
