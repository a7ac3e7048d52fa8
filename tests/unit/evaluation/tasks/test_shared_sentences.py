"""Sentences that stand in other data, against a comparison of each with each."""

import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import InputError
from raysweep.evaluation.tasks.shared_sentences import TunedOn, found_in, key

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
def test_found_are_those_with_the_letters_and_digits_of_a_row(sentences: list[str], rows: list[str]) -> None:
    def plain(text: str) -> str:
        return re.sub("[^a-z0-9]", "", text.lower())

    expected = [any(plain(sentence) and plain(sentence) == plain(row) for row in rows) for sentence in sentences]
    keys = {key(row) for row in rows} - {""}
    assert [key(sentence) in keys for sentence in sentences] == expected


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("Привет, мир!", "привет мир", True),
        ("Привет, мир!", "привет, дом", False),
        ("日本語。", "日本語", True),
        ("日本語", "中国語", False),
        ("Д²", "д2", True),
        ("crème brûlée", "cr me br l e", True),  # as a corpus spells it that has lost what is not ASCII
        ("naïve café touché", "nai\u0308ve cafe\u0301 touche\u0301", True),  # letters and accents apart
        ("\uff2f\uff4b", "ok!", True),  # letters of full width
        ("…", "...", False),  # nothing is compared
    ],
)
def test_other_scripts_are_compared_too(first: str, second: str, is_same: bool) -> None:
    assert (bool(key(first)) and key(first) == key(second)) == is_same


def test_data_is_read_from_every_source_by_its_column_alone(tmp_path: Path) -> None:
    pd.DataFrame({"review": ["One.", "two", None]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"review": ["THREE", "four"]}).to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    data = TunedOn((str(tmp_path / "a.parquet"), str(tmp_path / "b.jsonl")), "review")
    data.check()
    told: list[int] = []
    found = found_in(data, ["one", "three!", "Five", "!"], lambda done, total, unit: told.append(done))
    assert found == {"one", "three"}
    assert told == [3, 5]


def test_the_demo_has_its_training_sentences() -> None:
    from raysweep.data import demo

    train, test = demo.generate()
    data = TunedOn(("demo",))
    data.check()
    assert len(found_in(data, [row.text for row in train])) == len({key(row.text) for row in train})
    in_train = {key(row.text) for row in train}
    assert found_in(data, [row.text for row in test]) == in_train & {key(row.text) for row in test}


def test_data_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.csv: no such file"):
        TunedOn((str(tmp_path / "gone.csv"),)).check()
    (tmp_path / "a.csv").write_text("sentence,label\na,1\n")
    with pytest.raises(InputError, match=r"a.csv: column 'text' is missing; columns: 'sentence', 'label'"):
        TunedOn((str(tmp_path / "a.csv"),)).check()
