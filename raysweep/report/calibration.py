"""The calibration of the class probabilities that front members use, and their temperatures."""

from collections.abc import Iterator

from raysweep.output import TextTable
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import show
from raysweep.results.types import Calibration
from raysweep.results.views import calibration_text

CALIBRATION_TEXT = (
    "Of the softmax heads whose class probabilities members of the front are retrieved with: before, and with the "
    "temperature that their logits are divided by, which is fitted on dev. Cross-entropies are in nats a sentence. The "
    "calibration error is how far the accuracy of sentences of like probability is from that probability, in the mean, x100."
)

MOST_LINES = 4  # in a terminal

_COLUMNS = (
    *("trial", "step", "split", "temperature"),
    *("cross-entropy before", "cross-entropy", "calibration error before", "calibration error"),
)


def calibrations_of_front(summary: Summary) -> list[Calibration]:
    """Return the calibrations of the rungs whose heads front members use, by trial, rung and split."""
    rungs = {(member.dev.trial, member.dev.step) for member in summary.members if member.dev.kind == "class_concat"}
    found = [each for each in summary.results.calibrations if (each.trial, each.step) in rungs]
    return sorted(found, key=lambda each: (each.trial or 0, each.step or 0, SPLITS.index(each.split)))


def calibration_table(summary: Summary) -> TextTable:
    """Return a table with a row per rung and split; it has no rows if no front member uses a head."""
    rows = tuple(_row(each) for each in calibrations_of_front(summary))
    return TextTable(_COLUMNS, rows, frozenset({"split"}))


def _row(calibration: Calibration) -> tuple[str, ...]:
    return (
        str(calibration.trial),
        str(calibration.step),
        calibration.split,
        f"{calibration.temperature:.2f}",
        f"{calibration.cross_entropy_before:.3f}",
        f"{calibration.cross_entropy:.3f}",
        show(calibration.error_before),
        show(calibration.error),
    )


def calibration_lines(summary: Summary) -> Iterator[str]:
    """Yield short lines for a terminal: the last ``MOST_LINES`` calibrations, and the number of others."""
    found = calibrations_of_front(summary)
    for each in found[-MOST_LINES:]:
        yield f"trial {each.trial}, step {each.step}, on {each.split}: {calibration_text(each)}"
    if len(found) > MOST_LINES:
        yield f"calibration: {len(found) - MOST_LINES} more in front.md"
