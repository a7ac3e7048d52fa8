"""The chart data and the tables of trials on a run's page."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.metrics.scores import spec_of
from raysweep.output import ABSENT, TextTable, escape_controls, escape_html
from raysweep.report.axes import is_number
from raysweep.report.page.markup import scroll_box, wrap_terms
from raysweep.report.page.points import Json, scaled, score_keys
from raysweep.report.statuses import STATUS_STYLES, standing, with_sign
from raysweep.report.summary import Summary, TrialSummary
from raysweep.report.tables import objective_cell, score_cells, short, show
from raysweep.results.types import Point, Trial
from raysweep.results.views import varied_parameters

LOG_RATIO = 50  # positive values that span a larger ratio get a logarithmic axis

MANY_TRIALS = 200  # longer tables are laid out only when scrolled into view

Value = float | int | str | None


def plain_value(value: Any) -> Value:
    """Return a parameter's value as a finite number, a string or None."""
    if value is None:
        return None
    if is_number(value) and abs(value) < 1e300 and math.isfinite(value):
        return float(f"{value:.6g}") if isinstance(value, float) else int(value)
    return escape_controls(str(value))


def parameters(trials: Sequence[Trial], logarithmic: Collection[str] = ()) -> list[Json]:
    """Return the varied parameters; ``log`` is true for numeric parameters with a logarithmic axis.

    ``logarithmic`` contains the parameters that are searched on a logarithmic scale.
    """
    described: list[Json] = []
    for name in varied_parameters(trials):
        values = [plain_value(trial.config.get(name)) for trial in trials]
        present = [value for value in values if value is not None]
        numbers = [value for value in present if not isinstance(value, str)]
        parameter: Json = {"name": escape_controls(name)}
        if numbers and len(numbers) == len(present):
            low, high = min(numbers), max(numbers)
            parameter["kind"] = "number"
            parameter["log"] = low > 0 and (name in logarithmic or high > LOG_RATIO * low)
        else:
            categories = {str(value) for value in present}
            parameter["kind"] = "category"
            parameter["values"] = sorted(categories)
        described.append(parameter)
    return described


def _trial_scores(summary: Summary) -> dict[str, str]:
    """Return the names of the scores shown for trials, by key; accuracy is left out unless it is a goal."""
    return {key: name for key, name in score_keys(summary).items() if key != "a"}


def common_values(trials: Sequence[Trial]) -> Json:
    """Return the parameters that have the same value in all trials."""
    if not trials:
        return {}
    varied = set(varied_parameters(trials))
    config = trials[0].config
    return {
        escape_controls(name): plain_value(value)
        for name, value in config.items()
        if name not in varied and value is not None
    }


def statuses() -> list[Json]:
    """Return all statuses with their signs and descriptions, in legend order."""
    return [
        {"standing": str(name), "sign": style.sign, "words": style.legend}
        for name, style in STATUS_STYLES.items()
    ]


def trial_values(summary: Summary, indices: Mapping[Point, int]) -> list[Json]:
    """Return the chart data of all trials; a rung is a list of examples seen, objective and scores.

    ``indices`` contains the indices of the shown points.
    """
    names = varied_parameters(trial_summary.trial for trial_summary in summary.trials)
    score_names = _trial_scores(summary).values()
    values = []
    for trial_summary in summary.trials:
        trial, best = trial_summary.trial, trial_summary.best
        rungs = []
        evaluated = zip(
            trial_summary.rungs, trial_summary.objectives, trial_summary.best_points, strict=True
        )
        for rung, objective, point in evaluated:
            scores = [scaled(objective), *(scaled(point.get(name)) for name in score_names)]
            rungs.append([rung.examples_seen, *scores])
        values.append(
            {
                "trial": trial.trial,
                "values": [plain_value(trial.config.get(name)) for name in names],
                "status": str(trial.status),
                "standing": str(standing(trial)),
                "reason": escape_controls(trial.reason),
                "replicate": trial.replicate_of,
                "seconds": round(trial.seconds, 1),
                "feasible": trial_summary.is_feasible,
                "objective": None if best is None else scaled(trial_summary.objective),
                "best": None if best is None else indices.get(best),
                "rungs": rungs,
            }
        )
    return values


@dataclass(frozen=True)
class Column:
    """A column of the trial table; ``key`` identifies the column to the script that sorts the table."""

    key: str
    name: str
    is_text: bool = False

    @property
    def style(self) -> str:
        return "t" if self.is_text else "n"


BEFORE_SCORES = (
    Column("trial", "trial"),
    Column("status", "status", is_text=True),  # followed by the reason
    Column("objective", "objective"),
)
AFTER_SCORES = (
    Column("rungs", "rungs"),
    Column("examples", "examples"),
    Column("seconds", "seconds"),
)


