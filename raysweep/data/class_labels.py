"""Detection of labels that are not classes: scores, lists, and combinations of other labels."""

import re
from collections.abc import Sequence

from raysweep.config.sweep import DataConfig
from raysweep.data import sources
from raysweep.errors import InputError

MAX_NUMBERS = 20  # more distinct numeric labels than this are probably scores

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_LIST = re.compile(r"\[[\d\s.,+-]*\]|[\[({]\s*['\"].*['\"],?\s*[\])}]", re.DOTALL)
_SEPARATORS = re.compile(r"[,;|/+&]")
_AROUND_PART = " \t[](){}'\""


def check_classes(data: DataConfig, labels: Sequence[str]) -> None:
    """Raise InputError if the labels do not look like classes, unless ``data.labels`` is ``as_is``."""
    if data.labels == "as_is":
        return
    if problem := describe_no_classes(labels):
        raise InputError(
            f"{sources.shown(data.train)}: column {data.label_column!r} has {problem}; allowed: one class per row, or "
            "data.labels: as_is to use the values as classes"
        )


def describe_no_classes(labels: Sequence[str]) -> str:
    """Describe why distinct labels do not look like classes. Return "" if they do."""
    numbers = [label for label in labels if _NUMBER.fullmatch(label)]
    if len(numbers) > MAX_NUMBERS:
        example = numbers[len(numbers) // 2]
        return f"{len(numbers)} different numbers, such as {example!r} (for scored pairs, set data.kind: scored_pairs)"
    lists = [label for label in labels if _LIST.fullmatch(label)]
    if lists:
        verb = "is a list" if len(lists) == 1 else "are lists"
        return (
            f"{len(labels)} labels, of which {len(lists)} {verb} of classes, such as {lists[0]!r}"
        )
    combinations = find_combinations(labels)
    if combinations:
        verb = "is a combination" if len(combinations) == 1 else "are combinations"
        return f"{len(labels)} labels, of which {len(combinations)} {verb} of other labels, such as {combinations[0]!r}"
    return ""


def find_combinations(labels: Sequence[str]) -> list[str]:
    """Return the labels that combine two or more of the other labels, such as ``pos,funny`` or ``['pos', 'funny']``."""
    known = set(labels)
    combinations = []
    for label in labels:
        parts = [part.strip(_AROUND_PART) for part in _SEPARATORS.split(label)]
        if len(parts) > 1 and known.issuperset(parts):
            combinations.append(label)
    return combinations
