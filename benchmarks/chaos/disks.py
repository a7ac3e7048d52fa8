"""A disk that is full for some seconds, under the driver and its trials. It takes a machine that may mount one in memory."""

import random
import subprocess
import time
from pathlib import Path

from benchmarks import measure
from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.sweeps import SweepProcess, problems

DISK_BYTES = 3000 * measure.MIB
FULL_SECONDS = 20.0
SECONDS_BETWEEN = (8.0, 20.0)
TRIALS, RUNGS = 6, 6


def fill_disks(setting: Setting) -> Outcome:
    """The disk of the run is full for some seconds, again and again. A driver that ends is started again by its command."""
    draw = random.Random("disk")
    plan = setting.plan("disk", TRIALS, RUNGS, ["--resources.num_cpus=2"])
    plan.folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(plan.folder)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        return Outcome(0, [], notes={"skipped": "this user may not mount a disk"})
    try:
        num_faults, attempts, code = 0, 0, None
        while code is None or (code == 2 and attempts <= setting.times):
            attempts += 1
            with SweepProcess(plan) as sweep:
                while sweep.process.poll() is None and num_faults < setting.times:
                    time.sleep(draw.uniform(*SECONDS_BETWEEN))
                    if sweep.process.poll() is None:
                        _fill(plan.folder / "filler")
                        num_faults += 1
                code = sweep.end()
        found = Outcome(num_faults, problems(plan), notes={"attempts": attempts})
        if code:
            found.problems.append(f"the last attempt ended with {code}: {sweep.tail}")
        return found
    finally:
        subprocess.run(["umount", "--lazy", str(plan.folder)], check=False)


def _fill(file: Path) -> None:
    """Take all room for some seconds."""
    block = bytes(measure.MIB)
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                if filler.write(block) < len(block):
                    break
        except OSError:
            pass  # it is full
    time.sleep(FULL_SECONDS)
    file.unlink()
