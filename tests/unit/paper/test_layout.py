"""Layouts keep any text and number in each format."""

import pytest

from raysweep.output import ABSENT
from raysweep.paper.layout import Column, Layout, Number, mark_best, to_csv, to_latex, to_markdown
from support.tables import check_latex, csv_rows, latex_rows, markdown_rows

HOSTILE = r"a_b&c%d$e#f{g}~h^i\j|<k> *l* [m]"


def one_group(*cells: str) -> Layout:
    columns = (Column(HOSTILE, HOSTILE), Column("P", "polarity", 1, has_spread=True))
    return Layout("t_name", f"Caption, {HOSTILE}.", columns, tuple(((cell, Number(50.0, 1.0)),) for cell in cells))


def test_latex_escapes_text() -> None:
    text = to_latex(one_group(HOSTILE, "[x]", "*", ABSENT))
    head, hostile, bracket, star, absent = latex_rows(text)
    assert (
        head[0]
        == hostile[0]
        == (
            r"a\_b\&c\%d\$e\#f\{g\}\textasciitilde{}h\textasciicircum{}i\textbackslash{}j\textbar{}\textless{}k\textgreater{} "
            r"{*}l{*} {[}m]"
        )
    )
    assert (bracket[0], star[0], absent[0]) == ("{[}x]", "{*}", "--")
    assert text.startswith("% \\usepackage{booktabs}\n")


@pytest.mark.parametrize("broken", ["{", "}", "_", "&"])
def test_the_check_of_latex_finds_errors(broken: str) -> None:
    text = to_latex(one_group("cell"))
    with pytest.raises(AssertionError):
        check_latex(text.replace("cell", f"ce{broken}ll"))


def test_markdown_and_csv_keep_the_text() -> None:
    _, row = markdown_rows(to_markdown(one_group(HOSTILE)))
    bare = row[0]
    for character in "\\`*[]<>|":
        bare = bare.replace("\\" + character, character)
    assert bare == HOSTILE
    (read,) = csv_rows(to_csv(one_group(HOSTILE + ',"\n')))
    assert read[HOSTILE] == HOSTILE + ',"\n'
    assert (read["polarity"], read["polarity_std"]) == ("50", "1")


def test_csv_has_six_decimals() -> None:
    layout = Layout("t", "", (Column("P", "polarity", 1, has_spread=True),), (((Number(63.0164449, None),),),))
    assert csv_rows(to_csv(layout)) == [{"polarity": "63.016445", "polarity_std": ""}]
    assert markdown_rows(to_markdown(layout))[1] == ["63.0"]


def test_all_numbers_printed_as_the_best_are_marked() -> None:
    numbers = mark_best([Number(80.04), Number(79.96, 3.0), Number(79.9), Number(None)], 1)
    assert [number.is_best for number in numbers] == [True, True, False, False]
    assert numbers[1].spread == 3.0
    assert mark_best([Number(None)], 1) == [Number(None)]
