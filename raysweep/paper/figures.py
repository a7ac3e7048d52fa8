"""Figures of the tables as PNG bytes, in the style of the report's figures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raysweep.paper.by_examples import ByExamples, Spread
from raysweep.paper.by_k import ByK, Curve
from raysweep.paper.by_rung import Best, ByRung, Courses
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


def by_k_figure(found: ByK) -> bytes:
    """Return the figure of P and S against k: a color for each model, a panel for each kind of rank weights."""
    import matplotlib
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(curve[0].rank_weights for curve in found.curves))
    colors = _colors([curve[0].model for curve in found.curves])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6 if len(kinds) == 1 else 4.8 * len(kinds), 4.4), layout="constrained")
        axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axis, kind in zip(axes, kinds, strict=True):
            axis.set_title(f"{kind} rank weights", fontsize=9.5)
            axis.set_xlabel("k, retrieved sentences")
            all_ks: set[int] = set()
            for curve in found.curves:
                if curve[0].rank_weights == kind:
                    _draw_curve(axis, curve, colors[curve[0].model])
                    all_ks |= {each.k for each in curve}
            _scale_to_doublings(axis, sorted(all_ks))
        axes[0].set_ylabel("P and S (x100)")
        for name, color in colors.items():
            axes[0].plot([], [], color=color, label=name)
        axes[0].plot([], [], color=INK, label="polarity P", **LINE)
        axes[0].plot([], [], color=INK, label="similarity S", **DASHED)
        add_legend(figure)
        return png(figure)


def by_examples_figure(found: ByExamples) -> bytes:
    """Return the figure of P and S against N: a box over configurations, and a point for each in its model's color."""
    import matplotlib
    from matplotlib.figure import Figure

    colors = _colors(found.models)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 5.4), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        upper.set_ylabel(POLARITY)
        lower.set_ylabel(SIMILARITY)
        _draw_spreads(upper, found, colors, is_polarity=True)
        _draw_spreads(lower, found, colors, is_polarity=False)
        lower.set_xlabel("N, examples per rung")
        for model, color in colors.items():
            upper.scatter([], [], s=16, color=color, linewidths=0, label=model)
        add_legend(figure)
        return png(figure)


def by_rung_figure(found: ByRung) -> bytes:
    """Return the figure of each loss's best P and S against rungs: a row of panels per model, with its reference."""
    import matplotlib
    from matplotlib.figure import Figure

    losses = sorted({course.loss for courses in found.models for course in courses.losses})
    colors = _colors(losses)
    num_models = len(found.models)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 0.9 + 2.3 * num_models), layout="constrained")
        rows = figure.subplots(num_models, 2, sharex=True, squeeze=False)
        for courses, (left, right) in zip(found.models, rows, strict=True):
            left.set_ylabel(POLARITY)
            right.set_ylabel(SIMILARITY)
            left.set_title(courses.model, fontsize=9.5)
            _draw_courses(left, courses, colors, is_polarity=True)
            _draw_courses(right, courses, colors, is_polarity=False)
        for axis in rows[-1]:
            axis.set_xlabel("rung")
        for loss, color in colors.items():
            rows[0][0].plot([], [], color=color, label=loss, **LINE)
        if any(courses.reference for courses in found.models):
            rows[0][0].plot([], [], label="reference encoder R", **REFERENCE)
        add_legend(figure)
        return png(figure)


def _draw_curve(axis: "Axes", curve: Curve, color: str) -> None:
    ks = [each.k for each in curve]
    axis.plot(ks, [each.polarity_mean for each in curve], color=color, **LINE)
    axis.plot(ks, [each.similarity_mean for each in curve], color=color, **DASHED)


def _draw_spreads(axis: "Axes", found: ByExamples, colors: Mapping[str, str], *, is_polarity: bool) -> None:
    """Draw a box for each N, and over it a point for each configuration."""
    places = {spread.num_examples: place for place, spread in enumerate(found.overall)}
    for spread in found.overall:
        _draw_box(axis, places[spread.num_examples], _scores(spread, is_polarity))
    for index, model in enumerate(found.models):
        offset = _offset(index, len(found.models))
        for spread in found.of(model):
            scores = _scores(spread, is_polarity)
            x = [places[spread.num_examples] + offset] * len(scores)
            axis.scatter(x, scores, color=colors[model], **POINT)
    labels = [f"{num_examples:,}" for num_examples in places]
    axis.set_xticks(list(places.values()), labels)
    axis.grid(visible=False, axis="x")


def _draw_box(axis: "Axes", place: float, scores: Sequence[float]) -> None:
    """Draw quartiles and median, with whiskers to minimum and maximum, as in the table.

    matplotlib's own box plot inspects all of its settings and thereby loads pyplot, so the box is drawn from lines.
    """
    least, low, median, high, most = np.percentile(scores, [0, 25, 50, 75, 100])
    left, right = place - BOX_WIDTH / 2, place + BOX_WIDTH / 2
    axis.plot([left, right, right, left, left], [low, low, high, high, low], **BOX)
    axis.plot([left, right], [median, median], **MEDIAN)
    for end, of_box in ((least, low), (most, high)):
        axis.plot([place, place], [of_box, end], **BOX)
        axis.plot([place - CAP_WIDTH / 2, place + CAP_WIDTH / 2], [end, end], **BOX)


def _draw_courses(axis: "Axes", courses: Courses, colors: Mapping[str, str], *, is_polarity: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    for course in courses.losses:
        rungs = [best.rung for best in course.bests]
        scores = [_best_score(best, is_polarity) for best in course.bests]
        axis.plot(rungs, scores, color=colors[course.loss], **LINE)
    if courses.reference is not None:
        reference = courses.reference
        axis.axhline(100 * (reference.polarity if is_polarity else reference.similarity), **REFERENCE)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _best_score(best: Best, is_polarity: bool) -> float:
    return best.polarity if is_polarity else best.similarity


def _scores(spread: Spread, is_polarity: bool) -> Sequence[float]:
    return spread.polarities if is_polarity else spread.similarities


def _offset(index: int, count: int) -> float:
    """Return the horizontal offset of a model's points from the middle of a box."""
    return 0.0 if count == 1 else MAX_SPREAD * (2 * index / (count - 1) - 1)


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
    different = dict.fromkeys(names)
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(different)}
