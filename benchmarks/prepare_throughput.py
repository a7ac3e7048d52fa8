"""Sentences embedded per second by prepare's Ray Data stage, against a bare loop on the same cores.

Ray's side is the stage ``encoded`` as a sweep runs it: :func:`raysweep.prepare.build.prepare` on a local cluster of all
cores, with its coordinator, a pool of encoder actors, and the artifact written in order. The bare loop is one process that
tokenizes, embeds and writes the same arrays of the same sentences in chunks of the same size. They take turns. With
``--location``, Ray's artifacts are stored there, such as in a bucket, and the bare loop writes to a local folder.

Startup is excluded on both sides and reported in separate rows: the rate counts from the moment when the first encoder
is loaded (by then, Ray has started its actors; each records its time) until the artifact is complete. The arrival of
chunks is less informative: Ray Data passes on a chunk only once the next one is done too.

Peak memory is that of the peer's process tree (for Ray: driver, Ray's own processes, coordinator and actors): the
maximum sum of proportional set sizes, sampled twice a second.
"""

import argparse
import io
import os
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import measure, peers, sst2
from benchmarks.peers import Peer, Turns
from raysweep.data.dataset import Sentences
from raysweep.data.shards import Shard
from raysweep.prepare import stages
from raysweep.prepare.workers import Columns, EncodeWorker

NUM_TEST = 872  # SST-2's
NOTES = "RAYSWEEP_BENCHMARK_NOTES"  # names the folder in which workers note when they are ready


