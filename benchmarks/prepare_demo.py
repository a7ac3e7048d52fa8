"""Seconds of ``raysweep prepare demo``: the built-in 3,400 sentences, from a cold cache and with all that starts.

Each time is a process of its own with an empty folder, no cache and no Ray to join, begun once nothing else uses the CPUs.

``ratio`` is 25 seconds, the bar on two quiet cores, over the median.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import measure

BAR_SECONDS = 25.0


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        found = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("prepare_demo", figures, found, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.prepare_demo", __doc__)
    parser.add_argument("--repeats", type=int, default=5, help="how often; with --quick once")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    numbers = range(1 if arguments.quick else arguments.repeats)
    seconds = [_prepare(folder / str(number)) for number in numbers]
    print("seconds:", ", ".join(f"{each:.1f}" for each in seconds))
    ratio = BAR_SECONDS / statistics.median(seconds)
    print(f"\nratio: {ratio:.2f} ({BAR_SECONDS:g} s over the median)")
    return {"ratio": ratio, "ratio_of": [f"{BAR_SECONDS:g} s", "median seconds"], "seconds": seconds}


def _prepare(place: Path) -> float:
    place.mkdir()
    environment = {**os.environ, "RAYSWEEP_CACHE_DIR": str(place / "cache")}
    command = [sys.executable, "-m", "raysweep", "prepare", "demo", f"--storage.runs={place / 'runs'}"]
    measure.wait_for_quiet()
    began = time.perf_counter()
    subprocess.run(command, cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
