"""Building a dataset and opening it, compared with plain Python."""

import json
import re
import time
import unicodedata
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.sweep import DataConfig
from raysweep.data import containment, dataset, demo, files
from raysweep.data.dataset import Sentences
from raysweep.errors import InputError
from support.containment import is_inside
from support.sentences import build


def put(folder, rows, name="train"):
    path = folder / f"{name}.jsonl"
    path.write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    )
    return str(path)


def built(folder, train, dev=None, test=None, seed=0, **options):
    splits = {"train": train, "dev": dev, "test": test}
    sources = {name: put(folder, rows, name) for name, rows in splits.items() if rows}
    data = DataConfig(**sources, **options)
    sentences = Sentences(build(folder / "artifacts", data, seed).folder)
    return sentences.summary, sentences


TRAIN = [(f"train {i}", "ab"[i % 2]) for i in range(10)]
DEV = [("dev 0", "b"), ("dev 1", "a")]
TEST = [("test 0", "a"), ("TRAIN  3", "b")]


def test_spellings_of_a_label_are_one_class(tmp_path):
    names = {"a": 0, "b": "caf\u00e9"}
    train = [(text, names[label]) for text, label in TRAIN]
    train[0], train[1] = ("train 0", "-0.0"), ("train 1", " cafe\u0301")
    dev = [("dev 0", "cafe\u0301"), ("dev 1", "0e+0")]
    summary, sentences = built(tmp_path, train, dev, [("test 0", 0.0)])
    assert summary.label_names == ["0", "caf\u00e9"]
    assert summary.num_by_label["train"] == {"0": 5, "caf\u00e9": 5}
    assert sentences.labels.tolist() == [0, 1] * 5 + [1, 0] + [0]
    (warning,) = [text for text in summary.warnings if "spellings" in text]
    assert re.search(r"\b7 spellings\b.*\b2 labels\b", warning)  # of 0: 0, -0.0, 0e+0 and 0.0
    assert built(tmp_path, TRAIN, DEV)[0].warnings == []


def test_rows_keep_their_order(tmp_path):
    summary, sentences = built(tmp_path, TRAIN, DEV, TEST)
    rows = TRAIN + DEV + TEST
    assert len(sentences) == 14
    assert sentences.texts(range(14)) == [text for text, _ in rows]
    assert sentences.texts(np.array([13, 0, 10, 0])) == ["TRAIN  3", "train 0", "dev 0", "train 0"]
    assert sentences.texts([]) == []
    assert [sentences.label_names[i] for i in sentences.labels] == [label for _, label in rows]
    assert [sentences.ids(split).tolist() for split in dataset.SPLITS] == [
        [*range(10)],
        [10, 11],
        [12, 13],
    ]
    assert (sentences.labels.dtype, sentences.splits.dtype) == (np.int32, np.int8)
    assert (sentences.duplicate_groups.dtype, sentences.ids("dev").dtype) == (np.int32, np.int32)
    assert sentences.duplicate_groups[13] == sentences.duplicate_groups[3]
    assert summary.num_sentences == {"train": 10, "dev": 2, "test": 2}
    assert summary.num_by_label == {
        "train": {"a": 5, "b": 5},
        "dev": {"a": 1, "b": 1},
        "test": {"a": 1, "b": 1},
    }
    assert summary.num_also_in_train == {"dev": 0, "test": 1}
    (warning,) = summary.warnings
    assert re.search(r"test: 1 of 2 texts .* train", warning)
    assert {path.relative_to(tmp_path).name for path in tmp_path.glob("artifacts/*/**/*")} == {
        "00000-of-00001.arrow", "labels.npy", "splits.npy", "duplicate_groups.npy", "dataset.json", "artifact.json"
    }  # fmt: skip
    for outside in ([14], [-1]):
        with pytest.raises(IndexError, match="allowed: 0 to 13"):
            sentences.texts(outside)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "A", " a", "ä", "a\u0308", "ﬁn", "fin", "b c", "b  c"]),
            st.sampled_from("xy"),
        )
    ),
)
def test_conflicts_and_duplicates_match_a_naive_count(tmp_path_factory, drawn):
    rows = [("one", "x"), ("two", "x"), ("three", "y"), ("four", "y"), *drawn]
    dev = [("five", "x"), ("six", "y")]
    summary, sentences = built(tmp_path_factory.mktemp("data"), rows, dev)
    labels = defaultdict(set)
    for text, label in rows:
        labels[text].add(label)
    kept = [(text, label) for text, label in rows if len(labels[text]) == 1]
    conflicting = [text for text, found in labels.items() if len(found) > 1]
    assert sentences.texts(sentences.ids("train")) == [text for text, _ in kept]
    assert summary.num_dropped_conflicting == len(rows) - len(kept)
    assert [(c["text"], c["labels"], c["split"]) for c in summary.conflicts] == [
        (text, ["x", "y"], "train") for text in conflicting[:5]
    ]
    assert len(summary.warnings) == bool(conflicting)
    folded = [
        " ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text, _ in kept + dev
    ]
    first = {text: i for i, text in reversed(list(enumerate(folded)))}
    same = {
        group: first[text]
        for group, text in zip(sentences.duplicate_groups.tolist(), folded, strict=True)
    }
    assert [same[group] for group in sentences.duplicate_groups.tolist()] == [
        first[text] for text in folded
    ]
    assert len(same) == len(first)
    assert summary.num_duplicates["train"] == len(kept) - len({*folded[:-2]})


