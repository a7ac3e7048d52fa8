"""Nodes that start slowly or never."""

import dataclasses
import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks import measure
from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.sweeps import SweepProcess, find_problems, of_kind

LAUNCH_SECONDS = 310.0
NODE_TYPES = {"cpu": {"resources": {"CPU": 1}, "max_workers": 2}}
SCARCE_TYPES = {
    "cpu": {"resources": {"CPU": 1}, "max_workers": 1},
    # the cloud has none
    "spot": {
        "resources": {"CPU": 1},
        "max_workers": 7,
        "node_config": {"spot": True},
    },
}
TRIALS, RUNGS = 4, 2


def launch_slowly(setting: Setting) -> Outcome:
    """Run one sweep on a cluster without nodes, whose autoscaler adds one only after minutes; ignores ``times``."""
    with _autoscaled(setting, "launch", NODE_TYPES, LAUNCH_SECONDS) as address:
        options = (f"--resources.address={address}", "--resources.max_concurrent_trials=2")
        plan = setting.plan("launch", TRIALS, RUNGS, options)
        began = time.monotonic()
        with SweepProcess(plan) as sweep:
            sweep.wait_until(lambda: of_kind(plan.run, "rung"))
            seconds = time.monotonic() - began
            code = sweep.end()
    result = Outcome(1, find_problems(plan), notes={"seconds_to_first_rung": round(seconds, 1)})
    if code:
        result.problems.append(f"the driver ended with {code}: {sweep.tail}")
    return result


def lack_nodes(setting: Setting) -> Outcome:
    """Prepare and run one sweep on a cluster of up to eight nodes that gets only one; ignores ``times``."""
    with _autoscaled(setting, "scarce", SCARCE_TYPES, launch_seconds=0) as address:
        unprepared = dataclasses.replace(
            setting, artifacts=str(setting.folder / "scarce-artifacts")
        )
        options = (f"--resources.address={address}", "--resources.max_concurrent_trials=8")
        plan = unprepared.plan("scarce", TRIALS, RUNGS, options)
        began = time.monotonic()
        with SweepProcess(plan) as sweep:
            code = sweep.end()
        seconds = time.monotonic() - began
    waiting_lines = [
        line for line in plan.output.read_text().splitlines() if "waiting for resources" in line
    ]
    result = Outcome(
        1, find_problems(plan), notes={"seconds": round(seconds), "waiting_lines": waiting_lines}
    )
    if code:
        result.problems.append(f"the driver ended with {code}: {sweep.tail}")
    if not waiting_lines:
        result.problems.append("the log does not report the missing nodes")
    return result


@contextmanager
def _autoscaled(
    setting: Setting, case: str, node_types: Mapping[str, Any], launch_seconds: float
) -> Iterator[str]:
    """Yield the address of a cluster whose autoscaler adds nodes of these types."""
    sys.path.insert(0, str(measure.ROOT / "tests"))  # whose cluster of fake nodes this is
    autoscaled = importlib.import_module("support.autoscaled").autoscaled
    folder = setting.folder / f"{case}-cluster"
    folder.mkdir()
    with autoscaled(folder, node_types, launch_seconds=launch_seconds) as (address, _):
        yield address
