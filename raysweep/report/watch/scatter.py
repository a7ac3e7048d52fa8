"""A scatter plot of P against S as lines of characters, for terminals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raysweep.metrics.scores import Pair

LABEL_WIDTH = 6  # of the numbers next to the P axis
NUM_LABEL_LINES = 3  # above and below the points
MIN_RANGE = 0.002  # minimum length of an axis, so that equal scores do not fill it
MARGIN = 0.04  # share of an axis beyond its outermost points


@dataclass(frozen=True)
class Layer:
    """Points with the same ``sign``, which is one character."""

    sign: str
    legend: str
    points: Sequence[Pair]


@dataclass(frozen=True)
class Axis:
    """The scores from ``low`` to ``high``, divided into ``num_cells`` cells."""

    low: float
    high: float
    num_cells: int

    @classmethod
    def of(cls, scores: Iterable[float], num_cells: int) -> "Axis":
        """Return an axis that includes all scores, of which there must be at least one."""
        values = list(scores)
        low, high = min(values), max(values)
        margin = max(MIN_RANGE, high - low) * MARGIN
        padding = max(0.0, MIN_RANGE - (high - low)) / 2  # extends a short axis
        return cls(low - margin - padding, high + margin + padding, num_cells)

    def cell(self, score: float) -> int:
        """Return the index of the cell that contains a score."""
        share = (score - self.low) / (self.high - self.low)
        return min(self.num_cells - 1, max(0, int(share * self.num_cells)))


def scatter(
    layers: Sequence[Layer], width: int, height: int, headings: tuple[str, str] = ("P", "S")
) -> list[str]:
    """Return the lines of a plot, ``width`` characters wide and ``height`` lines high.

    P increases upwards and S to the right, both x100, with ``headings`` at the ends of the axes. In a cell with several
    points, the last layer is drawn on top. Without points, there are no lines.
    """
    points = [point for layer in layers for point in layer.points]
    if not points:
        return []
    polarities, similarities = zip(*points, strict=True)
    num_rows = max(2, height - NUM_LABEL_LINES)
    num_columns = max(8, width - LABEL_WIDTH - 2)
    rows = Axis.of(polarities, num_rows)
    columns = Axis.of(similarities, num_columns)
    low = _format(columns.low)
    high = f"{_format(columns.high)} {headings[1]}"
    gap_width = max(1, num_columns - len(low) - len(high))
    gap = " " * gap_width
    margin = " " * LABEL_WIDTH
    heading = headings[0].rjust(LABEL_WIDTH)
    lines = _lines(layers, rows, columns)
    axis = "-" * num_columns
    return [
        heading,
        *lines,
        f"{margin} +{axis}",
        f"{margin}  {low}{gap}{high}",
    ]


def _lines(layers: Sequence[Layer], rows: Axis, columns: Axis) -> list[str]:
    """Return the points and the P axis from the highest P down, with the axis's ends labeled."""
    labels = [""] * rows.num_cells
    labels[0] = _format(rows.low)
    labels[-1] = _format(rows.high)
    cells = [[" "] * columns.num_cells for _ in range(rows.num_cells)]
    for layer in layers:
        for polarity, similarity in layer.points:
            row = rows.cell(polarity)
            column = columns.cell(similarity)
            cells[row][column] = layer.sign
    lines = []
    for label, characters in zip(labels, cells, strict=True):
        line = f"{label:>{LABEL_WIDTH}} |{''.join(characters)}"
        lines.append(line.rstrip())
    return lines[::-1]


def _format(score: float) -> str:
    return f"{100 * score:.1f}"