@dataclass(frozen=True)
class Run:
    """One pass over all sentences: seconds until an encoder was ready, and from there to the finished artifact."""

    start_up: float
    seconds: float


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("prepare_throughput", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.prepare_throughput", __doc__)
    parser.add_argument("--sentences", type=int, help="how many to embed; 20480, with --quick 4096")
    parser.add_argument("--repeats", type=int, help="turns of each peer; 3, with --quick 2")
    parser.add_argument(
        "--location", help="where artifacts lie: a folder or a URI; a temporary folder if not given"
    )
    arguments = parser.parse_args()
    arguments.sentences = arguments.sentences or (4096 if arguments.quick else 20480)
    arguments.repeats = arguments.repeats or (2 if arguments.quick else 3)
    if arguments.sentences < 4096:
        parser.error("--sentences must be at least 4096: two chunks")
    return arguments


def _run(arguments: argparse.Namespace, temporary: Path) -> dict[str, Any]:
    artifacts = arguments.location or str(temporary / "artifacts")
    notes = temporary / "notes"
    notes.mkdir()
    os.environ[NOTES] = str(notes)  # Ray's workers inherit it
    num_test = min(NUM_TEST, arguments.sentences // 5)
    data = sst2.part(
        sst2.locate(arguments.data), temporary, arguments.sentences - num_test, num_test
    )
    sentences = peers.apart(build_sentences, data, artifacts)
    bare = Peer("bare loop", bare_loop, sentences, temporary / "bare", arguments.repeats)
    on_ray = Peer("prepare on Ray Data", with_ray, data, artifacts, arguments.repeats)
    with measure.TreeMemory(bare.pid) as bare_memory, measure.TreeMemory(on_ray.pid) as ray_memory:
        report = peers.side_by_side([bare, on_ray], patient=arguments.patient)
    total: int = bare.result[0]
    figures: dict[str, Any] = {"data": data.name, "rows": {}}
    rows = []
    for peer, memory in ((bare, bare_memory), (on_ray, ray_memory)):
        _, begin, runs = peer.result
        row = {
            "sentences_per_second": peer.median([total / run.seconds for run in runs]),
            "sentences_per_second_with_start_up": peer.median(
                [total / (run.start_up + run.seconds) for run in runs]
            ),
            "begin_seconds": begin,
            "stage_start_up_seconds": peer.median([run.start_up for run in runs]),
            "peak_memory_bytes": memory.peak,
            "runs": [vars(run) for run in runs],
        }
        figures["rows"][peer.name] = row
        rows.append(row)
    ratio, ratio_with_start_up = (
        rows[1][key] / rows[0][key]
        for key in ("sentences_per_second", "sentences_per_second_with_start_up")
    )
    print(f"{data.name}: {total:,} sentences, {arguments.repeats} turns each\n")
    shown = [
        ["sentences/s", *(f"{row['sentences_per_second']:,.0f}" for row in rows), f"{ratio:.2f}"],
        [
            "once: ray.init, or imports and model, s",
            *(f"{row['begin_seconds']:.1f}" for row in rows),
            "",
        ],
        [
            "each stage: actors, imports and model, s",
            *(f"{row['stage_start_up_seconds']:.1f}" for row in rows),
            "",
        ],
        ["sentences/s, each stage's start-up included"]
        + [f"{row['sentences_per_second_with_start_up']:,.0f}" for row in rows]
        + [f"{ratio_with_start_up:.2f}"],
        [
            "peak MiB, whole tree",
            *(f"{row['peak_memory_bytes'] / measure.MIB:,.0f}" for row in rows),
            "",
        ],
    ]
    print(measure.table(("", bare.name, on_ray.name, "ratio"), shown))
    print(report)
    print(f"\nratio: {ratio:.2f} (prepare on Ray Data over the bare loop, start-up apart)")
    head = {
        "ratio": ratio,
        "ratio_of": [on_ray.name, bare.name],
        "ratio_with_start_up": ratio_with_start_up,
        "sentences": total,
    }
    return {**head, "rounds": bare.counted, **figures}


def build_sentences(data: sst2.Data, artifacts: str) -> Path:
    """Build the artifact that both read."""
    plan = sst2.encoding_plan(data, artifacts)
    for stage in plan.missing:
        if stage.kind == "sentences":
            stages.Coordinator(plan.store, None).build(stage)
    return plan.prepared.sentences_artifact.folder


def bare_loop(turns: Turns, folder: Path, to: Path, repeats: int) -> tuple[int, float, list[Run]]:
    """Return the number of sentences, the seconds of startup, and the runs."""
    began = time.perf_counter()
    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders import encoder
    from raysweep.encoders import tokens as encoder_tokens

    model = encoder.load(EncoderConfig(name="demo"), device=encoder.best_device())
    sentences = Sentences(folder)
    ready = time.perf_counter() - began
    turns.begin()
    runs = []
    for _ in range(repeats):
        to.mkdir()
        began = time.perf_counter()
        sequences: list[npt.NDArray[np.int32]] = []
        shape = (len(sentences), int(model.get_embedding_dimension() or 0))
        written = np.lib.format.open_memmap(to / "embeddings.npy", "w+", np.float32, shape)
        at_once = stages.SENTENCES_PER_SHARD
        for start in range(0, len(sentences), at_once):
            ids = np.arange(start, min(start + at_once, len(sentences)))
            tokens = encoder_tokens.tokenize(model, sentences.texts(ids))
            sequences += np.split(tokens.flat, tokens.offsets[1:-1])
            written[ids] = encoder.embed(model, tokens, np.arange(len(ids)))
        written.flush()
        packed = encoder_tokens.Tokens.of(sequences)
        np.save(to / "flat.npy", packed.flat)
        np.save(to / "offsets.npy", packed.offsets)
        runs.append(Run(0.0, time.perf_counter() - began))
        shutil.rmtree(to)
        turns.rest(len(sentences))
    turns.end()
    return len(sentences), ready, runs


def with_ray(
    turns: Turns, data: sst2.Data, artifacts: str, repeats: int
) -> tuple[int, float, list[Run]]:
    """Return the same for prepare on Ray."""
    from rich.console import Console

    from raysweep import terminal
    from raysweep.cluster.connection import connected
    from raysweep.prepare import build

    stages.Coordinator = NotingCoordinator  # type: ignore[misc]
    display = terminal.ConsoleDisplay(Console(file=io.StringIO()))
    with terminal.quiet():  # what Ray and its workers print goes to a file
        began = time.perf_counter()
        with connected(sst2.encoding_plan(data, artifacts).config.resources) as capacity:
            ready = time.perf_counter() - began
            turns.begin()
            runs = []
            for _ in range(repeats):
                plan = sst2.encoding_plan(data, artifacts)
                began = time.time()
                prepared = build.prepare(plan, capacity, display)
                ended = time.time()
                notes = list(Path(os.environ[NOTES]).iterdir())
                first = min(float(note.read_text()) for note in notes)
                for note in notes:
                    note.unlink()
                runs.append(Run(first - began, ended - first))
                plan.store.remove(prepared.tokens_artifacts.document)
                turns.rest(len(prepared.sentences))
            turns.end()
    return len(prepared.sentences), ready, runs


class NotingEncodeWorker(EncodeWorker):
    """Records when its encoder was loaded; a process may have kept it from the turn before."""

    def __call__(self, chunk: Columns) -> Shard:
        _ = self.model
        Path(os.environ[NOTES], uuid.uuid4().hex).write_text(repr(time.time()))
        return super().__call__(chunk)


class NotingCoordinator(stages.Coordinator):
    """Starts those workers."""

    encode_worker = NotingEncodeWorker


if __name__ == "__main__":
    from benchmarks import prepare_throughput

    prepare_throughput.main()
