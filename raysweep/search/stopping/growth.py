"""Spend the next rung where the front is expected to grow most: raysweep's own policy of early stopping.

After each rung a trial is held, unless it is the one to go on with. What a held trial would add is predicted from how its
points and those of others moved over the same training budgets; what a new trial would add is measured on the latest ones,
each taken as if it were not there yet. Whichever promises more hypervolume for each example it costs comes next. While
there are new trials to begin, only the best quarter goes on from its first rung, since much of what looks like growth
early on is noise, and from any later budget so many of those that reached it that each stretch of training gets about as
much as any other: the fewer, the further it is to the next rung. Once all are begun, trials go on while they promise any
growth; before the search ends, so do the good ones that promise none, for slow starters are easily underrated. So budgets
are never compared unequal, and an end of the front counts as much as its middle.
"""

import bisect
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.metrics.staircase import Staircase
from raysweep.search.stopping.base import Standing

CANDIDATES = 24  # held trials, the most promising, whose promise is worked out anew, beside all whose is unknown


MIN_RELATIVE_GAIN = 0.0001  # of the front's area: a trial that promises no more is not gone on with


PROMOTED_ONE_IN = 4  # one in so many, by their own area, may go on from its first rung before all are begun


LATEST = 12  # trials that say what a new one may add


FIRST = 3  # trials begun before any goes on


LARGEST = 32  # trials, those of the largest fronts of their own, that stand for all that a new one has to surpass


@dataclass
class LearningCurve:
    """A trial's points, rung after rung, in one order."""

    budgets: list[int] = field(default_factory=list)
    points: list[Float64Array] = field(default_factory=list)  # (points, 2) each
    rate: Float64Array | None = None  # (points, 2), for each example, over the last rung
    ahead: tuple[int, ...] = ()  # budgets of the rungs to come
    promise: float = math.inf  # of area for each example, when last worked out, which is when something has happened
    goes: bool = True
    over: bool = False
    front: tuple[Pair, ...] = ()  # of all its rungs
    area: float = 0.0  # under it
    predicted: tuple[int, list[Float64Array]] = (
        -1,
        [],
    )  # its points at the rungs ahead, and after how many moves were known


