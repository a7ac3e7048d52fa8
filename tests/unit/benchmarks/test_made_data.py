"""The two made data sets: what their labels follow from, and that a learner of single words finds one easy and not the other."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks import made_data
from raysweep.data import demo

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Rows, Rows]]:
    """Train and test of both, by name."""
    found = {}
    for kind in made_data.KINDS:
        paths = made_data.write(kind, tmp_path_factory.mktemp(kind), 2000, 400, seed=5)
        train, test = (list(csv.DictReader(path.open(encoding="utf-8"))) for path in paths)
        found[kind] = train, test
    return found


def test_data_is_determined_by_its_seed(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in made_data.write("late", tmp_path / "a", 100, 20, seed=1)]
    again = [path.read_bytes() for path in made_data.write("late", tmp_path / "b", 100, 20, seed=1)]
    other = [path.read_bytes() for path in made_data.write("late", tmp_path / "c", 100, 20, seed=2)]
    assert first == again != other


@pytest.mark.parametrize("kind", ["easy", "late"])
def test_texts_are_distinct_and_labels_balanced(
    kind: str, data: dict[str, tuple[Rows, Rows]]
) -> None:
    rows = [row for part in data[kind] for row in part]
    assert len({row["text"] for row in rows}) == len(rows) == 2400
    assert np.mean([row["label"] == "positive" for row in rows]) == pytest.approx(0.5, abs=0.05)


def test_labels_follow_from_sentence_and_speaker(data: dict[str, tuple[Rows, Rows]]) -> None:
    labels = {row.text: row.label for part in demo.generate(5, 2000, 400) for row in part}
    num_quoted = num_ironic = 0
    for row in (row for part in data["late"] for row in part):
        quoted = re.fullmatch(r"In the words of (\w+): (.*)", row["text"])
        speaker, sentence = quoted.groups() if quoted else (None, row["text"])
        is_ironic = speaker in made_data.IRONIC
        assert (row["label"] != labels[sentence]) == is_ironic
        num_quoted += quoted is not None
        num_ironic += is_ironic
    assert num_quoted / 2400 == pytest.approx(
        0.4, abs=0.05
    ) and num_ironic / num_quoted == pytest.approx(0.5, abs=0.08)


def accuracy(rows: tuple[Rows, Rows], num_train: int, *, ironic: bool | None = None) -> float:
    """Of a linear learner of words, on the test sentences; on those of ironic speakers, or of all else, if so asked."""
    train, test = rows[0][:num_train], rows[1]
    if ironic is not None:
        test = [
            row for row in test if any(name in row["text"] for name in made_data.IRONIC) == ironic
        ]
    words = CountVectorizer(binary=True)
    learner = LogisticRegression(C=10).fit(
        words.fit_transform(_texts(train)), [row["label"] for row in train]
    )
    return float(learner.score(words.transform(_texts(test)), [row["label"] for row in test]))


def _texts(rows: Rows) -> list[str]:
    return [row["text"] for row in rows]


def test_the_easy_data_is_learned_from_few_sentences(data: dict[str, tuple[Rows, Rows]]) -> None:
    assert accuracy(data["easy"], 200) > 0.98


def test_only_irony_is_beyond_single_words(data: dict[str, tuple[Rows, Rows]]) -> None:
    assert accuracy(data["late"], 2000, ironic=False) > 0.6
    assert accuracy(data["late"], 2000, ironic=True) < 0.5
