"""Record random configurations of a space, each at every rung, for :mod:`benchmarks.search_quality`.

    python -m benchmarks.record mr benchmarks/recordings/mr.parquet --runs runs/

The data sets are SST-2, MR, SUBJ and TREC of RAYSWEEP_DATA_DIR, and two that the demo's grammar generates, ``easy`` and
``late`` (:mod:`benchmarks.made_data`). The recording is a sweep of ``raysweep run`` with the random sampler and without
early stopping. It can be split into several sessions: Ctrl-C ends one, and the same command resumes. When all
configurations are recorded, the file is written and the command prints whether the recording counts.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks import made_data, measure
from benchmarks.recorded import TUNED_ALONE, Recorded
from raysweep.errors import InputError
from raysweep.replay import recording_files
from raysweep.results.reader import load
from raysweep.results.types import TrialStatus
from raysweep.storage.folder import open_folder

NUM_MADE_TRAIN, NUM_MADE_TEST = 6000, 400  # sentences of the demo's grammar

FILES = {
    "sst2": ("sst2/train.csv", "sst2/test.csv"),
    "mr": ("transfer/mr.csv", None),
    "subj": ("transfer/subj.csv", None),
    "trec": ("transfer/trec_train.csv", "transfer/trec_test.csv"),
}
NAMES = (*FILES, *made_data.KINDS)
ENDED_OR_INTERRUPTED = (0, 130)  # exit statuses of a finished sweep, and after Ctrl-C


@dataclass(frozen=True)
class Recording:
    """A data set to record, its settings and its folder."""

    data: str
    space: str
    runs: Path
    num_configurations: int
    examples_per_rung: int
    num_rungs: int
    num_queries: int
    num_pool: int | None
    num_workers: int
    seed: int

    @property
    def name(self) -> str:
        """The name of the run, which later sessions resume, also for more configurations."""
        space = Path(self.space).stem
        budget = f"{self.num_rungs}x{self.examples_per_rung}"
        pool = "" if self.num_pool is None else f"-p{self.num_pool}"
        return f"table-{space}-{self.data}-{budget}-q{self.num_queries}{pool}-{self.seed}"

    def command(self, train: Path, test: Path | None) -> list[str]:
        """Return the command of the sweep."""
        options = {
            "name": self.name,
            "seed": self.seed,
            "data.train": train,
            "data.test": test or "null",
            "data.max_dev": self.num_queries,
            "evaluation.num_pool": self.num_pool or "null",
            "first": "[]",  # every configuration is random
            "sampler": "random",
            "early_stopping.policy": "none",
            "budget.trials": self.num_configurations,
            "budget.examples_per_trial": self.num_rungs * self.examples_per_rung,
            "space.examples_per_rung": self.examples_per_rung,
            "resources.max_concurrent_trials": self.num_workers,
            "resources.cpus_per_trial": 1,
            "storage.runs": self.runs,
            "storage.artifacts": self.runs / "artifacts",
        }
        flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        return [sys.executable, "-m", "raysweep", "run", self.space, "--resume-or-start", *flags]


def main() -> None:
    arguments = _arguments()
    recording = Recording(
        arguments.data,
        arguments.space,
        arguments.runs.absolute(),
        arguments.configurations,
        arguments.examples_per_rung,
        arguments.rungs,
        arguments.queries,
        arguments.pool,
        arguments.workers,
        arguments.seed,
    )
    try:
        train, test = located(recording)
        status = _run(recording.command(train, test))
        if status not in ENDED_OR_INTERRUPTED:
            sys.exit(status)
        print(finished(recording, arguments.table), flush=True)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    sys.exit(status)


def _run(command: list[str]) -> int:
    """Return the sweep's exit status. Ctrl-C also reaches the sweep, which then ends the session."""
    with subprocess.Popen(command) as sweep:
        while True:
            try:
                return sweep.wait()
            except KeyboardInterrupt:
                continue


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", choices=NAMES, help="the data set")
    parser.add_argument(
        "table", type=Path, help="the .parquet or .csv file to write when everything is recorded"
    )
    parser.add_argument(
        "--runs", type=Path, required=True, help="folder of the sweep; the same in every session"
    )
    parser.add_argument("--space", default="polarity", help="a shipped space or a YAML file")
    parser.add_argument("--configurations", type=int, default=96)
    parser.add_argument("--examples-per-rung", type=int, default=512)
    parser.add_argument("--rungs", type=int, default=5)
    parser.add_argument("--queries", type=int, default=200, help="maximum number of queries of dev")
    parser.add_argument(
        "--pool",
        type=int,
        help="size of the random retrieval pool; default: five sentences per query, at most all of train",
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="concurrent trials, each on one CPU core"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def located(recording: Recording) -> tuple[Path, Path | None]:
    """Return the files of train and test, and generate those of the demo's grammar. Raise InputError for a missing file."""
    if recording.data in made_data.KINDS:
        folder = recording.runs / "data"
        return made_data.write(
            recording.data, folder, NUM_MADE_TRAIN, NUM_MADE_TEST, recording.seed
        )
    data_folder = os.environ.get("RAYSWEEP_DATA_DIR")
    folder = Path(data_folder) if data_folder else measure.ROOT.parent / "shared" / "data"
    train, test = FILES[recording.data]
    for name in (train, test):
        if name is not None and not (folder / name).is_file():
            raise InputError(
                f"{folder / name}: no such file; set RAYSWEEP_DATA_DIR to the folder of the data"
            )
    return folder / train, folder / test if test else None


def finished(recording: Recording, path: Path) -> str:
    """Write the recording if every configuration completed or failed, and return a summary."""
    results = load(open_folder(recording.runs / recording.name))
    num_by_status = Counter(trial.status for trial in results.trials)
    num_completed, num_failed = (
        num_by_status[TrialStatus.COMPLETED],
        num_by_status[TrialStatus.FAILED],
    )
    num_ended = num_completed + num_failed + num_by_status[TrialStatus.STOPPED]
    if num_ended < recording.num_configurations:
        return f"{num_completed} of {recording.num_configurations} configurations are recorded; the same command resumes"
    path.parent.mkdir(parents=True, exist_ok=True)
    recording_files.write(results, path)
    tuned_alone = f"{path}{TUNED_ALONE}"
    failed = f", {num_failed} failed" if num_failed else ""
    complete_summary = (
        f"{path}: {num_completed} configurations{failed}; {Recorded.of(str(path)).criterion}"
    )
    of_tuned_alone = f"{tuned_alone}: {Recorded.of(tuned_alone).criterion}"
    return f"{complete_summary}\n{of_tuned_alone}"


if __name__ == "__main__":
    from benchmarks import record

    record.main()