class Growth:
    """A Stopper; see the module's docstring. Hypervolumes begin at ``reference_point``; untrained, trials score ``origin``.

    Until a point lies above ``reference_point``, which constraints may have raised, they begin at ``wider``.
    """

    def __init__(self, reference_point: Pair, origin: Pair | None, wider: Pair | None = None) -> None:
        self._fronts = [Staircase(each) for each in dict.fromkeys((reference_point, wider or reference_point))]
        self._origin = origin
        self._paths: dict[int, LearningCurve] = {}
        self._moves: dict[int, RateModel] = {}  # by the budget they began at
        self._may_begin = True
        self._num_moves = 0
        self._known: dict[bool, dict[int, float]] = {}  # promises as things stand, by whether trials may begin
        self._known_of_new: float | None = None
        self._reached: dict[int, list[tuple[float, int]]] = {}  # by budget: what trials had there, the best first

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        path = self._paths.setdefault(trial, LearningCurve())
        points = np.asarray(standing.points, dtype=np.float64)
        before, rate = path.budgets[-1] if path.budgets else 0, None
        if path.points and path.points[-1].shape == points.shape:
            rate = (points - path.points[-1]) / (examples_seen - before)
            self._moves.setdefault(before, RateModel()).learn(path.rate, rate)
            self._num_moves += 1
        elif not path.points and self._origin is not None:
            rate = (points - self._origin) / examples_seen
        path.rate = rate
        path.budgets.append(examples_seen)
        path.points.append(points)
        path.ahead, path.promise, path.predicted = tuple(ahead), math.inf, (-1, [])
        path.front, path.area = standing.front, standing.area
        bisect.insort(self._reached.setdefault(examples_seen, []), (-path.area, trial))
        for front in self._fronts:
            for pair in points.tolist():
                front.add(tuple(pair))
        path.goes = False
        self._may_begin = may_begin
        self._work_out()
        if self._next(may_begin) == trial:
            self.set_running(trial, running=True)
            return None
        return f"after {examples_seen:,} examples the front promises to grow more elsewhere"

    def next_to_resume(self, may_begin: bool) -> int | None:
        return self._next(may_begin)

    def set_running(self, trial: int, running: bool) -> None:
        path = self._paths.setdefault(trial, LearningCurve())
        if path.goes != running:
            path.goes = running
            self._work_out()

    def end(self, trial: int) -> None:
        path = self._paths.setdefault(trial, LearningCurve())
        path.over, path.goes = True, False
        self._known = {}

    @property
    def _front(self) -> Staircase:
        return next((front for front in self._fronts if front.area), self._fronts[-1])

    def _held(self, may_begin: bool) -> list[int]:
        """Trials that could go on; with ``may_begin`` the good ones."""
        held = (trial for trial, path in self._paths.items() if path.ahead and not (path.goes or path.over))
        return [trial for trial in held if not may_begin or self._is_good(trial)]

    def _work_out(self) -> None:
        """Something has happened, so promises have changed. Only here they are kept: asking changes nothing."""
        self._known, self._known_of_new = {}, None
        for trial, promise in self._promises(self._may_begin).items():
            self._paths[trial].promise = promise

    def _promises(self, may_begin: bool) -> dict[int, float]:
        """What the most promising of the held trials promise as things stand."""
        if may_begin not in self._known:
            self._known[may_begin] = self._promised(may_begin)
        return self._known[may_begin]

    def _promised(self, may_begin: bool) -> dict[int, float]:
        front = self._front.copy()
        for path in self._paths.values():  # what runs is taken to keep its promise
            if path.goes and path.points and path.ahead:
                for pair in self._ahead(path)[0].tolist():
                    front.add(tuple(pair))
        held = sorted(self._held(may_begin), key=lambda trial: (-self._paths[trial].promise, trial))
        enough = CANDIDATES + sum(math.isinf(self._paths[trial].promise) for trial in held)
        # Nobody runs or may begin: all are asked, until one is worth it, before the search ends.
        last = not may_begin and not any(path.goes for path in self._paths.values())
        promises: dict[int, float] = {}
        for trial in held:
            if len(promises) >= enough and not last:
                break
            path = self._paths[trial]
            promises[trial] = self._promise(front, path, path.budgets[-1], ())
            last = last and not self._is_worth(trial, promises[trial])
        return promises

    def _next(self, may_begin: bool) -> int | None:
        """The held trial to go on with, or None where a new one promises more, or none is held."""
        if may_begin and len(self._paths) < FIRST:
            return None
        if not self._moves:  # nobody has gone on yet, and somebody must for there to be something to go by
            if may_begin and any(path.goes and path.points and path.ahead for path in self._paths.values()):
                return None
            return max(self._held(may_begin), key=lambda trial: (self._paths[trial].area, -trial), default=None)
        promises = self._promises(may_begin)
        known = [trial for trial in promises if may_begin or self._is_worth(trial, promises[trial])]
        known = known or [trial for trial in promises if self._is_good(trial)]  # slow starters, before the search ends
        best = max(known, key=lambda trial: (promises[trial], self._paths[trial].area, -trial), default=None)
        if best is None or (may_begin and self._promise_of_new() > promises[best]):
            return None
        return best

    def _is_worth(self, trial: int, promise: float) -> bool:
        """Whether a trial that promises so much may go on with nothing else to begin."""
        path = self._paths[trial]
        return promise * (path.ahead[-1] - path.budgets[-1]) > MIN_RELATIVE_GAIN * self._front.area

    def _is_good(self, trial: int) -> bool:
        """Whether the trial is among the best that reached its budget."""
        path = self._paths[trial]
        budget = path.budgets[-1]
        reached = self._reached[budget]
        count = len(reached) // PROMOTED_ONE_IN if len(path.budgets) == 1 else len(reached) * budget // path.ahead[0]
        return (-path.area, trial) <= reached[max(1, count) - 1]

    def _promise(
        self, front: Staircase, path: LearningCurve, begin: int, rungs: Sequence[tuple[int, Float64Array]]
    ) -> float:
        """The most area for each example that the trial may add from ``begin`` on: over ``rungs``, then what is ahead."""
        front, added, best = front.copy(), 0.0, 0.0
        for budget, points in [*rungs, *zip(path.ahead, self._ahead(path), strict=True)]:
            for pair in points.tolist():
                added += front.add(tuple(pair))
            best = max(best, added / (budget - begin))
        return best

    def _promise_of_new(self) -> float:
        """What the latest trials would have promised when they began, had all others been there."""
        if self._known_of_new is None:
            self._known_of_new = self._promised_of_new()
        return self._known_of_new

    def _promised_of_new(self) -> float:
        begun = [trial for trial, path in self._paths.items() if path.points]
        largest = heapq.nlargest(LARGEST, begun, key=lambda trial: self._paths[trial].area)
        reference_point = self._front.reference_point
        whole = Staircase(reference_point, (pair for other in largest for pair in self._paths[other].front))
        promises = []
        for trial in begun[-LATEST:]:
            path, others = self._paths[trial], whole
            if trial in largest:
                others = Staircase(
                    reference_point, (p for other in largest if other != trial for p in self._paths[other].front)
                )
            promises.append(self._promise(others, path, 0, list(zip(path.budgets, path.points, strict=True))))
        return float(np.mean(promises)) if promises else math.inf

    def _ahead(self, path: LearningCurve) -> list[Float64Array]:
        """The points that a trial is predicted to have at its next rungs."""
        known, predicted = path.predicted
        if known == self._num_moves:
            return predicted
        points, at, rate = path.points[-1], path.budgets[-1], path.rate
        predicted = []
        for budget in path.ahead:
            rate = self._rate(at, rate)
            points = points + rate * (budget - at)
            predicted.append(points)
            at = budget
        path.predicted = self._num_moves, predicted
        return predicted

    def _rate(self, at: int, own: Float64Array | None) -> Float64Array:
        """How points are predicted to move from a budget on, for each example, having moved at rate ``own`` before it."""
        if not self._moves:
            return np.zeros((1, 2)) if own is None else own
        moves = self._moves[min(self._moves, key=lambda known: abs(math.log(known / at)))]
        return moves.mean[None] if own is None else own * moves.factor(own)


class RateModel:
    """How trials' points moved from one budget on, for each example: in the mean, and against how they had moved before."""

    def __init__(self) -> None:
        self._sum, self._count = np.zeros(2), 0
        self._with_before, self._before = np.zeros(2), np.zeros(2)

    def learn(self, before: Float64Array | None, rate: Float64Array) -> None:
        """A trial's rates (points, 2), before and now."""
        self._sum += rate.mean(axis=0)
        self._count += 1
        if before is not None:
            self._with_before += (before * rate).mean(axis=0)
            self._before += (before * before).mean(axis=0)

    @property
    def mean(self) -> Float64Array:
        return self._sum / self._count

    def factor(self, own: Float64Array) -> Float64Array:
        """What rates (points, 2) are to be multiplied by, P and S apart, to be those from here on.

        By least squares of the rates of others on theirs before; as one trial more counts the belief that ``own`` go on.
        """
        prior = (own * own).mean(axis=0)
        factor: Float64Array = np.clip((self._with_before + prior) / np.maximum(self._before + prior, 1e-300), 0.0, 4.0)
        return factor
