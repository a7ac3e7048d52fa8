"""Faults of drivers: killed, terminated, killed with the whole machine; the same command resumes the sweep."""

import os
import random
import signal
import time
from collections.abc import Sequence

import psutil

from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.sweeps import (
    SECONDS_OF_AGENTS,
    SECONDS_TO_VANISH,
    SweepProcess,
    find_problems,
    is_agent,
    wait_until_gone,
)

TRIALS, RUNGS = 6, 4
SECONDS_BEFORE_A_FAULT = (4.0, 40.0)
MOST_EXIT_SECONDS = 15.0
EXIT_CODE_WHEN_INTERRUPTED = 130


def kill_drivers(setting: Setting) -> Outcome:
    """Send SIGKILL to the driver; Ray's own processes notice and end."""
    return _end_often(setting, "driver", signal.SIGKILL)


def kill_drivers_of_two_objectives(setting: Setting) -> Outcome:
    """Send SIGKILL to the driver of a sweep with polarity and similarity as two objectives."""
    return _end_often(setting, "driver-two", signal.SIGKILL, ["--objective.proposals=both", "--sampler=tpe"])


def kill_heads(setting: Setting) -> Outcome:
    """Send SIGKILL to all processes of the machine, Ray's too: the next attempt has a new cluster and only storage."""
    return _end_often(setting, "head", None)


def interrupt_drivers(setting: Setting) -> Outcome:
    """Send SIGINT to the driver."""
    return _end_often(setting, "sigint", signal.SIGINT)


def terminate_drivers(setting: Setting) -> Outcome:
    """Send SIGTERM to the driver."""
    return _end_often(setting, "sigterm", signal.SIGTERM)


def _end_often(setting: Setting, case: str, number: int | None, options: Sequence[str] = ()) -> Outcome:
    """Run a sweep whose driver is ended at random moments and restarted by the same command each time."""
    draw = random.Random(case)
    plan = setting.plan(case, TRIALS, RUNGS, ["--resources.num_cpus=2", *options])
    winds_up = number in (signal.SIGINT, signal.SIGTERM)
    result = Outcome(0, [])
    rays_own: list[psutil.Process] = []
    late: list[str] = []
    exits: list[float] = []
    while result.num_faults < setting.times:
        with SweepProcess(plan) as sweep:
            time.sleep(draw.uniform(*SECONDS_BEFORE_A_FAULT))
            if sweep.process.poll() is not None:  # it was over before
                result.notes["fewer_faults"] = "the sweep was over"
                break
            tree = sweep.tree
            spared = [] if winds_up else [process for process in tree if is_agent(process)]
            struck_at = time.monotonic()
            _strike(sweep, number)
            exits.append(time.monotonic() - struck_at)
            result.num_faults += 1
            code = sweep.process.returncode
            if winds_up and code not in (0, EXIT_CODE_WHEN_INTERRUPTED):
                result.problems.append(f"exit code {code}")
            left = wait_until_gone([process for process in tree if process not in spared], SECONDS_TO_VANISH)
            if winds_up:
                result.problems += [f"left: {_title(process)}" for process in left]
            else:  # Ray's own have to notice first that the driver has gone
                late += [_title(process) for process in left]
                spared += left
            rays_own += spared
    with SweepProcess(plan) as sweep:
        code = sweep.end()
    if code:
        result.problems.append(f"the last attempt ended with {code}: {sweep.tail}")
    if late:
        result.notes["later_than_15_s"] = late
    result.problems += [f"left: {_title(process)}" for process in wait_until_gone(rays_own, SECONDS_OF_AGENTS)]
    result.problems += find_problems(plan)
    if winds_up:
        slowest = max(exits, default=0.0)
        result.notes["most_seconds_to_exit"] = round(slowest, 1)
        if slowest > MOST_EXIT_SECONDS:
            result.problems.append("an exit took too long")
    return result


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.NoSuchProcess:
        return "a process that has ended since"


def _strike(sweep: SweepProcess, number: int | None) -> None:
    if number is None:
        sweep.kill_tree()
    else:
        os.kill(sweep.process.pid, number)
        sweep.end()
