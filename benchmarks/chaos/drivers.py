"""Faults of drivers: killed, terminated, cut off from Ray, restarted with a wrong clock; the same command resumes."""

import os
import random
import signal
import time
from collections.abc import Sequence

import psutil

from benchmarks.chaos.buckets import bucket
from benchmarks.chaos.nodes import nodes
from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.sweeps import (
    SECONDS_OF_AGENTS,
    SECONDS_TO_VANISH,
    Plan,
    SweepProcess,
    find_problems,
    is_agent,
    num_rungs,
    wait_for_rung,
    wait_until_gone,
)

TRIALS, RUNGS = 6, 4
SECONDS_BEFORE_A_FAULT = (4.0, 40.0)
MOST_EXIT_SECONDS = 15.0
EXIT_CODE_WHEN_INTERRUPTED = 130
TO_RESUME = "run: to resume: "
SECONDS_TO_REPORT = 60.0
CLOCKS = ("+600", "-600")  # seconds
MOST_CALM_SECONDS = 10.0


def kill_drivers(setting: Setting) -> Outcome:
    """Send SIGKILL to the driver; Ray's own processes notice and end."""
    return _end_often(setting, "driver", signal.SIGKILL)


def kill_drivers_of_two_objectives(setting: Setting) -> Outcome:
    """Send SIGKILL to the driver of a sweep with polarity and similarity as two objectives."""
    return _end_often(
        setting, "driver-two", signal.SIGKILL, ["--objective.proposals=both", "--sampler=tpe"]
    )


def kill_heads(setting: Setting) -> Outcome:
    """Send SIGKILL to all processes of the machine, Ray's too: the next attempt has a new cluster and only storage."""
    return _end_often(setting, "head", None)


def interrupt_drivers(setting: Setting) -> Outcome:
    """Send SIGINT to the driver."""
    return _end_often(setting, "sigint", signal.SIGINT)


def terminate_drivers(setting: Setting) -> Outcome:
    """Send SIGTERM to the driver."""
    return _end_often(setting, "sigterm", signal.SIGTERM)


def kill_control_stores(setting: Setting) -> Outcome:
    """Kill the GCS of the driver's Ray, after which Ray ends the driver; another process then writes the report."""
    draw = random.Random("gcs")
    plan = setting.plan("gcs", TRIALS * setting.times, RUNGS, ["--resources.num_cpus=2"])
    result = Outcome(0, [])
    exits = []
    while result.num_faults < setting.times:
        num_reports = plan.output.read_text().count(TO_RESUME) if result.num_faults else 0
        num_before = num_rungs(plan)
        with SweepProcess(plan) as sweep:
            wait_for_rung(sweep, num_before)
            time.sleep(draw.uniform(0, MOST_CALM_SECONDS))
            if sweep.process.poll() is not None:
                result.notes["fewer_faults"] = "the sweep was over"
                break
            struck_at = time.monotonic()
            (store,) = [process for process in sweep.tree if process.name() == "gcs_server"]
            store.kill()
            result.num_faults += 1
            sweep.end()
            exits.append(time.monotonic() - struck_at)
            until = time.monotonic() + SECONDS_TO_REPORT
            while plan.output.read_text().count(TO_RESUME) == num_reports:
                if time.monotonic() > until:
                    result.problems.append(
                        f"no report after fault {result.num_faults}: {sweep.tail}"
                    )
                    break
                time.sleep(1.0)
    result.notes["most_seconds_to_exit"] = round(max(exits, default=0.0), 1)
    return _finish(plan, result)


def change_clocks(setting: Setting) -> Outcome:
    """Kill the driver and resume with a clock that is 10 minutes ahead or behind; runs are in a bucket.

    Nodes and bucket have the right time. Needs libfaketime.
    """
    try:
        from libfaketime import get_reload_information
    except ImportError:
        return Outcome(0, [], notes={"skipped": "pip install libfaketime"})
    _, preloaded = get_reload_information()
    draw = random.Random("clock")
    result = Outcome(0, [])
    with bucket(setting) as (in_bucket, _), nodes(2) as cluster:
        options = [f"--resources.address={cluster.address}", "--resources.max_concurrent_trials=2"]
        plan = in_bucket.plan("clock", TRIALS * setting.times, RUNGS, options)
        for number in range(setting.times):
            variables = {**preloaded, "FAKETIME": CLOCKS[number % len(CLOCKS)]}
            with SweepProcess(plan, variables) as sweep:
                num_before = num_rungs(plan)
                began = time.monotonic()
                wait_for_rung(sweep, num_before)
                result.notes.setdefault("seconds_to_a_rung", []).append(
                    round(time.monotonic() - began)
                )
                time.sleep(draw.uniform(0, MOST_CALM_SECONDS))
                _strike(sweep, signal.SIGKILL)
                result.num_faults += 1
        return _finish(plan, result)


def _finish(plan: Plan, result: Outcome) -> Outcome:
    """Run the sweep to its end and add the problems found."""
    with SweepProcess(plan) as sweep:
        code = sweep.end()
    if code:
        result.problems.append(f"the last attempt ended with {code}: {sweep.tail}")
    result.problems += find_problems(plan)
    return result


def _end_often(
    setting: Setting, case: str, number: int | None, options: Sequence[str] = ()
) -> Outcome:
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
            left = wait_until_gone(
                [process for process in tree if process not in spared], SECONDS_TO_VANISH
            )
            if winds_up:
                result.problems += [f"left: {_title(process)}" for process in left]
            else:  # Ray's own have to notice first that the driver has gone
                late += [_title(process) for process in left]
                spared += left
            rays_own += spared
    _finish(plan, result)
    if late:
        result.notes["later_than_15_s"] = late
    result.problems += [
        f"left: {_title(process)}" for process in wait_until_gone(rays_own, SECONDS_OF_AGENTS)
    ]
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
