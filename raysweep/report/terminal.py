"""Terminal output for the front and for chosen points."""

from collections.abc import Iterator, Sequence

from raysweep.output import TextTable
from raysweep.report.calibration import calibration_lines
from raysweep.report.choice import Candidate, export_command, why_no_intervals_of
from raysweep.report.comparison import baseline_lines
from raysweep.report.data_sets import data_sets_lines
from raysweep.report.known_labels import known_labels_lines
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.tables import (
    REINDEX,
    area_texts,
    described,
    front_table,
    guard_cell,
    mark_names,
    member_marks,
    score_cells,
    score_headings,
    show,
    show_pair,
)
from raysweep.report.texts import CORRECTED, limits_text
from raysweep.report.trust import trust_lines
from raysweep.report.watched_trials import watched_lines
from raysweep.results.commands import format_command
from raysweep.results.types import ScoredSplit
from raysweep.uncertainty.interval import LEVEL

# Maximum number of rows in the table of the front. For longer fronts, the table shows the knee, the best member and
# evenly spaced others, including the ends.
MAX_ROWS = 24

MAX_COMMANDS = 3  # maximum number of export commands; for more members, only one is printed


def front_tables(summary: Summary) -> list[TextTable]:
    """Return tables of the front, from widest to narrowest. The first one that fits the terminal is printed.

    The narrowest table fits in 80 columns and omits guard scores. All tables omit intervals and scores
    other than P and S.
    """
    wider = [_front_table(summary, with_guards=True)] if summary.guards else []
    return [*wider, _front_table(summary, with_guards=False)]


def _front_table(summary: Summary, *, with_guards: bool) -> TextTable:
    front = front_table(summary)
    omitted = {"configuration", REINDEX}
    headings = score_headings(name for name in summary.score_names if name not in summary.goals)
    for split in SPLITS:
        omitted |= {f"{split} {heading}" for heading in headings}
    is_plain = all(member.dev.kind == "plain" for member in summary.members)
    if is_plain:
        omitted |= {"kind", "width"}
    omitted_guards = [] if with_guards else summary.guards
    omitted.update(omitted_guards)
    columns = [column for column in front.columns if column not in omitted]
    rows = []
    for number in _shown_rows(summary):
        cells = dict(zip(front.columns, front.rows[number], strict=True))
        marks = member_marks(summary.members[number])
        cells["mark"] = "\n".join(marks)
        rows.append(tuple(cells[column] for column in columns))
    run_name = summary.results.info.name
    caption_lines = _caption_lines(summary, len(rows), omitted_guards)
    return TextTable(
        columns=tuple(columns),
        rows=tuple(rows),
        text=front.text,
        title=f"Front of {run_name}, scores x100",
        caption="\n".join(caption_lines),
    )


def _shown_rows(summary: Summary) -> list[int]:
    """Return the indices of the members to show, in ascending order."""
    num_members = len(summary.members)
    if num_members <= MAX_ROWS:
        return list(range(num_members))
    marked = {
        number for number, member in enumerate(summary.members) if member.is_knee or member.is_best
    }
    num_others = MAX_ROWS - len(marked)
    spread = {number * (num_members - 1) // (num_others - 1) for number in range(num_others)}
    return sorted(marked | spread)


def _caption_lines(
    summary: Summary, num_shown: int, omitted_guards: Sequence[str]
) -> Iterator[str]:
    results = summary.results
    num_members = len(summary.members)
    if num_shown < num_members:
        yield f"{num_shown} of {num_members} members; {format_command('show', results.folder)} lists all of them"
    if omitted_guards:
        guards = ", ".join(omitted_guards)
        yield f"guard scores ({guards}) are shown in the report and in wider terminals"
    configurations = described(results)
    trials = {member.dev.trial or 0 for member in summary.members}
    for trial in sorted(trials):
        yield f"trial {trial}: {configurations[trial]}"
    limits = limits_text(results)
    if limits:
        yield f"constraints: {limits}"
    for split, reference in summary.references.items():
        yield f"R on {split}: {show_pair(reference, summary.goals)}"
    yield from calibration_lines(summary)
    yield from baseline_lines(summary)
    for split, area in summary.areas.items():
        uncertainty = summary.uncertainty.get(split)
        text, share = area_texts(area, uncertainty)
        if area.share is not None:
            text += f", {share} of the oracle's"
        if uncertainty is not None and uncertainty.hypervolume is not None:
            text += f"; intervals over {uncertainty.noise}, {CORRECTED}"
        yield f"hypervolume on {split}: {text}"
    yield from known_labels_lines(summary)
    yield from data_sets_lines(summary)
    yield from watched_lines(summary.results.watched)
    yield from trust_lines(summary)


def choice_tables(
    summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]
) -> list[TextTable]:
    """Return tables of the chosen points. The first one that fits the terminal is printed.

    Later tables omit guards, widths and secondary scores, intervals, or both.
    """
    return [
        _choice_table(summary, chosen, splits, intervals=intervals, details=details)
        for intervals in (True, False)
        for details in (True, False)
    ]


