"""The state of a sweep as it runs: proposals out, rungs in, every event in the ledger before it counts. No Ray."""

import dataclasses
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.config import SweepConfig
from raysweep.halving import SuccessiveHalving
from raysweep.keeping import Kept
from raysweep.progress import Display, duration
from raysweep.proposals import Proposals
from raysweep.results import Ledger, Point, checkpoints_of, front_members, objective
from raysweep.trial import TrialConfig


@dataclass
class _Running:
    config: TrialConfig
    began: float
    best: float | None = None
    step: int = 0
    stop: str | None = None  # why the trial is to end before its last rung


@dataclass
class Sweep:
    """Decides what runs, what stops and what is kept. Trials are known by the number their proposal got."""

    config: SweepConfig
    proposals: Proposals
    ledger: Ledger
    display: Display
    gpus_per_trial: float
    began: float = field(default_factory=time.monotonic)
    running: dict[int, _Running] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=lambda: {"completed": 0, "stopped": 0, "failed": 0})
    num_asked: int = 0

    def __post_init__(self) -> None:
        limit = int(self.config.storage.max_gib * 2**30)
        self.kept = Kept(self.folder / "points", limit, self.folder / "checkpoints")
        rule = self.config.early_stopping
        self._halving = SuccessiveHalving(rule.first_examples, rule.reduction_factor) if rule.policy == "asha" else None
        self.num_trials = min(self.config.budget.trials, self.proposals.limit or self.config.budget.trials)

    @property
    def folder(self) -> Path:
        return self.ledger.folder

    @property
    def out_of_time(self) -> bool:
        minutes = self.config.budget.minutes
        return minutes is not None and time.monotonic() - self.began >= 60 * minutes

    def ask(self) -> tuple[int, TrialConfig] | None:
        """The next trial, or None when the budget is spent."""
        if self.num_asked >= self.num_trials or self.out_of_time:
            return None
        number, config = self.proposals.ask()
        self.num_asked += 1
        self.ledger.append("trial", trial=number, config=config.model_dump(mode="json", exclude_none=True))
        self.running[number] = _Running(config, time.monotonic())
        return number, config

    def rung(self, number: int, rung: dict[str, Any]) -> bool:
        """Take a rung's result; whether the trial is to stop.

        ``rung`` has a ``rung`` event's keys but for ``trial``, and ``stop``, the reason why the trial ends by a rule of its
        own. A trial that went on from a checkpoint repeats its last rung, which counts once.
        """
        trial = self.running[number]
        if rung["step"] <= trial.step:
            return trial.stop is not None
        own_stop = rung.pop("stop", None)
        num_rungs = self.config.budget.rungs_of(trial.config)
        points = [Point(trial=number, step=rung["step"], **point) for point in rung["points"]]
        self.ledger.append(
            "rung", trial=number, **{**rung, "points": [dataclasses.asdict(point) for point in points]}
        )  # refuses numbers that are not finite
        self.points += points
        trial.step = rung["step"]
        value = max(self.objective(point) for point in points)
        trial.best = value if trial.best is None else max(trial.best, value)
        self.proposals.report(number, trial.step, trial.best)
        self._bound_disk()
        best = max(points, key=self.objective)
        self.display.line(
            f"trial {number}: rung {trial.step}/{num_rungs}, {rung['examples_seen']:,} examples, "
            f"P {100 * best.polarity:.2f}, S {100 * best.similarity:.2f}, objective {100 * value:.2f}"
        )
        # Judged at its last rung too: later trials are measured against it.
        verdict = self._halving.judge(rung["examples_seen"], trial.best) if self._halving is not None else None
        if trial.step < num_rungs:
            out_of_time = f"the sweep's {self.config.budget.minutes or 0:g} minutes were spent"
            trial.stop = out_of_time if self.out_of_time else own_stop or verdict
        self.show()
        return trial.stop is not None

    def end(self, number: int, failure: str | None = None) -> None:
        """A trial ended: with ``failure``, because it was told to stop, or because it was done."""
        trial = self.running.pop(number)
        status = "failed" if failure else "stopped" if trial.stop else "completed"
        reason = failure or trial.stop or f"all {self.config.budget.rungs_of(trial.config)} rungs done"
        self._end(number, trial, status, reason)
        self.proposals.tell(number, status, trial.best)
        shutil.rmtree(checkpoints_of(self.folder, number), ignore_errors=True)
        self.ended[status] += 1
        self.display.line(f"trial {number}: {status}: {reason}")
        self.show()

    def _end(self, number: int, trial: _Running, status: str, reason: str) -> None:
        seconds = time.monotonic() - trial.began
        gpu_seconds = seconds * self.gpus_per_trial
        self.ledger.append("end", trial=number, status=status, reason=reason, seconds=seconds, gpu_seconds=gpu_seconds)

    def finish(self, status: str, reason: str) -> None:
        """The sweep's last event. Trials that still run are given up; their finished rungs stay."""
        for number, trial in self.running.items():
            self._end(number, trial, "interrupted", "the sweep ended before it")
        self.running.clear()
        self.kept.only(self.front())  # all others, also a rung cut off between its weights and its report
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        shutil.rmtree(self.folder / "tune", ignore_errors=True)  # Tune's snapshots, which nothing reads
        self.ledger.append("finish", status=status, reason=reason, seconds=time.monotonic() - self.began)
        self.ledger.close()

    def objective(self, point: Point) -> float:
        goal = self.config.objective
        return objective(point, goal.polarity_weight, goal.similarity)

    def front(self) -> list[Point]:
        return front_members(self.points)

    def kept_front(self) -> list[Point]:
        """The front's members whose weights are on disk."""
        return [point for point in self.front() if self.kept.holds(point)]

    def _bound_disk(self) -> None:
        for point in self.kept.only(self.front(), self.points):
            self.display.warn(
                f"storage.max_gib, {self.config.storage.max_gib:g}, is reached: the weights of {point.name}, which adds "
                "least to the front, are dropped; its scores stay"
            )

    def show(self) -> None:
        """The status line: running, finished, stopped, failed; the best point; the front; time left."""
        front = self.front()
        text = f"search: {len(self.running)} running, " + ", ".join(
            f"{count} {name}" for name, count in self.ended.items()
        )
        if front:
            best = max(front, key=self.objective)
            text += f" | best P {100 * best.polarity:.2f} S {100 * best.similarity:.2f} | front {len(front)}"
        self.display.status(text + f" | {self._left()}", sum(self.ended.values()) / self.num_trials)

    def _left(self) -> str:
        seconds = time.monotonic() - self.began
        done = sum(self.ended.values())
        estimates = [seconds / done * (self.num_trials - done)] if done else []
        if self.config.budget.minutes:
            estimates.append(60 * self.config.budget.minutes - seconds)
        return f"about {duration(max(0.0, min(estimates)))} left" if estimates else f"{duration(seconds)} so far"
