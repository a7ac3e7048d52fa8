"""Faults of disks: full or read-only for some seconds, under the driver and its trials.

Requires a machine that allows mounting an in-memory file system.
"""

import contextlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import measure
from benchmarks.chaos.outcomes import Outcome, Setting
from benchmarks.chaos.sweeps import LIMIT_SECONDS, ChaosError, SweepProcess, events, find_problems

TEMPORARY = 75  # the exit code of a command that may be repeated
DISK_BYTES = 3000 * measure.MIB
FULL_SECONDS = 20.0
READ_ONLY_SECONDS = 30.0
SECONDS_BETWEEN = (8.0, 20.0)
MOST_RECOVERY_SECONDS = 15.0
SIGNS_OF_LIFE = ("again", "trial", "rung", "points")
SIGN_POLL_SECONDS = 0.5
TRIALS, RUNGS = 6, 6
MAY_NOT_MOUNT = {"skipped": "this user may not mount a disk"}


def fill_disks(setting: Setting) -> Outcome:
    """Fill the run's disk for some seconds, repeatedly."""
    return _fault_often(setting, "disk", _fill)


def deny_writes(setting: Setting) -> Outcome:
    """Make the run's disk read-only for files opened during some seconds, repeatedly. The open ledger stays writable."""
    return _fault_often(setting, "read-only", _deny)


def _fault_often(setting: Setting, case: str, fault: Callable[[Path], None]) -> Outcome:
    """Run a sweep whose disk fails repeatedly. The command is restarted if the driver ends."""
    draw = random.Random(case)
    plan = setting.plan(case, TRIALS, RUNGS, ["--resources.num_cpus=2"])
    with small_disk(plan.folder, DISK_BYTES) as is_mounted:
        if not is_mounted:
            return Outcome(0, [], notes=MAY_NOT_MOUNT)
        num_faults, attempts, code = 0, 0, None
        recoveries: list[float] = []
        while code is None or (code == TEMPORARY and attempts <= setting.times):
            attempts += 1
            with SweepProcess(plan) as sweep:
                while sweep.process.poll() is None and num_faults < setting.times:
                    time.sleep(draw.uniform(*SECONDS_BETWEEN))
                    if sweep.process.poll() is None:
                        before = _num_signs(sweep)
                        fault(plan.folder)
                        num_faults += 1
                        recoveries.append(_seconds_to_a_sign(sweep, before))
                code = sweep.end()
        slowest = max(recoveries, default=0.0)
        result = Outcome(
            num_faults,
            find_problems(plan),
            notes={"attempts": attempts, "most_to_recover": round(slowest, 1)},
        )
        if slowest > MOST_RECOVERY_SECONDS:
            result.problems.append("a recovery took too long")
        if code:
            result.problems.append(f"the last attempt ended with {code}: {sweep.tail}")
        return result


def _num_signs(sweep: SweepProcess) -> int:
    return sum(event["event"] in SIGNS_OF_LIFE for event in events(sweep.plan.run))


def _seconds_to_a_sign(sweep: SweepProcess, before: int) -> float:
    """Return the seconds until the sweep, which has given ``before`` signs, continues or its driver ends."""
    since = time.monotonic()
    while sweep.process.poll() is None and _num_signs(sweep) == before:
        if time.monotonic() - since > LIMIT_SECONDS:
            raise ChaosError(f"no sign of life in {LIMIT_SECONDS:.0f} s: {sweep.tail}")
        time.sleep(SIGN_POLL_SECONDS)
    return time.monotonic() - since


def _deny(folder: Path) -> None:
    """Mount the folder over itself, read-only, for some seconds."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        time.sleep(READ_ONLY_SECONDS)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _fill(folder: Path) -> None:
    """Use all space for some seconds."""
    file = folder / "filler"
    fill(file)
    time.sleep(FULL_SECONDS)
    file.unlink()


def fill(file: Path) -> None:
    """Write a file that uses all space of its disk."""
    block = bytes(measure.MIB)
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while filler.write(block) == len(block):
            pass


@contextlib.contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[bool]:
    """Mount a disk of this size at the folder, and yield whether this user may do so."""
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={num_bytes}", "none", str(folder)]
    is_mounted = not subprocess.run(["mount", *options], capture_output=True).returncode
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
