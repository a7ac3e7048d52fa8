"""Reports and exports that are killed at random moments: files stay complete, and the same command succeeds."""

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.prepares import digests
from benchmarks.chaos.sweeps import LIMIT_SECONDS, Plan, SweepProcess

TRIALS, RUNGS = 2, 2


def kill_reports(setting: Setting) -> Outcome:
    """Kill `raysweep report`, which writes the same files again: each is as before."""
    plan = _finished_sweep(setting, "report")
    run = plan.folder / "chaos"
    command = _command("report", run)
    seconds = _seconds(command)
    expected = digests(run)
    draw = random.Random("report")
    problems = []
    for number in range(setting.times):
        _run_and_kill(command, draw.uniform(0, seconds))
        left = digests(run)
        damaged = [name for name, digest in expected.items() if left.get(name) != digest]
        if damaged:
            problems.append(f"report {number}: damaged: {', '.join(damaged)}")
    _seconds(command)
    if digests(run) != expected:
        problems.append("the last report differs")
    return Outcome(setting.times, problems, notes={"seconds_of_a_report": round(seconds, 1)})


def kill_exports(setting: Setting) -> Outcome:
    """Kill `raysweep export`: its target is missing or complete, and the same command then completes it."""
    plan = _finished_sweep(setting, "export")
    whole, target = setting.folder / "whole" / "tuned", setting.folder / "exported" / "tuned"
    target.parent.mkdir()
    seconds = _seconds(_command("export", plan.folder / "chaos", whole))
    expected = digests(whole)
    command = _command("export", plan.folder / "chaos", target)
    draw = random.Random("export")
    problems, num_complete = [], 0
    for number in range(setting.times):
        _run_and_kill(command, draw.uniform(0, seconds))
        if target.exists():
            num_complete += 1
            if digests(target) != expected:
                problems.append(f"export {number}: incomplete")
            shutil.rmtree(target)
        _seconds(command)
        if digests(target) != expected or len(list(target.parent.iterdir())) > 1:
            problems.append(
                f"export {number}: not completed by the same command: {list(target.parent.iterdir())}"
            )
        shutil.rmtree(target)
    notes = {"seconds_of_an_export": round(seconds, 1), "complete_when_killed": num_complete}
    return Outcome(setting.times, problems, notes=notes)


def _finished_sweep(setting: Setting, case: str) -> Plan:
    plan = setting.plan(case, TRIALS, RUNGS, ["--resources.num_cpus=2"])
    with SweepProcess(plan) as sweep:
        if code := sweep.end():
            raise RuntimeError(f"the driver ended with {code}: {sweep.tail}")
    return plan


def _command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "raysweep", *map(str, arguments)]


def _seconds(command: Sequence[str]) -> float:
    """Run a command to its end and return the seconds that it needed."""
    began = time.monotonic()
    subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_SECONDS)
    return time.monotonic() - began


def _run_and_kill(command: Sequence[str], seconds: float) -> None:
    """Run a command for some seconds at most."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        process.kill()
