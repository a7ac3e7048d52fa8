"""The benchmarks' data: SST-2 if it exists, otherwise the built-in demo sentences; and artifacts built from it."""

import csv
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import measure
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.space import Space
from raysweep.config.sweep import SweepConfig
from raysweep.data import sources
from raysweep.data.prepared import Prepared
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import Plan, make_plan
from raysweep.storage import location

MARGIN = 0.1
LEARNING_RATE = 3e-5


@dataclass(frozen=True)
class Data:
    """Two sources as raysweep accepts them, and their name."""

    name: str
    train: str
    test: str


DEMO = Data("built-in demo sentences", "demo", "demo")


def locate(folder: Path | None) -> Data:
    """Return SST-2 from ``folder``, from $RAYSWEEP_DATA_DIR or from next to the repository; else the demo data."""
    if folder is not None and not (folder / "train.csv").is_file():
        raise SystemExit(f"--data {folder}: no train.csv in it")
    data = Path(os.environ.get("RAYSWEEP_DATA_DIR", measure.ROOT.parent / "shared" / "data"))
    for place in [folder] if folder is not None else [data / "sst2", data]:
        if (place / "train.csv").is_file() and (place / "test.csv").is_file():
            return Data("SST-2", str(place / "train.csv"), str(place / "test.csv"))
    print(
        "SST-2 is missing; using the built-in demo sentences, so the figures are not comparable",
        flush=True,
    )
    return DEMO


def rows(source: str, split: str, count: int | None = None) -> list[tuple[str, str]]:
    """Return the first ``count`` texts and labels of a source, or all."""
    batches = sources.read(source, split=split)
    pairs = (
        (text, label)
        for batch in batches
        for text, label in zip(batch.texts, batch.labels, strict=True)
    )
    return list(itertools.islice(pairs, count))


def part(data: Data, folder: Path, num_train: int, num_test: int) -> Data:
    """Write the first rows of both splits to files in ``folder``. The demo data is small enough."""
    if data == DEMO:
        return data
    written = []
    for source, split, count in ((data.train, "train", num_train), (data.test, "test", num_test)):
        path = folder / f"{split}-{count}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows(source, split, count)])
        written.append(str(path))
    return Data(f"{data.name}, first {num_train:,} train and {num_test:,} test rows", *written)


def sweep(
    data: Data, /, artifacts: str | Path, *, loss: str = "triplet", model: str = "demo", **more: Any
) -> tuple[SweepConfig, Space]:
    """Return the configuration of a sweep over ``data`` with the model as reference; ``more`` sets further keys."""
    margin = {"margin": MARGIN} if loss == "triplet" else {}
    values = {
        "name": "benchmark",
        "data": {"train": data.train, "test": None if data == DEMO else data.test, "max_dev": 500},
        "model": model,
        "examples": {"target": 50_000},
        "space": {"loss": {"choices": {loss: margin}}, "learning_rate": LEARNING_RATE},
        "early_stopping": {"policy": "none"},
        "storage": {"runs": location.parent(str(artifacts)), "artifacts": str(artifacts)},
        **more,
    }
    document = Document("benchmark", values)
    config = configuration.parse(document)
    return config, space_parser.parse(document, config)


def prepare(data: Data, artifacts: Path, model: str = "demo") -> Prepared:
    """Build the missing artifacts of a trial with triplets in this process."""
    return prepare_here(*sweep(data, artifacts, model=model))


def encoding_plan(data: Data, artifacts: str | Path) -> Plan:
    """Return a plan of only sentences, tokens and embeddings: a loss over single sentences mines nothing."""
    return make_plan(*sweep(data, artifacts, loss="softmax"))