def test_conflicts_are_reported_by_split_with_few_examples(tmp_path):
    train = [*TRAIN, *((f"{i} torn", label) for i in range(7) for label in "ab")]
    summary, sentences = built(
        tmp_path, train, [*DEV, ("torn", "a"), ("torn", "b"), ("train 0", "b")]
    )
    assert summary.num_dropped_conflicting == 16
    assert [conflict["text"] for conflict in summary.conflicts] == [f"{i} torn" for i in range(5)]
    of_train, of_dev, overlap = summary.warnings
    assert re.search(rf"{tmp_path}/train.jsonl: 7 texts .*'0 torn' \(a, b\).* 14 rows", of_train)
    assert re.search(rf"{tmp_path}/dev.jsonl: 1 text .*'torn' \(a, b\).* 2 rows", of_dev)
    assert re.search(r"dev: 1 of 3 texts .* train", overlap)
    assert sentences.texts(sentences.ids("dev")) == ["dev 0", "dev 1", "train 0"]


def test_missing_labels_of_a_split_are_reported(tmp_path):
    summary, _ = built(tmp_path, TRAIN, [(text, "b") for text, _ in DEV])
    (warning,) = summary.warnings
    assert re.search(r"dev: .* 1 of 2 labels \(a\)", warning)
    assert built(tmp_path, TRAIN, DEV)[0].warnings == []


