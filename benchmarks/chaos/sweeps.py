"""A sweep in its own process, observed from outside: its ledger, its output, and its remaining processes."""

import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.chaos.nodes import AGENTS
from raysweep.results.ledger import NAME as LEDGER
from raysweep.storage import location
from raysweep.storage.folder import Folder, open_folder
from raysweep.storage.line_log import read_log

POLL_SECONDS = 0.02
BUCKET_POLL_SECONDS = 1.0
LIMIT_SECONDS = 900.0
CALM_RUNGS = 3
FIRST_TRIALS = 3  # which start together
SECONDS_TO_VANISH = 15.0  # for Ray's processes, once the driver has gone
# of Ray's, which run nothing, and try for a minute to report that their node has died
SECONDS_OF_AGENTS = 120.0

SPACE: Mapping[str, str] = {
    "space.loss": "cosine_similarity",
    "space.examples_per_rung": "128",
    "evaluation.num_pool": "200",
    "evaluation.points.concat": "[]",
    "early_stopping.policy": "none",
    "resources.cpus_per_trial": "1",
}


@dataclass(frozen=True)
class Plan:
    """A sweep's options over the space ``smoke``, and its folder.

    ``bucket`` is the location of the runs if they are in a bucket.
    """

    folder: Path
    artifacts: str
    trials: int
    rungs: int = 4
    options: tuple[str, ...] = ()
    bucket: str = ""

    @property
    def command(self) -> list[str]:
        """The command that starts and resumes the run."""
        settings = [f"--{key}={value}" for key, value in SPACE.items()]
        budget = [f"--budget.trials={self.trials}", f"--budget.rungs={self.rungs}"]
        places = [
            f"--storage.runs={self.bucket or self.folder}",
            f"--storage.artifacts={self.artifacts}",
        ]
        name = ["--name=chaos", "--resume-or-start"]
        return [
            sys.executable,
            "-m",
            "raysweep",
            "run",
            "smoke",
            *name,
            *settings,
            *budget,
            *places,
            *self.options,
        ]

    @property
    def run(self) -> Folder:
        return _open(location.join(self.bucket or str(self.folder), "chaos"))

    @property
    def output(self) -> Path:
        """The driver's output, outside the run's folder, whose disk may be full."""
        return self.folder.with_name(f"{self.folder.name}.log")


