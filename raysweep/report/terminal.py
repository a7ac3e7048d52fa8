"""The front as a table for a terminal."""

from typing import TYPE_CHECKING, Literal

from raysweep.report.summary import Summary, constraints_text
from raysweep.report.tables import front_table, show

if TYPE_CHECKING:
    import rich.table


def terminal_table(summary: Summary) -> "rich.table.Table":
    """The front for a terminal of 80 columns or more: without intervals, retention, and kinds that are all plain.

    Configurations stand below the table, one line a trial of the front.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    info = summary.results.info
    table = front_table(summary, intervals=False)
    omitted = {"dev retention", "test retention", "configuration"}
    if all(member.dev.kind == "plain" for member in summary.members):
        omitted |= {"kind", "width"}
    shown = [column for column in table.columns if column not in omitted]
    configurations = {
        row[table.columns.index("trial")]: row[table.columns.index("configuration")] for row in table.rows
    }
    caption = [
        f"trial {trial}: {text}" for trial, text in sorted(configurations.items(), key=lambda item: int(item[0]))
    ]
    if info.constraints:
        caption.append(f"constraints: {constraints_text(info)}")
    caption += [
        f"R on {split}: P {show(p.polarity)}, S {show(p.similarity)}" for split, p in summary.references.items()
    ]
    for split, area in summary.areas.items():
        share = "" if area.share is None else f", {100 * area.share:.1f}% of the oracle's"
        caption.append(f"hypervolume on {split}: {1e4 * area.front:.1f}{share}")
    rich_table = RichTable(
        title=Text(f"Front of {info.name}, scores x100"),
        caption=Text("\n".join(caption)),
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        collapse_padding=True,
        pad_edge=False,
    )
    for column in shown:
        justify: Literal["left", "right"] = "left" if column in table.text else "right"
        rich_table.add_column(column, justify=justify, no_wrap=column != "mark", overflow="fold")
    rich_table.columns[shown.index("mark")].max_width = 6
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        rich_table.add_row(*(Text(cells[column]) for column in shown))
    return rich_table
