"""Labeled sentences as retrieval data."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.data import relation_sources
from raysweep.data.labeled_relations import retrieval_from_labels
from raysweep.data.relation_sources import RelationSettings
from raysweep.errors import InputError

LABELED = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("xyz")), min_size=1, max_size=40
)


@given(LABELED, st.integers(0, 3))
def test_documents_have_the_right_labels(rows: list[tuple[str, str]], seed: int) -> None:
    labels: dict[str, set[str]] = {}
    for text, label in rows:
        labels.setdefault(text, set()).add(label)
    clear = {text: next(iter(found)) for text, found in labels.items() if len(found) == 1}
    sizes = Counter(clear.values())
    texts, given_labels = zip(*rows, strict=True)
    if len(sizes) < 2 or max(sizes.values()) < 2:
        with pytest.raises(InputError):
            retrieval_from_labels("data", texts, given_labels, seed=seed)
        return
    relations = retrieval_from_labels("data", texts, given_labels, seed=seed)
    assert sorted(relations.group_names) == sorted(clear)
    assert relations.num_left_out == sum(text not in clear for text in texts)
    for group, query in enumerate(relations.group_names):
        rows_of_group = relations.group == group
        documents = [relations.sentences[number] for number in relations.second[rows_of_group]]
        assert {relations.sentences[number] for number in relations.first[rows_of_group]} <= {query}
        positives = {
            text
            for text, flag in zip(documents, relations.is_positive[rows_of_group], strict=True)
            if flag
        }
        assert positives == {text for text, label in clear.items() if label == clear[query]} - {
            query
        }
        assert set(documents) - positives == {
            text for text, label in clear.items() if label != clear[query]
        }
        assert len(documents) == len(set(documents))


def test_large_sets_are_sampled() -> None:
    texts = [f"sentence {number}" for number in range(100)]
    labels = ["a" if number % 4 else "b" for number in range(100)]
    first, same, other = (
        retrieval_from_labels("data", texts, labels, seed=seed, max_queries=7) for seed in (1, 1, 2)
    )
    assert first.group_names == same.group_names != other.group_names
    assert first.num_groups == 7
    for group in range(7):
        flags = first.is_positive[first.group == group]
        assert flags.sum() == 20 and (~flags).sum() == 20


def test_kind_is_recognized_by_its_columns(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("text,label\na,x\nb,x\nc,y\n")
    (relations,) = relation_sources.read(str(tmp_path / "data.csv"), RelationSettings())
    assert relations.kind == "retrieval"
    assert sorted(relations.group_names) == ["a", "b", "c"]
