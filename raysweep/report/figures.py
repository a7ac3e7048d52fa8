"""The report's figures as PNG bytes. Drawn without pyplot, so no global state and no display is needed."""

import io
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raysweep.report.summary import SPLITS, Summary, TrialSummary, half_width
from raysweep.report.tables import kind_name
from raysweep.results.types import Point, ScoredSplit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's palette: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#5F4690")


MARKERS = {"plain": "o", "concat": "s", "class_concat": "^", "interpolate": "v"}


ENDS = {"completed": "o", "stopped": "x", "held": "s", "interrupted": "^", "failed": "P", "running": ">"}


ENDINGS = {"stopped": "stopped early", "held": "held, may go on"}  # where the status alone does not say it


INK, FAINT = "#222222", "#8a8a8a"


MAX_JOINED = 20  # trajectories; with more, the figure is a ball of wool


MAX_LARGE = 30  # front members; with more, their markers are small


DOTS_PER_INCH = 220


ORACLE: dict[str, Any] = {"color": FAINT, "linestyle": (0, (4, 2)), "linewidth": 1.2}


LEAST: dict[str, Any] = {"color": "#B00020", "linestyle": ":", "linewidth": 1.1, "zorder": 1}


REFERENCE: dict[str, Any] = {"marker": "X", "color": INK, "linewidths": 0}


FRONT: dict[str, Any] = {"color": INK, "linewidth": 1.1}


BEST: dict[str, Any] = {"marker": "D", "color": "none", "edgecolors": INK, "linewidths": 1.1}


KNEE: dict[str, Any] = {"marker": "*", "color": "#F0E442", "edgecolors": INK, "linewidths": 0.8}


STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.edgecolor": FAINT,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def front_figure(summary: Summary) -> bytes:
    """P against S: every point and the front on dev, and beside it the front's scores on test where they were read."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        splits = SPLITS if summary.has_test else SPLITS[:1]
        figure = Figure(figsize=(9.6 if summary.has_test else 7.6, 5.4), layout="constrained")
        axes = figure.subplots(1, len(splits), sharex=True, sharey=True, squeeze=False)[0]
        titles = {"dev": "Dev: every point, and the front", "test": "Test: the front chosen on dev, with 95% intervals"}
        for axis, split in zip(axes, splits, strict=True):
            axis.set_title(titles[split], fontsize=9.5)
            axis.set_xlabel("similarity S (x100)")
            _context(axis, summary, split)
        axes[0].set_ylabel("polarity P (x100)")
        if summary.members:
            _cloud(axes[0], summary)
            for axis, split in zip(axes, splits, strict=True):
                _front(axis, summary, split)
        else:
            axes[0].text(0.5, 0.5, "No rung finished", transform=axes[0].transAxes, ha="center", color=FAINT, size=14)
        _front_legend(figure, summary)
        return _png(figure)


def progress_figure(summary: Summary) -> bytes:
    """The objective against examples seen, a line per trial that ends in how the trial ended."""
    import matplotlib
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 4.2), layout="constrained")
        axis = figure.subplots()
        colours = _colours(summary)
        drawn = [each for each in summary.trials if each.rungs]
        many = len(drawn) > 100
        by_loss: dict[str, list[list[tuple[float, float]]]] = defaultdict(list)
        ends: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for each in drawn:
            values = (100 * value for value in each.objectives)
            line = [(float(r.examples_seen), v) for r, v in zip(each.rungs, values, strict=True)]
            by_loss[_loss(each)].append(line)
            ends[each.trial.status, _loss(each)].append(line[-1])
        for loss, lines in sorted(by_loss.items()):
            axis.plot([], [], color=colours[loss], label=loss)
            axis.add_collection(
                LineCollection(lines, colors=colours[loss], linewidths=0.9, alpha=0.25 if many else 0.7)
            )
        for status in sorted({status for status, _ in ends}, key=list(ENDS).index):
            marker = ENDS[status]
            axis.scatter([], [], marker=marker, s=26, color=INK, label=ENDINGS.get(status, status))
            for (ended, loss), points in ends.items():
                if ended == status:
                    size = 10 if many else 26
                    x, y = zip(*points, strict=True)
                    axis.scatter(x, y, marker=marker, s=size, color=colours[loss], zorder=3)
        seen = sorted({rung.examples_seen for each in drawn for rung in each.rungs})
        if seen and seen[-1] >= 8 * seen[0]:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_minor_locator(NullLocator())
        if 0 < len(seen) <= 8:
            axis.set_xticks(seen)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.set_xlabel("training examples seen")
        axis.set_ylabel("objective on dev (x100)")
        if not drawn:
            axis.text(0.5, 0.5, "No rung finished", transform=axis.transAxes, ha="center", color=FAINT, size=14)
            axis.set(xticks=[], yticks=[])
        axis.autoscale_view()
        _legend(figure)
        return _png(figure)


def _loss(each: TrialSummary) -> str:
    return str(each.trial.config.get("loss", "trials"))


def _colours(summary: Summary) -> dict[str, str]:
    losses = sorted({_loss(each) for each in summary.trials})
    return {loss: COLOURS[i % len(COLOURS)] for i, loss in enumerate(losses)}


def _xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [100 * point.similarity for point in points], [100 * point.polarity for point in points]


def _context(axis: "Axes", summary: Summary, split: ScoredSplit) -> None:
    """The limit that no encoder passes, the encoder that the sweep set out from, and what the constraints demand."""
    if summary.oracles[split]:
        axis.plot(*_xy(summary.oracles[split]), **ORACLE)
    if split in summary.references:
        axis.scatter(*_xy([summary.references[split]]), s=70, zorder=6, **REFERENCE)
    objective = summary.objectives_by_split.get(split)
    if objective and objective.min_polarity:
        axis.axhline(100 * objective.min_polarity, **LEAST)
    if objective and objective.min_similarity:
        axis.axvline(100 * objective.min_similarity, **LEAST)


def _cloud(axis: "Axes", summary: Summary) -> None:
    """All points of all rungs, faint, with the best trials' plain points joined in the order of training."""
    from matplotlib.collections import LineCollection

    colours = _colours(summary)
    loss_of = {each.trial.trial: _loss(each) for each in summary.trials}
    points: dict[str, list[Point]] = defaultdict(list)
    plain: dict[int, list[Point]] = defaultdict(list)
    for point in summary.results.points:
        if point.split == "dev" and point.trial in loss_of:
            points[loss_of[point.trial]].append(point)
            if point.kind == "plain":
                plain[point.trial].append(point)
    for loss, own in points.items():
        axis.scatter(*_xy(own), s=11, color=colours[loss], alpha=0.4, linewidths=0, zorder=2)
    tried = [each for each in summary.trials if each.best]
    ranked = sorted(tried, key=lambda each: (each.is_feasible, each.objective), reverse=True)
    for each in ranked[:MAX_JOINED]:
        path = sorted(plain[each.trial.trial], key=lambda point: point.step or 0)
        if len(path) > 1:
            line = list(zip(*_xy(path), strict=True))
            axis.add_collection(
                LineCollection([line], colors=colours[_loss(each)], linewidths=0.6, alpha=0.4, zorder=1)
            )