def _choice_table(
    summary: Summary,
    chosen: Sequence[Candidate],
    splits: Sequence[ScoredSplit],
    *,
    intervals: bool,
    details: bool,
) -> TextTable:
    names = [*summary.goals.main_scores]
    guards: list[str] = []
    if details:
        names = [*summary.score_names]
        guards = sorted({name for candidate in chosen for name in candidate.guards})
    rows = []
    for candidate in chosen:
        marks = mark_names(
            is_knee=candidate.is_knee, is_best=candidate.is_best, is_feasible=candidate.is_feasible
        )
        cells = [candidate.dev.name, " ".join(marks), show(candidate.objective)]
        for split in splits:
            point = candidate.on(split)
            point_intervals = summary.intervals_of(point) if point and intervals else None
            cells += score_cells(point, names, point_intervals)
        cells += [guard_cell(candidate.guards.get(name)) for name in guards]
        if details:
            cells.append(str(candidate.dev.width))
        rows.append(tuple(cells))
    columns = ["point", "mark", "objective"]
    columns += [f"{split}\n{name}" for split in splits for name in score_headings(names)]
    columns += guards
    if details:
        columns.append("width")
    return TextTable(tuple(columns), tuple(rows), frozenset({"point", "mark"}))


def choice_lines(
    summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]
) -> Iterator[str]:
    """Yield lines with the trials' configurations, notes on the scores, and export commands."""
    configurations = described(summary.results)
    trials = dict.fromkeys(candidate.dev.trial or 0 for candidate in chosen)
    for trial in trials:
        yield f"trial {trial}: {configurations[trial]}"
    yield _explain_scores(summary, chosen, splits)
    for split in splits:
        points = [point for candidate in chosen if (point := candidate.on(split))]
        unknown = [point for point in points if summary.intervals_of(point) is None]
        if unknown:
            share = (
                ""
                if len(unknown) == len(points)
                else f" for {len(unknown)} of {len(points)} points"
            )
            yield f"Intervals on {split} are missing{share}: {why_no_intervals_of(summary, unknown[0])}."
    num_members = len(summary.members)
    for guard in summary.results.info.guards:  # guards are measured only after the search
        num_missing = sum(guard not in member.guards for member in summary.members)
        if num_missing:
            yield f"Not yet scored on {guard}: {num_missing} of the {num_members} front members."
    members = [candidate for candidate in chosen if candidate.member]
    shown_members = members
    if len(members) > MAX_COMMANDS:
        knees = [candidate for candidate in members if candidate.is_knee]
        shown_members = [*knees, *members][:1]
    for member in shown_members:
        yield f"export: {export_command(summary, member.dev.name)}"
    if len(members) < len(chosen):
        yield "Only points on the front can be exported, because only their weights are stored."


def _explain_scores(
    summary: Summary, chosen: Sequence[Candidate], splits: Sequence[ScoredSplit]
) -> str:
    text = "Scores are x100. Points are chosen by their dev scores"
    splits_with_intervals = summary.uncertainty.keys() & set(splits)
    if splits_with_intervals:
        text += f". In wide terminals, brackets contain {LEVEL:.0%} intervals over queries"
    if "dev" in splits_with_intervals:
        text += "; intervals on dev are corrected for selection bias"
    if "test" in splits and not any(candidate.test for candidate in chosen):
        text += ". None of these points is scored on test"
    return f"{text}."