def test_dev_is_carved_from_train_by_default(tmp_path):
    rows = [
        (f"text {i // 2}" if i < 40 else f"text {i}", i // 2 % 4) for i in range(200)
    ]  # twenty texts occur twice
    summary, sentences = built(tmp_path, rows, seed=3, dev_fraction=0.2)
    assert summary.num_by_label["dev"] == {str(label): 10 for label in range(4)}
    assert sentences.texts(range(200)) == [text for text, _ in rows]
    in_train, in_dev = (set(sentences.texts(sentences.ids(split))) for split in ("train", "dev"))
    assert not in_train & in_dev
    splits = sentences.splits.tolist()  # the next build replaces the files
    again, same = built(tmp_path, rows, seed=3, dev_fraction=0.2)
    assert same.splits.tolist() == splits
    assert again == summary
    assert built(tmp_path, rows, seed=4, dev_fraction=0.2)[1].splits.tolist() != splits
    assert built(tmp_path, rows, max_dev=8)[0].num_sentences == {"train": 192, "dev": 8, "test": 0}


def test_rows_that_contain_dev_rows_leave_train(tmp_path):
    whole = [f"w{number} x{number} y{number} z{number}" for number in range(100)]
    rows = [(text, "whole") for text in whole] + [
        (text[text.index(" ") :] + "!", "part") for text in whole[:40]
    ]
    summary, sentences = built(tmp_path, rows, seed=1)
    assert summary.num_by_label["dev"] == {"whole": 10, "part": 4}
    left_out = np.flatnonzero(sentences.splits == dataset.NO_SPLIT)
    assert summary.num_left_out == len(left_out) > 0
    assert summary.num_sentences == {"train": 126 - len(left_out), "dev": 14, "test": 0}
    (warning,) = summary.warnings
    assert re.search(rf"train: texts that contain dev texts .*texts={len(left_out)}\)", warning)
    train, dev = (sentences.texts(sentences.ids(split)) for split in ("train", "dev"))
    assert not any(is_inside(text, other) for text in dev for other in train)
    assert all(any(is_inside(text, other) for text in dev) for other in sentences.texts(left_out))
    assert summary.num_inside_train == {"dev": 0, "test": 0}
    assert len(sentences) == 140


def test_class_inside_train_texts_may_be_missing_in_dev(tmp_path):
    rows = [
        *((f"good day {number} {number + 500}", "long") for number in range(60)),
        ("good", "short"),
        ("day", "short"),
    ]
    summary, _ = built(tmp_path, rows)
    assert summary.num_by_label["dev"] == {"long": 6, "short": 0}
    (warning,) = summary.warnings
    assert re.search(r"dev: .* 1 of 2 labels \(short\)", warning)


def test_given_dev_split_stays_and_its_overlap_is_counted(tmp_path, monkeypatch):
    dev = [("Train, 3", "a"), ("3", "b"), ("train", "a"), ("train 3 x", "b")]
    summary, sentences = built(tmp_path, TRAIN, dev, [("3", "b"), ("other", "a")])
    assert sentences.texts(sentences.ids("dev")) == [text for text, _ in dev]
    assert summary.num_inside_train == {"dev": 2, "test": 1}
    assert summary.num_left_out == 0
    of_dev, of_test = summary.warnings
    assert re.search(r"dev: 2 of 4 texts .* inside", of_dev)
    assert re.search(r"test: 1 of 2 texts .* inside", of_test)
    monkeypatch.setattr(containment, "MAX_SEARCHED", 3)
    overlap, missing = built(tmp_path, TRAIN, [("3", "b")] * 5)[0].warnings
    assert re.search(r"dev: 3 of a sample of 3 texts", overlap)
    assert re.search(r"dev: .* 1 of 2 labels \(a\)", missing)


def test_labels_are_in_natural_order(tmp_path):
    def names(labels):
        return built(tmp_path, [(f"text {i}", label) for i, label in enumerate(labels)], None)[
            0
        ].label_names

    assert names([10, 9, -1, 10, 9, -1, 2.5]) == ["-1", "2.5", "9", "10"]
    assert names(["class 10", "class 9", "7", "Class 1", "abc"] * 2) == [
        "7",
        "abc",
        "Class 1",
        "class 9",
        "class 10",
    ]


def test_random_access_across_batches(tmp_path):
    count = 3 * files.BLOCK_ROWS + 5
    rows = [(f"text {i}", i % 3) for i in range(count)] + [("torn", 0), ("torn", 1)]
    began = time.monotonic()
    _, sentences = built(tmp_path, rows)
    assert time.monotonic() - began < 10
    ids = np.random.default_rng(0).permutation(count)
    assert sentences.texts(ids) == [f"text {i}" for i in ids]
    assert (sentences.labels == np.arange(count) % 3).all()


def test_demo_has_a_test_split(tmp_path):
    data = DataConfig(train="demo")
    sentences = Sentences(build(tmp_path, data).folder)
    summary = sentences.summary
    assert summary.num_sentences == {"train": 2700, "dev": 300, "test": 200}
    assert summary.label_names == ["negative", "positive"]
    assert summary.num_by_label["dev"] == {"negative": 150, "positive": 150}
    assert summary.warnings == []
    assert sentences.texts(sentences.ids("test")) == [row.text for row in demo.generate()[1]]


@pytest.mark.parametrize(
    ("train", "dev", "expected"),
    [
        ([("a", 1), ("b", 1)], None, "train.jsonl: every row has the label '1'"),
        (
            [("a", 1), ("b", 2)],
            None,
            "train.jsonl: dev cannot be split off from train, because every label has only one row",
        ),
        ([(f"text {i}", i / 8) for i in range(24)], None, "24 different numbers, such as"),
        ([("a", 1), ("a", 2)], None, "train.jsonl: every text occurs with different labels"),
        (
            [("a", 1), ("b", 2), ("a", 3)],
            None,
            "every row (not counting 2 rows whose text has different labels; columns 'text' and 'label') has the label '2'",
        ),
        (
            [("a", 1), ("b", 2), ("a", 3), ("c", 4)],
            None,
            "every label has only one row (not counting 2 rows whose text has different labels",
        ),
        (
            TRAIN,
            [("c", "a"), ("d", "z")],
            "dev.jsonl: row 2: column 'label' is 'z', a label that train lacks; train has 'a', 'b'",
        ),
        (
            [*TRAIN, ("x", "z"), ("x", "a")],
            [("d", "z")],
            "dev.jsonl: row 1: column 'label' is 'z', a label that train lacks",
        ),
        (
            [(f"text {i}", i) for i in range(1500)],
            None,
            "train.jsonl: column 'label' has 1500 different labels in 1500 rows",
        ),
    ],
)
def test_unusable_labels_are_rejected(tmp_path, train, dev, expected):
    with pytest.raises(InputError) as caught:
        built(tmp_path, train, dev)
    assert expected in str(caught.value)


def test_many_classes_with_several_rows_are_allowed(tmp_path):
    summary, _ = built(tmp_path, [(f"text {i}", i % 1100) for i in range(3300)])
    assert len(summary.label_names) == 1100
    assert summary.num_sentences["dev"] == 1100  # one of each, though a tenth would be 330


def test_small_dev_split_of_many_classes_is_allowed(tmp_path):
    train = [(f"text {i}", i % 1100) for i in range(3300)]
    summary, _ = built(tmp_path, train, [("one", 0), ("two", 1)])
    assert summary.num_sentences["dev"] == 2
