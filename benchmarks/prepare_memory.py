"""Private memory of every process that prepares, for few and for many sentences: what grows with the data.

Sentences of about 12 invented words are prepared on a local Ray with a tiny encoder and an inverted file. Anonymous pages
of each process are sampled, so that mapped files and Ray's shared memory do not count. The headline is the greatest
growth of any single process's peak from the first size to the last.
"""

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks import measure
from benchmarks.measure import MIB
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document

SIZES = [100_000, 1_000_000]
QUICK_SIZES = [20_000, 200_000]
VOCABULARY = 30_000
ROWS_PER_BLOCK = 100_000
STAGES = ("sentences", "encoded", "neighbours", "examples")


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        found = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("prepare_memory", figures, found, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.prepare_memory", __doc__)
    parser.add_argument("--sizes", type=int, nargs="+", help=f"numbers of sentences; {SIZES} if not given")
    parser.add_argument(
        "--files", type=int, default=12, help="Parquet files that the sentences lie in; 12 if not given"
    )
    parser.add_argument("--width", type=int, default=32, help="of the encoder; 32 if not given")
    parser.add_argument("--cpus", type=int, default=2, help="of the local Ray; 2 if not given")
    parser.add_argument("--until", choices=STAGES, default="examples", help="the last stage; examples if not given")
    arguments = parser.parse_args()
    arguments.sizes = arguments.sizes or (QUICK_SIZES if arguments.quick else SIZES)
    return arguments


def _run(arguments: argparse.Namespace, temporary: Path) -> dict[str, Any]:
    encoder = _tiny_encoder(temporary, arguments.width)
    peaks = []
    for size in arguments.sizes:
        folder = temporary / str(size)
        _write_sentences(folder / "train", size, arguments.files)
        peaks.append(_prepare(folder, encoder, arguments))
        print(f"{size:,} sentences: prepared", flush=True)
    names = sorted({name for peak in peaks for name in peak}, key=lambda name: -peaks[-1].get(name, 0))
    growth = {name: peaks[-1].get(name, 0) - peaks[0].get(name, 0) for name in names}
    rows = [
        [name, *(f"{peak.get(name, 0) / MIB:,.0f}" for peak in peaks), f"{growth[name] / MIB:+,.0f}"] for name in names
    ]
    print(
        measure.table(("private MiB, greatest of a kind", *(f"{size:,}" for size in arguments.sizes), "growth"), rows)
    )
    greatest = max(growth.values())
    print(f"\ngrowth: {greatest / MIB:,.0f} MiB (the process that grows most)")
    sized = dict(zip(map(str, arguments.sizes), peaks, strict=True))
    return {"growth_bytes": greatest, "until": arguments.until, "peak_bytes": sized, "growth_by_process": growth}


def _tiny_encoder(folder: Path, width: int) -> str:
    """One layer that reads the demo encoder's tokens."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders.locate import locate

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(locate(EncoderConfig(name="demo")).folder)
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": width}
    backbone = BertModel(BertConfig(vocab_size=len(tokenizer), hidden_size=width, **sizes))
    backbone.save_pretrained(folder / "backbone")
    tokenizer.save_pretrained(folder / "backbone")
    transformer = Transformer(str(folder / "backbone"), max_seq_length=64)
    modules = [transformer, Pooling(transformer.get_embedding_dimension()), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "encoder"))
    return str(folder / "encoder")


def _write_sentences(folder: Path, size: int, num_files: int) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(num_files):
        num_rows = size // num_files + (number < size % num_files)
        with pyarrow.parquet.ParquetWriter(folder / f"{number:03}.parquet", _SCHEMA) as writer:
            for table in _blocks(random, num_rows):
                writer.write_table(table)


_SCHEMA = pa.schema([("text", pa.string()), ("label", pa.int64())])


def _blocks(random: np.random.Generator, num_rows: int) -> Iterator[pa.Table]:
    for first in range(0, num_rows, ROWS_PER_BLOCK):
        count = min(ROWS_PER_BLOCK, num_rows - first)
        words = random.integers(0, VOCABULARY, (count, 16)).tolist()
        lengths = random.integers(8, 17, count).tolist()
        texts = [" ".join(f"w{word}" for word in row[:length]) for row, length in zip(words, lengths, strict=True)]
        yield pa.table({"text": texts, "label": random.integers(0, 4, count)}, schema=_SCHEMA)


def _prepare(folder: Path, encoder: str, arguments: argparse.Namespace) -> dict[str, int]:
    """The greatest private memory of each kind of process while the stages are built."""
    import ray

    from raysweep.cluster import connected
    from raysweep.prepare.plan import make_plan
    from raysweep.prepare.stages import Coordinator

    document = Document.read(measure.ROOT / "search_spaces" / "smoke.yaml")
    given = {
        "data.train": str(folder / "train"),
        "model": encoder,
        "storage.runs": str(folder / "runs"),
        "examples.index": "inverted_file",
        "space.freezing": "none",
        "resources.num_cpus": str(arguments.cpus),
    }
    for key, value in given.items():
        document.override(key, value)
    config = configuration.parse(document)
    last = STAGES.index(arguments.until)
    with connected(config.resources, show_workers=False) as capacity, PrivateMemory() as memory:
        plan = make_plan(config, space_parser.parse(document, config))
        plan.store.root.path.mkdir(parents=True)
        coordinator: Any = ray.remote(Coordinator).options(num_cpus=0, max_concurrency=2).remote(plan.store, capacity)
        for stage in plan.stages:
            if STAGES.index(stage.kind) <= last:
                ray.get(coordinator.build.remote(stage))
                print(f"  {stage.name}", flush=True)
    return memory.peaks


class PrivateMemory(measure.Sampled):
    """The greatest private memory of this process and of those below it, the greatest of each kind. Linux only."""

    def __init__(self) -> None:
        super().__init__(measure.SAMPLE_SECONDS)
        self.peaks: dict[str, int] = {}

    def sample(self) -> None:
        for pid in measure.process_tree(os.getpid()):
            try:
                name = _kind(pid)
                pages = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:  # it ended meanwhile
                continue
            found = re.search(r"^Anonymous:\s*(\d+) kB$", pages, re.MULTILINE)
            if found:
                self.peaks[name] = max(self.peaks.get(name, 0), int(found[1]) << 10)


def _kind(pid: int) -> str:
    """What a process is: Ray's workers are named by what they run, by turns, and go as one kind."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    if "ray::Coordinator" in line:
        return "coordinator"
    if "benchmarks.prepare_memory" in line or "prepare_memory.py" in line:
        return "driver"
    return "worker" if "ray::" in line else "Ray itself"


if __name__ == "__main__":
    main()
