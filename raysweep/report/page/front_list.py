"""The page's table of the front's members, whose columns of guards say what the sweep asks for."""

import dataclasses

from raysweep.report.page.markup import table
from raysweep.report.summary import Summary
from raysweep.report.tables import front_table, show

TITLE = "The front's members"


def front_list(summary: Summary) -> str:
    """By falling similarity on dev."""
    content = front_table(summary)
    limits = _limits(summary)
    first = len(content.columns) - len(limits)  # the guards come last
    heads = [
        f"{name} ≥\N{NO-BREAK SPACE}{show(least)}" if least is not None else name for name, least in limits.items()
    ]
    columns = (*content.columns[:first], *heads)
    return table(dataclasses.replace(content, columns=columns), TITLE, "members")


def _limits(summary: Summary) -> dict[str, float | None]:
    """What each guard that was measured asks for, by its name and in their order."""
    measured = {name: score.at_least for member in summary.members for name, score in member.guards.items()}
    return dict(sorted(measured.items()))
