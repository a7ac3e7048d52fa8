"""Fleets with one bad node: its installation is broken, its cache's disk is full, or its memory runs out."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from unittest import mock

from benchmarks import measure
from benchmarks.chaos.buckets import bucket
from benchmarks.chaos.disks import FULL_SECONDS, MAY_NOT_MOUNT, fill, small_disk
from benchmarks.chaos.nodes import Nodes, nodes
from benchmarks.chaos.outcomes import Outcome, Recovery, Setting
from benchmarks.chaos.sweeps import (
    SweepProcess,
    find_problems,
    num_rungs,
    of_kind,
    wait_for_calm,
    wait_for_rung,
)
from benchmarks.chaos.workers import sweep_with_faults

TRIALS, RUNGS = 6, 2
EXCLUDED, PAUSED, ALL_PAUSED = "excluded (errors in a row", "paused for", "assignments paused"
CACHE = "RAYSWEEP_CACHE_DIR"
CACHE_BYTES = 300 * measure.MIB

# Each Python process imports this when it starts.
BROKEN_INSTALLATION = """
import sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "sentence_transformers":
            raise ImportError("libcudart.so.13: cannot open shared object file: No such file or directory")

sys.meta_path.insert(0, Broken())
"""

ROOM_BYTES = 4096 * measure.MIB  # for all processes, before Ray kills a trial
MEMORY_TRIALS, MEMORY_RUNGS = 3, 8
HOG = f"""
import time
blocks = []
for _ in range({2 * ROOM_BYTES // measure.MIB} // 128):
    blocks.append(b"x" * (128 << 20))
    time.sleep(0.1)
time.sleep(600)
"""


def break_nodes(setting: Setting) -> Outcome:
    """Run ``times`` sweeps on two nodes, one of which cannot import sentence-transformers."""
    broken = setting.folder / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(BROKEN_INSTALLATION)
    with nodes(1) as cluster:
        cluster.add(
            {"PYTHONPATH": os.pathsep.join([str(broken), os.environ.get("PYTHONPATH", "")])}
        )
        return _sweep_often(setting, "bad-node", cluster, SweepProcess.end, EXCLUDED)


def fill_caches(setting: Setting) -> Outcome:
    """Run ``times`` sweeps on two nodes, one of which has no room at first for what it downloads."""
    filler = setting.folder / "small-cache" / "filler"

    def empty_and_fill() -> None:
        for path in filler.parent.iterdir():
            shutil.rmtree(path)
        fill(filler)

    def free_later(sweep: SweepProcess) -> int:
        sweep.wait_until(lambda: PAUSED in sweep.plan.output.read_text())
        time.sleep(FULL_SECONDS)
        filler.unlink()
        return sweep.end()

    with (
        small_disk(filler.parent, CACHE_BYTES) as is_mounted,
        mock.patch.dict(os.environ, {CACHE: str(setting.folder / "cache")}),
        bucket(setting) as (in_bucket, _),
        nodes(1) as cluster,
    ):
        if not is_mounted:
            return Outcome(0, [], notes=MAY_NOT_MOUNT)
        cluster.add({CACHE: str(filler.parent)})
        return _sweep_often(
            in_bucket, "node-disk", cluster, free_later, PAUSED, before=empty_and_fill
        )


def use_up_memory(setting: Setting) -> Outcome:
    """Use up the machine's memory until Ray kills a trial's process for it, repeatedly."""
    limit = (_used_bytes() + ROOM_BYTES) / _total_bytes()
    with (
        mock.patch.dict(os.environ, {"RAY_memory_usage_threshold": f"{limit:.3f}"}),
        nodes(1) as cluster,
    ):
        options = (f"--resources.address={cluster.address}",)
        plan = setting.plan("memory", MEMORY_TRIALS * setting.times, MEMORY_RUNGS, options)
        sign = "ran low on memory"
        return sweep_with_faults(
            plan,
            setting.times,
            lambda sweep: _use_up_memory(cluster, sweep),
            killed_for_memory=sign,
        )


def _sweep_often(
    setting: Setting,
    case: str,
    cluster: Nodes,
    conduct: Callable[[SweepProcess], int],
    sign: str,
    before: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run ``times`` sweeps on a good and a bad node, each of which prints ``sign`` and never stops as a whole."""
    result = Outcome(setting.times, [])
    seconds = []
    for number in range(setting.times):
        before()
        options = (f"--resources.address={cluster.address}", "--resources.max_concurrent_trials=2")
        plan = setting.plan(f"{case}-{number}", TRIALS, RUNGS, options)
        began = time.monotonic()
        with SweepProcess(plan) as sweep:
            code = conduct(sweep)
        seconds.append(time.monotonic() - began)
        printed = plan.output.read_text()
        result.problems += find_problems(plan)
        if sign not in printed or ALL_PAUSED in printed:
            result.problems.append(f"sweep {number}: {sweep.tail}")
        if code:
            result.problems.append(f"sweep {number} ended with {code}: {sweep.tail}")
    result.notes["most_seconds_of_a_sweep"] = round(max(seconds), 1)
    return result


def _use_up_memory(cluster: Nodes, sweep: SweepProcess) -> Recovery:
    run = sweep.plan.run
    wait_for_calm(sweep)
    num_cut = len(of_kind(run, "cut"))
    struck_at, victim = time.time(), cluster.some_trial()
    with subprocess.Popen([sys.executable, "-c", HOG]) as hog:
        try:
            sweep.wait_until(lambda: len(of_kind(run, "cut")) > num_cut)
        finally:
            hog.kill()
    again_at = wait_for_rung(sweep, num_rungs(sweep.plan))
    return Recovery(struck_at, cluster.death_of(victim) or struck_at, again_at)


def _used_bytes() -> int:
    """Return the memory in use as Ray counts it."""
    from ray._private.utils import get_used_memory

    return int(get_used_memory())


def _total_bytes() -> int:
    from ray._common.utils import get_system_memory

    return int(get_system_memory())
