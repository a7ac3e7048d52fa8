"""Printed tables and escaped text."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from raysweep.output import (
    TextTable,
    csv_text,
    escape_controls,
    escape_html,
    escape_line,
    markdown_lines,
    print_table,
)

ANY_TEXT = st.text(st.characters(codec=None), max_size=40)

WORDS = "[bold]a task with a name that is wider than a terminal[/bold]"
NARROW = TextTable(
    ("task", "score"),
    ((WORDS, "63.016"),),
    frozenset({"task"}),
    title="A title",
    caption="A caption",
)
WIDE = TextTable(("task", "score"), ((WORDS * 2, "63.016"),), frozenset({"task"}))


def printed(*tables: TextTable, width: int, terminal: bool = True) -> str:
    out = io.StringIO()
    print_table(
        *tables, console=Console(file=out, width=width, force_terminal=terminal, color_system=None)
    )
    return out.getvalue()


def test_first_table_that_fits_is_printed() -> None:
    assert WORDS * 2 in printed(WIDE, NARROW, width=200)
    text = printed(WIDE, NARROW, width=100)
    assert WORDS * 2 not in text and WORDS in text
    assert "A title" in text and "A caption" in text


def test_terminal_folds_words_and_keeps_numbers() -> None:
    lines = printed(WIDE, NARROW, width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert any(line.rstrip().endswith("63.016") for line in lines)
    cells = "".join(line[:32] for line in lines)
    assert WORDS.replace(" ", "") in cells.replace(" ", "")


def test_redirected_tables_are_as_wide_as_needed() -> None:
    assert WORDS in printed(WIDE, NARROW, width=40, terminal=False)


def test_tables_escape_control_characters() -> None:
    table = TextTable(("run",), (("\x1b[31mred",),), frozenset({"run"}))
    assert "\x1b" not in printed(table, width=40)
    assert "\x1b" not in "".join(markdown_lines(table))


def test_csv_quotes_cells_and_leaves_none_empty() -> None:
    rows = [["a,b", None, 1.5], ['"', "\n", 2]]
    text = csv_text(("x", "y", "z"), rows)
    assert list(csv.reader(io.StringIO(text))) == [
        ["x", "y", "z"],
        ["a,b", "", "1.5"],
        ['"', "\n", "2"],
    ]


@given(ANY_TEXT)
def test_control_characters_are_escaped_and_other_text_is_kept(text: str) -> None:
    escaped = escape_controls(text)
    escaped.encode()
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", escaped)
    assert len(escaped) == len(text)
    assert escaped == text or not all(character.isprintable() for character in text)


@given(ANY_TEXT)
def test_a_line_has_no_line_ends_and_html_has_no_markup(text: str) -> None:
    assert len(escape_line(text).splitlines()) <= 1 and not re.search(
        "[\x00-\x1f\x7f-\x9f]", escape_line(text)
    )
    assert not set(escape_html(text)) & set("<>\"'")


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\x00b\té", "a\N{SYMBOL FOR NULL}b\té"),
        ("\x9b31m", "\ufffd31m"),
        ("a\u202eb\u2066c\u2028", "a\ufffdb\ufffdc\ufffd"),
    ],
)
def test_control_characters_and_direction_overrides_are_replaced(text: str, escaped: str) -> None:
    assert escape_controls(text) == escaped
