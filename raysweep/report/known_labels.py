"""The separate front of points that use the pool's labels."""

from collections.abc import Iterator

from raysweep.output import TextTable
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import (
    identity_cells,
    score_cells,
    score_headings,
    show_area,
    show_share,
)

KNOWN_LABELS_TEXT = (
    "If the pool's labels are known, a sentence can be scored by cos_R plus g times the predicted probability that the "
    "query has the sentence's label. An encoder cannot use these labels, so the points form a separate front and do not "
    "count toward the hypervolume. This front is also chosen on dev."
)


def known_labels_table(summary: Summary) -> TextTable:
    """Return a table of the separate front, sorted by decreasing S on dev."""
    names = summary.goals.main_scores
    rows = []
    for member in summary.labeled:
        row = identity_cells(member.dev)
        for split in SPLITS:
            row += score_cells(member.on(split), names)
        rows.append(tuple(row))
    score_columns = [f"{split} {score}" for split in SPLITS for score in score_headings(names)]
    columns = ("trial", "step", "kind", *score_columns)
    return TextTable(columns, tuple(rows), frozenset({"kind"}))


def known_labels_sentences(summary: Summary) -> list[str]:
    """Return :func:`known_labels_lines` as sentences."""
    return [f"{line[0].upper()}{line[1:]}." for line in known_labels_lines(summary)]


def known_labels_lines(summary: Summary) -> Iterator[str]:
    """Yield terminal lines with the separate front's hypervolume on each split."""
    for split, area in summary.labeled_areas.items():
        hypervolume = show_area(area.front)
        text = f"with known pool labels, the hypervolume on {split} is {hypervolume}"
        if area.share is not None:
            text += f", {show_share(area.share)} of the oracle's"
        yield text
    if why := summary.labeled_front.why_partial("test"):
        reason = "weights are stored only for rungs with a point on the ordinary front"
        yield f"with known pool labels, there is no hypervolume on test: {why}; {reason}"
