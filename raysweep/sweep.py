"""The state of a sweep as it runs: proposals out, rungs in, every event in the ledger before it counts. No Ray."""

import dataclasses
import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.config import SweepConfig, TrialConfig
from raysweep.halving import SuccessiveHalving
from raysweep.progress import Display, duration
from raysweep.proposals import Proposals
from raysweep.results import Ledger, Point, front_members, objective, point_name


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
        self._dropped: set[str] = set()
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
        """Take a rung's result; whether the trial is to stop. ``rung`` has a ``rung`` event's keys but for ``trial``."""
        trial = self.running[number]
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
        self._drop_dominated()
        best = max(points, key=self.objective)
        self.display.line(
            f"trial {number}: rung {trial.step}/{num_rungs}, {rung['examples_seen']:,} examples, "
            f"P {100 * best.polarity:.2f}, S {100 * best.similarity:.2f}, objective {100 * value:.2f}"
        )
        # Judged at its last rung too: later trials are measured against it.
        verdict = self._halving.judge(rung["examples_seen"], trial.best) if self._halving is not None else None
        if trial.step < num_rungs:
            trial.stop = (
                f"the sweep's {self.config.budget.minutes:g} minutes were spent" if self.out_of_time else verdict
            )
        self.show()
        return trial.stop is not None

    def end(self, number: int, failure: str | None = None) -> None:
        """A trial ended: with ``failure``, because it was told to stop, or because it was done."""
        trial = self.running.pop(number)
        status = "failed" if failure else "stopped" if trial.stop else "completed"
        reason = failure or trial.stop or f"all {self.config.budget.rungs_of(trial.config)} rungs done"
        self._end(number, trial, status, reason)
        self.proposals.tell(number, status, trial.best)
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
        kept = _names(self.front())
        for path in (self.folder / "points").iterdir():  # a rung cut off between its weights and its report
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder / "tune", ignore_errors=True)  # Tune's snapshots, which nothing reads
        self.ledger.append("finish", status=status, reason=reason, seconds=time.monotonic() - self.began)
        self.ledger.close()

    def objective(self, point: Point) -> float:
        goal = self.config.objective
        return objective(point, goal.polarity_weight, goal.similarity)

    def front(self) -> list[Point]:
        return front_members(self.points)

    def _drop_dominated(self) -> None:
        """Weights are kept for the front's members only, which bounds the disk that a sweep takes."""
        dominated = _names(self.points) - _names(self.front()) - self._dropped
        for name in dominated:
            shutil.rmtree(self.folder / "points" / name, ignore_errors=True)
        self._dropped |= dominated

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


def _names(points: Iterable[Point]) -> set[str]:
    return {point_name(point.trial, point.step) for point in points if point.trial is not None and point.step}


def plain_point(point: Point) -> dict[str, Any]:
    """A point as a rung's event holds it: without the trial and step, which the event has."""
    values = dataclasses.asdict(point)
    del values["trial"], values["step"]
    return json.loads(json.dumps(values, allow_nan=False))  # type: ignore[no-any-return]
