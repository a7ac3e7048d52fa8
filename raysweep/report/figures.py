"""The report's figures as PNG bytes, drawn without pyplot to avoid its global state."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raysweep.metrics.pareto import non_dominated
from raysweep.metrics.scores import Goals, Pair, spec_of
from raysweep.report.side_by_side import Side, SideBySide
from raysweep.report.statuses import STATUS_STYLES, standing
from raysweep.report.style import FAINT, INK, PALETTE, STYLE, add_legend, png
from raysweep.report.summary import Summary, TrialSummary
from raysweep.report.tables import kind_name
from raysweep.results.types import OWN_KINDS, Point, ScoredSplit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colors = Mapping[str, str]  # keyed by loss

KIND_MARKERS = {
    "plain": "o",
    "concat": "s",
    "class_concat": "^",
    "interpolate": "v",
    "truncate": "D",
    "query": "P",
    "query_concat": "X",
}
OTHER_KIND = "h"

MAX_JOINED = 20  # maximum number of trajectories drawn
MAX_LARGE = 30  # if the front has more members, their markers are small
MANY_TRIALS = 100  # with more trials, lines are faint and end markers are small

# Keyword arguments for matplotlib.
ORACLE: dict[str, Any] = {"color": FAINT, "linestyle": (0, (4, 2)), "linewidth": 1.2}
CONSTRAINT: dict[str, Any] = {"color": "#B00020", "linestyle": ":", "linewidth": 1.1, "zorder": 1}
REFERENCE: dict[str, Any] = {"marker": "X", "color": INK, "linewidths": 0}
PROBE: dict[str, Any] = {"marker": "d", "facecolors": "white", "edgecolors": INK, "linewidths": 0.9}
PROBE_LINE: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 0.9}
SETFIT: dict[str, Any] = {"marker": "P", "color": INK, "edgecolors": "white", "linewidths": 0.6}
PUBLISHED: dict[str, Any] = {"marker": "x", "color": FAINT, "linewidths": 1.1}
FRONT: dict[str, Any] = {"color": INK, "linewidth": 1.1}
LABELED: dict[str, Any] = {"color": "#AA3377", "linestyle": (0, (1, 1.5)), "linewidth": 1.1}
BEST: dict[str, Any] = {"marker": "D", "color": "none", "edgecolors": INK, "linewidths": 1.1}
CROSS: dict[str, Any] = {"color": FAINT, "linewidth": 0.7, "zorder": 2}
MEMBER: dict[str, Any] = {"edgecolors": INK, "linewidths": 0.8, "zorder": 4}
KNEE: dict[str, Any] = {"marker": "*", "color": "#F0E442", "edgecolors": INK, "linewidths": 0.8}
SIDE_KNEE: dict[str, Any] = {"marker": "*", "s": 150, "edgecolors": INK, "linewidths": 0.8}
SIDE_REFERENCE: dict[str, Any] = {"marker": "X", "color": INK, "linestyle": "none", "markersize": 8}

BASELINE_STYLES = {"probe": PROBE, "setfit": SETFIT, "published": PUBLISHED}
BASELINE_SIZES = {"probe": 30, "setfit": 55, "published": 30}
BASELINE_NAMES = {"probe": "probe(g) on R", "setfit": "SetFit", "published": "published"}

TITLES: Mapping[ScoredSplit, str] = {
    "dev": "Dev: all points and the front",
    "test": "Test: the front chosen on dev",
}


def front_figure(summary: Summary) -> bytes:
    """Plot P against S on dev, and also on test if all front members are scored there."""
    import matplotlib

    splits = summary.complete_splits
    titles = [TITLES[split] for split in splits]
    has_test_intervals = "test" in splits and "test" in summary.uncertainty
    if has_test_intervals:
        level = summary.uncertainty["test"].level
        titles[-1] += f", with {level:.0%} intervals"
    with matplotlib.rc_context(STYLE):
        width = 9.6 if len(splits) > 1 else 7.6
        figure, axes = _panels(titles, (width, 5.4), summary.goals)
        panels = list(zip(axes, splits, strict=True))
        for axis, split in panels:
            _draw_limits(axis, summary, split)
            labeled = summary.labeled_front.on(split)
            x, y = _xy(labeled, summary.goals)
            axis.plot(x, y, zorder=2.3, **LABELED)
            _draw_baselines(axis, summary, split)
        dev_axis = axes[0]
        if summary.members:
            colors = _loss_colors(summary)
            _draw_all_points(dev_axis, summary, colors)
            _draw_trajectories(dev_axis, summary, colors)
            for axis, split in panels:
                _draw_front(axis, summary, split, colors)
        else:
            _label_as_empty(dev_axis)
        _add_front_legend(figure, summary)
        return png(figure)


def _panels(titles: Sequence[str], size: Pair, goals: Goals) -> tuple["Figure", Sequence["Axes"]]:
    """Return a figure with one P-S panel per title; ``size`` is in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes: Sequence[Axes] = figure.subplots(1, len(titles), sharex=True, sharey=True, squeeze=False)[
        0
    ]
    axes[0].set_ylabel(f"{spec_of(goals.p).label} (x100)")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=9.5)
        axis.set_xlabel(f"{spec_of(goals.s).label} (x100)")
    return figure, axes


