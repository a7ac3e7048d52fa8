"""Rows of real files, and the conflicts of a dataset, compared with pandas."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raysweep.config.sweep import DataConfig
from raysweep.data import dataset, sources
from raysweep.data.containment import Containment, Matches, match_phrases
from raysweep.data.phrases import Phrases
from support.containment import words
from support.paths import DATA
from support.sentences import build

NUM_ROWS = {"sst2/train.csv": 67_349, "sst2/test.csv": 872}

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    "name",
    [
        *NUM_ROWS,
        "transfer/mr.csv",
        "transfer/subj.csv",
        "transfer/trec_train.csv",
        "transfer/trec_test.csv",
    ],
)
def test_csv_rows_match_pandas(name: str) -> None:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    batches = list(sources.read(str(path)))
    assert [text for batch in batches for text in batch.texts] == frame["text"].tolist()
    assert [label for batch in batches for label in batch.labels] == frame["label"].tolist()
    assert len(frame) == NUM_ROWS.get(name, len(frame))


def test_dataset_drops_only_conflicting_rows(tmp_path: Path) -> None:
    train, test = DATA / "sst2/train.csv", DATA / "sst2/test.csv"
    for path in (train, test):
        if not path.is_file():
            pytest.skip(f"{path} is missing")
    frame = pd.read_csv(train, dtype=str, keep_default_na=False)
    kept = frame[frame.groupby("text")["label"].transform("nunique") == 1]
    sentences = dataset.Sentences(
        build(tmp_path, DataConfig(train=str(train), test=str(test))).folder
    )
    summary = sentences.summary
    assert summary.num_dropped_conflicting == len(frame) - len(kept) > 0
    assert summary.num_sentences == {"train": len(kept) - 1000, "dev": 1000, "test": 872}
    assert sentences.texts(range(len(kept))) == kept["text"].tolist()
    assert [sentences.label_names[i] for i in sentences.labels[: len(kept)]] == kept[
        "label"
    ].tolist()
    share = kept["label"].value_counts(normalize=True)
    assert all(
        abs(count - 1000 * share[label]) < 1 for label, count in summary.num_by_label["dev"].items()
    )
    assert summary.num_also_in_train["dev"] == 0
    assert summary.num_inside_train["dev"] == summary.num_left_out == 0


def test_dev_rows_are_inside_no_train_row(tmp_path: Path) -> None:
    train = DATA / "sst2/train.csv"
    if not train.is_file():
        pytest.skip(f"{train} is missing")
    sentences = dataset.Sentences(build(tmp_path, DataConfig(train=str(train)), seed=7).folder)
    assert len(sentences.ids("dev")) == 1000
    assert len(sentences.ids("train")) == len(sentences) - 1000
    train_lines = [words(text) for text in sentences.texts(sentences.ids("train"))]
    dev_lines = [words(text) for text in sentences.texts(sentences.ids("dev"))]
    haystack = "\n".join(train_lines)
    assert [line for line in dev_lines if line in haystack] == []  # also excludes equal texts


def test_most_rows_are_inside_others(tmp_path: Path) -> None:
    train = DATA / "sst2/train.csv"
    if not train.is_file():
        pytest.skip(f"{train} is missing")
    sentences = dataset.Sentences(build(tmp_path, DataConfig(train=str(train))).folder)
    num_rows = len(sentences)

    def find_phrases(phrases: Sequence[str], max_rows: int) -> Iterator[Matches]:
        trie = Phrases(phrases)
        for first in range(0, num_rows, 8192):
            rows = np.arange(first, min(first + 8192, num_rows))
            yield match_phrases(trie, rows, sentences.texts(rows), max_rows)

    containment = Containment(lambda ids: [sentences.texts(ids)], find_phrases)
    is_inside = containment.is_inside(np.arange(num_rows))
    # 17,092 if punctuation counted as part of a word
    assert (num_rows, (~is_inside).sum()) == (
        67_339,
        8_708,
    )
