"""Retrieval data, labeled pairs and scored pairs from every format, and invalid ones."""

import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from raysweep.data import sources
from raysweep.data.relation_sources import RelationColumns, RelationSettings, Thresholds, read
from raysweep.data.relations import Relations
from raysweep.errors import InputError
from support.paths import DATA

QUERIES = [
    {"query": "a", "positives": ["b", "c"], "negatives": ["d"]},
    {"query": "e", "positives": ["a"], "negatives": []},
    {"query": "a", "positives": ["b"], "negatives": ["c", "b"]},
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows_of(relations: Relations):
    """Return the pairs as texts: group, first, second and whether they are positive."""
    ids = zip(
        relations.group, relations.first, relations.second, relations.is_positive, strict=True
    )
    return [
        (int(group), relations.sentences[first], relations.sentences[second], bool(is_positive))
        for group, first, second, is_positive in ids
    ]


EXPECTED = [
    (0, "a", "b", True),
    (0, "a", "c", True),
    (0, "a", "d", False),
    (1, "e", "a", True),
    (2, "a", "b", True),
    (2, "a", "c", False),
    (2, "a", "b", False),
]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_retrieval_data(name, tmp_path):
    path = tmp_path / name
    if path.suffix == ".jsonl":
        write_lines(path, QUERIES)
    else:
        pd.DataFrame(QUERIES).to_parquet(path)
    (relations,) = read(str(path), RelationSettings())
    assert (relations.kind, relations.name) == ("retrieval", name)
    assert rows_of(relations) == EXPECTED
    assert relations.group_names == ["a", "e", "a"]
    assert relations.sentences == list("abcde")


def test_triplets_are_queries_with_one_document_each(tmp_path):
    (tmp_path / "a.csv").write_text("anchor,positive,negative\na,b,c\n")
    columns = RelationColumns("anchor", "positive", "negative")
    (relations,) = read(str(tmp_path / "a.csv"), RelationSettings(columns=columns))
    assert rows_of(relations) == [(0, "a", "b", True), (0, "a", "c", False)]


def test_hub_data_sets_through_column_names(monkeypatch):
    blocks = {
        ("anchor", "good", "bad"): [(["a"], [["b"]], [["c", "d"]])],
        ("relation", "premise", "hypothesis"): [
            (["entailment", "neutral"], ["a", "b"], ["c", "d"])
        ],
    }
    monkeypatch.setattr(
        sources.hub, "read", lambda name, columns, subset, split: iter(blocks[columns])
    )
    monkeypatch.setattr(
        sources.hub,
        "column_names",
        lambda name, *_: [column for names in blocks for column in names],
    )
    retrieval = RelationSettings("retrieval", RelationColumns("anchor", "good", "bad"))
    (relations,) = read("hub:owner/queries", retrieval)
    assert len(rows_of(relations)) == 3
    columns = RelationColumns(pair=("premise", "hypothesis"), label="relation")
    (relations,) = read("hub:owner/pairs:validation", RelationSettings("pairs", columns))
    assert rows_of(relations) == [(0, "a", "c", True), (0, "b", "d", False)]


PAIRS = (
    "label,text1,text2,from,to\n0,a,b,en,de\n1,c,d,en,de\n1,e,f,de,en\n0,g,h,de,en\n0,i,j,fr,en\n"
)


def test_labeled_pairs_in_groups(tmp_path):
    (tmp_path / "a.csv").write_text(PAIRS)
    (relations,) = read(str(tmp_path / "a.csv"), RelationSettings())
    assert (relations.kind, relations.group_names) == ("pairs", [""])
    assert rows_of(relations)[:2] == [(0, "a", "b", False), (0, "c", "d", True)]
    settings = RelationSettings(columns=RelationColumns(groups=("from", "to")))
    (relations,) = read(str(tmp_path / "a.csv"), settings)
    assert relations.group_names == ["en, de", "de, en", "fr, en"]
    assert relations.group.tolist() == [0, 0, 1, 1, 2]


def test_positives_are_compared_with_each_other_label(tmp_path):
    labels = ["entailment", "neutral", "contradiction", "entailment"]
    rows = [
        {"sentence1": f"a{n}", "sentence2": f"b{n}", "label": label}
        for n, label in enumerate(labels)
    ]
    source = write_lines(tmp_path / "a.jsonl", rows)
    contradiction, neutral = read(source, RelationSettings())
    assert [row[1:] for row in rows_of(neutral)] == [
        ("a0", "b0", True),
        ("a1", "b1", False),
        ("a3", "b3", True),
    ]
    assert neutral.name == "a.jsonl: entailment against neutral"
    assert [row[1] for row in rows_of(contradiction)] == ["a0", "a2", "a3"]
    assert neutral.num_left_out == contradiction.num_left_out == 1
    others = read(source, RelationSettings(positive_label="neutral"))
    assert [len(relations.first) for relations in others] == [2, 3]


SCORES = "5\ta\tb\n4\tc\td\n3\te\tf\n\tno\tscore\n2\tg\th\n0\ti\tj\n"


def test_scored_pairs_by_thresholds(tmp_path):
    (tmp_path / "a.tsv").write_text(SCORES)
    (relations,) = read(str(tmp_path / "a.tsv"), RelationSettings())
    assert relations.kind == "scored_pairs"
    assert relations.is_positive.tolist() == [True, True, False, False]
    assert relations.num_left_out == 2
    (relations,) = read(str(tmp_path / "a.tsv"), RelationSettings(thresholds=Thresholds(5, 4.9)))
    assert relations.is_positive.tolist() == [True, False, False, False, False]


def test_scored_pairs_in_groups(tmp_path):
    (tmp_path / "a.csv").write_text(
        "text1,text2,score,domain\na,b,5,news\nc,d,1,news\ne,f,1,forum\n"
    )
    columns = RelationColumns(groups=("domain",))
    (relations,) = read(str(tmp_path / "a.csv"), RelationSettings(columns=columns))
    assert relations.group_names == ["news", "forum"]
    assert relations.group.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "content", "settings", "problem"),
    [
        ("a.csv", "x,y\n1,2\n", RelationSettings(), r"a\.csv: .*'x', 'y'; allowed: .*query"),
        (
            "a.csv",
            "text1,text2,score,label\na,b,1,1\n",
            RelationSettings(),
            "kinds pairs and scored_pairs",
        ),
        (
            "a.csv",
            "query,positives\na,b\n",
            RelationSettings("retrieval"),
            "'negatives' is missing",
        ),
        (
            "a.jsonl",
            '{"query": "a", "positives": ["b"], "negatives": null}',
            RelationSettings(),
            "row 1.*'negatives'",
        ),
        (
            "a.jsonl",
            '{"query": "a", "positives": ["b"], "negatives": [3]}',
            RelationSettings(),
            "row 1.*'negatives'",
        ),
        (
            "a.jsonl",
            '{"query": " ", "positives": ["b"], "negatives": ["c"]}',
            RelationSettings(),
            "row 1.*'query'",
        ),
        (
            "a.jsonl",
            '{"query": "a", "positives": ["b"], "negatives": []}',
            RelationSettings(),
            "no query has negatives",
        ),
        ("a.csv", "text1,text2,label\na,b,1\n", RelationSettings(), "labels '1'; allowed"),
        (
            "a.csv",
            "text1,text2,label\na,b,x\nc,d,y\n",
            RelationSettings(),
            "labels 'x', 'y'; allowed",
        ),
        ("a.csv", "text1,text2,label\na,b,1\nc,,0\n", RelationSettings(), "row 2: column 'text2'"),
        (
            "a.csv",
            "text1,text2,label,g\na,b,1,\n",
            RelationSettings(columns=RelationColumns(groups=("g",))),
            "row 1: g",
        ),
        (
            "a.tsv",
            "5\ta\tb\n3\tc\td\n",
            RelationSettings(),
            "3 to 5; allowed: some scores of at most 2",
        ),
        ("a.tsv", SCORES, RelationSettings(columns=RelationColumns(groups=("g",))), "no header"),
    ],
)
def test_invalid_sources(name, content, settings, problem, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=problem):
        read(str(tmp_path / name), settings)


