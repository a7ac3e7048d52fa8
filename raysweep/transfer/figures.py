"""A comparison as a table for people, and as JSON and CSV for programs. Scores are x100."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from raysweep.transfer.classification import Predicted
from raysweep.transfer.compare import Comparison, Overlap, TaskResults
from raysweep.transfer.scored_pairs import ScoredPairs
from raysweep.transfer.scores import Score

_CSV_COLUMNS = ("task", "kind", "rows", "model", "num_rows", "score", "low", "high", "fold_std")


def title(compared: Comparison) -> str:
    """What the table holds."""
    return (
        f"Accuracy in {compared.settings.num_folds} folds, or on a given test split, and Spearman's correlation; x100, "
        "with half of a 95% interval"
    )


def table(compared: Comparison) -> Table:
    """One row a task, and one for its rows that share nothing with data that models were tuned on; a column a model."""
    models = _short(compared.models)
    data = _short([each.name for each in compared.data])
    grid = Table(
        "task", "score", "rows", *models, *(f"in {name}" for name in data), box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in grid.columns[2:]:
        column.justify = "right"
    for results in compared.results:
        scores = [results.outcomes[model].score() for model in compared.models]
        shared = [_shared(overlap, results) for overlap in results.overlaps]
        grid.add_row(results.task.name, _kind(results), _count(scores), *map(_cell, scores), *shared)
        for name, overlap in zip(data, results.overlaps, strict=True):
            if overlap.is_unseen.all():
                continue
            unseen = [results.outcomes[model].score(overlap.is_unseen) for model in compared.models]
            grid.add_row(f"  not in {name}", "", _count(unseen), *map(_cell, unseen))
    return grid


def notes(compared: Comparison) -> Iterator[str]:
    """Which models say what they were tuned on."""
    for each in compared.data:
        for model in each.models:
            yield f"{model} was tuned on {each.name}"


def as_json(compared: Comparison) -> dict[str, Any]:
    """Everything, for :func:`json.dumps`. What is not defined is None."""
    settings = compared.settings
    return {
        "folds": settings.num_folds,
        "seed": settings.seed,
        "models": list(compared.models),
        "tuned_on": [{"data": each.name, "models": list(each.models)} for each in compared.data],
        "tasks": [_task_as_json(results) for results in compared.results],
    }


def as_csv(compared: Comparison) -> str:
    """A row for each model on all rows of each task, and on those that share nothing with each of the data."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_CSV_COLUMNS)
    for results in compared.results:
        named = [("all", None), *((f"not in {each.data.name}", each.is_unseen) for each in results.overlaps)]
        for model, outcome in results.outcomes.items():
            for name, chosen in named:
                score = outcome.score(chosen)
                figures = [_number(100 * value) for value in (score.value, score.low, score.high)]
                std = _fold_std(outcome) if chosen is None else None
                rows.writerow([results.task.name, _kind(results), name, model, score.num_rows, *figures, std])
    return text.getvalue()


def _task_as_json(results: TaskResults) -> dict[str, Any]:
    return {
        "task": results.task.name,
        "kind": _kind(results),
        "sentences": {part: len(sentences) for part, sentences in results.task.sentences.items()},
        "shared": [{"data": each.data.name, **each.num_shared} for each in results.overlaps],
        "scores": [_scores_as_json(model, results) for model in results.outcomes],
    }


def _scores_as_json(model: str, results: TaskResults) -> dict[str, Any]:
    outcome = results.outcomes[model]
    return {
        "model": model,
        **_score_as_json(outcome.score()),
        "fold_std": _fold_std(outcome),
        "strengths": list(outcome.strengths) if isinstance(outcome, Predicted) else None,
        "unseen": [
            {"data": each.data.name, **_score_as_json(outcome.score(each.is_unseen))} for each in results.overlaps
        ],
    }


def _score_as_json(score: Score) -> dict[str, Any]:
    figures = {"score": score.value, "low": score.low, "high": score.high}
    return {"num_rows": score.num_rows, **{name: _number(100 * value) for name, value in figures.items()}}


def _fold_std(outcome: object) -> float | None:
    std = outcome.fold_std if isinstance(outcome, Predicted) else None
    return None if std is None else 100 * std


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _kind(results: TaskResults) -> str:
    return "spearman" if isinstance(results.task, ScoredPairs) else "accuracy"


def _count(scores: Sequence[Score]) -> str:
    return f"{scores[0].num_rows:,}"


def _cell(score: Score) -> str:
    if not math.isfinite(score.value):
        return "-"
    if not math.isfinite(score.low):
        return f"{100 * score.value:.2f}"
    half = (score.high - score.low) / 2
    return f"{100 * score.value:.2f} ±{100 * half:.2f}"


def _shared(overlap: Overlap, results: TaskResults) -> str:
    """Of the tested sentences."""
    sentences = results.task.sentences
    part = "test" if "test" in sentences else "all"
    return f"{overlap.num_shared[part]:,} of {len(sentences[part]):,}"


def _short(names: Sequence[str]) -> list[str]:
    """The last parts of paths, where they tell the names apart."""
    last = [name.rstrip("/").rpartition("/")[2] for name in names]
    counts = Counter(last)
    return [short if counts[short] == 1 else name for short, name in zip(last, names, strict=True)]
