"""Time and memory for the report of a large run: 1,000 trials, 10 rungs, 872 queries, 1,000 resamples.

The run is generated without training: see :mod:`benchmarks.made_run`. A separate process then writes the report like
``raysweep report RUN``; its seconds and peak resident memory are printed, imports included.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import measure
from benchmarks.made_run import MadeRun

MEASURED = (
    "import resource, sys; from pathlib import Path; from raysweep.report.write import write; "
    "print(write(Path(sys.argv[1])).summary.uncertainty.keys()); "
    "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def main() -> None:
    parser = measure.parser("benchmarks.report_size", __doc__)
    parser.add_argument("--trials", type=int, help="1000; with --quick 100")
    parser.add_argument("--rungs", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="make the run in this folder, and leave it there")
    arguments = parser.parse_args()
    trials = arguments.trials or (100 if arguments.quick else 1000)
    machine = measure.machine()
    with measure.workplace() as place:
        folder = arguments.keep or place / "run"
        num_stored = MadeRun(folder, trials, arguments.rungs).make()
        began = time.perf_counter()
        command = [sys.executable, "-c", MEASURED, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=measure.ROOT)
        seconds = time.perf_counter() - began
        size = (folder / "report" / "report.html").stat().st_size
    peak = re.search(r"peak (\d+)", done.stdout)
    mebibytes = int(peak[1]) / 1024 if peak else 0.0
    print(
        f"{trials:,} trials of {arguments.rungs} rungs, {num_stored:,} points with scores of each query on dev"
    )
    print(f"report: {seconds:.1f} s, {mebibytes:,.0f} MiB, a page of {size / measure.MIB:.1f} MiB")
    ratio = 30 / seconds
    print(f"\nratio: {ratio:.2f} (30 s over the seconds taken)")
    figures = {
        "ratio": ratio,
        "seconds": seconds,
        "mebibytes": mebibytes,
        "stored": num_stored,
        "trials": trials,
    }
    measure.finish("report_size", figures, machine, arguments.json)


if __name__ == "__main__":
    main()
