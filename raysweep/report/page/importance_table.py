"""The table of parameter importances, with bars."""

from collections.abc import Mapping

from raysweep.report.page.markup import scrolling
from raysweep.report.page.visible import escape
from raysweep.report.tables import ABSENT

TARGETS = {"polarity": "P, polarity", "similarity": "S, similarity", "objective": "objective"}

IMPORTANCE_TEXT = (
    "The share of each parameter in what all of them explain by themselves of a score, over all trials that were evaluated: "
    "those that were paused or stopped early too, compared at equal budget. What parameters do only together is in none."
)


def importance_table(importances: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table with a row per parameter, by decreasing share in the objective; empty if there are no shares."""
    names = list(dict.fromkeys(name for target in ("objective", *TARGETS) for name in importances.get(target, {})))
    if not names:
        return ""
    head = "".join(f'<th scope="col">{words}</th>' for words in TARGETS.values())
    rows = "".join(_row(name, importances) for name in names)
    content = f'<thead><tr><th scope="col">parameter</th>{head}</tr></thead><tbody>{rows}</tbody>'
    return scrolling(f'<table class="fit bars">{content}</table>', "Importance, table")


def _row(name: str, importances: Mapping[str, Mapping[str, float]]) -> str:
    cells = "".join(_cell(importances.get(target, {}).get(name)) for target in TARGETS)
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'


def _cell(share: float | None) -> str:
    if share is None:
        return f'<td class="n">{ABSENT}</td>'
    width = min(100.0, max(0.0, 100 * share))
    bar = (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="ground" width="100" height="10"/><rect width="{width:.1f}" height="10"/></svg>'
    )
    return f'<td class="n">{bar}<span>{share:.0%}</span></td>'
