"""The fronts of several runs in one figure, as PNG bytes."""

from typing import TYPE_CHECKING, Any

from raysweep.metrics.pareto import non_dominated
from raysweep.report.side_by_side import Side, SideBySide
from raysweep.report.style import FAINT, INK, PALETTE, STYLE, add_legend, png
from raysweep.results.types import Point, ScoredSplit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = ("o", "s", "^", "v", "D", "P", "X", "h")  # runs stay distinguishable without color

TITLES = {"dev": "Dev: the fronts", "test": "Test: the fronts chosen on dev"}

ORACLE: dict[str, Any] = {"color": FAINT, "linestyle": (0, (4, 2)), "linewidth": 1.2}
KNEE: dict[str, Any] = {"marker": "*", "s": 150, "edgecolors": INK, "linewidths": 0.8}
REFERENCE: dict[str, Any] = {"marker": "X", "color": INK, "linestyle": "none", "markersize": 8}


def fronts_figure(found: SideBySide) -> bytes:
    """Plot P against S of each front, in a panel per compared split; stars are knees."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6 if len(found.splits) > 1 else 6.4, 5.0), layout="constrained")
        axes = figure.subplots(1, len(found.splits), sharex=True, sharey=True, squeeze=False)[0]
        axes[0].set_ylabel("polarity P (x100)")
        for axis, split in zip(axes, found.splits, strict=True):
            axis.set_title(TITLES[split], fontsize=9.5)
            axis.set_xlabel("similarity S (x100)")
            _draw_limits(axis, found, split)
            for number, side in enumerate(found.sides):
                _draw_front(axis, side, split, number)
        axes[0].scatter([], [], label="knees", color=FAINT, **KNEE)
        add_legend(figure)
        return png(figure)


def _xy(points: list[Point]) -> tuple[list[float], list[float]]:
    return [100 * point.similarity for point in points], [100 * point.polarity for point in points]


def _draw_limits(axis: "Axes", found: SideBySide, split: ScoredSplit) -> None:
    """Draw the oracle front and the reference of the first run that stores them; they are the same for all runs."""
    oracles = [side.summary.oracles[split] for side in found.sides if side.summary.oracles[split]]
    if oracles:
        axis.plot(*_xy(list(oracles[0])), label="oracle front (limit)", zorder=1, **ORACLE)
    references = [side.summary.references[split] for side in found.sides if split in side.summary.references]
    if references:
        axis.plot(*_xy(references[:1]), label="reference encoder R", zorder=4, **REFERENCE)


def _staircase(points: list[Point]) -> list[Point]:
    """Return the non-dominated points by decreasing similarity. On test, some points of the front may be dominated."""
    kept = [points[index] for index in non_dominated([(point.polarity, point.similarity) for point in points])]
    return sorted(kept, key=lambda point: -point.similarity)


def _draw_front(axis: "Axes", side: Side, split: ScoredSplit, number: int) -> None:
    color = PALETTE[number % len(PALETTE)]
    marker = MARKERS[number % len(MARKERS)]
    points = side.front_on(split)
    steps = _xy(_staircase(points))
    axis.step(*steps, where="post", color=color, linewidth=1.0, zorder=2)
    members = _xy(points)
    axis.plot(*members, label=side.label, color=color, marker=marker, markersize=4.5, linestyle="none", zorder=3)
    knees = _xy(_knees(side, split))
    axis.scatter(*knees, color=color, zorder=5, **KNEE)


def _knees(side: Side, split: ScoredSplit) -> list[Point]:
    """Return the run's knee if it is scored on the split."""
    members = [member for member in side.summary.members if member.is_knee]
    return [point for member in members if (point := member.on(split))]
