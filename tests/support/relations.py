"""A small sweep over retrieval data."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SWEEP = """\
data: {train: train.jsonl, dev: dev.jsonl}
model: demo
examples: {target: 60}
space:
  loss: {choices: {triplet: {margin: 0.1}, contrastive: {}, cosine_similarity: {}, gist: {}}}
  learning_rate: 1e-3
  batch_size: 8
  examples_per_rung: 16
"""

WORDS = (
    "the",
    "wheel",
    "river",
    "stone",
    "market",
    "winter",
    "sings",
    "turns",
    "slowly",
    "green",
    "under",
    "never",
)


def make_rows(sizes: Sequence[tuple[int, int]], seed: int) -> list[dict[str, Any]]:
    """Return a query for each pair of numbers of positives and negatives; a few documents have several queries."""
    rng = random.Random(seed)

    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(2, 7)))

    rows = []
    for number, (num_positives, num_negatives) in enumerate(sizes):
        positives = [text() for _ in range(num_positives)]
        negatives = (
            ["a shared document", *(text() for _ in range(num_negatives - 1))]
            if num_negatives
            else []
        )
        rows.append(
            {"query": f"query {number} {text()}", "positives": positives, "negatives": negatives}
        )
    return rows


TRAIN = make_rows([(2, 3), (1, 1), (3, 0), (0, 2), (2, 4)], seed=0)
DEV = make_rows([(2, 5), (3, 3), (0, 2), (1, 6)], seed=1)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_data(folder: Path) -> dict[str, str]:
    """Write the sources, and return the overrides of a sweep in this folder."""
    return {
        "data__train": write_rows(folder / "train.jsonl", TRAIN),
        "data__dev": write_rows(folder / "dev.jsonl", DEV),
        "storage__runs": str(folder),
    }