def progress_figure(summary: Summary) -> bytes:
    """Plot the objective against training examples, with a line per trial and a marker that shows its status."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 4.2), layout="constrained")
        axis = figure.subplots()
        colors = _loss_colors(summary)
        evaluated = [trial for trial in summary.trials if trial.rungs]
        _draw_curves(axis, evaluated, colors)
        _draw_endings(axis, evaluated, colors)
        examples = sorted({rung.examples_seen for trial in evaluated for rung in trial.rungs})
        if examples and examples[-1] >= 8 * examples[0]:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_minor_locator(NullLocator())
        # label every rung if there are few
        if 0 < len(examples) <= 8:
            axis.set_xticks(examples)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.set_xlabel("training examples seen")
        axis.set_ylabel("objective on dev (x100)")
        if not evaluated:
            _label_as_empty(axis)
            axis.set(xticks=[], yticks=[])
        axis.autoscale_view()
        add_legend(figure)
        return png(figure)


def _loss_of(trial: TrialSummary) -> str:
    return str(trial.trial.config.get("loss", "trials"))


def _loss_by_trial(summary: Summary) -> dict[int | None, str]:
    return {trial.trial.trial: _loss_of(trial) for trial in summary.trials}


def _loss_colors(summary: Summary) -> Colors:
    losses = sorted({_loss_of(trial) for trial in summary.trials})
    return {loss: PALETTE[i % len(PALETTE)] for i, loss in enumerate(losses)}


def _xy(points: Sequence[Point], goals: Goals) -> tuple[list[float], list[float]]:
    return [100 * point[goals.s] for point in points], [100 * point[goals.p] for point in points]


def _label_as_empty(axis: "Axes") -> None:
    axis.text(
        0.5,
        0.5,
        "No rungs have finished",
        transform=axis.transAxes,
        ha="center",
        color=FAINT,
        size=14,
    )


def _draw_limits(axis: "Axes", summary: Summary, split: ScoredSplit) -> None:
    """Draw the oracle front, the reference encoder and the constraints."""
    oracle = summary.oracles[split]
    if oracle:
        x, y = _xy(oracle, summary.goals)
        axis.plot(x, y, **ORACLE)
    reference = summary.references.get(split)
    if reference is not None:
        x, y = _xy([reference], summary.goals)
        axis.scatter(x, y, s=70, zorder=6, **REFERENCE)
    objective = summary.objectives_by_split.get(split)
    if objective is None:
        return
    if objective.min_polarity:
        axis.axhline(100 * objective.min_polarity, **CONSTRAINT)
    if objective.min_similarity:
        axis.axvline(100 * objective.min_similarity, **CONSTRAINT)


def _draw_baselines(axis: "Axes", summary: Summary, split: ScoredSplit) -> None:
    for kind, style in BASELINE_STYLES.items():
        by_split = [baseline.points for baseline in summary.baselines if baseline.kind == kind]
        points = [points[split] for points in by_split if split in points]
        x, y = _xy(points, summary.goals)
        if kind == "probe":
            axis.plot(x, y, zorder=2.4, **PROBE_LINE)
        axis.scatter(x, y, s=BASELINE_SIZES[kind], zorder=2.5, **style)


def _draw_all_points(axis: "Axes", summary: Summary, colors: Colors) -> None:
    """Draw the dev points from all rungs as faint dots."""
    loss_by_trial = _loss_by_trial(summary)
    points_by_loss: dict[str, list[Point]] = defaultdict(list)
    for point in summary.results.points:
        if point.split == "dev" and point.trial in loss_by_trial:
            points_by_loss[loss_by_trial[point.trial]].append(point)
    for loss, points in points_by_loss.items():
        axis.scatter(
            *_xy(points, summary.goals), s=11, color=colors[loss], alpha=0.4, linewidths=0, zorder=2
        )


def _draw_trajectories(axis: "Axes", summary: Summary, colors: Colors) -> None:
    """Draw lines through the best trials' plain points, in training order."""
    from matplotlib.collections import LineCollection

    plain_points = defaultdict(list)  # keyed by trial
    for point in summary.results.points:
        if point.split == "dev" and point.kind in OWN_KINDS:
            plain_points[point.trial].append(point)
    evaluated = [trial for trial in summary.trials if trial.best]
    ranked = sorted(evaluated, key=lambda trial: (trial.is_feasible, trial.objective), reverse=True)
    for trial in ranked[:MAX_JOINED]:
        points = plain_points[trial.trial.trial]
        points.sort(key=lambda point: point.step or 0)
        if len(points) > 1:
            x, y = _xy(points, summary.goals)
            line = list(zip(x, y, strict=True))
            color = colors[_loss_of(trial)]
            trajectory = LineCollection([line], colors=color, linewidths=0.6, alpha=0.4, zorder=1)
            axis.add_collection(trajectory)


