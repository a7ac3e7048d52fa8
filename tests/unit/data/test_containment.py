"""Which texts stand inside others, against a comparison of all pairs."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raysweep.data import containment
from raysweep.data.containment import Answer, Containment, answer
from raysweep.data.phrases import Phrases, words
from support.containment import is_inside

WORDS = st.lists(st.sampled_from(["a", "b", "aa", "b,", "'a", "a-b", "!"]), max_size=6).map(" ".join)
SPELLINGS = st.tuples(WORDS, st.sampled_from([str, str.upper, str.title, lambda text: f"  {text}\t"]))
TEXTS = SPELLINGS.map(lambda drawn: drawn[1](drawn[0]))


def within(texts: Sequence[str], is_train: npt.NDArray[np.bool_], rows_per_block: int = 4) -> Containment:
    """Answers about texts that are asked block by block."""

    def ask(phrases: Sequence[str], most: int) -> Iterator[Answer]:
        looked_for = Phrases(phrases)
        for first in range(0, len(texts), rows_per_block):
            rows = first + np.flatnonzero(is_train[first : first + rows_per_block])
            yield answer(looked_for, rows, [texts[row] for row in rows], most)

    return Containment(lambda ids: [[texts[row]] for row in ids], ask)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=30), st.lists(TEXTS, max_size=10))
@example(["a", "a b", "a b a", "a b b", "b", "A. B"], ["A b a, b b", "a", "aa", "a b"])
@example([], ["a"])
@example(["?", "a"], [])
def test_the_pairs_of_a_block_are_those_of_a_comparison_of_all(phrases: list[str], texts: list[str]) -> None:
    looked_for = Phrases(phrases)
    positions, ends = looked_for.inside(texts)
    found = list(zip(positions.tolist(), ends.tolist(), strict=True))
    expected = {
        (position, end)
        for position, text in enumerate(texts)
        for end, phrase in zip(looked_for.ends.tolist(), phrases, strict=True)
        if is_inside(phrase, text)
    }
    assert found == sorted(expected)
    same_words = {" ".join(words(phrase)) for phrase in phrases}
    assert len(set(looked_for.ends.tolist())) == len(same_words)


def numbers_inside(phrases: Phrases, text: str) -> list[int]:
    _, ends = phrases.inside([text])
    return np.flatnonzero(np.isin(phrases.ends, ends)).tolist()


def test_words_match_whole_and_in_one_run() -> None:
    phrases = Phrases(["good film", "good", "film good", "goo", "a good film", "", "Good!"])
    assert numbers_inside(phrases, "a good film") == [0, 1, 6]
    assert numbers_inside(phrases, "good") == []
    assert numbers_inside(phrases, "good old film") == [1, 6]
    assert numbers_inside(phrases, "") == []


def test_case_punctuation_and_unicode_form_do_not_count() -> None:
    quoted = "  The ﬁlm\tIS (truly) Straße\u00a0``it's''...\n"
    assert words(quoted) == ["the", "film", "is", "truly", "strasse", "it", "s"]
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"
    assert words(f"c++ costs $5 \N{GRINNING FACE} {hindi}!") == ["c++", "costs", "$5", "\N{GRINNING FACE}", hindi]
    assert words("?!") == []
    assert numbers_inside(Phrases(["FILM is,"]), "the ﬁlm  Is good") == [0]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=40), st.integers(0, 4), st.integers(1, 40))
def test_rows_are_found_inside_the_training_rows_and_no_others(rows, most, characters) -> None:
    texts = [text for text, _ in rows]
    is_train = np.array([is_train for _, is_train in rows])
    found = within(texts, is_train)
    ids = np.arange(len(rows))[::-1]
    expected = [[row for row in np.flatnonzero(is_train) if is_inside(texts[i], texts[row])] for i in ids]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containment, "BATCH_CHARACTERS", characters)  # many batches, some of one row
        inside = found.is_inside(ids)
        containing = found.containing(ids, most)
    assert inside.tolist() == [bool(rows) for rows in expected]
    assert [None if few is None else few.tolist() for few in containing] == [
        rows if len(rows) <= most else None for rows in expected
    ]


def test_nothing_is_asked_of_no_rows() -> None:
    found = within(["a", "a b"], np.array([True, True]))
    nothing = np.zeros(0, np.intp)
    assert found.is_inside(nothing).tolist() == []
    assert found.containing(nothing, 3) == []
