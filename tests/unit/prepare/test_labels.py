"""Labels that are not classes are rejected, whatever the source, unless the sweep uses them as they are."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from support.sweep_files import read

SWEEP = """\
data: {train: train.csv}
model: demo
evaluation: {k: 2}
space:
  loss: softmax
  learning_rate: 1e-5
  examples_per_rung: 2048
"""

WRITE: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "parquet": lambda frame, path: frame.to_parquet(path),
}

LABELS = {
    "scores": ([number / 4 for number in range(25)], r"has 25 different numbers, such as '[\d.]+'"),
    "combinations": (
        ["pos", "funny", "pos,funny", "dull"],
        r"has 4 labels, of which 1 is a combination.*'pos,funny'",
    ),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("suffix", WRITE)
def test_labels_that_are_no_classes(
    tiny_encoder: str, tmp_path: Path, suffix: str, kind: str
) -> None:
    labels, expected = LABELS[kind]
    rows = [(f"sentence {number} of {label}", label) for label in labels for number in range(6)]
    path = tmp_path / f"train.{suffix}"
    WRITE[suffix](pd.DataFrame(rows, columns=["text", "class"]), path)
    overrides = {
        "data__train": str(path),
        "data__label_column": "class",
        "storage__runs": str(tmp_path / "runs"),
    }
    overrides["model"] = tiny_encoder
    for _ in range(2):  # the second attempt reuses the sentences
        with pytest.raises(
            InputError, match=rf"train.{suffix}: column 'class' {expected}.*data.labels: as_is"
        ):
            prepare_here(*read(tmp_path, SWEEP, **overrides))
    prepared = prepare_here(*read(tmp_path, SWEEP, **overrides, data__labels="as_is"))
    assert len(prepared.sentences.label_names) == len(labels)