def _draw_front(axis: "Axes", summary: Summary, split: ScoredSplit, colors: Colors) -> None:
    points = summary.front.on(split)
    if split == "dev":
        # Points are sorted by decreasing S, so "post" steps bound the dominated area.
        x, y = _xy(points, summary.goals)
        axis.step(x, y, where="post", zorder=3, **FRONT)
    else:
        _draw_intervals(axis, summary, points)
    loss_by_trial = _loss_by_trial(summary)
    size = 34 if len(points) <= MAX_LARGE else 16
    for member in summary.members:
        point = member.on(split)
        if point is None:
            continue
        loss = loss_by_trial[point.trial or 0]
        color = colors[loss] if member.is_feasible else "white"
        x, y = _xy([point], summary.goals)
        axis.scatter(x, y, marker=_kind_marker(point.kind), s=size, color=color, **MEMBER)
        if member.is_best:
            axis.scatter(x, y, s=120, zorder=5, **BEST)
        if member.is_knee:
            axis.scatter(x, y, s=190, zorder=7, **KNEE)


def _draw_intervals(axis: "Axes", summary: Summary, points: Iterable[Point]) -> None:
    """Draw each point's intervals for P and S as a cross."""
    for point in points:
        intervals = summary.intervals_of(point)
        if intervals is None:
            continue
        goals = summary.goals
        y, x = (100 * score for score in point.pair(goals))
        across, upright = intervals[goals.s], intervals[goals.p]
        if across.is_finite:
            ends = [100 * across.low, 100 * across.high]
            axis.plot(ends, [y, y], **CROSS)
        if upright.is_finite:
            ends = [100 * upright.low, 100 * upright.high]
            axis.plot([x, x], ends, **CROSS)


def _add_front_legend(figure: "Figure", summary: Summary) -> None:
    """Add a legend with entries of fixed sizes in a fixed order."""
    axis = figure.axes[0]
    if summary.members:
        _label_front(axis, summary)
    if summary.references:
        _label_marker(axis, "reference encoder R", size=50, **REFERENCE)
    constraints = summary.results.info.constraints
    if constraints:
        axis.plot([], [], label="constraints", **CONSTRAINT)
    has_oracle = any(summary.oracles.values())
    if has_oracle:
        axis.plot([], [], label="oracle front (limit)", **ORACLE)
    if summary.labeled:
        axis.plot([], [], label="with known pool labels", **LABELED)
    kinds = [baseline.kind for baseline in summary.baselines]
    for kind in dict.fromkeys(kinds):
        size = BASELINE_SIZES[kind]
        style = BASELINE_STYLES[kind]
        _label_marker(axis, BASELINE_NAMES[kind], size=size, **style)
    add_legend(figure)


def _label_front(axis: "Axes", summary: Summary) -> None:
    for loss, color in _loss_colors(summary).items():
        _label_marker(axis, loss, size=34, color=color, linewidths=0)
    kinds = [member.dev.kind for member in summary.members]
    for kind in dict.fromkeys(kinds):
        label = "front member" if kind == "plain" else f"front member, {kind}"
        _label_marker(axis, label, size=34, marker=_kind_marker(kind), color=FAINT, edgecolors=INK)
    if not all(member.is_feasible for member in summary.members):
        _label_marker(
            axis, "violates a constraint", size=34, marker="o", color="white", edgecolors=INK
        )
    axis.plot([], [], label="front on dev", **FRONT)
    for member in summary.members:
        point = member.dev
        name = f"trial {point.trial}"
        if point.kind != "plain":
            name += f", {kind_name(point)}"
        if member.is_knee:
            _label_marker(axis, f"knee ({name})", size=85, **KNEE)
        if member.is_best:
            _label_marker(axis, f"best objective ({name})", size=45, **BEST)


def _label_marker(axis: "Axes", label: str, size: int, **style: Any) -> None:
    """Add a legend entry for a marker."""
    axis.scatter([], [], s=size, label=label, **style)


