"""PNG figures for layouts, in the style of the report."""

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from raysweep.paper.model_scores import NUM_EXAMPLES
from raysweep.report.style import INK, PALETTE, STYLE, add_legend, png

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LABELS = {"polarity": "polarity P (x100)", "similarity": "similarity S (x100)"}

REFERENCE: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 2)), "linewidth": 1.0}
LINE: dict[str, Any] = {"marker": "o", "markersize": 4, "linewidth": 1.2}
DASHED: dict[str, Any] = {
    "marker": "s",
    "markersize": 4,
    "linewidth": 1.2,
    "linestyle": (0, (3, 1.5)),
}
POINT: dict[str, Any] = {"s": 9, "alpha": 0.55, "linewidths": 0, "zorder": 3}
BOX: dict[str, Any] = {"color": INK, "linewidth": 0.9}
MEDIAN: dict[str, Any] = {"color": INK, "linewidth": 1.5}

BOX_WIDTH, CAP_WIDTH = 0.55, 0.28  # relative to the distance between boxes

MAX_SPREAD = 0.17  # maximum offset of points from the center of a box


def draw_by_k(scores: "pd.DataFrame") -> bytes:
    """Plot P and S against k, with one color per model and one panel per kind of rank weights."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator, ScalarFormatter

    panels = list(scores.groupby("rank_weights", sort=False))
    colors = _colors(scores["model"])
    width = 7.6 if len(panels) == 1 else 4.8 * len(panels)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, 4.4), layout="constrained")
        (axes,) = figure.subplots(1, len(panels), sharey=True, squeeze=False)
        for axis, (kind, rows) in zip(axes, panels, strict=True):
            axis.set_title(f"{kind} rank weights", fontsize=9.5)
            axis.set_xlabel("k, retrieved sentences")
            for model, curve in rows.groupby("model", sort=False):
                color = colors[model]
                axis.plot(curve["k"], curve["polarity"], color=color, **LINE)
                axis.plot(curve["k"], curve["similarity"], color=color, **DASHED)
            ks = sorted(set(rows["k"]))
            if ks[-1] >= 4 * ks[0]:
                axis.set_xscale("log", base=2)
                axis.xaxis.set_minor_locator(NullLocator())
                axis.xaxis.set_major_formatter(ScalarFormatter())
            if len(ks) <= 8:
                axis.set_xticks(ks)
        first_axis = axes[0]
        first_axis.set_ylabel("P and S (x100)")
        for name, color in colors.items():
            first_axis.plot([], [], color=color, label=name)
        first_axis.plot([], [], color=INK, label="polarity P", **LINE)
        first_axis.plot([], [], color=INK, label="similarity S", **DASHED)
        add_legend(figure)
        return png(figure)


def draw_spreads(points: "pd.DataFrame") -> bytes:
    """Draw box plots of P and S by N, with one point per configuration in its model's color."""
    import matplotlib
    from matplotlib.figure import Figure

    colors = _colors(points["model"])
    max_spread = MAX_SPREAD if len(colors) > 1 else 0.0
    spread = np.linspace(-max_spread, max_spread, len(colors))
    offsets = dict(zip(colors, spread, strict=True))
    counts = sorted(set(points[NUM_EXAMPLES]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 5.4), layout="constrained")
        axes = figure.subplots(2, 1, sharex=True)
        for axis, (score, label) in zip(axes, LABELS.items(), strict=True):
            axis.set_ylabel(label)
            for place, count in enumerate(counts):
                points_of_count = points[points[NUM_EXAMPLES] == count]
                _draw_box(axis, place, points_of_count[score])
                for model, rows in points_of_count.groupby("model", sort=False):
                    x = np.full(len(rows), place + offsets[model])
                    axis.scatter(x, rows[score], color=colors[model], **POINT)
            axis.set_xticks(range(len(counts)), [f"{count:,}" for count in counts])
            axis.grid(visible=False, axis="x")
        axes[1].set_xlabel("N, examples per rung")
        for model, color in colors.items():
            axes[0].scatter([], [], s=16, color=color, linewidths=0, label=model)
        add_legend(figure)
        return png(figure)


def draw_curves(best: "pd.DataFrame", references: "pd.DataFrame") -> bytes:
    """Plot each loss's best P and S by rung, with one row of panels per model and a line for the reference encoder."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    models = best["model"].cat.categories
    colors = _colors(sorted(best["loss"]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 0.9 + 2.3 * len(models)), layout="constrained")
        panels = figure.subplots(len(models), 2, sharex=True, squeeze=False)
        for model, axes in zip(models, panels, strict=True):
            curves = best[best["model"] == model]
            references_of_model = references[references["model"] == model]
            for axis, (score, label) in zip(axes, LABELS.items(), strict=True):
                axis.set_ylabel(label)
                for loss, curve in curves.groupby("loss"):
                    axis.plot(curve["rung"], curve[score], color=colors[loss], **LINE)
                for level in references_of_model[score]:
                    axis.axhline(level, **REFERENCE)
            axes[0].set_title(model, fontsize=9.5)
            axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        for axis in panels[-1]:
            axis.set_xlabel("rung")
        first_axis = panels[0][0]
        for loss, color in colors.items():
            first_axis.plot([], [], color=color, label=loss, **LINE)
        if not references.empty:
            first_axis.plot([], [], label="reference encoder R", **REFERENCE)
        add_legend(figure)
        return png(figure)


def _draw_box(axis: "Axes", place: float, scores: "pd.Series[float]") -> None:
    """Draw a box plot with whiskers from the minimum to the maximum.

    ``Axes.boxplot`` is not used because it loads pyplot.
    """
    minimum, low, median, high, maximum = np.percentile(scores, [0, 25, 50, 75, 100])
    left, right = place - BOX_WIDTH / 2, place + BOX_WIDTH / 2
    axis.plot([left, right, right, left, left], [low, low, high, high, low], **BOX)
    axis.plot([left, right], [median, median], **MEDIAN)
    for end, quartile in ((minimum, low), (maximum, high)):
        axis.plot([place, place], [quartile, end], **BOX)
        axis.plot([place - CAP_WIDTH / 2, place + CAP_WIDTH / 2], [end, end], **BOX)


def _colors(names: Iterable[str]) -> dict[Any, str]:
    unique_names = dict.fromkeys(names)
    return dict(zip(unique_names, itertools.cycle(PALETTE), strict=False))
