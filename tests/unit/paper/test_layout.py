"""Layouts keep any text and number in each format."""

import pandas as pd
import pytest

from raysweep.output import ABSENT
from raysweep.paper.layout import Column, Layout, mark_best, to_csv, to_latex, to_markdown
from support.tables import check_latex, csv_rows, latex_rows, markdown_rows

HOSTILE = r"a_b&c%d$e#f{g}~h^i\j|<k> *l* [m]"


NAN = float("nan")


def make_layout(*texts: str) -> Layout:
    polarities = Column("P", "polarity", [50.0] * len(texts), 1, spreads=[1.0] * len(texts))
    return Layout(
        "t_name", f"Caption, {HOSTILE}.", (Column(HOSTILE, HOSTILE, texts), polarities), texts
    )


def test_latex_escapes_text() -> None:
    text = to_latex(make_layout(HOSTILE, "[x]", "*", ABSENT))
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
    text = to_latex(make_layout("cell"))
    with pytest.raises(AssertionError):
        check_latex(text.replace("cell", f"ce{broken}ll"))


def test_markdown_and_csv_keep_the_text() -> None:
    _, row = markdown_rows(to_markdown(make_layout(HOSTILE)))
    bare = row[0]
    for character in "\\`*[]<>|":
        bare = bare.replace("\\" + character, character)
    assert bare == HOSTILE
    (read,) = csv_rows(to_csv(make_layout(HOSTILE + ',"\n')))
    assert read[HOSTILE] == HOSTILE + ',"\n'
    assert (read["polarity"], read["polarity_std"]) == ("50", "1")


def test_csv_has_six_decimals() -> None:
    layout = Layout("t", "", [Column("P", "polarity", [63.0164449], 1, spreads=[NAN])], ["group"])
    assert csv_rows(to_csv(layout)) == [{"polarity": "63.016445", "polarity_std": ""}]
    assert markdown_rows(to_markdown(layout))[1] == ["63.0"]


def test_all_numbers_printed_as_the_best_are_marked() -> None:
    numbers = pd.Series([80.04, 79.96, 79.9, NAN])
    assert mark_best(numbers, 1).tolist() == [True, True, False, False]
    assert mark_best(pd.Series([NAN]), 1).tolist() == [False]


def test_best_numbers_are_bold_without_their_deviation() -> None:
    column = Column(
        "P", "polarity", [80.0, 79.0, NAN], 1, spreads=[3.0, NAN, NAN], is_best=[True, False, False]
    )
    assert column.format(str, "**{}**") == ["**80.0** (3.0)", "79.0", ABSENT]
