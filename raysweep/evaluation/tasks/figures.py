"""Comparisons as text tables, JSON and CSV, with scores x100."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from raysweep.data.scored_pairs import ScoredPairs
from raysweep.evaluation.tasks.classification import Predicted
from raysweep.evaluation.tasks.compare import Comparison, Outcome, TaskResults
from raysweep.evaluation.tasks.scores import Flags, Score
from raysweep.output import TextTable, csv_text

_CSV_COLUMNS = ("task", "kind", "rows", "model", "num_rows", "score", "low", "high", "fold_std")


def title(compared: Comparison) -> str:
    return (
        f"Accuracy ({compared.settings.num_folds}-fold cross-validation or test split) and Spearman's correlation, x100, "
        "with half-widths of 95% intervals"
    )


def table(compared: Comparison) -> TextTable:
    """Return a table with one column per model.

    Each task has a line for all rows. For each tuning data set that it overlaps, another line excludes the shared rows.
    """
    models = _short(compared.models)
    data_names = _short([data.name for data in compared.data])
    shared_columns = [f"in {name}" for name in data_names]
    columns = ("task", "score", "rows", *models, *shared_columns)
    rows: list[tuple[str, ...]] = []
    for results in compared.results:
        task = results.task
        part = "test" if "test" in task.sentences else "all"
        num_tested = len(task.sentences[part])
        shares = []
        for overlap in results.overlaps:
            num_shared = overlap.num_shared[part]
            shares.append(f"{num_shared:,} of {num_tested:,}")
        cells = _cells(results, None)
        rows.append((task.name, _kind(results), *cells, *shares))
        no_shares = [""] * len(shares)
        for name, overlap in zip(data_names, results.overlaps, strict=True):
            if not overlap.is_unseen.all():
                cells = _cells(results, overlap.is_unseen)
                rows.append((f"  not in {name}", "", *cells, *no_shares))
    return TextTable(columns, tuple(rows), frozenset({"task", "score"}))


def _cells(results: TaskResults, rows: Flags | None) -> list[str]:
    """Return the number of rows, and each model's score on them."""
    scores = [outcome.score(rows) for outcome in results.outcomes.values()]
    return [f"{scores[0].num_rows:,}", *map(_cell, scores)]


def notes(compared: Comparison) -> Iterator[str]:
    """Yield a note for each model whose tuning data is known."""
    for data in compared.data:
        for model in data.models:
            yield f"{model} was tuned on {data.name}"


def as_json(compared: Comparison) -> dict[str, Any]:
    """Return all results as a JSON-serializable dict. Undefined values are None."""
    settings = compared.settings
    return {
        "folds": settings.num_folds,
        "seed": settings.seed,
        "models": list(compared.models),
        "tuned_on": [{"data": data.name, "models": list(data.models)} for data in compared.data],
        "tasks": [_task_as_json(results) for results in compared.results],
    }


def as_csv(compared: Comparison) -> str:
    """Return CSV with a line per task, model and subset of rows: all, or those outside a tuning data set."""
    rows: list[dict[str, Any]] = []
    for results in compared.results:
        for model, outcome in results.outcomes.items():
            shared = {"task": results.task.name, "kind": _kind(results), "model": model}
            score = outcome.score()
            rows.append(
                {**shared, **_score_as_json(score), "rows": "all", "fold_std": _fold_std(outcome)}
            )
            for overlap in results.overlaps:
                score = outcome.score(overlap.is_unseen)
                subset = f"not in {overlap.data.name}"
                rows.append({**shared, **_score_as_json(score), "rows": subset})
    cells = [[row.get(column) for column in _CSV_COLUMNS] for row in rows]
    return csv_text(_CSV_COLUMNS, cells)


def _task_as_json(results: TaskResults) -> dict[str, Any]:
    scores = []
    for model, outcome in results.outcomes.items():
        strengths = list(outcome.strengths) if isinstance(outcome, Predicted) else None
        unseen = {
            overlap.data.name: outcome.score(overlap.is_unseen) for overlap in results.overlaps
        }
        scores.append(
            {
                "model": model,
                **_score_as_json(outcome.score()),
                "fold_std": _fold_std(outcome),
                "strengths": strengths,
                "unseen": [
                    {"data": name, **_score_as_json(score)} for name, score in unseen.items()
                ],
            }
        )
    return {
        "task": results.task.name,
        "kind": _kind(results),
        "sentences": {part: len(sentences) for part, sentences in results.task.sentences.items()},
        "shared": [
            {"data": overlap.data.name, **overlap.num_shared} for overlap in results.overlaps
        ],
        "scores": scores,
    }


def _score_as_json(score: Score) -> dict[str, Any]:
    return {
        "num_rows": score.num_rows,
        "score": _times_100(score.value),
        "low": _times_100(score.low),
        "high": _times_100(score.high),
    }


def _fold_std(outcome: Outcome) -> float | None:
    std = outcome.fold_std if isinstance(outcome, Predicted) else None
    return None if std is None else _times_100(std)


def _times_100(value: float) -> float | None:
    return 100 * value if math.isfinite(value) else None


def _kind(results: TaskResults) -> str:
    return "spearman" if isinstance(results.task, ScoredPairs) else "accuracy"


def _cell(score: Score) -> str:
    if not math.isfinite(score.value):
        return "-"
    if not math.isfinite(score.low):
        return f"{100 * score.value:.2f}"
    half = (score.high - score.low) / 2
    return f"{100 * score.value:.2f} ±{100 * half:.2f}"


def _short(names: Sequence[str]) -> list[str]:
    """Shorten each path to its last component if that is unique."""
    last = [name.rstrip("/").rpartition("/")[2] for name in names]
    counts = Counter(last)
    return [short if counts[short] == 1 else name for short, name in zip(last, names, strict=True)]
