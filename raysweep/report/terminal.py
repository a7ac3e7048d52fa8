"""The front as a table for a terminal."""

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from raysweep.report.calibration import calibration_lines
from raysweep.report.comparison import baseline_lines
from raysweep.report.known_labels import known_labels_lines
from raysweep.report.summary import SPLITS, Area, Summary
from raysweep.report.tables import TextTable, front_table, show, show_area, show_interval, show_share
from raysweep.report.texts import CORRECTED, limits_text
from raysweep.report.trust import trust_lines
from raysweep.uncertainty.front import FrontUncertainty

if TYPE_CHECKING:
    import rich.table


MOST_ROWS = 24
"""The maximum number of rows. A longer front is reduced to its ends, its marked members, and others evenly spaced."""


def terminal_tables(summary: Summary) -> Iterator["rich.table.Table"]:
    """Yield tables of the front for a terminal, without intervals, retention, accuracy, and without kinds if all are plain.

    The first table includes guard scores if there are any; the last one fits a terminal of 80 columns. The caption
    lists the configuration of each trial on the front and the number of members that are left out.
    """
    if any(member.guards for member in summary.members):
        yield _table(summary, with_guards=True)
    yield _table(summary, with_guards=False)


def _table(summary: Summary, *, with_guards: bool) -> "rich.table.Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    front = front_table(summary)
    omitted = {f"{split} {score}" for split in SPLITS for score in ("retention", "accuracy")} | {"configuration"}
    if all(member.dev.kind == "plain" for member in summary.members):
        omitted |= {"kind", "width"}
    guards = {name for member in summary.members for name in member.guards}
    if not with_guards:
        omitted |= guards
    shown = [column for column in front.columns if column not in omitted]
    table = Table(
        title=Text(f"Front of {summary.results.info.name}, scores x100"),
        caption=Text("\n".join(_caption_lines(summary, front, guards & omitted))),
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        collapse_padding=True,
        pad_edge=False,
    )
    for column in shown:
        table.add_column(
            column,
            justify="left" if column in front.text else "right",
            no_wrap=column != "mark",
            width=6 if column == "mark" else None,
            overflow="fold",
        )
    for number in _shown_rows(summary):
        row = front.rows[number]
        cells = dict(zip(front.columns, row, strict=True))
        table.add_row(*(Text(cells[column]) for column in shown))
    return table


def _shown_rows(summary: Summary) -> list[int]:
    """Return the indexes of the members shown in the table, in increasing order."""
    num_members = len(summary.members)
    if num_members <= MOST_ROWS:
        return list(range(num_members))
    marked = {number for number, member in enumerate(summary.members) if member.is_knee or member.is_best}
    num_others = MOST_ROWS - len(marked)
    spread = {number * (num_members - 1) // (num_others - 1) for number in range(num_others)}
    return sorted(marked | spread)


def _caption_lines(summary: Summary, front: TextTable, omitted_guards: Set[str]) -> Iterator[str]:
    num_shown = len(_shown_rows(summary))
    if num_shown < len(summary.members):
        yield f"{num_shown} of {len(summary.members)} members; raysweep show has all of them"
    if omitted_guards:
        yield f"the report and a wider terminal have the scores of {', '.join(sorted(omitted_guards))} too"
    yield from _configuration_lines(front)
    if limits := limits_text(summary.results):
        yield f"asked for: {limits}"
    for split, reference in summary.references.items():
        scores = f"P {show(reference.polarity)}, S {show(reference.similarity)}"
        yield f"R on {split}: {scores}"
    yield from calibration_lines(summary)
    yield from baseline_lines(summary)
    for split, area in summary.areas.items():
        yield f"hypervolume on {split}: {_area(area, summary.uncertainty.get(split))}"
    yield from known_labels_lines(summary)
    yield from trust_lines(summary)


def _area(area: Area, uncertainty: FrontUncertainty | None) -> str:
    front, share = show_area(area.front), show_share(area.share)
    if uncertainty is not None:
        front += f" {show_interval(uncertainty.hypervolume, show_area)}"
        share += f" {show_interval(uncertainty.share, show_share)}"
    found = front if area.share is None else f"{front}, {share} of the oracle's"
    if uncertainty is None or uncertainty.hypervolume is None:
        return found
    return f"{found}; intervals over {uncertainty.noise}, {CORRECTED}"


def _configuration_lines(front: TextTable) -> Iterator[str]:
    trial_at = front.columns.index("trial")
    configuration_at = front.columns.index("configuration")
    configurations = {int(row[trial_at]): row[configuration_at] for row in front.rows}
    for trial, configuration in sorted(configurations.items()):
        yield f"trial {trial}: {configuration}"
