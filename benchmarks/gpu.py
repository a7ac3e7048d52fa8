"""Run all checks that need a GPU, in sequence, into one folder; ``make gpu`` installs the requirements and calls this.

    tests       the tests' gpu lane
    memory      trial_memory: a step's memory with encoders of three shapes
    trainer     trial_throughput with all-MiniLM-L6-v2, side by side with the stock trainer
    throughput  trial_throughput with 1, 2 and 4 trials at once on one GPU, with an encoder of BERT-base's shape
    minilm      the same with all-MiniLM-L6-v2
    qwen3       the same with an encoder of Qwen3-0.6B's shape and a LoRA adapter
    measured    a sweep of the built-in sentences with as many trials on each GPU as were measured to fit
    polarity    the search space ``polarity`` on SST-2, from the folder in RAYSWEEP_DATA_DIR

``machine.json`` describes the machine. NAME.txt has a finished step's command, commit and duration, followed by its
output. Finished steps are not repeated, so the same command resumes after an interruption, as do the sweeps within
steps. Runs and their reports are in ``runs``, artifacts in ``runs/artifacts``. Without a GPU the exit code is 2; if
steps failed, or SST-2 is missing, it is 1.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import measure, sst2

FOLDER = measure.ROOT / "gpu-results"
FAILED = 1
REFUSED = 2
NO_SST2 = "SST-2 is missing: name the folder that has sst2/train.csv and sst2/test.csv in RAYSWEEP_DATA_DIR"


@dataclass(frozen=True)
class Step:
    """A command, which runs in the repository's root. ``arguments`` are those of this process's Python."""

    name: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        return [sys.executable, *self.arguments]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--to", type=Path, default=FOLDER, help="folder for all results; gpu-results if not given"
    )
    parser.add_argument("--commands", action="store_true", help="print the commands, and run none")
    arguments = parser.parse_args()
    data = sst2.locate(None)
    planned_steps = steps(arguments.to.absolute(), data)
    if arguments.commands:
        print(*(shlex.join(step.command) for step in planned_steps), sep="\n")
        return
    _check_gpu()
    code = run(planned_steps, arguments.to.absolute())
    if data == sst2.DEMO:
        print(f"polarity: not run, as {NO_SST2}")
        code = FAILED
    sys.exit(code)


def steps(folder: Path, data: sst2.Data) -> list[Step]:
    """Return all steps, the fastest first."""
    trainer = ("-m", "benchmarks.trial_throughput", "--json")
    throughput = (*trainer, "--trials-per-gpu", "1,2,4")
    packed = ("--resources.gpus_per_trial", "measured")
    on_sst2 = ("--data.train", data.train, "--data.test", data.test)
    polarity = Step("polarity", (*_sweep("polarity", "polarity", folder), *on_sst2))
    return [
        Step("tests", ("-m", "pytest", "-m", "gpu")),
        Step("memory", ("-m", "benchmarks.trial_memory", "--json")),
        Step("trainer", (*trainer, "--examples", "6400")),
        Step("throughput", (*throughput, "--examples", "7680", "--encoder", "bert-base")),
        Step("minilm", (*throughput, "--examples", "11520")),
        Step(
            "qwen3",
            (*throughput, "--examples", "1920", "--encoder", "qwen3-0.6b", "--adapter", "lora"),
        ),
        Step("measured", (*_sweep("demo", "measured", folder), *packed)),
        *([] if data == sst2.DEMO else [polarity]),
    ]


def _sweep(space: str, name: str, folder: Path) -> tuple[str, ...]:
    """Return a sweep that resumes from its last state."""
    runs = ("--storage.runs", str(folder / "runs"))
    return ("-m", "raysweep", "run", space, "--name", name, "--resume-or-start", *runs)


def _check_gpu() -> None:
    """Exit if no GPU can be used."""
    import torch

    if not torch.cuda.is_available():
        problem = (
            f"there is no GPU that torch {torch.__version__} can use (torch.cuda.is_available() is false); nothing was "
            "run. On a machine with an NVIDIA GPU and its driver: make gpu"
        )
        print(f"benchmarks.gpu: {problem}", file=sys.stderr)
        sys.exit(REFUSED)


def run(planned_steps: Sequence[Step], folder: Path) -> int:
    """Run the steps without output and return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(
        folder / "machine.json", json.dumps({**measure.machine(), "gpus": _gpus()}, indent=1) + "\n"
    )
    failed = [step.name for step in planned_steps if not _done(step, folder)]
    if failed:
        print(f"failed: {', '.join(failed)}; the same command repeats them")
    else:
        print(f"all steps are finished: {folder}")
    return FAILED if failed else 0


def _done(step: Step, folder: Path) -> bool:
    """Run a step unless it is finished; return whether it is finished now."""
    output = folder / f"{step.name}.txt"
    if output.exists():
        print(f"{step.name}: already finished, {output}")
        return True
    print(f"{step.name}: {shlex.join(step.command)}", flush=True)
    began = time.monotonic()
    done = subprocess.run(
        step.command, cwd=measure.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = time.monotonic() - began
    head = f"$ {shlex.join(step.command)}\ncommit {measure.commit()}, {seconds:.0f} s, exit code {done.returncode}\n\n"
    # What failed is kept too, but not as done.
    failure = folder / f"{step.name}-failed.txt"
    failure.unlink(missing_ok=True)
    place = output if done.returncode == 0 else failure
    _write(place, head + done.stdout)
    print(f"{step.name}: exit code {done.returncode} after {seconds:.0f} s, {place}", flush=True)
    return done.returncode == 0


def _write(file: Path, text: str) -> None:
    """Write a file atomically."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def _gpus() -> list[str]:
    """Return the name, driver and memory of each GPU, from nvidia-smi."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    listed = subprocess.run(
        query, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )
    return listed.stdout.splitlines()


if __name__ == "__main__":
    main()
