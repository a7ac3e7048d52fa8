"""The status line of a sweep that is running."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raysweep.metrics.objective import Goal, Pair
from raysweep.results.types import Point
from raysweep.terminal import duration

if TYPE_CHECKING:
    from raysweep.sweep.sweep import Sweep


def best_of(points: Sequence[Point], goal: Goal) -> Pair:
    """P and S of the best of the points."""
    return goal.best([(point.polarity, point.similarity) for point in points])


def status_of(sweep: "Sweep") -> tuple[str, float]:
    """What runs, is held and has ended; the best point; the front; time left. And the share of trials that are begun."""
    begun, decisions = len(sweep.decisions.trials), sweep.decisions
    replicates = decisions.replicates
    resting = begun - len(sweep.legs) - sum(sweep.ended.values())
    counts = {"running": len(sweep.legs), "held": resting, **sweep.ended}
    text = f"search: {decisions.num_begun} of {decisions.num_trials} trials begun, "
    if replicates.num_begun:
        text += f"{replicates.num_begun} of at most {replicates.trials} replicates, "
    text += ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "running")
    if sweep.front:
        p, s = best_of(sweep.front, decisions.goal)
        text += f" | best P {100 * p:.2f} S {100 * s:.2f} | front {len(sweep.front)}"
    total = max(begun, decisions.num_trials + replicates.trials)
    return text + f" | {_left(sweep, begun, total)}", begun / total


def _left(sweep: "Sweep", begun: int, total: int) -> str:
    estimates = [sweep.seconds / begun * (total - begun)] if begun > len(sweep.legs) else []
    if sweep.config.budget.minutes:
        estimates.append(60 * sweep.config.budget.minutes - sweep.seconds)
    left = min(estimates, default=0.0)  # none where only held trials may go on, which nobody can foretell
    return f"about {duration(left)} left" if left >= 1 else f"{duration(sweep.seconds)} so far"
