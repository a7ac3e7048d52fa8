"""Calibration of the softmax heads that front members use."""

from collections.abc import Iterator

from raysweep.output import TextTable
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import show
from raysweep.results.types import Calibration
from raysweep.results.views import calibration_text

CALIBRATION_TEXT = (
    "This table shows the calibration of the softmax heads that front members use, before and after dividing the "
    "logits by a temperature fitted on dev. Cross-entropies are in nats per sentence. The calibration error is the "
    "mean absolute difference, x100, between predicted probability and accuracy in groups of sentences with similar "
    "probabilities."
)

MAX_LINES = 4  # maximum number of calibrations shown in a terminal

_COLUMNS = (
    *("trial", "step", "split", "temperature"),
    *("cross-entropy before", "cross-entropy", "calibration error before", "calibration error"),
)


def calibrations_of_front(summary: Summary) -> list[Calibration]:
    """Return the calibrations of the heads that front members use, sorted by trial, rung and split."""
    rungs = {
        (member.dev.trial, member.dev.step)
        for member in summary.members
        if member.dev.kind == "class_concat"
    }
    calibrations = [
        calibration
        for calibration in summary.results.calibrations
        if (calibration.trial, calibration.step) in rungs
    ]
    return sorted(
        calibrations, key=lambda item: (item.trial or 0, item.step or 0, SPLITS.index(item.split))
    )


def calibration_table(summary: Summary) -> TextTable:
    """Return a table with a row per rung and split."""
    rows = []
    for calibration in calibrations_of_front(summary):
        row = (
            str(calibration.trial),
            str(calibration.step),
            calibration.split,
            f"{calibration.temperature:.2f}",
            f"{calibration.cross_entropy_before:.3f}",
            f"{calibration.cross_entropy:.3f}",
            show(calibration.error_before),
            show(calibration.error),
        )
        rows.append(row)
    return TextTable(_COLUMNS, tuple(rows), frozenset({"split"}))


def calibration_lines(summary: Summary) -> Iterator[str]:
    """Yield terminal lines for the last MAX_LINES calibrations."""
    calibrations = calibrations_of_front(summary)
    for calibration in calibrations[-MAX_LINES:]:
        place = f"trial {calibration.trial}, rung {calibration.step}, on {calibration.split}"
        yield f"{place}: {calibration_text(calibration)}"
    if len(calibrations) > MAX_LINES:
        yield f"calibration: {len(calibrations) - MAX_LINES} more in front.md"
