"""Waste and misses of early stopping, on simulated learning curves with a known truth: 32 rungs, noise of one point.

Three questions, each for three families of curves (:mod:`benchmarks.made_curves`), with sampler ``random``:

* wasted: with an open number of trials, as under ``budget.minutes``, the share of rungs of trials whose true
  continuation adds nothing to the true front of all rungs so far, while new trials wait. A trial's first rung is never
  wasted.
* slow starter: one of 50 trials starts slowly and ends above all others. Does it reach its last rung within the rungs
  of 50 complete trials? This is asked under a budget of 50 trials, and with an open number, of which these are only the
  first 50.
* end: one of the first 20 trials extends only the end of the front: its P is the highest, but its own area is below
  most. It counts as continued if it gets at least five rungs and more than half the trials started by then.

The output also includes the true area of the front at the end of each search of the first kind, relative to that of 400
complete trials, which cost as many rungs as 16 such searches. It reveals a policy that wastes nothing because it never
continues a trial.
"""

import heapq
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.made_curves import (
    FAMILIES,
    NUM_RUNGS,
    REFERENCE,
    Curve,
    Curves,
    Family,
    end_extender,
    slow_starter,
)
from raysweep.config.space import Range, Space
from raysweep.config.sweep import EarlyStoppingConfig, Policy
from raysweep.metrics.objective import Objective
from raysweep.metrics.scores import Pair
from raysweep.metrics.staircase import Staircase
from raysweep.results.types import TrialStatus
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import Scheduler
from raysweep.search.stopping.policies import make_early_stopper

EXAMPLES_PER_RUNG = 1024
NUM_TRIALS = 50
OPEN = 100_000  # trials, where their number is open
BUDGET = NUM_TRIALS * NUM_RUNGS // 2  # rungs: half of what 50 trials cost whole
WHOLE_BUDGET = NUM_TRIALS * NUM_RUNGS  # rungs: what 50 trials cost without early stopping
NUM_WHOLE = 400  # trials, whose true front is what a search's is compared with
NUM_BEFORE_END = 20  # trials among which the one is that extends an end
QUESTIONS = ("wasted", "slow, trials", "slow, open", "end")
FIRST_JUDGED_SEED = 1000  # policies are developed on seeds below 100


@dataclass
class Played:
    """One search: the number of rungs of each trial, and the wasted ones."""

    curves: Curves
    num_rungs: dict[int, int] = field(default_factory=dict)  # by trial
    num_continued: int = 0  # rungs after a trial's first, while new ones waited
    num_wasted: int = 0  # of these
    num_waited: int = 0  # all rungs while new ones waited
    true_front: Staircase = field(default_factory=lambda: Staircase(_reference_point()))

    def count(self, trial: int, can_start: bool) -> None:
        """Count another rung of a trial."""
        rung = self.num_rungs[trial] = self.num_rungs.get(trial, 0) + 1
        curve = self.curves[trial]
        if can_start:
            self.num_waited += 1
            self.num_continued += rung > 1
            self.num_wasted += rung > 1 and not self._adds(curve, rung)
        for point in curve.points(rung):
            self.true_front.add(point)

    def _adds(self, curve: Curve, rung: int) -> bool:
        """Return whether this rung of a curve or any later one adds to the true front."""
        front = self.true_front.copy()
        later = (
            point for later_rung in range(rung, NUM_RUNGS + 1) for point in curve.points(later_rung)
        )
        return any(front.add(point) > 0 for point in later)

    @property
    def total(self) -> int:
        return sum(self.num_rungs.values())


def play(
    policy: Policy,
    curves: Curves,
    seed: int,
    *,
    num_trials: int = OPEN,
    budget: float = BUDGET,
    num_workers: int = 1,
) -> Played:
    """Run a search with ``num_trials`` trials until nothing is left to do or ``budget`` rungs are spent."""
    scheduler = _scheduler(policy, num_trials, seed)
    played = Played(curves)
    queue: list[tuple[float, int]] = []
    clock = 0.0
    while played.total < budget:
        while len(queue) < num_workers and (trial := scheduler.ask()) is not None:
            heapq.heappush(queue, (clock + 1 + 0.01 * (trial.number % 7), trial.number))
        if not queue:
            break
        clock, number = heapq.heappop(queue)
        played.count(number, scheduler.can_start)
        if _goes_on(scheduler, curves, number, played.num_rungs[number]):
            heapq.heappush(queue, (clock + 1, number))
    return played


def _goes_on(scheduler: Scheduler, curves: Curves, trial: int, rung: int) -> bool:
    """Report a trial's rung to the scheduler and return whether the trial continues."""
    ahead = [EXAMPLES_PER_RUNG * later for later in range(rung + 1, NUM_RUNGS + 1)]
    paused = scheduler.rung(trial, EXAMPLES_PER_RUNG * rung, curves.measured(trial, rung), ahead)
    if not ahead:
        scheduler.end(trial, TrialStatus.COMPLETED)
    elif paused:
        scheduler.pause(trial)
    return bool(ahead) and not paused


