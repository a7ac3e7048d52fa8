"""Notes at the top of the report, such as how the sweep ended and which results are missing."""

from collections.abc import Iterator

from raysweep.report.summary import Summary, missing_intervals
from raysweep.report.texts import limits_text
from raysweep.results.commands import format_resume, resume_options
from raysweep.results.query_scores import name_of_point
from raysweep.results.types import QUERY_KINDS, Results, ScoredSplit, TrialStatus
from raysweep.storage import location

ENDINGS = {
    "interrupted": "was interrupted",
    "budget": "reached its budget",
    "plateau": "reached a plateau",
}


def notes(summary: Summary) -> list[str]:
    """Return the notes, most important first."""
    return [
        *ending_notes(summary.results),
        *(f"The {name} are missing: {why}." for name, why in summary.damage.items()),
        *_on_constraints(summary),
        *_on_documents(summary),
        *_on_test_scores(summary),
        *_on_missing_results(summary),
        *_on_failures_and_nodes(summary.results),
    ]


def ending_notes(results: Results) -> Iterator[str]:
    """Yield notes on how the sweep ended, unless it completed, and on paused trials."""
    if results.status == "running":
        yield f"The sweep {running_or_killed(results)}."
        return
    if results.status != "completed":
        ending = ENDINGS.get(results.status, results.status)
        if results.reason:
            ending += f": {results.reason.rstrip('.')}"
        yield f"The sweep {ending}."
    num_paused = _count(results, TrialStatus.PAUSED)
    if num_paused:
        num_trials = len(results.trials)
        command = format_resume(results.folder, *resume_options(results))
        yield f"{num_paused} of {num_trials} trials remained paused; {command} may resume them."


def running_or_killed(results: Results) -> str:
    """Return the predicate of a sentence about an unfinished sweep, such as ``is still running; ...``."""
    if results.has_driver is False:
        command = format_resume(results.folder)
        return f"was killed; this report shows its stored results, and {command} continues it"
    # a lease in a bucket can outlive the process that held it
    is_certain = results.has_driver and not location.is_uri(results.folder)
    state = "is still running" if is_certain else "is still running or was killed"
    return f"{state}; this report shows the results so far"


def _on_constraints(summary: Summary) -> Iterator[str]:
    limits = limits_text(summary.results)
    num_members = len(summary.members)
    num_missing = sum(not member.is_feasible for member in summary.members)
    if not num_missing:
        return
    if num_missing == num_members:
        yield (
            f"No point meets the constraints ({limits}). The best point is the one closest to meeting them. "
            "Hypervolumes are 0, because only points that meet the constraints count."
        )
    else:
        yield (
            f"{num_missing} of the {num_members} front members violated the constraints ({limits}). They are neither the "
            "knee nor the best point, and do not count toward hypervolumes."
        )


def _on_documents(summary: Summary) -> Iterator[str]:
    """Yield notes on which front members require embedding documents again."""
    num_members = len(summary.members)
    num_of_queries = sum(member.dev.kind in QUERY_KINDS for member in summary.members)
    if num_of_queries:
        text = f"{num_of_queries} of the {num_members} front members tuned only the query encoder (query, query_concat)."
        text += " Existing indexes of the reference encoder's embeddings stay valid."
        if num_of_queries < num_members:
            text += " All other members require embedding every document again."
        yield text
    separate = {
        trial.trial for trial in summary.results.trials if trial.config.get("tower") == "separate"
    }
    num_separate = sum(member.dev.trial in separate for member in summary.members)
    if num_separate:
        yield (
            f"{num_separate} of the {num_members} front members tuned two encoders (tower: separate). Every document "
            "has to be embedded again with the document encoder."
        )


def _on_test_scores(summary: Summary) -> Iterator[str]:
    if not summary.members:
        yield "No rungs have finished, so there is no front."
    elif "test" not in summary.splits:
        yield "The test split was not scored. All scores are on dev, where the front was chosen."
    elif why := summary.front.why_partial("test"):
        results = summary.results
        text = f"{why[0].upper()}{why[1:]}, so the front has no hypervolume, floor or comparison on test"
        if results.status == "running" and results.has_driver is not False:
            yield f"{text} yet."
        elif results.status in ("completed", "budget", "plateau"):
            yield f"{text}. Scoring the other members failed, or their weights are not stored."
        else:
            command = format_resume(results.folder)
            yield f"{text}. {command} scores the missing members whose weights are stored."


def _on_missing_results(summary: Summary) -> Iterator[str]:
    for split in summary.complete_splits:
        if split not in summary.references:
            yield f"The reference encoder's scores on {split} are not stored, so there is no hypervolume on {split}."
        if not summary.oracles[split] and not summary.results.info.is_related:
            yield f"The oracle front on {split} is not stored, so the front is not compared with its limit on {split}."
    if not summary.members:
        return
    for split in summary.complete_splits:
        why = why_no_intervals(summary, split)
        if why and missing_intervals(split) not in summary.damage:  # damage has its own note
            yield f"Intervals on {split} are missing: {why}."


def why_no_intervals(summary: Summary, split: ScoredSplit) -> str:
    """Return why intervals on a split are missing, or an empty string if they are not."""
    if split in summary.uncertainty:
        return ""
    if missing_intervals(split) in summary.damage:
        return summary.damage[missing_intervals(split)]
    if why := summary.front.why_partial(split):
        return why
    stored = summary.scores.get(split)
    if stored is None:
        return "the run does not store per-query scores"
    front = summary.front.on(split)
    num_missing = sum(name_of_point(point) not in stored for point in front)
    return f"per-query scores for {num_missing} of the {len(front)} front members are not stored"


def _on_failures_and_nodes(results: Results) -> Iterator[str]:
    num_failed = _count(results, TrialStatus.FAILED)
    if num_failed:
        place = "the table of trials gives the reasons"
        if any(trial.traceback for trial in results.trials):
            place += ", and the Failures section contains the tracebacks"
        yield f"{num_failed} of {len(results.trials)} trials failed; {place}."
    for node in results.excluded_nodes:
        yield f"Node {node.name} was excluded after {node.errors} errors in a row; the last error was: {node.reason}."


def _count(results: Results, status: TrialStatus) -> int:
    return sum(trial.status == status for trial in results.trials)
