"""A sweep as it runs: trials out, rungs in, every event in the ledger before it counts. No Ray.

:class:`raysweep.search.scheduler.Scheduler` says what runs and what is held; this keeps the ledger, the weights, the
accounts and the display. A sweep resumes by :meth:`Sweep.replay`, which takes in what its ledger holds.
"""

import dataclasses
import shutil
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.errors import ReplayError
from raysweep.metrics.objective import Pair
from raysweep.results.ledger import Ledger, checkpoints_of
from raysweep.results.reader import point_problem, points_of
from raysweep.results.types import Cost, Point
from raysweep.results.views import front_members
from raysweep.search.replicates import MeanScores
from raysweep.search.scheduler import Scheduler, TrialState
from raysweep.sweep.budget import CostTracker, Node, ReachedLimit
from raysweep.sweep.disk import WeightStore
from raysweep.sweep.optuna_study import StudyFile
from raysweep.sweep.status import SweepStatus
from raysweep.terminal import Display


def mean_points(means: Mapping[int, Mapping[Any, MeanScores]]) -> list[dict[str, Any]]:
    """Means by name, which is (step, kind, value), as a ledger's ``mean`` event holds them: those over several runs."""
    return [
        {
            "step": step,
            "kind": kind,
            "value": value,
            "runs": each.runs,
            "polarity": each.mean[0],
            "polarity_spread": each.spread[0],
            "similarity": each.mean[1],
            "similarity_spread": each.spread[1],
        }
        for points in means.values()
        for (step, kind, value), each in points.items()
        if each.runs > 1
    ]


Leaving = Literal["completed", "held", "stopped", "failed", "cut"]
"""How a trial leaves its worker; cut is by the budget."""


@dataclass
class Assignment:
    """A trial's time on a worker, from being handed out to leaving it."""

    paid_until: float  # on the sweep's clock
    node: Node
    leaves: Leaving | None = None
    reason: str = ""


