"""Shared parts of benchmarks: arguments, the description of the machine, tables, one line of JSON, and peak memory."""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]
MIB = 1 << 20
SAMPLE_SECONDS = 0.5  # reading a process tree's memory takes milliseconds of its CPU time


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    made = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help="fewer examples, same protocol; under a minute on two cores",
    )
    made.add_argument(
        "--json", action="store_true", help="print every figure as one JSON object on the last line"
    )
    made.add_argument(
        "--patient",
        action="store_true",
        help="begin each turn only once the machine is otherwise idle",
    )
    made.add_argument(
        "--data",
        type=Path,
        help="folder with SST-2's train.csv and test.csv (columns text, label); $RAYSWEEP_DATA_DIR/sst2 or "
        "../shared/data/sst2 if not given, and the built-in demo data where there is none",
    )
    return made


def artifacts_option(made: argparse.ArgumentParser) -> None:
    """Add the option of benchmarks that begin with prepared artifacts."""
    made.add_argument(
        "--artifacts",
        type=Path,
        help="folder to keep prepared artifacts in; a temporary one if not given",
    )


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Yield a temporary folder, with libraries quiet and offline."""
    quiet = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    quiet |= {
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    with tempfile.TemporaryDirectory(prefix="raysweep-benchmark-") as name:
        yield Path(name)


def machine() -> dict[str, Any]:
    """Return a description of the machine, to be stored with the figures."""
    import torch

    from raysweep.encoders import encoder, precision

    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.+)$", text, re.MULTILINE)
    device = encoder.best_device()
    return {
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "lists_bf16": [flag for flag in (flags[1].split() if flags else []) if "bf16" in flag],
        "bf16_gain": round(precision.bf16_gain(device), 2),
        "auto": precision.resolve("auto", device),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
    }


def commit() -> str:
    """Return the repository's commit, with ``+changes`` if the working tree differs from it."""

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (
            "+changes" if git("status", "--porcelain") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def describe(machine: Mapping[str, Any]) -> str:
    """Return the machine in a few lines."""
    listed = ", ".join(machine["lists_bf16"]) or "no"
    return (
        f"machine: {machine['cpu']}, {machine['cores']} cores; device {machine['device']}; torch {machine['torch']}, "
        f"{machine['threads']} threads; load {machine['load_at_start']:.1f} at the start\n"
        f"bf16: listed by the processor: {listed}; a matrix product in bf16 runs at {machine['bf16_gain']:.2f} times fp32's "
        f"rate\ncommit: {machine['commit']}, {machine['date']}"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return aligned columns: the first to the left, numbers to the right."""
    columns = [[str(cell) for cell in column] for column in zip(header, *rows, strict=True)]
    lines = []
    for number, column in enumerate(columns):
        width = max(map(len, column))
        aligned = [cell.rjust(width) if number else cell.ljust(width) for cell in column]
        lines.append([aligned[0], "-" * width, *aligned[1:]])
    return "\n".join("  ".join(line).rstrip() for line in zip(*lines, strict=True))


def finish(
    benchmark: str, figures: Mapping[str, Any], machine: Mapping[str, Any], as_json: bool
) -> None:
    """Print the machine and, with ``--json``, all figures as the last line."""
    print(f"\n{describe(machine)}")
    if as_json:
        print(json.dumps({"benchmark": benchmark, **figures, "machine": dict(machine)}), flush=True)


def busy_seconds() -> float:
    """Return the CPU time of all processes since the machine started (Linux; 0 elsewhere)."""
    stat = Path("/proc/stat")
    if not stat.is_file():
        return 0.0
    user, nice, system, _, _, irq, soft, *_ = map(
        int, stat.read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet() -> None:
    """Wait until nothing else has used the CPUs for a second, an hour at most."""
    quiet, until = 0, time.monotonic() + 3600
    while quiet < 4 and time.monotonic() < until:
        before = busy_seconds()
        time.sleep(0.25)
        quiet = quiet + 1 if busy_seconds() - before <= 0.05 * (os.cpu_count() or 1) else 0


def tree_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, ended ones included (Linux; 0 elsewhere)."""
    ticks = 0
    for one in process_tree(pid):
        with contextlib.suppress(OSError):  # it ended meanwhile; its parent has its time now
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_resident() -> int:
    """Return the peak resident memory of this process in bytes (Linux: VmHWM; 0 elsewhere)."""
    status = Path("/proc/self/status")
    match = (
        re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE)
        if status.is_file()
        else None
    )
    return int(match[1]) << 10 if match else 0


def private_bytes() -> int:
    """Return the current private memory of this process in bytes (Linux; 0 elsewhere)."""
    rollup = Path("/proc/self/smaps_rollup")
    text = rollup.read_text() if rollup.is_file() else ""
    return sum(
        int(size) << 10
        for size in re.findall(r"^Private_(?:Clean|Dirty):\s*(\d+) kB$", text, re.MULTILINE)
    )


class Sampled(ABC):
    """A context that calls :meth:`sample` at fixed intervals in its own thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._seconds):
            self.sample()

    @abstractmethod
    def sample(self) -> None:
        """Take a sample."""


class TreeMemory(Sampled):
    """The peak memory of a process and its descendants, sampled: the sum of proportional set sizes, shared pages once.

    For peers that are several processes. 0 without /proc.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(SAMPLE_SECONDS)
        self._pid = pid
        self.peak = 0

    def sample(self) -> None:
        self.peak = max(self.peak, sum(map(_proportional, process_tree(self._pid))))


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:  # it ended meanwhile
            continue
        children[int(parent)].append(int(stat.parent.name))
    pids = [pid]
    for one in pids:
        pids += children[one]
    return pids


def _proportional(pid: int) -> int:
    try:
        match = re.search(
            r"^Pss:\s*(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE
        )
    except OSError:
        return 0
    return int(match[1]) << 10 if match else 0
