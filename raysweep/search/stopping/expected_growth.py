"""Spend the next rung where the front is expected to grow most, over all the ways in which learning curves may go on.

After each rung a trial is held, unless it is the one to go on with. What a held trial may add is predicted with its
uncertainty from its own rungs and those of others (:mod:`raysweep.search.stopping.curve_mixture`); its promise is the
hypervolume that it is expected to add to the front for each example of further training, over all the ways in which it may
go on (:mod:`raysweep.search.stopping.promise`). What a new trial would add is measured on the latest ones, each taken as if
it were not there yet. Whichever promises more comes next. The front is that of points less their noise, so that no
trial has to beat another's luck; and a trial is measured against the front of the others, since its own points are as
uncertain as where it goes from them: beside them, one that leads the front would seem to add nothing wherever it may lie
lower than they say, and would be held near its end.

While there are new trials to begin, a trial goes on only if it is likely to add to the front, or as likely as not where it
is on the front of all trials when they had seen as many examples: what counts is what it adds, however little area it has
of its own. One is asked no more: the trial with the most area of its own, which a user would take, is run to its end from
half of its rungs on, though new ones may promise more. Slow starters look worthless at first. So one rung in
``RESCUED_ONE_IN`` goes to one of the earliest trials of which little is known: one that has had few rungs, and is expected
to have most of its way ahead. It is given a quarter of its rungs to show what it is, whether or not new trials ever run
out. Once all are begun, trials go on while they are expected to add anything to speak of; under-explored ones are, since
their predictions are wide. So budgets are never compared unequal, and an end of the front counts as much as its middle.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Pair
from raysweep.metrics.steps import Steps
from raysweep.search.joint_front import JointFront
from raysweep.search.stopping.base import Standing
from raysweep.search.stopping.curve_mixture import Forecaster, LearningCurve, horizons
from raysweep.search.stopping.promise import MIN_RELATIVE_GAIN, NOTHING, Promise, promise_of
from raysweep.search.stopping.ranking import Ranking
from raysweep.search.stopping.trials import Trial, Trials

# Held trials of the greatest promise that are worked out anew at each event; beside half as many of the oldest promise.
NUM_REFRESHED = 4


MIN_EXPECTED_GAIN = 0.0005  # of the front's area: a trial that is expected to add no more is not resumed


MIN_PROBABILITY = 0.8  # of adding to the front: a trial for which it is less does not go on while new ones wait


MIN_PROBABILITY_IN_FRONT = 0.5  # the same, of a trial that is on the front of all that had seen as many examples


RESCUED_ONE_IN = 20  # rungs that go to a trial that is not likely to add to the front, while new ones wait


NUM_TO_RESCUE = 48  # trials, the earliest that little is known of, among which one is chosen to be rescued


RESCUED_FOR = 4  # it is rescued for up to one in so many of its rungs


FINISHED_FROM = 2  # the trial with the most area of its own is run to its end from one in so many of its rungs on


MIN_SHARE_AHEAD = 0.5  # of its way, as expected: with less a trial has shown what it is


NUM_LATEST = 24  # trials that say what a new one may add


NUM_BEGUN_FIRST = 3  # trials begun before any goes on


NUM_HORIZONS = 4  # budgets ahead at which a trial's points are predicted


@dataclass
class _Trial(Trial[LearningCurve]):
    curve: LearningCurve = field(default_factory=LearningCurve)
    promise: Promise = NOTHING  # as last worked out
    worked_out_at: int = -1  # the event at which it was
    promise_when_new: float = math.inf  # what it would have promised for each example when it began, as last worked out
    share_ahead: float = 1.0  # of its way, as last worked out
    expected: Float64Array | None = None  # (i, d), the points of its next rung, while it runs on


class ExpectedGrowth:
    """An EarlyStopper; see the module's docstring.

    Hypervolumes begin at ``reference_point``, which constraints may have raised; until a point lies above it, at ``wider``.
    An untrained trial scores ``origin``, None if that is not known.
    """

    def __init__(self, reference_point: Pair, origin: Pair | None, wider: Pair | None = None) -> None:
        self._narrow, self._wide = reference_point, wider or reference_point
        self._is_feasible = False
        self._forecaster = Forecaster(origin)
        self._trials = Trials(_Trial)
        # Held trials by their promises, and by how long these have not been worked out; of the hopeful ones alone too, which
        # may be likely to add to the front.
        self._by_promise, self._by_age, self._hopeful = Ranking(), Ranking(), Ranking()
        self._front = JointFront()  # of all trials' points less their noise
        self._own_areas: dict[int, float] = {}  # by trial: the hypervolume of its points less their noise
        self._leader: int | None = None  # the trial with the most of it
        self._at_budget: dict[int, JointFront] = {}  # of what trials had shown when they had seen so many examples
        self._expected_front = JointFront()  # with those that they are expected to have if they all go on
        self._running_points = np.empty((0, 2))  # those that what runs is expected to have at its next rung
        self._predicted_front = Steps(self.reference_point, self._running_points)  # of all trials, with what runs
        self._may_begin = True  # as of the last rung
        self._num_events = 0
        self._num_rungs_waited_for = 0  # while new trials could begin
        self._num_rescued = 0  # of these, those of trials that stood badly

    @property
    def reference_point(self) -> Pair:
        """Where hypervolumes begin for now."""
        return self._narrow if self._is_feasible else self._wide

    def promises(self) -> dict[int, float]:
        """What held trials promise for each example, as last worked out."""
        return {number: trial.promise.per_example for number, trial in self._trials.held.items()}

    def expected_gains(self) -> dict[int, float]:
        """What held trials are expected to add in all, as a share of the front's area, as last worked out."""
        area = self._predicted_front.area
        return {number: trial.promise.total / area if area else 0.0 for number, trial in self._trials.held.items()}

    def on_rung(
        self, trial: int, examples_seen: int, standing: Standing, ahead: Sequence[int], may_begin: bool
    ) -> str | None:
        self._may_begin = may_begin
        self._num_rungs_waited_for += may_begin
        self._take(trial, examples_seen, standing, ahead)
        self._update(self._oldest())
        if self.next_to_resume(may_begin) == trial:
            self.set_running(trial, running=True)
            return None
        return f"after {examples_seen:,} examples the front promises to grow more elsewhere"

    def next_to_resume(self, may_begin: bool) -> int | None:
        if not may_begin:
            return next(self._worth_resuming(), None)
        if len(self._trials.begun) < NUM_BEGUN_FIRST:
            return None
        if (leader := self._leader_to_finish()) is not None:
            return leader
        if self._rescue_is_due and (rescued := self._first_to_rescue()) is not None:
            return rescued
        best = next(self._likely(), None)
        if best is None or self._promise_of_a_new_trial() > self._trials[best].promise.per_example:
            return None
        return best

    def set_running(self, trial: int, running: bool) -> None:
        known = self._trials.known(trial)
        if known.running == running:
            return
        if running and self._may_begin and self._would_be_rescued(trial, known):
            self._num_rescued += 1
        self._trials.set_running(trial, running)
        self._rank(trial)
        if known.runs_on:
            known.expected = self._forecaster.predict(known.curve, known.curve.budgets_ahead[:1]).expected[0]
        self._update([])

    def end(self, trial: int) -> None:
        self._trials.end(trial)
        self._rank(trial)
        if self._trials[trial].curve.points:
            self._expect(trial)
        self._update([])

    def _take(self, number: int, examples_seen: int, standing: Standing, ahead: Sequence[int]) -> None:
        """Put down what a trial has shown at a rung; it is held for now."""
        trial = self._trials.known(number)
        curve = trial.curve
        curve.budgets_ahead = tuple(ahead)
        points = np.asarray(standing.points, dtype=np.float64)
        self._forecaster.add_rung(number, curve, examples_seen, points)
        self._trials.hold(number)
        if not self._is_feasible and _lies_above(points, self._narrow):
            self._is_feasible = True
            self._own_areas.clear()  # no trial had any above this reference point
        shown = self._forecaster.shown(curve)
        self._front.put(number, shown)
        self._put_area(number, shown)
        self._at_budget.setdefault(examples_seen, JointFront()).put(number, shown)
        self._expect(number)
        trial.promise_when_new = math.inf
        trial.worked_out_at = -1
        self._rank(number)

    def _rank(self, number: int) -> None:
        """Let a trial stand where it belongs by now."""
        trial = self._trials[number]
        is_hopeful = trial.promise.probability >= MIN_PROBABILITY_IN_FRONT
        for ranking, belongs, value in (
            (self._by_promise, trial.is_held, trial.promise.per_example),
            (self._hopeful, trial.is_held and is_hopeful, trial.promise.per_example),
            (self._by_age, trial.is_held, -trial.worked_out_at),
        ):
            if belongs:
                ranking.put(number, value)
            else:
                ranking.drop(number)

    def _put_area(self, number: int, shown: Float64Array) -> None:
        """Put down the area of a trial's own points (n, d), and which trial leads by now."""
        self._own_areas[number] = Steps(self.reference_point, shown).area
        self._leader = max(self._own_areas, key=self._own_areas.__getitem__)

    # What trials promise.

    def _update(self, stale: Iterable[int]) -> None:
        """Something has happened. The greatest promises are worked out anew until the greatest is up to date."""
        self._num_events += 1
        running = [trial.expected for trial in self._trials.running_on.values() if trial.expected is not None]
        self._running_points = np.concatenate([np.empty((0, 2)), *running])
        self._predicted_front = self._with_what_runs(self._front.points)
        for number in stale:
            self._work_out(number)
        for _ in range(NUM_REFRESHED):
            best = next(self._likely() if self._may_begin else iter(self._by_promise), None)
            if best is None or self._trials[best].worked_out_at == self._num_events:
                break
            self._work_out(best)
        is_over = not (self._may_begin or self._trials.any_runs)
        if is_over and next(self._worth_resuming(), None) is None:
            self._work_out_before_the_end()
        self._work_out_latest()

    def _with_what_runs(self, points: Float64Array) -> Steps:
        return Steps(self.reference_point, np.concatenate([points, self._running_points]))

    def _front_of_others(self, number: int) -> Steps:
        """The predicted front without a held trial's own points, which are as uncertain as where it goes from them."""
        if not self._front.has(number):
            return self._predicted_front
        return self._with_what_runs(self._front.points_without(number))

    def _oldest(self) -> list[int]:
        """Those whose promises have not been worked out for longest; those of new rungs never were."""
        return list(itertools.islice(self._by_age, NUM_REFRESHED // 2))

    def _work_out_before_the_end(self) -> None:
        """Before the search ends, all are asked who were not since as many events as there are held trials."""
        for number, trial in self._trials.held.items():
            if trial.worked_out_at < self._num_events - len(self._trials.held):
                self._work_out(number)

    def _work_out(self, number: int) -> None:
        trial = self._trials[number]
        self._forecaster.learn(number, trial.curve)
        trial.promise = self._promise(trial.curve, self._front_of_others(number), trial.budget)
        self._expect(number)
        trial.share_ahead = self._forecaster.share_ahead(trial.curve)
        trial.worked_out_at = self._num_events
        self._rank(number)

    def _expect(self, number: int) -> None:
        """Put down what a trial would add if it went on, which nothing does that has ended."""
        trial = self._trials[number]
        curve = trial.curve
        points = self._forecaster.shown(curve)
        if curve.budgets_ahead and not trial.ended:
            ahead = self._forecaster.predict(curve, horizons(curve.budgets_ahead, NUM_HORIZONS)).expected
            points = np.concatenate([points, ahead.reshape(-1, 2)])
        self._expected_front.put(number, points)

    def _promise(self, curve: LearningCurve, front: Steps, begin: int, gained: float = 0.0) -> Promise:
        budgets = (curve.budgets[-1], *horizons(curve.budgets_ahead, NUM_HORIZONS))
        prediction = self._forecaster.predict(curve, budgets)
        return promise_of(front, prediction, np.array(budgets, dtype=np.float64), begin, gained)

    def _promise_of_a_new_trial(self) -> float:
        """What the latest trials would have promised when they began, had all others been there."""
        latest = [self._trials[number].promise_when_new for number in self._trials.begun[-NUM_LATEST:]]
        return float(np.mean(latest)) if latest else math.inf

    def _work_out_latest(self) -> None:
        for number in self._trials.begun[-NUM_LATEST:]:
            trial = self._trials[number]
            if math.isinf(trial.promise_when_new):
                trial.promise_when_new = self._worked_out_when_new(number)

    def _worked_out_when_new(self, number: int) -> float:
        curve = self._trials[number].curve
        front = Steps(self.reference_point, self._expected_front.points_without(number))
        front_with_it = front.with_points(self._forecaster.shown(curve))
        gained = front_with_it.area - front.area
        if not curve.budgets_ahead:
            return gained / curve.budgets[-1]
        return self._promise(curve, front, 0, gained).per_example

    # Who may go on.

    @property
    def _rescue_is_due(self) -> bool:
        return RESCUED_ONE_IN * self._num_rescued < self._num_rungs_waited_for

    def _is_worth_resuming(self, trial: _Trial) -> bool:
        return trial.promise.total > MIN_EXPECTED_GAIN * self._predicted_front.area

    def _worth_resuming(self) -> Iterator[int]:
        """The most promising first."""
        return (number for number in self._by_promise if self._is_worth_resuming(self._trials[number]))

    def _likely(self) -> Iterator[int]:
        """Held trials that are likely to add to the front, as last worked out; the most promising first."""
        return (number for number in self._hopeful if self._is_likely(number, self._trials[number]))

    def _is_likely(self, number: int, trial: _Trial) -> bool:
        """Whether a held trial is likely to add to the front, or on the front of all that reached its budget."""
        probability = trial.promise.probability
        if probability < MIN_PROBABILITY_IN_FRONT:
            return False
        return probability >= MIN_PROBABILITY or self._at_budget[trial.budget].has(number)

    def _would_be_rescued(self, number: int, trial: _Trial) -> bool:
        """Whether it could not go on for what it promises, nor because it leads."""
        return trial.is_held and not self._is_likely(number, trial) and number != self._leader_to_finish()

    def _leader_to_finish(self) -> int | None:
        """The trial with the most area of its own, if it is held and has half of its rungs."""
        leader = self._leader
        if leader is None or leader not in self._trials.held:
            return None
        trial = self._trials[leader]
        is_far = trial.budget >= trial.curve.budgets_ahead[-1] / FINISHED_FROM
        return leader if is_far and self._own_areas[leader] > 0 else None

    def _first_to_rescue(self) -> int | None:
        """Of the earliest trials that little is known of: the one that went farthest, for it to be settled."""
        held = self._trials.held
        unsettled = (number for number in sorted(held) if self._is_unsettled(number, held[number]))
        earliest = itertools.islice(unsettled, NUM_TO_RESCUE)
        return min(earliest, key=lambda number: _rank_for_rescue(number, held[number]), default=None)

    def _is_unsettled(self, number: int, trial: _Trial) -> bool:
        """Whether a trial is not likely to add to the front, but might, and is too young to be given up."""
        examples_ahead = trial.curve.budgets_ahead[-1]
        is_young = trial.budget <= examples_ahead / RESCUED_FOR or len(trial.curve.points) == 1
        might = trial.promise.at_best > MIN_RELATIVE_GAIN * self._predicted_front.area
        return is_young and might and not self._is_likely(number, trial) and trial.share_ahead >= MIN_SHARE_AHEAD


def _rank_for_rescue(number: int, trial: _Trial) -> tuple[int, float, int]:
    return -len(trial.curve.points), -trial.share_ahead, number


def _lies_above(points: Float64Array, reference_point: Pair) -> bool:
    return bool((points > np.array(reference_point)).all(axis=1).any())
