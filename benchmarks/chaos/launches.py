"""Nodes that start slowly."""

import importlib
import sys
import time

from benchmarks import measure
from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.sweeps import SweepProcess, find_problems, of_kind

LAUNCH_SECONDS = 310.0
NODE_TYPES = {"cpu": {"resources": {"CPU": 1}, "max_workers": 2}}
TRIALS, RUNGS = 4, 2


def launch_slowly(setting: Setting) -> Outcome:
    """Run one sweep on a cluster without nodes, whose autoscaler adds one only after minutes; ignores ``times``."""
    sys.path.insert(0, str(measure.ROOT / "tests"))  # whose cluster of fake nodes this is
    autoscaled = importlib.import_module("support.autoscaled").autoscaled
    folder = setting.folder / "launch-cluster"
    folder.mkdir()
    with autoscaled(folder, NODE_TYPES, launch_seconds=LAUNCH_SECONDS) as (address, _):
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
