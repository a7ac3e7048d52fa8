"""Text in tables is text in each format, whatever characters it has."""

import pytest

from raysweep.paper import markup
from raysweep.paper.table import ABSENT, Column, Number, Table, with_best
from support.tables import check_latex, csv_rows, latex_rows, markdown_rows

HOSTILE = r"a_b&c%d$e#f{g}~h^i\j|<k> *l* [m]"


def table(*cells: str) -> Table:
    columns = (Column(HOSTILE, HOSTILE), Column("P", "polarity", 1, has_spread=True))
    return Table("t_name", f"Caption, {HOSTILE}.", columns, tuple(((cell, Number(50.0, 1.0)),) for cell in cells))


def test_latex_prints_what_the_text_says() -> None:
    text = markup.latex(table(HOSTILE, "[x]", "*", ABSENT))
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
def test_the_check_of_latex_finds_what_is_wrong(broken: str) -> None:
    text = markup.latex(table("cell"))
    with pytest.raises(AssertionError):
        check_latex(text.replace("cell", f"ce{broken}ll"))


def test_markdown_and_csv_keep_the_text() -> None:
    _, row = markdown_rows(markup.markdown(table(HOSTILE)))
    bare = row[0]
    for character in "\\`*[]<>|":
        bare = bare.replace("\\" + character, character)
    assert bare == HOSTILE
    (read,) = csv_rows(markup.csv_text(table(HOSTILE + ',"\n')))
    assert read[HOSTILE] == HOSTILE + ',"\n'
    assert (read["polarity"], read["polarity_std"]) == ("50", "1")


def test_csv_has_more_digits_than_readers_see() -> None:
    made = Table("t", "", (Column("P", "polarity", 1, has_spread=True),), (((Number(63.0164449, None),),),))
    assert csv_rows(markup.csv_text(made)) == [{"polarity": "63.016445", "polarity_std": ""}]
    assert markdown_rows(markup.markdown(made))[1] == ["63.0"]


def test_all_that_print_as_the_best_are_marked() -> None:
    numbers = with_best([Number(80.04), Number(79.96, 3.0), Number(79.9), Number(None)], 1)
    assert [number.is_best for number in numbers] == [True, True, False, False]
    assert numbers[1].spread == 3.0
    assert with_best([Number(None)], 1) == [Number(None)]
