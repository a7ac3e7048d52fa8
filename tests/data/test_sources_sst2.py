"""Real files give the same rows as pandas does, and a dataset drops what pandas finds to conflict."""

from pathlib import Path

import pandas as pd
import pytest

from raysweep.config.sweep import DataConfig
from raysweep.data import dataset, ingest, sources
from support.paths import DATA

NUM_ROWS = {"sst2/train.csv": 67_349, "sst2/test.csv": 872}

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    "name",
    [*NUM_ROWS, "transfer/mr.csv", "transfer/subj.csv", "transfer/trec_train.csv", "transfer/trec_test.csv"],
)
def test_csv_rows_are_those_of_pandas(name: str) -> None:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    batches = list(sources.read(str(path)))
    assert [text for batch in batches for text in batch.texts] == frame["text"].tolist()
    assert [label for batch in batches for label in batch.labels] == frame["label"].tolist()
    assert len(frame) == NUM_ROWS.get(name, len(frame))


def test_dataset_drops_the_conflicting_rows_and_keeps_the_rest(tmp_path: Path) -> None:
    train, test = DATA / "sst2/train.csv", DATA / "sst2/test.csv"
    for path in (train, test):
        if not path.is_file():
            pytest.skip(f"{path} is missing")
    frame = pd.read_csv(train, dtype=str, keep_default_na=False)
    kept = frame[frame.groupby("text")["label"].transform("nunique") == 1]
    summary = ingest.build(tmp_path, DataConfig(train=str(train), test=str(test)))
    sentences = dataset.Sentences(tmp_path)
    assert summary.num_dropped_conflicting == len(frame) - len(kept) > 0
    assert summary.num_sentences == {"train": len(kept) - 1000, "dev": 1000, "test": 872}
    assert sentences.texts(range(len(kept))) == kept["text"].tolist()
    assert [sentences.label_names[i] for i in sentences.labels[: len(kept)]] == kept["label"].tolist()
    share = kept["label"].value_counts(normalize=True)
    assert all(abs(count - 1000 * share[label]) < 1 for label, count in summary.num_by_label["dev"].items())
    assert summary.num_also_in_train["dev"] == 0
