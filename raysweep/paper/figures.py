"""Figures of layouts as PNG bytes, in the style of the report's figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from raysweep.paper.model_scores import Scores
from raysweep.report.style import INK, PALETTE, STYLE, add_legend, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POLARITY, SIMILARITY = "polarity P (x100)", "similarity S (x100)"

REFERENCE: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 2)), "linewidth": 1.0}
LINE: dict[str, Any] = {"marker": "o", "markersize": 4, "linewidth": 1.2}
DASHED: dict[str, Any] = {"marker": "s", "markersize": 4, "linewidth": 1.2, "linestyle": (0, (3, 1.5))}
POINT: dict[str, Any] = {"s": 9, "alpha": 0.55, "linewidths": 0, "zorder": 3}
BOX: dict[str, Any] = {"color": INK, "linewidth": 0.9}
MEDIAN: dict[str, Any] = {"color": INK, "linewidth": 1.5}

BOX_WIDTH, CAP_WIDTH = 0.55, 0.28  # relative to the distance between boxes

MAX_SPREAD = 0.17  # maximum offset of points from the middle of a box


@dataclass(frozen=True)
class ScoresAtK:
    """Scores of one encoder at one k: means and standard deviations over queries, x100."""

    model: str
    rank_weights: str
    k: int
    polarity_mean: float
    similarity_mean: float
    polarity_std: float | None = None
    similarity_std: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class Spread:
    """The configurations of one model and N: their scores x100, on one split after the last rung."""

    model: str
    num_examples: int
    polarities: Sequence[float]
    similarities: Sequence[float]


@dataclass(frozen=True)
class Best:
    """The best P and the best S of a loss at one rung, x100, and the configurations that reached them."""

    rung: int
    num_configurations: int
    polarity: float
    polarity_of: str
    similarity: float
    similarity_of: str


@dataclass(frozen=True)
class Curves:
    """The best scores of all losses on one model, by increasing rung, and its reference's on the same split."""

    name: str
    losses: Mapping[str, Sequence[Best]]
    reference: Scores | None


def draw_by_k(curves: Sequence[Sequence[ScoresAtK]]) -> bytes:
    """Draw P and S against k: a color for each model, a panel for each kind of rank weights."""
    import matplotlib
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(curve[0].rank_weights for curve in curves))
    colors = _colors([curve[0].model for curve in curves])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6 if len(kinds) == 1 else 4.8 * len(kinds), 4.4), layout="constrained")
        axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axis, kind in zip(axes, kinds, strict=True):
            axis.set_title(f"{kind} rank weights", fontsize=9.5)
            axis.set_xlabel("k, retrieved sentences")
            panel_ks: set[int] = set()
            for curve in curves:
                if curve[0].rank_weights == kind:
                    color = colors[curve[0].model]
                    ks = [scores.k for scores in curve]
                    axis.plot(ks, [scores.polarity_mean for scores in curve], color=color, **LINE)
                    axis.plot(ks, [scores.similarity_mean for scores in curve], color=color, **DASHED)
                    panel_ks |= set(ks)
            _scale_to_doublings(axis, sorted(panel_ks))
        axes[0].set_ylabel("P and S (x100)")
        for name, color in colors.items():
            axes[0].plot([], [], color=color, label=name)
        axes[0].plot([], [], color=INK, label="polarity P", **LINE)
        axes[0].plot([], [], color=INK, label="similarity S", **DASHED)
        add_legend(figure)
        return png(figure)


def draw_spreads(spreads: Sequence[Spread], overall: Sequence[Spread], models: Sequence[str]) -> bytes:
    """Draw P and S against N: a box over all configurations, and a point for each in its model's color."""
    import matplotlib
    from matplotlib.figure import Figure

    colors = _colors(models)
    places = {spread.num_examples: place for place, spread in enumerate(overall)}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 5.4), layout="constrained")
        axes = figure.subplots(2, 1, sharex=True)
        for axis, label in zip(axes, (POLARITY, SIMILARITY), strict=True):
            axis.set_ylabel(label)
            for spread in overall:
                scores = spread.polarities if label == POLARITY else spread.similarities
                _draw_box(axis, places[spread.num_examples], scores)
            for spread in spreads:
                scores = spread.polarities if label == POLARITY else spread.similarities
                index, count = models.index(spread.model), len(models)
                offset = 0.0 if count == 1 else MAX_SPREAD * (2 * index / (count - 1) - 1)
                x = [places[spread.num_examples] + offset] * len(scores)
                axis.scatter(x, scores, color=colors[spread.model], **POINT)
            axis.set_xticks(list(places.values()), [f"{num_examples:,}" for num_examples in places])
            axis.grid(visible=False, axis="x")
        axes[1].set_xlabel("N, examples per rung")
        for model, color in colors.items():
            axes[0].scatter([], [], s=16, color=color, linewidths=0, label=model)
        add_legend(figure)
        return png(figure)


def draw_curves(models: Sequence[Curves]) -> bytes:
    """Draw each loss's best P and S against rungs: a row of panels per model, with its reference."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    colors = _colors(sorted({loss for model in models for loss in model.losses}))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 0.9 + 2.3 * len(models)), layout="constrained")
        rows = figure.subplots(len(models), 2, sharex=True, squeeze=False)
        for model, (left, right) in zip(models, rows, strict=True):
            left.set_ylabel(POLARITY)
            right.set_ylabel(SIMILARITY)
            left.set_title(model.name, fontsize=9.5)
            for loss, bests in model.losses.items():
                rungs = [best.rung for best in bests]
                left.plot(rungs, [best.polarity for best in bests], color=colors[loss], **LINE)
                right.plot(rungs, [best.similarity for best in bests], color=colors[loss], **LINE)
            if model.reference is not None:
                left.axhline(100 * model.reference.polarity, **REFERENCE)
                right.axhline(100 * model.reference.similarity, **REFERENCE)
            left.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axis in rows[-1]:
            axis.set_xlabel("rung")
        for loss, color in colors.items():
            rows[0][0].plot([], [], color=color, label=loss, **LINE)
        if any(model.reference for model in models):
            rows[0][0].plot([], [], label="reference encoder R", **REFERENCE)
        add_legend(figure)
        return png(figure)


def _draw_box(axis: "Axes", place: float, scores: Sequence[float]) -> None:
    """Draw quartiles and median, with whiskers to minimum and maximum, as in the layout.

    matplotlib's own box plot inspects all of its settings and thereby loads pyplot, so the box is drawn from lines.
    """
    minimum, low, median, high, maximum = np.percentile(scores, [0, 25, 50, 75, 100])
    left, right = place - BOX_WIDTH / 2, place + BOX_WIDTH / 2
    axis.plot([left, right, right, left, left], [low, low, high, high, low], **BOX)
    axis.plot([left, right], [median, median], **MEDIAN)
    for end, quartile in ((minimum, low), (maximum, high)):
        axis.plot([place, place], [quartile, end], **BOX)
        axis.plot([place - CAP_WIDTH / 2, place + CAP_WIDTH / 2], [end, end], **BOX)


def _scale_to_doublings(axis: "Axes", ks: Sequence[int]) -> None:
    """Set a logarithmic scale if k spans a wide range, and a tick at each k if there are few."""
    from matplotlib.ticker import NullLocator, ScalarFormatter

    if ks[-1] >= 4 * ks[0]:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(ScalarFormatter())
    if len(ks) <= 8:
        axis.set_xticks(ks)


def _colors(names: Sequence[str]) -> dict[str, str]:
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(dict.fromkeys(names))}