@pytest.mark.parametrize(
    ("name", "num_queries", "num_pairs"), [("train", 78, 47_852), ("dev", 65, 4_394)]
)
def test_trec_qa(name, num_queries, num_pairs):
    path = DATA / f"retrieval/trecqa_{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    (relations,) = read(str(path), RelationSettings())
    positives = Counter(relations.group[relations.is_positive].tolist())
    negatives = Counter(relations.group[~relations.is_positive].tolist())
    assert relations.num_groups == num_queries
    assert sum(positives[group] * negatives[group] for group in positives) == num_pairs


def test_a_sample_of_queries_keeps_their_documents(tmp_path: Path) -> None:
    rows = [
        {"query": f"q{n}", "positives": [f"p{n}"], "negatives": [f"n{n}", "shared"]}
        for n in range(20)
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (everything,) = read(str(path), RelationSettings())
    samples = [read(str(path), RelationSettings(seed=seed, max_queries=5))[0] for seed in (0, 0, 1)]
    sample, same, other = samples
    assert sample.group_names == same.group_names != other.group_names
    assert len(set(sample.group_names)) == 5 and set(sample.group_names) < set(
        everything.group_names
    )
    for pair in range(len(sample.first)):
        number = sample.group_names[sample.group[pair]].removeprefix("q")
        assert sample.sentences[sample.first[pair]] == f"q{number}"
        documents = {f"p{number}"} if sample.is_positive[pair] else {f"n{number}", "shared"}
        assert sample.sentences[sample.second[pair]] in documents
    assert len(sample.sentences) == 5 * 3 + 1
