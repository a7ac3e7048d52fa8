"""Texts inside other texts, compared with a comparison of all pairs."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raysweep.data import containment
from raysweep.data.containment import Containment, Matches, match_phrases
from raysweep.data.phrases import Phrases, split_words
from support.containment import is_inside

WORDS = st.lists(st.sampled_from(["a", "b", "aa", "b,", "'a", "a-b", "!"]), max_size=6).map(
    " ".join
)
SPELLINGS = st.tuples(
    WORDS, st.sampled_from([str, str.upper, str.title, lambda text: f"  {text}\t"])
)
TEXTS = SPELLINGS.map(lambda drawn: drawn[1](drawn[0]))


def search_blocks(
    texts: Sequence[str], is_train: npt.NDArray[np.bool_], rows_per_block: int = 4
) -> Containment:
    """Return a containment search that reads the texts block by block."""

    def find_phrases(phrases: Sequence[str], max_rows: int) -> Iterator[Matches]:
        trie = Phrases(phrases)
        for first in range(0, len(texts), rows_per_block):
            rows = first + np.flatnonzero(is_train[first : first + rows_per_block])
            yield match_phrases(trie, rows, [texts[row] for row in rows], max_rows)

    return Containment(lambda ids: [[texts[row]] for row in ids], find_phrases)


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=30), st.lists(TEXTS, max_size=10))
@example(["a", "a b", "a b a", "a b b", "b", "A. B"], ["A b a, b b", "a", "aa", "a b"])
@example([], ["a"])
@example(["?", "a"], [])
def test_phrases_match_a_comparison_of_all_pairs(phrases: list[str], texts: list[str]) -> None:
    trie = Phrases(phrases)
    positions, ends = trie.inside(texts)
    pairs = list(zip(positions.tolist(), ends.tolist(), strict=True))
    expected = {
        (position, end)
        for position, text in enumerate(texts)
        for end, phrase in zip(trie.ends.tolist(), phrases, strict=True)
        if is_inside(phrase, text)
    }
    assert pairs == sorted(expected)
    same_words = {" ".join(split_words(phrase)) for phrase in phrases}
    assert len(set(trie.ends.tolist())) == len(same_words)


def numbers_inside(phrases: Phrases, text: str) -> list[int]:
    _, ends = phrases.inside([text])
    return np.flatnonzero(np.isin(phrases.ends, ends)).tolist()


def test_phrases_match_contiguous_complete_words() -> None:
    phrases = Phrases(["good film", "good", "film good", "goo", "a good film", "", "Good!"])
    assert numbers_inside(phrases, "a good film") == [0, 1, 6]
    assert numbers_inside(phrases, "good") == []
    assert numbers_inside(phrases, "good old film") == [1, 6]
    assert numbers_inside(phrases, "") == []


def test_case_punctuation_and_unicode_form_are_ignored() -> None:
    quoted = "  The ﬁlm\tIS (truly) Straße\u00a0``it's''...\n"
    assert split_words(quoted) == ["the", "film", "is", "truly", "strasse", "it", "s"]
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"
    assert split_words(f"c++ costs $5 \N{GRINNING FACE} {hindi}!") == [
        "c++",
        "costs",
        "$5",
        "\N{GRINNING FACE}",
        hindi,
    ]
    assert split_words("?!") == []
    assert numbers_inside(Phrases(["FILM is,"]), "the ﬁlm  Is good") == [0]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=40),
    st.integers(0, 4),
    st.integers(1, 40),
)
def test_containment_matches_a_comparison_of_all_pairs(rows, max_rows, characters) -> None:
    texts = [text for text, _ in rows]
    is_train = np.array([is_train for _, is_train in rows])
    containment_search = search_blocks(texts, is_train)
    ids = np.arange(len(rows))[::-1]
    expected = [
        [row for row in np.flatnonzero(is_train) if is_inside(texts[i], texts[row])] for i in ids
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containment, "BATCH_CHARACTERS", characters)  # many batches, some of one row
        inside = containment_search.is_inside(ids)
        containing = containment_search.containing(ids, max_rows)
    assert inside.tolist() == [bool(rows) for rows in expected]
    assert [None if ids is None else ids.tolist() for ids in containing] == [
        rows if len(rows) <= max_rows else None for rows in expected
    ]


def test_no_rows_have_no_matches() -> None:
    containment_search = search_blocks(["a", "a b"], np.array([True, True]))
    no_rows = np.zeros(0, np.intp)
    assert containment_search.is_inside(no_rows).tolist() == []
    assert containment_search.containing(no_rows, 3) == []
