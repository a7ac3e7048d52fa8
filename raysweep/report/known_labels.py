"""The front of points that use the labels of the pool, as a series of its own; it is not compared with the run's front."""

from collections.abc import Iterator

from raysweep.output import ABSENT, TextTable
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import kind_name, show, show_area, show_share
from raysweep.results.types import Point

KNOWN_LABELS_TEXT = (
    "Where the labels of the pool are known, a query's class probabilities can be held against them: cos_R plus g times the "
    "probability of the sentence's own label. No encoder knows these labels, so these points are no part of the front and "
    "count for no area of it. Their own front was chosen on dev."
)

_SCORES = ("P", "S", "retention")


def known_labels_table(summary: Summary) -> TextTable:
    """Return the non-dominated points of this kind on dev, by decreasing similarity; the table may have no rows."""
    scores = [f"{split} {score}" for split in SPLITS for score in _SCORES]
    rows = []
    for member in summary.labeled:
        cells = [cell for split in SPLITS for cell in _score_cells(member.on(split))]
        rows.append((str(member.dev.trial), str(member.dev.step), kind_name(member.dev), *cells))
    return TextTable(("trial", "step", "kind", *scores), tuple(rows), frozenset({"kind"}))


def _score_cells(point: Point | None) -> tuple[str, ...]:
    if point is None:
        return (ABSENT,) * len(_SCORES)
    return show(point.polarity), show(point.similarity), show(point.retention)


def known_labels_sentences(summary: Summary) -> list[str]:
    """Return the lines for a terminal as sentences."""
    return [f"{line[0].upper()}{line[1:]}." for line in known_labels_lines(summary)]


def known_labels_lines(summary: Summary) -> Iterator[str]:
    """Yield the hypervolume of their front on each split on which they are scored, with its share of the oracle's."""
    for split, area in summary.labeled_areas.items():
        shared = "" if area.share is None else f", {show_share(area.share)} of the oracle's"
        yield f"with the pool's labels known, hypervolume on {split}: {show_area(area.front)}{shared}"
    if why := summary.labeled_front.why_partial("test"):
        reason = "weights are stored only for rungs with a point on the ordinary front"
        yield f"with the pool's labels known, no hypervolume on test: {why}; {reason}"