def _kind_marker(kind: str) -> str:
    return KIND_MARKERS.get(kind, OTHER_KIND)


def _curve(trial: TrialSummary) -> list[Pair]:
    """Return (examples seen, objective x100) for each rung."""
    examples = [float(rung.examples_seen) for rung in trial.rungs]
    objectives = [100 * objective for objective in trial.objectives]
    return list(zip(examples, objectives, strict=True))


def _draw_curves(axis: "Axes", trials: Sequence[TrialSummary], colors: Colors) -> None:
    from matplotlib.collections import LineCollection

    alpha = 0.25 if len(trials) > MANY_TRIALS else 0.7
    curves_by_loss = defaultdict(list)
    for trial in trials:
        loss = _loss_of(trial)
        curve = _curve(trial)
        curves_by_loss[loss].append(curve)
    for loss in sorted(curves_by_loss):
        curves = curves_by_loss[loss]
        color = colors[loss]
        axis.plot([], [], color=color, label=loss)
        lines = LineCollection(curves, colors=color, linewidths=0.9, alpha=alpha)
        axis.add_collection(lines)


def _draw_endings(axis: "Axes", trials: Sequence[TrialSummary], colors: Colors) -> None:
    """Mark the end of each curve with a symbol for the trial's status."""
    size = 10 if len(trials) > MANY_TRIALS else 26
    for status, style in STATUS_STYLES.items():
        ended = [trial for trial in trials if standing(trial.trial) == status]
        if ended:
            _label_marker(axis, style.legend, size=26, marker=style.marker, color=INK)
        ends_by_loss = defaultdict(list)
        for trial in ended:
            loss = _loss_of(trial)
            *_, end = _curve(trial)
            ends_by_loss[loss].append(end)
        for loss, ends in ends_by_loss.items():
            x, y = zip(*ends, strict=True)
            axis.scatter(x, y, marker=style.marker, s=size, color=colors[loss], zorder=3)


MARKERS = ("o", "s", "^", "v", "D", "P", "X", "h")  # distinguish runs in grayscale

COMPARISON_TITLES = {"dev": "Dev: the fronts", "test": "Test: the fronts chosen on dev"}


def comparison_figure(comparison: SideBySide) -> bytes:
    """Plot P against S for each run's front, with one panel per compared split; stars mark the knees."""
    import matplotlib

    splits = comparison.splits
    titles = [COMPARISON_TITLES[split] for split in splits]
    with matplotlib.rc_context(STYLE):
        width = 9.6 if len(splits) > 1 else 6.4
        figure, axes = _panels(titles, (width, 5.0), comparison.goals)
        for axis, split in zip(axes, splits, strict=True):
            _draw_common_limits(axis, comparison, split)
            for number, side in enumerate(comparison.sides):
                _draw_side(axis, side, split, number)
        axes[0].scatter([], [], label="knees", color=FAINT, **SIDE_KNEE)
        add_legend(figure)
        return png(figure)


def _draw_common_limits(axis: "Axes", comparison: SideBySide, split: ScoredSplit) -> None:
    """Draw the oracle front and the reference, which are the same for all runs."""
    summaries = [side.summary for side in comparison.sides]
    oracles = [summary.oracles[split] for summary in summaries if summary.oracles[split]]
    if oracles:
        axis.plot(
            *_xy(oracles[0], comparison.goals), label="oracle front (limit)", zorder=1, **ORACLE
        )
    references = [summary.references[split] for summary in summaries if split in summary.references]
    if references:
        axis.plot(
            *_xy(references[:1], comparison.goals),
            label="reference encoder R",
            zorder=4,
            **SIDE_REFERENCE,
        )


def _draw_side(axis: "Axes", side: Side, split: ScoredSplit, number: int) -> None:
    """Draw a run's front; the line skips members that are dominated on this split."""
    color = PALETTE[number % len(PALETTE)]
    marker = MARKERS[number % len(MARKERS)]
    points = side.front.on(split)
    goals = side.summary.goals
    scores = [point.pair(goals) for point in points]
    corners = [points[index] for index in non_dominated(scores)]
    corners.sort(key=lambda point: -point[goals.s])
    x, y = _xy(corners, goals)
    axis.step(x, y, where="post", color=color, linewidth=1.0, zorder=2)
    x, y = _xy(points, goals)
    axis.plot(
        x,
        y,
        label=side.label,
        color=color,
        marker=marker,
        markersize=4.5,
        linestyle="none",
        zorder=3,
    )
    knee = side.front.knee
    knee_point = None if knee is None else knee.on(split)
    if knee_point is not None:
        x, y = _xy([knee_point], goals)
        axis.scatter(x, y, color=color, zorder=5, **SIDE_KNEE)