@dataclass
class Sweep:
    """Hands out trials and takes their rungs. Trials are known by number, from 0 in the order they were proposed."""

    config: SweepConfig
    scheduler: Scheduler
    ledger: Ledger
    display: Display
    costs: CostTracker
    study: StudyFile
    front: list[Point] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=lambda: {"completed": 0, "stopped": 0, "failed": 0})
    assignments: dict[int, Assignment] = field(default_factory=dict)
    tested: set[tuple[Any, ...]] = field(default_factory=set)  # (trial, step, kind, value), scored on test before
    cause: ReachedLimit | None = None  # why no more trials are handed out before all are done

    def __post_init__(self) -> None:
        limit = int(self.config.storage.max_gib * 2**30)
        self.kept = WeightStore(self.folder / "points", limit, self.folder / "checkpoints")
        self._began = time.monotonic()
        self._configs: dict[int, TrialConfig] = {}
        self._steps: dict[int, int] = {}  # rungs done
        self._num_rungs: dict[int, int] = {}  # to be done
        self._node = Node()  # the last one that a trial ran on: what another is taken to run on until it says where
        self._waiting: deque[int] = deque()  # trials that a budget or a crash cut off: they go on first

    @property
    def folder(self) -> Path:
        return self.ledger.folder

    @property
    def seconds(self) -> float:
        """How long the sweep has run, all its sessions together."""
        return time.monotonic() - self._began

    def ask(self) -> tuple[int, TrialConfig] | None:
        """The next trial to run or to go on with; None when there is none, at least while others run."""
        self.cause = self.cause or self.costs.spent(self.seconds)
        if self.cause:
            return None
        if self._waiting:
            number = self._waiting.popleft()
            self._log("again", trial=number)
        elif (course := self.scheduler.ask()) is None:
            return None
        elif (number := course.number) in self._configs:
            self._log("revive", trial=number)
            self.display.line(f"trial {number}: goes on; it is worth it by now")
        else:
            self._begin(course, trial_config(dict(course.values)))
            origin: dict[str, Any] = {}
            if (original := course.replicate_of) is not None:
                origin = {"replicate_of": original, "run": course.run}
                self.display.line(f"trial {number}: trial {original} again, with another seed")
            config = self._configs[number].model_dump(mode="json", exclude_none=True)
            self._log("trial", trial=number, config=config, num_rungs=self._num_rungs[number], **origin)
        self.assignments[number] = Assignment(self.seconds, self._node)
        return number, self._configs[number]

    def _begin(self, course: TrialState, config: TrialConfig) -> None:
        self._configs[course.number] = config
        self._num_rungs[course.number] = self.config.budget.rungs_of(config.examples_per_rung)
        if course.replicate_of is not None:  # it is compared at an equal budget, under the schedule of a whole trial
            self._num_rungs[course.number] = self._steps[course.replicate_of]
        self.study.begin(course)

    def rung(self, number: int, rung: dict[str, Any]) -> bool:
        """Take a rung's result; whether the trial is to leave its worker.

        ``rung`` has a ``rung`` event's keys but for ``trial``, ``at`` and ``cost``; also ``node``, where it ran. A trial
        that went on from a checkpoint repeats its last rung, which counts once.
        """
        assignment = self.assignments[number]
        num_rungs = self._num_rungs[number]
        if rung["step"] <= self._steps.get(number, 0):
            return assignment.leaves is not None
        if problem := next((p for p in map(point_problem, rung["points"]) if p), None):
            assignment.leaves, assignment.reason = "failed", f"rung {rung['step']} gave {problem}"
            return True
        if "node" in rung:
            assignment.node = self._node = Node(**rung["node"])
            if free := self.costs.unpriced(assignment.node):
                self.display.warn(free)
        self._pay(number)
        rung["may_begin"] = self.scheduler.may_begin
        self._log("rung", trial=number, **rung, cost=self._cost(number))
        before = self.front
        verdict = self._count(number, rung)
        points = points_of(number, rung)
        self._bound_disk([*before, *points])
        p, s = best = self._best_of(points)
        self.display.line(
            f"trial {number}: rung {rung['step']}/{num_rungs}, {rung['examples_seen']:,} examples, "
            f"P {100 * p:.2f}, S {100 * s:.2f}, objective {100 * self.scheduler.objective.weighted_sum(best):.2f}"
        )
        assignment.leaves, assignment.reason = self._verdict(number, rung, verdict)
        if assignment.leaves is None and rung["step"] < num_rungs and (spent := self.costs.spent(self.seconds)):
            assignment.leaves, assignment.reason = "cut", spent.reason
        self.show()
        return assignment.leaves is not None

    def _verdict(self, number: int, rung: Mapping[str, Any], held: str | None) -> tuple[Leaving | None, str]:
        """What a rung that is in the ledger means for its trial, and why; None when it goes on."""
        if rung["step"] == self._num_rungs[number]:
            if rung["step"] < self.config.budget.rungs_of(self._configs[number].examples_per_rung):
                return "stopped", f"trial {self.scheduler.trials[number].replicate_of} went no further"
            return "completed", f"all {rung['step']} rungs done"
        if rung["stop"]:
            return "stopped", rung["stop"]
        return ("held", held) if held else (None, "")

    def _count(self, number: int, rung: Mapping[str, Any]) -> str | None:
        """Let a rung that is in the ledger count. The reason to hold the trial, or None."""
        points = points_of(number, rung)
        self._steps[number] = rung["step"]
        self.front = front_members([*self.front, *points])
        config = self._configs[number]
        further = range(rung["step"] + 1, self._num_rungs[number] + 1)
        ahead = [] if rung["stop"] else [step * config.examples_per_rung for step in further]
        pairs = [(point.polarity, point.similarity) for point in points]
        names = [(point.step, *point.key) for point in points]
        verdict = self.scheduler.rung(number, rung["examples_seen"], pairs, ahead, names, rung.get("may_begin"))
        self.study.rung(number, rung["examples_seen"], self.scheduler.trials[number], self.scheduler.objective)
        return verdict

    def rest(self, number: int, failure: str | None = None) -> None:
        """A trial has left its worker: with ``failure``, because it was told to, or because it was done."""
        self._pay(number)
        assignment = self.assignments.pop(number)
        how, reason = ("failed", failure) if failure else (assignment.leaves, assignment.reason)
        self._settle(number, how or "failed", reason or "its process ended before its last rung")
        self.show()

    def _settle(self, number: int, how: Leaving, reason: str) -> None:
        if how == "cut":
            self._log("cut", trial=number, reason=reason, cost=self._cost(number))
            self._waiting.append(number)
        elif how == "held":
            self._log("hold", trial=number, reason=reason, cost=self._cost(number))
            self.scheduler.hold(number)
        else:
            self._end(number, how, reason)
        self.display.line(f"trial {number}: {how}: {reason}")

    def _end(self, number: int, status: Any, reason: str) -> None:
        original = self.scheduler.trials[number].replicate_of
        if original is not None and status != "failed":  # first, so that a kill in between repeats it but loses nothing
            means = mean_points(self.scheduler.replicates.means(original, ending=number))
            self._log("mean", trial=original, runs=max((p["runs"] for p in means), default=1), points=means)
        self._log("end", trial=number, status=status, reason=reason, cost=self._cost(number))
        self._ended(number, status, reason)
        shutil.rmtree(checkpoints_of(self.folder, number), ignore_errors=True)

    def _ended(self, number: int, status: Any, reason: str) -> None:
        self.ended[status] += 1
        self.scheduler.end(number, status)
        self.study.end(number, status, reason, self.scheduler.trials[number].front)

    def finish(self, status: str, reason: str) -> None:
        """The sweep's last event, at least of this session. Unless all trials are done, what a resume needs stays."""
        if status == "completed":
            for number in self._held():
                self._end(number, "stopped", self.scheduler.trials[number].reason)
        for number in list(self.assignments):  # what was cut off within a rung is paid for too
            self._pay(number)
            self._log("cut", trial=number, reason=reason, cost=self._cost(number))
        self.kept.only(self.front)  # all others, also a rung cut off between its weights and its report
        shutil.rmtree(self.folder / "tune", ignore_errors=True)  # Tune's snapshots, which nothing reads
        self._log("finish", status=status, reason=reason, seconds=self.seconds)
        self.ledger.close()

    def replay(self, events: Iterable[Mapping[str, Any]], *, adopt: bool = False) -> None:
        """Come to where these events of a ledger led.

        With ``adopt`` old trials count as they stand in the ledger, for a space that has grown. Without, the sampler
        proposes them all over again, so that it goes on as if it had never stopped; ReplayError when it does not give the
        same.
        """
        running: dict[int, tuple[Leaving | None, str]] = {}  # with what its last rung meant for it
        at = 0.0
        for event in events:
            kind, number, at = event["event"], event.get("trial", -1), event.get("at", at)
            if "cost" in event:
                self.costs.restore(number, event["cost"])
            if kind == "trial":
                config = trial_config(dict(event["config"]))
                if "replicate_of" in event:
                    course = self.scheduler.replicate(event["replicate_of"])
                else:
                    course = self.scheduler.adopt(event["config"]) if adopt else self.scheduler.propose()
                if course.number != number or (not adopt and trial_config(dict(course.values)) != config):
                    raise ReplayError(f"trial {number} is not what the sampler proposes now")
                self._begin(course, config)
            elif kind in ("rung", "revive", "again") and running.get(number, ("held", ""))[0] == "held":
                self.scheduler.go_on(number)  # whatever would be decided now
            if "node" in event:
                self._node = Node(**event["node"])
            if kind == "rung":
                running[number] = self._verdict(number, event, self._count(number, event))
            elif kind == "hold":
                self.scheduler.trials[number].reason = event["reason"]
                self.scheduler.hold(number)
            elif kind == "end":
                self._ended(number, event["status"], event["reason"])
                shutil.rmtree(checkpoints_of(self.folder, number), ignore_errors=True)  # a kill may have left it
            elif kind == "points":
                self.tested |= {
                    (p["trial"], p["step"], p["kind"], p["value"]) for p in event["points"] if p["split"] == "test"
                }
            if kind in ("trial", "revive", "again"):
                running[number] = None, ""
            elif kind == "cut":  # by an interruption, perhaps, that came after the last rung's verdict
                running.setdefault(number, (None, ""))
            elif kind in ("hold", "end"):
                running.pop(number, None)
        self._began = time.monotonic() - at
        for number, (how, reason) in running.items():
            if how is None:
                self._waiting.append(number)
            else:  # the driver died between a rung and what followed from it
                self._settle(number, how, reason)

    def kept_front(self) -> list[Point]:
        """The front's members whose weights are on disk."""
        return [point for point in self.front if self.kept.holds(point)]

    def _held(self) -> list[int]:
        return [number for number, course in self.scheduler.trials.items() if course.status == "held"]

    def _bound_disk(self, points: list[Point]) -> None:
        """Drop weights that the front does without; beyond the bound first checkpoints of held trials, the worst first."""
        limit = self.config.storage.max_gib
        self.kept.forget(self.front, points)
        held: list[int] = []
        if self.kept.is_full(self.front):
            held = sorted(self._held(), key=lambda n: self.scheduler.objective.area(self.scheduler.trials[n].front))
        while held and self.kept.is_full(self.front):
            self._end(held.pop(0), "stopped", f"storage.max_gib, {limit:g}, is reached, and it was the worst one held")
        for point in self.kept.only(self.front, points):
            self.display.warn(
                f"storage.max_gib, {limit:g}, is reached: the weights of {point.name}, which adds least to the front, "
                "are dropped; its scores stay"
            )

    def _cost(self, number: int) -> dict[str, float]:
        return dataclasses.asdict(self.costs.trials.get(number, Cost()))

    def _pay(self, number: int) -> None:
        assignment, now = self.assignments[number], self.seconds
        self.costs.spend(number, now - assignment.paid_until, assignment.node)
        assignment.paid_until = now

    def _log(self, event: str, **values: Any) -> None:
        self.ledger.append(event, **values, at=self.seconds)

    def show(self) -> None:
        """Bring the status line up to date."""
        status = self.status()
        self.display.status(status.text, status.fraction_begun)

    def status(self) -> SweepStatus:
        """How the sweep stands now."""
        scheduler, replicates = self.scheduler, self.scheduler.replicates
        num_held = len(scheduler.trials) - len(self.assignments) - sum(self.ended.values())
        minutes = self.config.budget.minutes
        return SweepStatus(
            num_begun=scheduler.num_begun,
            num_trials=scheduler.num_trials,
            num_replicates=replicates.num_begun,
            max_replicates=replicates.trials,
            counts={"running": len(self.assignments), "held": num_held, **self.ended},
            best=self._best_of(self.front) if self.front else None,
            front_size=len(self.front),
            seconds=self.seconds,
            limit_seconds=None if minutes is None else 60 * minutes,
        )

    def _best_of(self, points: Sequence[Point]) -> Pair:
        """P and S of the best of the points."""
        return self.scheduler.objective.best_point([(point.polarity, point.similarity) for point in points])
