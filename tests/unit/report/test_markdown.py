"""The report as Markdown."""

import re
from pathlib import Path

from raysweep.output import TextTable, markdown_lines
from raysweep.report import write
from raysweep.report.tables import front_table
from support.ledgers import MARKUP, write_run_with_markup


def test_columns_and_underscores_are_escaped() -> None:
    table = TextTable(
        ("a|b", "_old_ c"), (("learning_rate", "__x__"),), frozenset({"a|b", "_old_ c"})
    )
    assert markdown_lines(table) == [
        r"| a\|b | \_old\_ c |",
        "| --- | --- |",
        r"| learning_rate | \_\_x\_\_ |",
    ]


def test_text_of_the_run_is_escaped_and_stays_in_its_column(tmp_path: Path) -> None:
    write_run_with_markup(tmp_path)
    summary = write.write(tmp_path).summary
    lines = (tmp_path / "report" / "front.md").read_text().splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert any(
        MARKUP.split("|")[0].replace("<", "\\<").replace(">", "\\>") in line for line in tables
    )
    assert "<script>" not in "\n".join(tables).replace("\\<script\\>", "")
    separators = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert set(separators) == {len(front_table(summary).columns) + 1, 8, 10, 3, 11}
