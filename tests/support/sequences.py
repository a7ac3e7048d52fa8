"""A sweep over a sequence of two small data sets: by sentiment and by length."""

from pathlib import Path

import pyarrow
import pyarrow.parquet

from raysweep.config.load import LoadedSweep, load
from raysweep.config.trial import TrialConfig, trial_config

SWEEP = """\
name: sequence
data:
  sequence:
    - {name: sentiment, train: sentiment.parquet, test: sentiment_test.parquet}
    - {name: length, train: length.parquet, test: length_test.parquet, label_column: size}
  max_dev: 12
model: demo
evaluation: {k: 4}
space:
  loss: hypermask
  beta: {low: 1.0e-3, high: 1.0, log: true}
  p: 10
  hidden_size: 4
  adapter_size: 8
  learning_rate: {low: 1.0e-3, high: 1.0e-2, log: true}
  batch_size: 8
  examples_per_rung: 40
budget: {trials: 2}
"""

NUM_TEST = {"sentiment": 14, "length": 10}


def trial(**values: object) -> TrialConfig:
    """Return a trial with rungs of five steps; ``values`` override its parameters."""
    own = {"beta": 0.1, "lambda": 0.01, "p": 10, "hidden_size": 4, "adapter_size": 8}
    shared = {"learning_rate": 3e-3, "batch_size": 8, "examples_per_rung": 40}
    return trial_config({"loss": "hypermask", **own, **shared, **values})


def write_sweep(folder: Path, model: str) -> Path:
    """Write the data sets and the sweep's file into a folder, and return the file."""
    from raysweep.data import demo

    train, test = demo.generate(num_train=150, num_test=40)
    lengths = ["short", "middle", "long"]
    for suffix, rows in (("", train), ("_test", test)):
        texts = [row.text for row in rows]
        labels = [row.label for row in rows]
        sizes = [lengths[min(len(text) // 40, 2)] for text in texts]
        own = slice(0, 80) if not suffix else slice(0, NUM_TEST["sentiment"])
        others = slice(80, 150) if not suffix else slice(20, 20 + NUM_TEST["length"])
        _write(folder / f"sentiment{suffix}.parquet", text=texts[own], label=labels[own])
        _write(folder / f"length{suffix}.parquet", text=texts[others], size=sizes[others])
    text = SWEEP
    for name in ("sentiment", "length"):
        for suffix in ("", "_test"):
            text = text.replace(f" {name}{suffix}.parquet", f" {folder / name}{suffix}.parquet")
    path = folder / "sequence.yaml"
    path.write_text(
        text.replace("model: demo", f"model: {model}") + f"storage: {{runs: {folder / 'runs'}}}\n"
    )
    return path


def _write(path: Path, **columns: list[str]) -> None:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def read_sweep(folder: Path, model: str) -> LoadedSweep:
    """Write and load the sweep."""
    return load(write_sweep(folder, model))
