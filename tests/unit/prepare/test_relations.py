"""Retrieval data and pairs as the data of a sweep, against explicit combinations of the source's rows."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from raysweep.config.sweep import DataConfig, SweepConfig
from raysweep.data import relation_sources, sources
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import Plan, make_plan
from support.relations import DEV, SWEEP, TRAIN, write_data, write_rows
from support.sweep_files import read


def prepare(folder: Path, tiny_encoder: str, text: str = SWEEP, **overrides: str) -> Prepared:
    values = write_data(folder) | {"model": tiny_encoder} | overrides
    return prepare_here(*read(folder, text, **values))


def plan(folder: Path, text: str = SWEEP, **overrides: str) -> Plan:
    """Return the plan of a sweep whose encoder is only hashed."""
    (folder / "encoder").mkdir(exist_ok=True)
    (folder / "encoder" / "modules.json").write_text("[]")
    return make_plan(
        *read(folder, text, **write_data(folder) | {"model": str(folder / "encoder")} | overrides)
    )


def examples(prepared: Prepared, kind: Any) -> list[tuple[Any, ...]]:
    """Return the texts of all examples, followed by the target if there is one."""
    ids, targets = prepared.examples(kind)
    rows = [tuple(prepared.sentences.texts(row)) for row in ids]
    return (
        rows
        if targets is None
        else [(*row, float(target)) for row, target in zip(rows, targets, strict=True)]
    )


POSITIVES = [(row["query"], text) for row in TRAIN for text in row["positives"]]
NEGATIVES = [(row["query"], text) for row in TRAIN for text in row["negatives"]]
TRIPLETS = [
    (row["query"], *documents)
    for row in TRAIN
    for documents in itertools.product(row["positives"], row["negatives"])
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Prepared:
    return prepare(
        tmp_path_factory.mktemp("relations"), tiny_encoder, examples__other_class_cosine="0.25"
    )


def test_examples_are_all_combinations(prepared: Prepared) -> None:
    assert sorted(examples(prepared, "triplet")) == sorted(TRIPLETS)
    assert sorted(examples(prepared, "positive_pair")) == sorted(POSITIVES)
    labeled = [(*pair, 1.0) for pair in POSITIVES] + [(*pair, 0.0) for pair in NEGATIVES]
    assert sorted(examples(prepared, "labeled_pair")) == sorted(labeled)
    scored = [(*pair, 1.0) for pair in POSITIVES] + [(*pair, 0.25) for pair in NEGATIVES]
    assert sorted(examples(prepared, "scored_pair")) == sorted(scored)


def test_sentences_are_distinct_within_a_split(prepared: Prepared) -> None:
    sentences = prepared.sentences
    for split, rows in (("train", TRAIN), ("dev", DEV)):
        texts = {
            text for row in rows for text in (row["query"], *row["positives"], *row["negatives"])
        }
        stored = sentences.texts(sentences.ids(split))
        assert set(stored) == texts and len(stored) == len(texts)
    assert sentences.num_queries("dev") == 3
    assert "dev: 1 of 4" in sentences.summary.warnings[0]


def test_a_target_is_met_exactly_with_as_many_positives_as_negatives(
    tmp_path: Path, tiny_encoder: str
) -> None:
    sampled = prepare(tmp_path, tiny_encoder, examples__target="6")
    triplets = examples(sampled, "triplet")
    assert len(set(triplets)) == len(triplets) == 6 and set(triplets) <= set(TRIPLETS)
    targets = [target for *_, target in examples(sampled, "labeled_pair")]
    assert Counter(targets) == {1.0: 3, 0.0: 3}


def test_the_first_of_each_query(tmp_path: Path, tiny_encoder: str) -> None:
    first = prepare(tmp_path, tiny_encoder, examples__combinations="first")
    whole = [row for row in TRAIN if row["positives"] and row["negatives"]]
    assert examples(first, "triplet") == [
        (row["query"], row["positives"][0], row["negatives"][0]) for row in whole
    ]
    firsts = [(row["query"], row["positives"][0]) for row in TRAIN if row["positives"]]
    assert examples(first, "positive_pair") == firsts


PAIRS = [
    ("a", "b", 5.0, "x"),
    ("c", "d", 1.0, "x"),
    ("e", "f", 0.5, "y"),
    ("g", "h", 3.0, "y"),
    ("i", "j", 4.5, "y"),
]


def test_scored_pairs_are_split_by_thresholds_and_compared_within_groups(
    tmp_path: Path, tiny_encoder: str
) -> None:
    names = ("text1", "text2", "score", "language")
    source = write_rows(
        tmp_path / "pairs.jsonl", [dict(zip(names, row, strict=True)) for row in PAIRS]
    )
    values = {"data__train": source, "data__dev": source, "data__columns__groups": "[language]"}
    pairs = prepare(tmp_path, tiny_encoder, **values)
    assert examples(pairs, "triplet") == [("a", "b", "d"), ("i", "j", "f")]
    one_group = prepare(tmp_path, tiny_encoder, **values | {"data__columns__groups": "[]"})
    assert len(examples(one_group, "triplet")) == 4


def test_all_labels_but_the_positive_one_are_negative(tmp_path: Path, tiny_encoder: str) -> None:
    rows = [("a", "b", "entailment"), ("c", "d", "neutral"), ("e", "f", "contradiction")]
    names = ("sentence1", "sentence2", "label")
    source = write_rows(
        tmp_path / "nli.jsonl", [dict(zip(names, row, strict=True)) for row in rows]
    )
    pairs = prepare(tmp_path, tiny_encoder, data__train=source, data__dev=source)
    assert sorted(examples(pairs, "triplet")) == [("a", "b", "d"), ("a", "b", "f")]
    assert not any("neither" in warning for warning in pairs.sentences.summary.warnings)
    assert pairs.sentences.pairs("train").is_positive.tolist() == [True, False, False]


def test_labeled_file_with_an_index_column_is_not_taken_for_scored_pairs(tmp_path: Path) -> None:
    """As written by ``DataFrame.to_csv(path, sep="\t")``."""
    path = tmp_path / "train.tsv"
    path.write_text("\ttext\tlabel\n0\tgood\tpos\n1\tbad\tneg\n")
    [piece] = sources.pieces(str(path))
    assert relation_sources.kind_of_sweep(DataConfig(train=str(path)), piece) == "labeled"


def test_fingerprint_of_hub_retrieval_data_covers_its_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = DataConfig(train="hub:owner/queries", kind="retrieval")
    [piece] = sources.pieces(data.train)
    fingerprints = []
    for negatives in (["c"], ["d"]):
        rows = (["a"], ["b"], [negatives])
        monkeypatch.setattr(sources.hub, "read", lambda *_, rows=rows: iter([rows]))
        monkeypatch.setattr(
            sources.hub, "column_names", lambda *_: ["query", "positives", "negatives"]
        )
        columns = relation_sources.columns_to_read(data, "retrieval", piece)
        assert columns == ("query", "positives", "negatives")
        fingerprints.append(sources.values_fingerprint([piece], columns))
    assert fingerprints[0] != fingerprints[1]


def test_goals_follow_from_the_kind(tmp_path: Path) -> None:
    def goals(config: SweepConfig) -> tuple[str, str]:
        return tuple(config.objective.goals)

    config = plan(tmp_path).config
    assert config.data.kind == "retrieval" and goals(config) == ("ranking", "agreement")
    assert goals(make_plan(config, plan(tmp_path).space).config) == ("ranking", "agreement")


REJECTED = [
    ({"data__dev": "null"}, "data.dev is missing"),
    ({"data__columns__groups": "[language]"}, "data.columns.groups is ['language']"),
    ({"data__on_bad_row": "drop"}, "data.on_bad_row is drop"),
    ({"data__positive_label": "similar"}, "data.positive_label is similar"),
    ({"space__loss": "softmax"}, "space.loss is softmax"),
    ({"space__loss": "batch_hard_triplet"}, "space.loss is batch_hard_triplet"),
    ({"space__loss": "multiple_negatives"}, "space.negatives is other_class"),
    (
        {
            "space__loss": "{choices: {multiple_negatives: {negatives: {choices: [all, other_class]}}}}"
        },
        "space.negatives",
    ),
    ({"examples__neighbors": "random"}, "examples.neighbors is random"),
    ({"examples__min_similarity": "0.5"}, "examples.min_similarity is 0.5"),
    ({"objective__polarity": "polarity"}, "objective.polarity is polarity"),
    ({"objective__similarity": "retention"}, "objective.similarity is retention"),
    ({"baselines__published": "sst2"}, "baselines.published is given"),
]


@pytest.mark.parametrize(("overrides", "message"), REJECTED)
def test_settings_for_labeled_sentences_are_rejected(
    tmp_path: Path, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError) as error:
        plan(tmp_path, **overrides)
    text = str(error.value)
    assert text.startswith(message) and "allowed" in text and "\n" not in text


def test_a_given_kind_is_checked_without_data(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="space.loss is softmax; allowed with data of the kind pairs: triplet"
    ):
        read(tmp_path, SWEEP, data__kind="pairs", space__loss="softmax")
    with pytest.raises(InputError, match="thresholds: negative is 4; allowed: below positive"):
        read(tmp_path, SWEEP, data__thresholds__negative="4")
    with pytest.raises(InputError, match="required: two different columns"):
        read(tmp_path, SWEEP, data__columns__pair="[text]")


def test_negatives_of_the_whole_batch_are_allowed(tmp_path: Path) -> None:
    assert plan(
        tmp_path, space__loss="{choices: {multiple_negatives: {negatives: all}}}"
    ).config.data.is_related


def test_goals_of_rankings_are_rejected_for_labeled_sentences(tmp_path: Path) -> None:
    rows = [{"text": f"sentence {number}", "label": number % 2} for number in range(20)]
    source = write_rows(tmp_path / "labeled.jsonl", rows)
    with pytest.raises(
        InputError, match="objective.polarity is ranking; allowed .*polarity, similarity, accuracy"
    ):
        plan(tmp_path, data__train=source, data__dev=source, objective__polarity="ranking")


def test_columns_of_no_kind_are_listed(tmp_path: Path) -> None:
    source = write_rows(
        tmp_path / "questions.jsonl", [{"question": "q", "positives": ["a"], "negatives": ["b"]}]
    )
    with pytest.raises(
        InputError,
        match=r"questions.jsonl: .* 'question', .*; allowed: .*retrieval \(query, positives",
    ):
        plan(tmp_path, data__train=source)
    assert plan(
        tmp_path, data__train=source, data__dev=source, data__columns__query="question"
    ).config.data.is_related


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": "q", "positives": ["a"], "negatives": 3}, "row 1: column 'negatives' is 3"),
        ({"query": "q", "positives": ["a"], "negatives": []}, "no query has negatives"),
    ],
)
def test_bad_rows_are_rejected(
    tmp_path: Path, tiny_encoder: str, row: dict[str, Any], message: str
) -> None:
    (tmp_path / "bad.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError, match=message):
        prepare(tmp_path, tiny_encoder, data__dev=str(tmp_path / "bad.jsonl"))