def _front(axis: "Axes", summary: Summary, split: ScoredSplit) -> None:
    colours = _colours(summary)
    loss_of = {each.trial.trial: _loss(each) for each in summary.trials}
    members = [(member, point) for member in summary.members if (point := member.on(split))]
    if split == "dev":
        # Falling similarity: a step goes up at the lower similarity, so the corner is what both points dominate.
        axis.step(*_xy([point for _, point in members]), where="post", zorder=3, **FRONT)
    else:
        queries = summary.results.info.num_queries[split]
        bars = [[100 * half_width(s, queries) for s in (p.similarity_std, p.polarity_std)] for _, p in members]
        xerr, yerr = zip(*bars, strict=True)
        axis.errorbar(*_xy([p for _, p in members]), yerr, xerr, fmt="none", ecolor=FAINT, elinewidth=0.7, zorder=2)
    size = 34 if len(members) <= MAX_LARGE else 16
    for member, point in members:
        (x,), (y,) = _xy([point])
        face = colours[loss_of[point.trial or 0]] if member.is_feasible else "white"
        marker = MARKERS.get(point.kind, "h")
        axis.scatter(x, y, marker=marker, s=size, color=face, edgecolors=INK, linewidths=0.8, zorder=4)
        if member.is_best:
            axis.scatter(x, y, s=120, zorder=5, **BEST)
        if member.is_knee:
            axis.scatter(x, y, s=190, zorder=7, **KNEE)


def _front_legend(figure: "Figure", summary: Summary) -> None:
    """Entries in one size and a fixed order, whatever was drawn where."""
    axis = figure.axes[0]
    if summary.members:
        for loss, colour in _colours(summary).items():
            axis.scatter([], [], s=34, color=colour, linewidths=0, label=loss)
    for kind in dict.fromkeys(member.dev.kind for member in summary.members):
        label = "front member" if kind == "plain" else f"front member, {kind}"
        axis.scatter([], [], marker=MARKERS.get(kind, "h"), s=34, color=FAINT, edgecolors=INK, label=label)
    if not all(member.is_feasible for member in summary.members):
        axis.scatter([], [], marker="o", s=34, color="white", edgecolors=INK, label="misses a constraint")
    if summary.members:
        axis.plot([], [], label="front on dev", **FRONT)
    for member in summary.members:
        name = f"trial {member.dev.trial}" + ("" if member.dev.kind == "plain" else f", {kind_name(member.dev)}")
        if member.is_knee:
            axis.scatter([], [], s=85, label=f"knee ({name})", **KNEE)
        if member.is_best:
            axis.scatter([], [], s=45, label=f"best objective ({name})", **BEST)
    if summary.references:
        axis.scatter([], [], s=50, label="reference encoder R", **REFERENCE)
    if summary.results.info.constraints:
        axis.plot([], [], label="constraints", **LEAST)
    if any(summary.oracles.values()):
        axis.plot([], [], label="oracle front (limit)", **ORACLE)
    _legend(figure)


def _legend(figure: "Figure") -> None:
    """In as many columns as the figure is wide enough for."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for ncols in (4, 3, 2) if handles else ():
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=ncols)
        if legend.get_window_extent().width <= 0.98 * figure.bbox.width:
            break
        legend.remove()


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
    return buffer.getvalue()
