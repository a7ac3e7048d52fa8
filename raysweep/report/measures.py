"""Additional measures of rungs, such as average precision on sentence pairs."""

import itertools
from collections.abc import Mapping

from raysweep.metrics.pairs import AVERAGE_PRECISION, MEASURES
from raysweep.output import ABSENT, TextTable
from raysweep.report.style import INK, PALETTE, STYLE, add_legend, png
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import described
from raysweep.results.types import Measure, ScoredSplit

MEASURES_TEXT = (
    "Measures of the tuned encoder itself at each trial's last rung and at the rungs on the front. The first row is the "
    "reference encoder. "
    + " ".join(f"{spec.heading}: {spec.description}." for spec in MEASURES.values())
    + " Brackets contain 90% bootstrap intervals over sentences."
)

MAX_CURVES = 8  # maximum number of front rungs in the figure

Rung = tuple[int | None, int | None]  # trial and step; both are None for the reference

Measures = Mapping[tuple[ScoredSplit, str], Measure]  # keyed by split and name


def measures_by_rung(summary: Summary) -> dict[Rung, Measures]:
    """Return the measures of the reference, each trial's last rung and the rungs on the front."""
    by_rung: dict[Rung, dict[tuple[ScoredSplit, str], Measure]] = {}
    for measure in summary.results.measures:
        of_rung = by_rung.setdefault((measure.trial, measure.step), {})
        of_rung[measure.split, measure.name] = measure
    reference: Rung = (None, None)
    rungs: set[Rung] = set()
    for trial in summary.trials:
        if trial.rungs:
            last_rung = trial.rungs[-1]
            rungs.add((last_rung.trial, last_rung.step))
    for member in summary.members:
        rungs.add((member.dev.trial, member.dev.step))
    in_order = sorted(rungs, key=lambda rung: (rung[0] or 0, rung[1] or 0))
    return {rung: by_rung[rung] for rung in (reference, *in_order) if rung in by_rung}


def measure_table(summary: Summary) -> TextTable:
    """Return a table with a row of measures per rung."""
    by_rung = measures_by_rung(summary)
    measured: set[tuple[ScoredSplit, str]] = set()
    for measures in by_rung.values():
        measured |= measures.keys()
    columns = [(split, name) for split in SPLITS for name in MEASURES if (split, name) in measured]
    headings = [f"{split} {MEASURES[name].heading}" for split, name in columns]
    configurations = described(summary.results)
    rows = []
    for (trial, step), measures in by_rung.items():
        cells = [measure_cell(measures.get(column)) for column in columns]
        identity = ("reference", ABSENT, ABSENT)
        if trial is not None:
            identity = (str(trial), str(step), configurations[trial])
        rows.append((*identity, *cells))
    return TextTable(
        ("trial", "step", "configuration", *headings), tuple(rows), frozenset({"configuration"})
    )


def measure_cell(measure: Measure | None) -> str:
    """Format a measure, with its interval if it has one."""
    if measure is None:
        return ABSENT
    show = MEASURES[measure.name].show
    if measure.low is None or measure.high is None:
        return show(measure.value)
    return f"{show(measure.value)} [{show(measure.low)}, {show(measure.high)}]"


def curves(summary: Summary, split: ScoredSplit) -> dict[str, tuple[float, ...]]:
    """Return the precision-recall curves of the reference and the best rungs on the front, keyed by name.

    A curve contains the precision at evenly spaced recalls up to 1.
    """
    rungs_of_front = {(member.dev.trial, member.dev.step) for member in summary.members}
    reference: dict[str, tuple[float, ...]] = {}
    of_front: list[tuple[float, str, tuple[float, ...]]] = []
    for (trial, step), measures in measures_by_rung(summary).items():
        measure = measures.get((split, AVERAGE_PRECISION))
        if measure is None or measure.curve is None:
            continue
        if trial is None:
            reference["reference"] = measure.curve
        elif (trial, step) in rungs_of_front:
            name = f"trial {trial}, rung {step}"
            of_front.append((measure.value, name, measure.curve))
    best_first = sorted(of_front, key=lambda named: -named[0])
    named_curves = {name: curve for _, name, curve in best_first[:MAX_CURVES]}
    return reference | named_curves


def pairs_figure(summary: Summary) -> bytes | None:
    """Plot the precision-recall curves on the last split that has any, or return None."""
    import matplotlib
    from matplotlib.figure import Figure

    on_splits = {split: named for split in SPLITS if (named := curves(summary, split))}
    if not on_splits:
        return None
    split, named = list(on_splits.items())[-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 4.2), layout="constrained")
        axis = figure.subplots()
        colors = itertools.cycle(PALETTE)
        for name, curve in named.items():
            recalls = [100 * number / len(curve) for number in range(1, len(curve) + 1)]
            precisions = [100 * precision for precision in curve]
            color = INK if name == "reference" else next(colors)
            axis.plot(recalls, precisions, label=name, color=color, linewidth=1.2)
        axis.set_xlabel("recall of same-class pairs (x100)")
        axis.set_ylabel("precision (x100)")
        axis.set_title(f"Neighbor pairs on {split}")
        add_legend(figure)
        return png(figure)
