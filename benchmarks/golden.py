"""Record raysweep's results, to the bit, and compare them between two commits on one machine.

    python -m benchmarks.golden --to FILE         # at the first commit
    python -m benchmarks.golden --against FILE    # at the second one; exits 1 and prints the first differences

Three parts are recorded:

- ``smoke``: every rung's loss and points of the shipped space ``smoke``, in fp32, one trial at a time, and the front.
- ``replay``: which configurations each search of a recording proposes, and which trials it pauses and resumes.
- ``export``: the scores and an embedding digest of the sweep's knee point, exported.

Floats are stored as hexadecimal text. Entries are named by the configurations and points that they describe, not by events,
files or times, so that code can be renamed and moved. Only reordered or renamed trial parameters change the names.

Golden files are not committed: processors and library versions round differently. Record and compare in one environment.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import measure

RUN = (
    "run",
    "smoke",
    "--seed=1",
    "--space.precision=fp32",
    "--resources.num_cpus=1",
    "--resources.stall_seconds=3600",
)
SCORES = ("polarity", "similarity", "retention", "accuracy")
RECORDING = measure.ROOT / "benchmarks" / "recordings" / "trec.parquet"
POLICIES = ("growth", "pareto", "asha", "median", "none")
SEEDS = (0, 1)
NUM_WORKERS = 2
SENTENCES = (
    "The soup was cold.",
    "A warm welcome, and the best soup in town!",
    "",
    "naïve 1,000 words " * 100,
)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
NUM_SHOWN = 10  # differences


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.golden",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--to", type=Path, metavar="FILE", help="write the results to this file")
    action.add_argument(
        "--against", type=Path, metavar="FILE", help="compare the results with this file"
    )
    arguments = parser.parse_args()
    # NumPy reads them when imported
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        command = [sys.executable, "-m", "benchmarks.golden", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **ENVIRONMENT})
    with tempfile.TemporaryDirectory(prefix="raysweep-golden-") as folder:
        results = json.loads(json.dumps(exact(_record(Path(folder)))))
    if arguments.to:
        arguments.to.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        return
    golden = json.loads(arguments.against.read_text(encoding="utf-8"))
    changes = list(differences(golden, results))
    for difference in changes[:NUM_SHOWN]:
        print(difference)
    if changes:
        sys.exit(f"{len(changes)} values differ from {arguments.against}")
    print(f"every value equals that in {arguments.against}")


def _record(folder: Path) -> dict[str, Any]:
    replays = {
        policy: {f"seed {seed}": _replay_decisions(policy, seed) for seed in SEEDS}
        for policy in POLICIES
    }
    _raysweep(
        *RUN, f"--storage.runs={folder / 'runs'}", f"--storage.artifacts={folder / 'artifacts'}"
    )
    [run] = (folder / "runs").iterdir()
    return {
        "smoke": _sweep_results(run),
        "replay": replays,
        "export": _export_results(run, folder / "model"),
    }


def _raysweep(*arguments: str) -> str:
    """Run a command and return its output."""
    command = [sys.executable, "-m", "raysweep", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(
            f"raysweep {' '.join(arguments)}: exit code {ended.returncode}\n{ended.stderr[-2000:]}"
        )
    return ended.stdout


def _sweep_results(run: Path) -> dict[str, Any]:
    """Return a run's losses and points by configuration, whatever the ledger's events are called."""
    [ledger] = run.glob("*.jsonl")
    events = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    configs = {event["trial"]: _named(event["config"]) for event in events if "config" in event}
    results: dict[str, Any] = {}
    for event in events:
        if "loss" in event:
            results[f"{configs[event['trial']]}, step {event['step']}: loss"] = event["loss"]
        for point in event.get("points", ()):
            trial, step = (
                point.get("trial", event.get("trial")),
                point.get("step", event.get("step")),
            )
            name = f"{configs.get(trial)}, step {step}, {point['split']}: {point['kind']} {point['value']}"
            results[name] = {score: point.get(score) for score in SCORES}
    front = json.loads((run / "report" / "front.json").read_text(encoding="utf-8"))
    results["front"] = [
        f"{configs[member['trial']]}, step {member['step']}, {member['split']}: {member['kind']} {member['value']}"
        for member in front
    ]
    return results


def _export_results(run: Path, model: Path) -> dict[str, Any]:
    """Return the scores of the knee point as an exported model, and a digest of its embeddings."""
    _raysweep("export", str(run), str(model), "--point=knee")
    scored = _raysweep(
        "evaluate",
        f"--model={model}",
        "--reference=demo",
        "--train=demo",
        "--test=demo",
        "--k=4,8",
        "--format=json",
    )
    from sentence_transformers import SentenceTransformer

    embeddings = SentenceTransformer(str(model), device="cpu").encode(
        list(SENTENCES), show_progress_bar=False
    )
    return {
        "scores": json.loads(scored),
        "embeddings": hashlib.sha256(embeddings.tobytes()).hexdigest(),
    }


def _replay_decisions(policy: Any, seed: int) -> list[str]:
    """Return what a search with the default sampler decides, in order."""
    from raysweep.replay.recording_files import read
    from raysweep.replay.simulator import Search, SearchSettings, replay

    decisions: list[str] = []

    class Recorder(Search):
        """A search that notes its decisions."""

        def ask(self) -> tuple[int, Mapping[str, Any]] | None:
            proposal = super().ask()
            if proposal is not None:
                decisions.append(f"ask: {proposal[0]} {_named(proposal[1])}")
            return proposal

        def on_rung(
            self, trial: int, budget: int, points: Sequence[Any], ahead: Sequence[int]
        ) -> bool:
            rests = super().on_rung(trial, budget, points, ahead)
            decisions.append(f"rung: {trial} {budget} {'rests' if rests else 'continues'}")
            return rests

    recording = read(RECORDING)
    for step in replay(
        recording, Recorder(recording, SearchSettings("mfgp", policy, "front"), seed), NUM_WORKERS
    ):
        decisions.append(f"area: {step.area.hex()} after {step.budget}")
    return decisions


def _named(config: Mapping[str, Any]) -> str:
    return json.dumps(exact(config), sort_keys=True)


def exact(value: Any) -> Any:
    """Return a JSON value whose floats are hexadecimal text."""
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, Mapping):
        return {str(key): exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    return value


def differences(golden: Any, results: Any, place: str = "") -> Iterator[str]:
    """Yield one line for each value that differs, is missing or is new."""
    if isinstance(golden, list) and isinstance(results, list):
        golden, results = dict(enumerate(golden)), dict(enumerate(results))
    if not (isinstance(golden, dict) and isinstance(results, dict)):
        if golden != results:
            yield f"{place}: {results!r}, golden: {golden!r}"
        return
    for key in [*golden, *(key for key in results if key not in golden)]:
        yield from differences(
            golden.get(key, "missing"), results.get(key, "missing"), f"{place}/{key}"
        )


if __name__ == "__main__":
    main()