def trial_table(summary: Summary) -> str:
    """Return a scrollable table of all trials, with a column for each varied parameter."""
    trials = [trial_summary.trial for trial_summary in summary.trials]
    names = varied_parameters(trials)
    scores = _trial_scores(summary)
    score_columns = [Column(key, spec_of(name).heading) for key, name in scores.items()]
    columns = [*BEFORE_SCORES, *score_columns, *AFTER_SCORES]
    for index, name in enumerate(names):
        values = [trial.config.get(name) for trial in trials]
        is_text = any(isinstance(value, str | bool) for value in values)
        columns.append(Column(f"parameter {index}", name, is_text))
    heads = []
    for column in columns:
        attributes = f'scope="col" class="{column.style}" data-key="{column.key}"'
        heads.append(f"<th {attributes}>{escape_html(column.name)}</th>")
    head = "".join(heads)
    body = "".join(
        _trial_row(trial_summary, names, columns, tuple(scores.values()))
        for trial_summary in summary.trials
    )
    content = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    box = scroll_box(f'<table id="trial-sheet">{content}</table>', "Table of trials", is_long=True)
    return f'<div class="late">{box}</div>' if len(trials) > MANY_TRIALS else box


def _trial_row(
    trial_summary: TrialSummary,
    names: Sequence[str],
    columns: Sequence[Column],
    scores: Sequence[str],
) -> str:
    trial, rungs = trial_summary.trial, trial_summary.rungs
    examples = f"{rungs[-1].examples_seen:,}" if rungs else ABSENT
    objective = objective_cell(trial_summary)
    texts = [
        objective,
        *score_cells(trial_summary.best, scores),
        str(len(rungs)),
        examples,
        f"{trial.seconds:,.0f}",
    ]
    for name in names:
        value = trial.config.get(name)
        texts.append(ABSENT if value is None else short(value))
    status = wrap_terms(with_sign(standing(trial)))
    reason = trial.reason
    if trial.replicate_of is not None:
        repeats = f"repeats trial {trial.replicate_of}"
        reason = f"{repeats}; {reason}" if reason else repeats
    if reason:
        status += f"<small>{wrap_terms(reason)}</small>"
    cells = [str(trial.trial), status, *map(wrap_terms, texts)]
    tagged_cells = []
    for column, cell in zip(columns, cells, strict=True):
        tagged_cells.append(f'<td class="{column.style}">{cell}</td>')
    return f"<tr>{''.join(tagged_cells)}</tr>"


@dataclass
class RungCount:
    """The trials that reached rung ``step``; ``endings`` counts, by status, those that reached no later rung."""

    step: int
    examples_seen: list[int] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)
    endings: Counter[str] = field(default_factory=Counter)


def rung_counts(trials: Sequence[TrialSummary]) -> list[RungCount]:
    """Return the counts in order of increasing step, excluding replicates."""
    counts: dict[int, RungCount] = {}
    for trial_summary in trials:
        trial, rungs = trial_summary.trial, trial_summary.rungs
        if trial.replicate_of is not None:
            continue
        for rung, objective in zip(rungs, trial_summary.objectives, strict=True):
            count = counts.setdefault(rung.step, RungCount(rung.step))
            count.examples_seen.append(rung.examples_seen)
            count.objectives.append(objective)
        if rungs:
            last_count = counts[rungs[-1].step]
            last_count.endings[standing(trial)] += 1
    return [counts[step] for step in sorted(counts)]


def stopping_table(summary: Summary) -> TextTable:
    """Return a table with a row per rung."""
    counts = rung_counts(summary.trials)
    endings = [status for status in STATUS_STYLES if any(count.endings[status] for count in counts)]
    rows = []
    for count in counts:
        first, last = min(count.examples_seen), max(count.examples_seen)
        row = [
            str(count.step),
            f"{first:,}" if first == last else f"{first:,} to {last:,}",
            str(len(count.objectives)),
            show(max(count.objectives)),
        ]
        for status in endings:
            row.append(str(count.endings[status] or ABSENT))
        rows.append(tuple(row))
    columns = ["rung", "examples", "trials", "best objective"]
    columns += [f"last: {with_sign(status)}" for status in endings]
    return TextTable(tuple(columns), tuple(rows), frozenset())


def stopping_text(summary: Summary) -> str:
    """Return sentences on the share of rungs trained and the time saved."""
    num_planned = num_trained = 0
    for trial_summary in summary.trials:
        trial = trial_summary.trial
        if trial.replicate_of is None:
            num_rungs = len(trial_summary.rungs)
            num_trained += num_rungs
            num_planned += trial.num_rungs or num_rungs
    sentences = []
    if num_planned:
        share = num_trained / num_planned
        sentences.append(f"{num_trained:,} of {num_planned:,} rungs were trained ({share:.0%}).")
    saved_seconds = summary.account.total.saved_seconds
    if saved_seconds:
        sentences.append(f"Early stopping saved about {saved_seconds:,.0f} trial-seconds.")
    sentences.append(
        "Each row counts the trials evaluated at a rung and, by status, those that reached no later rung."
    )
    return " ".join(sentences)
