"""The page's table of all trials, with a column per parameter, so that it can be sorted and filtered by each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raysweep.report.page.markup import broken, scrolling
from raysweep.report.page.visible import escape
from raysweep.report.statuses import standing, with_sign
from raysweep.report.summary import Summary, TrialSummary
from raysweep.report.tables import ABSENT, short, show
from raysweep.results.views import varied_parameters

MANY_TRIALS = 200  # longer tables are laid out when they scroll into view


@dataclass(frozen=True)
class Column:
    """A column; the page's script identifies it by ``key``, a field of a trial or ``parameter`` and its index."""

    key: str
    name: str
    is_text: bool = False


FIRST = (
    Column("trial", "trial"),
    Column("status", "status", is_text=True),  # followed by the reason
    Column("objective", "objective"),
    Column("p", "P"),
    Column("s", "S"),
    Column("r", "retention"),
    Column("rungs", "rungs"),
    Column("examples", "examples"),
    Column("seconds", "seconds"),
)


def trial_sheet(summary: Summary) -> str:
    """Return the table in its scrolling box, with rows in the order of ``summary.trials``."""
    names = varied_parameters([each.trial for each in summary.trials])
    columns = [*FIRST, *_parameter_columns(summary, names)]
    head = "".join(_head_cell(column) for column in columns)
    rows = "".join(_row(each, names, columns) for each in summary.trials)
    body = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    box = scrolling(f'<table id="trial-sheet">{body}</table>', "Table of trials", is_long=True)
    return f'<div class="late">{box}</div>' if len(summary.trials) > MANY_TRIALS else box


def _parameter_columns(summary: Summary, names: Iterable[str]) -> list[Column]:
    columns = []
    for place, name in enumerate(names):
        values = [each.trial.config.get(name) for each in summary.trials]
        is_text = any(isinstance(value, str | bool) for value in values)
        columns.append(Column(f"parameter {place}", name, is_text))
    return columns


def _head_cell(column: Column) -> str:
    return f'<th scope="col" class="{_style(column)}" data-key="{column.key}">{escape(column.name)}</th>'


def _style(column: Column) -> str:
    return "t" if column.is_text else "n"


def _row(each: TrialSummary, names: Sequence[str], columns: Sequence[Column]) -> str:
    texts = [*_first_cells(each), *_values(each, names)]
    cells = [str(each.trial.trial), _status(each), *(broken(text) for text in texts)]
    shown = [f'<td class="{_style(column)}">{cell}</td>' for column, cell in zip(columns, cells, strict=True)]
    return f"<tr>{''.join(shown)}</tr>"


def _first_cells(each: TrialSummary) -> list[str]:
    """Return the cells after the trial's number and status."""
    examples = f"{each.rungs[-1].examples_seen:,}" if each.rungs else ABSENT
    return [*_scores(each), str(len(each.rungs)), examples, f"{each.trial.seconds:,.0f}"]


def _status(each: TrialSummary) -> str:
    """Return the trial's status and reason as HTML."""
    reason = _reason(each)
    told = f"<small>{broken(reason)}</small>" if reason else ""
    return broken(with_sign(standing(each.trial))) + told


def _scores(each: TrialSummary) -> list[str]:
    """Return the objective, P, S and retention of the best point; parentheses mark a missed constraint."""
    best = each.best
    if best is None:
        return [ABSENT] * 4
    objective = show(each.objective)
    if not each.is_feasible:
        objective = f"({objective})"
    return [objective, show(best.polarity), show(best.similarity), show(best.retention)]


def _values(each: TrialSummary, names: Iterable[str]) -> list[str]:
    values = [each.trial.config.get(name) for name in names]
    return [ABSENT if value is None else short(value) for value in values]


def _reason(each: TrialSummary) -> str:
    trial = each.trial
    if trial.replicate_of is None:
        return trial.reason
    repeats = f"repeats trial {trial.replicate_of}"
    return f"{repeats}; {trial.reason}" if trial.reason else repeats
