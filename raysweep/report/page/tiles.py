"""The large numbers at the top of the page."""

from collections.abc import Iterator
from dataclasses import dataclass

from raysweep.report.page.visible import escape
from raysweep.report.summary import Area, Member, Summary
from raysweep.report.tables import show, show_area, show_interval, show_share, trial_counts
from raysweep.report.texts import CORRECTED
from raysweep.results.account import Entry
from raysweep.results.types import Point, ScoredSplit
from raysweep.uncertainty.front import FrontUncertainty


@dataclass(frozen=True)
class Tile:
    """A large number; ``detail`` is a caption."""

    name: str
    value: str
    detail: str

    def render(self) -> str:
        value = f"{escape(self.value)}<small>{escape(self.detail)}</small>"
        return f"<div><dt>{escape(self.name)}</dt><dd>{value}</dd></div>"


def tiles(summary: Summary) -> str:
    """Return tiles for the trials, the front, the knee, the best point, the cost and the share of the oracle's area."""
    begun, _, most = trial_counts(summary).partition(" of ")
    shown = [
        Tile("trials", begun, f"of {most}"),
        Tile("front members", str(len(summary.members)), "chosen on dev"),
    ]
    for member in summary.members:
        shown += _member_tiles(member)
    total = summary.account.total
    if total.cost.seconds:
        shown.append(_seconds_tile(total))
    for split, area in summary.areas.items():
        shown.append(_area_tile(split, area, summary.uncertainty.get(split)))
    content = "".join(tile.render() for tile in shown)
    return f'<dl class="tiles">{content}</dl>'


def _area_tile(split: ScoredSplit, area: Area, uncertainty: FrontUncertainty | None) -> Tile:
    detail = f"front {show_area(area.front)}"
    if uncertainty is not None and uncertainty.share is not None:
        share = show_interval(uncertainty.share, show_share)
        detail = f"{share} {CORRECTED}; {detail}"
    return Tile(f"of the oracle's hypervolume, {split}", show_share(area.share), detail)


def _member_tiles(member: Member) -> Iterator[Tile]:
    """Yield tiles of the knee and of the best point, which may be the same member."""
    split, point = ("test", member.test) if member.test else ("dev", member.dev)
    where = f"trial {point.trial}, step {point.step}"
    if member.test:
        where = f"on dev, where it was chosen, {_both(member.dev)}; {where}"
    if member.is_knee:
        yield Tile(f"knee, P / S on {split}", _both(point), where)
    if member.is_best:
        yield Tile(f"best objective, P / S on {split}", _both(point), where)


def _both(point: Point) -> str:
    """Format P and S."""
    return f"{show(point.polarity)} / {show(point.similarity)}"


def _seconds_tile(total: Entry) -> Tile:
    detail = "of workers"
    if total.saved_seconds:
        detail += f"; stopping early saved about {total.saved_seconds:,.0f}"
    return Tile("trial-seconds", f"{total.cost.seconds:,.0f}", detail)
