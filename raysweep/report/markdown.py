"""The report as Markdown."""

from typing import TYPE_CHECKING

from raysweep.report.html import HYPERVOLUME_TEXT, MEANS_TEXT, SCORES_TEXT, cost_text
from raysweep.report.summary import Summary, goal_text
from raysweep.report.tables import TextTable, area_table, cost_table, front_table, mean_table, settings, trial_table

if TYPE_CHECKING:
    pass


def markdown(summary: Summary) -> str:
    """``front.md``: what is missing, the front, its hypervolume and the settings."""
    info = summary.results.info
    lines = [f"# {_plain(info.name)}", "", _plain(goal_text(info)), ""]
    lines += [f"> {_plain(note)}\n>" for note in summary.notes]
    if summary.members:
        lines += ["", "## Front", "", SCORES_TEXT, ""]
        lines += _markdown_table(front_table(summary))
    means = mean_table(summary)
    if means.rows:
        lines += ["", "## Replicates", "", MEANS_TEXT, "", *_markdown_table(means)]
    areas = area_table(summary)
    if areas.rows:
        lines += ["", "## Hypervolume", "", HYPERVOLUME_TEXT, "", *_markdown_table(areas)]
    if summary.trials:
        lines += ["", "## Cost", "", cost_text(summary), "", *_markdown_table(cost_table(summary))]
    rows = tuple(settings(summary))
    lines += [
        "",
        "## Settings",
        "",
        *_markdown_table(TextTable(("setting", "value"), rows, frozenset({"setting", "value"}))),
    ]
    if summary.trials:
        lines += ["", "## Trials", "", *_markdown_table(trial_table(summary))]
    return "\n".join(lines) + "\n"


def _markdown_table(table: TextTable) -> list[str]:
    rule = ["---" if column in table.text else "---:" for column in table.columns]
    cells = [table.columns, rule, *([_plain(cell) for cell in row] for row in table.rows)]
    return ["| " + " | ".join(row) + " |" for row in cells]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is: on one line, no markup of its own, no column of its own."""
    for character in "\\`*[]<>|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
