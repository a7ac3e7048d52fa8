"""Labels that are scores, or combinations of other labels."""

import pytest

from raysweep.data.class_labels import MAX_NUMBERS, describe_no_classes, find_combinations


def test_more_than_20_numbers_are_not_classes() -> None:
    assert MAX_NUMBERS == 20
    classes = [str(number) for number in range(20)]
    assert describe_no_classes(classes) == ""
    assert "21 different numbers, such as '10'" in describe_no_classes([*classes, "20"])
    scores = [f"{number / 10:g}" for number in range(51)]
    assert "51 different numbers" in describe_no_classes(["unknown", *scores])
    signed = [f"{number}e-3" for number in range(-11, 11)]
    assert "22 different numbers" in describe_no_classes(signed)
    assert describe_no_classes([f"class {number}" for number in range(100)]) == ""


@pytest.mark.parametrize(
    ("label", "is_combination"),
    [
        ("pos,funny", True),
        ("funny; pos", True),
        ("pos|funny|long", True),
        ("pos+funny", True),
        ("['pos', 'funny']", True),
        ("pos,pos", True),
        ("pos,sad", False),
        ("pos funny", False),
        ("pos,", False),
        (",", False),
        ("very pos", False),
    ],
)
def test_combinations_consist_of_other_labels(label: str, is_combination: bool) -> None:
    labels = ["pos", "funny", "long", label]
    assert find_combinations(labels) == [label] * is_combination
    assert bool(describe_no_classes(labels)) == is_combination


@pytest.mark.parametrize(
    "label", ["['pos']", "['new', 'pos']", "['new' 'pos']", '["new"]', "('pos',)", "[1, 0]", "[]"]
)
def test_lists_are_not_classes(label: str) -> None:
    assert label in describe_no_classes([label, "neg"])


@pytest.mark.parametrize("label", ["[removed]", "(1)", "'pos'", "pos [new]", "[pos"])
def test_labels_with_brackets_are_classes(label: str) -> None:
    assert describe_no_classes([label, "neg"]) == ""
