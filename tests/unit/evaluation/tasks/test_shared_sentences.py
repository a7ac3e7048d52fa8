"""Sentences shared with other data, against a comparison of all pairs."""

import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import InputError
from raysweep.evaluation.tasks.compare import TunedOn, find_shared, sentence_key

SPELLINGS = [
    "It's good",
    "its GOOD .",
    "It s good !",
    "It was good",
    "",
    "...",
    "?!",
    "9 / 10",
    "9/10 !",
    "touché !",
    "Touch",
]


@given(st.lists(st.sampled_from(SPELLINGS)), st.lists(st.sampled_from(SPELLINGS)))
def test_shared_sentences_have_equal_letters_and_digits(
    sentences: list[str], rows: list[str]
) -> None:
    def plain(text: str) -> str:
        return re.sub("[^a-z0-9]", "", text.lower())

    expected = [
        any(plain(sentence) and plain(sentence) == plain(row) for row in rows)
        for sentence in sentences
    ]
    keys = {sentence_key(row) for row in rows} - {""}
    assert [sentence_key(sentence) in keys for sentence in sentences] == expected


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("Привет, мир!", "привет мир", True),
        ("Привет, мир!", "привет, дом", False),
        ("日本語。", "日本語", True),
        ("日本語", "中国語", False),
        ("Д²", "д2", True),
        ("crème brûlée", "cr me br l e", True),  # as in a corpus that lost its non-ASCII letters
        # letters and accents apart
        (
            "naïve café touché",
            "nai\u0308ve cafe\u0301 touche\u0301",
            True,
        ),
        ("\uff2f\uff4b", "ok!", True),  # letters of full width
        ("…", "...", False),  # nothing is compared
    ],
)
def test_other_scripts_are_compared_too(first: str, second: str, is_same: bool) -> None:
    assert (bool(sentence_key(first)) and sentence_key(first) == sentence_key(second)) == is_same


def test_data_is_read_from_every_source(tmp_path: Path) -> None:
    pd.DataFrame({"review": ["One.", "two", None]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"review": ["THREE", "four"]}).to_json(
        tmp_path / "b.jsonl", orient="records", lines=True
    )
    data = TunedOn((str(tmp_path / "a.parquet"), str(tmp_path / "b.jsonl")), "review")
    data.check()
    num_rows: list[int] = []
    shared = find_shared(
        data, ["one", "three!", "Five", "!"], lambda done, total, unit: num_rows.append(done)
    )
    assert shared == {"one", "three"}
    assert num_rows == [3, 5]


def test_demo_contains_its_training_sentences() -> None:
    from raysweep.data import demo

    train, test = demo.generate()
    data = TunedOn(("demo",))
    data.check()
    assert len(find_shared(data, [row.text for row in train])) == len(
        {sentence_key(row.text) for row in train}
    )
    in_train = {sentence_key(row.text) for row in train}
    assert find_shared(data, [row.text for row in test]) == in_train & {
        sentence_key(row.text) for row in test
    }


def test_missing_data_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing.csv: no such file"):
        TunedOn((str(tmp_path / "missing.csv"),)).check()
    (tmp_path / "a.csv").write_text("sentence,label\na,1\n")
    with pytest.raises(
        InputError, match=r"a.csv: column 'text' is missing; columns: 'sentence', 'label'"
    ):
        TunedOn((str(tmp_path / "a.csv"),)).check()