def _scheduler(policy: Policy, num_trials: int, seed: int) -> Scheduler:
    """Return raysweep's scheduler over a trivial space: a trial's curve depends on its number alone."""
    objective = Objective(0.5, _reference_point())
    rule = EarlyStoppingConfig(policy=policy, first_examples=EXAMPLES_PER_RUNG)
    space = Space({"learning_rate": Range(1e-6, 1e-3, True, False)})
    proposer = Proposer(space, "random", seed, objective, "area")
    return Scheduler(
        proposer, make_early_stopper(rule, objective, REFERENCE), objective, num_trials
    )


def _reference_point() -> Pair:
    polarity, similarity = REFERENCE
    return polarity, similarity / 2


def wasted(policy: Policy, family: Family, seed: int, num_workers: int) -> dict[str, float]:
    """Return shares of rungs, of all and of those after a trial's first; and of the area of complete trials."""
    curves = Curves(family, seed)
    played = play(policy, curves, seed, num_workers=num_workers)
    complete_front = Staircase(_reference_point())
    for trial in range(NUM_WHOLE):
        for rung in range(1, NUM_RUNGS + 1):
            for point in curves[trial].points(rung):
                complete_front.add(point)
    return {
        "wasted": played.num_wasted / max(1, played.num_waited),
        "wasted_of_continued": played.num_wasted / max(1, played.num_continued),
        "continued": played.num_continued / max(1, played.num_waited),
        "area": played.true_front.area / complete_front.area,
    }


def slow(
    policy: Policy, family: Family, seed: int, num_trials: int, num_workers: int
) -> dict[str, float]:
    """Return the rungs of the slow starter, and of the whole search."""
    random = np.random.default_rng([seed, 1])
    place = int(random.integers(NUM_TRIALS))
    curves = Curves(family, seed)
    curves.planted[place] = slow_starter(random)
    played = play(
        policy, curves, seed, num_trials=num_trials, budget=WHOLE_BUDGET, num_workers=num_workers
    )
    rungs = played.num_rungs.get(place, 0)
    return {"finished": float(rungs == NUM_RUNGS), "rungs": rungs, "total": played.total}


def end(policy: Policy, family: Family, seed: int, num_workers: int) -> dict[str, float]:
    """Return the rungs of the trial that extends an end, and whether it continued."""
    random = np.random.default_rng([seed, 2])
    place = int(random.integers(NUM_BEFORE_END))
    curves = Curves(family, seed)
    curves.planted[place] = end_extender(random)
    played = play(policy, curves, seed, budget=BUDGET / 4, num_workers=num_workers)
    rungs = played.num_rungs.get(place, 0)
    median = statistics.median(played.num_rungs.values())
    return {"goes_on": float(rungs >= 5 and rungs > median), "rungs": rungs, "median": median}


def main() -> None:
    arguments = _arguments()
    machine = measure.machine()
    figures: dict[str, Any] = {}
    for policy in arguments.policies:
        figures[policy] = _judged(policy, arguments)
    first = figures[arguments.policies[0]]
    finished = min(row["finished"] for name, row in first.items() if "slow" in name)
    figures["ratio"] = finished
    print(
        f"\nratio: {finished:.2f} (slow starters finished, the least of the rows of {arguments.policies[0]})"
    )
    measure.finish("stopping_quality", figures, machine, arguments.json)


def _arguments() -> Any:
    parser = measure.parser("benchmarks.stopping_quality", __doc__)
    parser.add_argument(
        "--policies", type=lambda text: text.split(","), default=["growth"], metavar="NAMES"
    )
    parser.add_argument("--seeds", type=int, help="20; with --quick 3")
    parser.add_argument("--first-seed", type=int, default=FIRST_JUDGED_SEED)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or (3 if arguments.quick else 20)
    return arguments


def _judged(policy: Policy, arguments: Any) -> dict[str, dict[str, float]]:
    """Return the rows of a policy: means over seeds, for each family."""
    workers = arguments.workers
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    rows: dict[str, dict[str, float]] = {}
    for family in FAMILIES:
        for name in QUESTIONS:
            row = rows[f"{family}, {name}"] = _means(
                _measure(name, policy, family, seed, workers) for seed in seeds
            )
            shown = ", ".join(f"{key} {value:.3f}" for key, value in row.items())
            print(f"{policy:7} {family:12} {name:13} {shown}", flush=True)
    return rows


def _measure(
    name: str, policy: Policy, family: Family, seed: int, workers: int
) -> dict[str, float]:
    if name == "wasted":
        return wasted(policy, family, seed, workers)
    if name == "end":
        return end(policy, family, seed, workers)
    return slow(policy, family, seed, NUM_TRIALS if name == "slow, trials" else OPEN, workers)


def _means(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    members = list(rows)
    return {key: statistics.fmean(row[key] for row in members) for key in members[0]}


if __name__ == "__main__":
    main()
