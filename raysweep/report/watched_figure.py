"""A figure of the changes on watched data by learning rate."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raysweep.metrics.closeness import Geometry
from raysweep.metrics.measured_value import MeasuredValue
from raysweep.report.style import FAINT, INK, PALETTE, STYLE, add_legend, png
from raysweep.report.watched_trials import adiabatic_range
from raysweep.results.watched import WatchedRung

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR_UP_TO = 10  # percent

MAX_TICKS = 10  # maximum number of learning rates labeled on the axis

LINE_STYLES = ("-", "--", ":", "-.")


def figure(rungs: Sequence[WatchedRung], geometry: Geometry) -> bytes:
    """Plot each source's relative improvement and the verdict counts against the learning rate.

    Open markers show insignificant changes. The improvement axis is linear up to 10% and logarithmic beyond.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(7.2, 6.4), layout="constrained")
        upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _draw_improvements(upper, rungs, geometry)
        _draw_counts(lower, rungs, geometry)
        add_legend(drawn)
        return png(drawn)


def _draw_improvements(axes: "Axes", rungs: Sequence[WatchedRung], geometry: Geometry) -> None:
    rates = [rung.watched.learning_rate for rung in rungs]
    targets = [rung.watched.target for rung in rungs]
    values = [target.whole_by(geometry) for target in targets if target is not None]
    if targets[0] is not None:
        _draw_line(
            axes, rates, values, color=INK, linewidth=1.8, label=f"{targets[0].name} (target)"
        )
    for number, watched_set in enumerate(rungs[0].watched.sets):
        values = [rung.watched.sets[number].whole_by(geometry) for rung in rungs]
        cycle, color = divmod(number, len(PALETTE))
        dashes = LINE_STYLES[cycle % len(LINE_STYLES)]
        _draw_line(
            axes,
            rates,
            values,
            color=PALETTE[color],
            linewidth=0.9,
            linestyle=dashes,
            label=watched_set.name,
        )
    adiabatic = adiabatic_range(rungs, geometry)
    if adiabatic is not None:
        for is_in_range, run in itertools.groupby(adiabatic.tried, adiabatic.rates.__contains__):
            if is_in_range:
                neighbors = list(run)
                axes.axvspan(
                    neighbors[0] / 1.15,
                    neighbors[-1] * 1.15,
                    color=PALETTE[2],
                    alpha=0.15,
                    linewidth=0,
                )
        axes.set_title(str(adiabatic), fontsize=8)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    bottom, top = axes.get_ylim()
    if max(-bottom, top) > LINEAR_UP_TO:
        axes.set_yscale("symlog", linthresh=LINEAR_UP_TO)
    axes.yaxis.set_major_formatter("{x:+g}")
    axes.set_ylabel(f"relative improvement in PND ({geometry}, %)")


def _draw_line(
    axes: "Axes",
    rates: Sequence[float],
    values: Sequence[MeasuredValue],
    *,
    color: str,
    **style: Any,
) -> None:
    improvements = [100 * (value.improvement or 0.0) for value in values]
    axes.plot(rates, improvements, color=color, **style)
    markers: dict[str, Any] = {"color": color, "marker": "o", "markersize": 5}
    for rate, improvement, value in zip(rates, improvements, values, strict=True):
        is_significant = value.verdict in ("improved", "worsened")
        fill = color if is_significant else "white"
        axes.plot(rate, improvement, markerfacecolor=fill, **markers)


def _draw_counts(axes: "Axes", rungs: Sequence[WatchedRung], geometry: Geometry) -> None:
    from matplotlib.ticker import MaxNLocator

    rates = [rung.watched.learning_rate for rung in rungs]
    improved, worsened = [], []
    for rung in rungs:
        verdicts = []
        for watched_set in rung.watched.sets:
            if watched_set.kind == "retrieval":  # has no groups
                verdicts.append(watched_set.whole_by(geometry).verdict)
            else:
                verdicts += [
                    value.verdict for value in watched_set.values if value.geometry == geometry
                ]
        improved.append(verdicts.count("improved"))
        worsened.append(verdicts.count("worsened"))
    axes.plot(rates, improved, color=PALETTE[2], marker="o", label="improved")
    axes.plot(rates, worsened, color=PALETTE[1], marker="s", label="worsened")
    axes.set_ylabel("sets and groups")
    axes.legend()
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xscale("log")
    tried = sorted(set(rates))
    if len(tried) <= MAX_TICKS:
        axes.set_xticks(tried, [f"{rate:.2g}" for rate in tried])
    else:
        axes.xaxis.set_major_formatter("{x:.0e}")
    axes.minorticks_off()
    axes.set_xlabel("learning rate")
