"""A small sweep file, and a reader with overrides."""

from pathlib import Path

from raysweep.config.load import load
from raysweep.config.space import Space
from raysweep.config.sweep import SweepConfig

MINIMAL = """\
data:
  train: train.csv
model: demo
space:
  loss:
    choices:
      triplet: {margin: {low: 0.01, high: 1.0, log: true}}
      contrastive: {margin: 0.5}
      cosine_similarity: {}
  learning_rate: {low: 1e-6, high: 1e-4, log: true}
  freezing: {choices: [none, emb+B0]}
  examples_per_rung: 2048
"""


def read(tmp_path: Path, text: str, **overrides: str) -> tuple[SweepConfig, Space]:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    sweep = load(path, [(key.replace("__", "."), value) for key, value in overrides.items()])
    return sweep.config, sweep.space
