"""The page's table of front members; the headings of its guard columns include the limits."""

import dataclasses

from raysweep.report.page.markup import table
from raysweep.report.summary import Summary
from raysweep.report.tables import front_table, show

TITLE = "The front's members"


def front_list(summary: Summary) -> str:
    """Return the table by decreasing similarity on dev."""
    content = front_table(summary)
    limits = _limits(summary)
    first = len(content.columns) - len(limits)  # the guards come last
    heads = [
        f"{name} ≥\N{NO-BREAK SPACE}{show(least)}" if least is not None else name for name, least in limits.items()
    ]
    columns = (*content.columns[:first], *heads)
    return table(dataclasses.replace(content, columns=columns), TITLE, "members")


def _limits(summary: Summary) -> dict[str, float | None]:
    """Return the limit of each measured guard, sorted by name."""
    measured = {name: score.at_least for member in summary.members for name, score in member.guards.items()}
    return dict(sorted(measured.items()))
