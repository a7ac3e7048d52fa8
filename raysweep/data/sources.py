"""Labelled sentences from wherever they are, read as a stream in bounded memory.

A source is a string:

``demo``                the built-in sentences of :mod:`raysweep.data.demo`, splits ``train`` and ``test``
``hub:NAME[:SPLIT]``    a dataset of the Hugging Face hub, see :mod:`raysweep.data.hub`
a path or a URI         a table in a file, see :mod:`raysweep.data.files`

Rows count from 1, without the header and without blank lines. Texts come through verbatim: a CSV cell ``NA`` or
``null`` is a text like any other. Labels become strings, and what means the same is one label in every format: ``1``
and ``1.0`` are "1", ``True`` is "true", surrounding space does not count.
"""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from raysweep.data import demo, files, hub
from raysweep.errors import InputError
from raysweep.storage import location


@dataclass(frozen=True)
class Batch:
    """Some thousand consecutive rows. ``first_row`` counts from 1; ``texts`` and ``labels`` have equal length."""

    first_row: int
    texts: list[str]
    labels: list[str]


def check(
    source: str,
    text_column: str = "text",
    label_column: str = "label",
    *,
    subset: str | None = None,
    split: str = "train",
) -> None:
    """Raise InputError now for what would fail at the first rows of :func:`read`. Of the hub nothing is asked yet."""
    if location.is_uri(source):
        try:
            location.without_keys(source)
        except ValueError as error:
            raise InputError(str(error)) from None
    if source.startswith("hub:"):
        hub.parse(source, split)
    else:
        next(read(source, text_column, label_column, subset=subset, split=split))


def read(
    source: str,
    text_column: str = "text",
    label_column: str = "label",
    *,
    subset: str | None = None,
    split: str = "train",
) -> Iterator[Batch]:
    """Stream the rows of ``source`` in order.

    ``split`` is what ``demo``, and a hub source that names none, are asked for; ``subset`` is the hub's configuration
    name. Raises InputError, naming source, row, column and value, for anything that is not a text with a label, and
    for a source that is missing, unreadable or empty.
    """
    columns = (text_column, label_column)
    if text_column == label_column:
        raise InputError(f"text_column and label_column are both {text_column!r}; they must differ")
    first_row = 1
    try:
        for texts, labels in _blocks(source, columns, subset, split):
            yield _batch(source, first_row, texts, labels, columns)
            first_row += len(texts)
    except (OSError, EOFError, pa.ArrowException) as error:
        raise _unreadable(source, error) from None
    if first_row == 1:
        raise InputError(f"{source}: holds no rows")


def fingerprint(
    source: str,
    text_column: str = "text",
    label_column: str = "label",
    *,
    subset: str | None = None,
    split: str = "train",
) -> str:
    """SHA-256, in hex, of what the source holds: a file's bytes as stored; for ``demo`` and the hub, the rows read.

    Of a file the columns do not enter: whoever keys by the fingerprint adds them. Raises InputError.
    """
    digest = hashlib.sha256()
    if source == "demo" or source.startswith("hub:"):
        for batch in read(source, text_column, label_column, subset=subset, split=split):
            for row in zip(batch.texts, batch.labels, strict=True):
                line = json.dumps(row) + "\n"
                digest.update(line.encode())
        return digest.hexdigest()
    try:
        with files.stored(source) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise _unreadable(source, error) from None
    return digest.hexdigest()


def _blocks(source: str, columns: tuple[str, str], subset: str | None, split: str) -> files.Blocks:
    if source == "demo":
        return _demo(split)
    if source.startswith("hub:"):
        return hub.read(source, columns, subset, split)
    return files.read(source, columns)


def _demo(split: str) -> files.Blocks:
    splits = dict(zip(("train", "test"), demo.generate(), strict=True))
    if split not in splits:
        raise InputError(f"demo: no split {split!r}; it has train and test")
    yield [row.text for row in splits[split]], [row.label for row in splits[split]]


def _unreadable(source: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{source}: no such file")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{source}: is a folder; name one file in it")
    return InputError(f"{source}: cannot be read: {error}")


def _batch(source: str, first_row: int, texts: list[Any], labels: list[Any], columns: tuple[str, str]) -> Batch:
    """The rows, if every one of them is a text with a label."""
    text_column, label_column = columns
    _check_texts(source, first_row, texts, text_column)
    _check_whole_characters(source, first_row, texts, text_column)
    names = []
    for row, value in enumerate(labels, first_row):
        name = _label(value)
        if not name:
            problem = f"column {label_column!r} is {value!r}"
            allowed = "a label is a string, a number or a truth value, and never empty"
            raise InputError(f"{source}: row {row}: {problem}; {allowed}")
        names.append(name)
    return Batch(first_row, texts, names)


def _check_texts(source: str, first_row: int, texts: list[Any], text_column: str) -> None:
    """Raise InputError unless every value is a text that is not empty."""
    for row, text in enumerate(texts, first_row):
        if problem := _problem(text):
            raise InputError(f"{source}: row {row}: column {text_column!r} {problem}")


def _check_whole_characters(source: str, first_row: int, texts: list[str], text_column: str) -> None:
    """Raise InputError if a text cannot be encoded in UTF-8."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:  # JSON can spell half a character: "\ud83d"
        ends = itertools.accumulate(map(len, texts))
        row = next(row for row, end in enumerate(ends, first_row) if error.start < end)
        half = error.object[error.start]
        raise InputError(f"{source}: row {row}: column {text_column!r} holds {half!r}, half a character") from None


def _problem(text: Any) -> str:
    """What keeps a value from being a text, "" if nothing does."""
    if isinstance(text, str):
        return "" if text and not text.isspace() else f"is empty ({text!r}); a text needs words"
    if text is None or text != text:  # NaN is the one value that differs from itself
        return "is missing"
    return f"is {text!r}, of type {type(text).__name__} and not a string"


def _label(value: Any) -> str:
    """The label's one name, or "" for what is no label: null, NaN, infinity, bytes, lists, objects."""
    if isinstance(value, str):
        return _label_of_string(value.strip())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            return ""
        whole = int(value)
        return str(whole) if value == whole else str(value)
    if value is None or isinstance(value, bytes | list | tuple | dict):
        return ""
    return str(value)


def _label_of_string(name: str) -> str:
    if name in ("True", "False", "TRUE", "FALSE"):
        return name.lower()
    if re.fullmatch(r"[+-]?\d+\.0+", name):
        return name.partition(".")[0]
    return name