class SweepProcess:
    """A driver with these additional environment variables. The context manager kills its process tree at the end."""

    def __init__(self, plan: Plan, variables: Mapping[str, str] | None = None) -> None:
        self.plan = plan
        plan.folder.mkdir(parents=True, exist_ok=True)
        self._output = plan.output.open("ab")
        self.process = subprocess.Popen(
            plan.command,
            env={**os.environ, **(variables or {})},
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_tree()
        self._output.close()

    def wait_until(self, condition: Callable[[], Any], seconds: float = LIMIT_SECONDS) -> float:
        """Wait for a condition that the driver brings about before it ends, and return the wall-clock time."""
        until = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise ChaosError(f"the driver ended with {self.process.returncode}: {self.tail}")
            if time.monotonic() > until:
                raise ChaosError(f"nothing came of it in {seconds:.0f} s: {self.tail}")
            time.sleep(BUCKET_POLL_SECONDS if self.plan.bucket else POLL_SECONDS)
        return time.time()

    def end(self, seconds: float = LIMIT_SECONDS) -> int:
        """Wait for the end of the driver and return its exit code."""
        return self.process.wait(timeout=seconds)

    @property
    def tail(self) -> str:
        return self.plan.output.read_text()[-600:]

    @property
    def tree(self) -> list[psutil.Process]:
        """Return the driver and its descendants; empty once it has ended."""
        try:
            driver = psutil.Process(self.process.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill_tree(self) -> None:
        """Kill the driver and its descendants at once, as in a power failure."""
        for process in self.tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()


class ChaosError(Exception):
    """A sweep did not recover from a fault."""


def is_agent(process: psutil.Process) -> bool:
    """Return whether the process is one of the two agents that Ray starts on each node."""
    try:
        return " ".join(process.cmdline()).startswith(AGENTS)
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until the processes end or the time is over, and return the remaining ones."""
    until = time.monotonic() + seconds
    left = list(processes)
    while left and time.monotonic() < until:
        left = [process for process in left if _is_alive(process)]
        time.sleep(POLL_SECONDS)
    return left


def _is_alive(process: psutil.Process) -> bool:
    try:
        is_alive: bool = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return is_alive
    except psutil.NoSuchProcess:
        return False


@functools.cache
def _open(place: str) -> Folder:
    return open_folder(place)


def events(run: Folder) -> list[dict[str, Any]]:
    """Return the ledger's events so far, without an incomplete line."""
    try:
        content = read_log(run, LEDGER)
    except FileNotFoundError:
        return []
    complete_lines, _, _ = content.rpartition(b"\n")
    return [json.loads(line) for line in complete_lines.splitlines()]


def of_kind(run: Folder, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(run) if event["event"] == kind]


def wait_for_calm(sweep: SweepProcess) -> None:
    """Wait for the rungs between a recovery and the next fault."""
    wait_for_rung(sweep, num_rungs(sweep.plan) + CALM_RUNGS - 1)


def wait_for_rung(sweep: SweepProcess, num_before: int) -> float:
    """Wait until the run has more rungs than ``num_before``, and return the wall-clock time."""
    return sweep.wait_until(lambda: num_rungs(sweep.plan) > num_before)


def num_rungs(plan: Plan) -> int:
    return len(of_kind(plan.run, "rung"))


def start_seconds(plan: Plan) -> float:
    """Return the seconds from the start of the first trials to their first rungs."""
    begun: dict[int, float] = {event["trial"]: event["at"] for event in of_kind(plan.run, "trial")}
    first_rungs: dict[int, float] = {
        event["trial"]: event["at"] for event in of_kind(plan.run, "rung") if event["step"] == 1
    }
    first = [trial for trial in range(FIRST_TRIALS) if trial in first_rungs]
    return statistics.median(first_rungs[trial] - begun[trial] for trial in first)


def find_problems(plan: Plan) -> list[str]:
    """Return why not every trial is accounted for exactly once; empty if each is."""
    problems = []
    begun, ended = (
        Counter(event["trial"] for event in of_kind(plan.run, kind)) for kind in ("trial", "end")
    )
    expected = Counter(range(plan.trials))
    if begun != expected:
        problems.append(f"trials begun: {dict(begun)}")
    if ended != expected:
        problems.append(f"trials ended: {dict(ended)}")
    rungs = Counter((event["trial"], event["step"]) for event in of_kind(plan.run, "rung"))
    every_rung = Counter(
        (trial, step) for trial in range(plan.trials) for step in range(1, plan.rungs + 1)
    )
    if rungs != every_rung:
        problems.append(
            f"rungs missing: {sorted(every_rung - rungs)}, doubled: {sorted(rungs - every_rung)}"
        )
    problems += _after_the_end(plan.run)
    problems += [
        f"trial {event['trial']}: {event['reason']}"
        for event in of_kind(plan.run, "end")
        if event["status"] == "failed"
    ]
    if not problems and (proposed := _proposed(plan.run)) != {plan.trials}:
        problems.append(f"trials in the studies: {sorted(proposed)}")
    return problems


def _after_the_end(run: Folder) -> list[str]:
    """Return events of trials that had ended before."""
    over: set[int] = set()
    problems = []
    for event in events(run):
        if event.get("trial") in over and event["event"] in ("trial", "rung", "again", "resume"):
            problems.append(f"trial {event['trial']} had ended, and then: {event['event']}")
        if event["event"] == "end":
            over.add(event["trial"])
    return problems


def _proposed(run: Folder) -> set[int]:
    """Return the numbers of trials in Optuna's studies."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(run.fetch("study.journal"))))
    return {study.n_trials for study in optuna.get_all_study_summaries(storage)}
