"""Scores of models from runs, recordings and files with published scores.

A file has the columns ``polarity`` and ``similarity``, in [0, 1] or x100, and one column per parameter. Optional columns:
``model`` and ``dataset``, each value of which becomes a column of layouts; one of BUDGETS, without which the scores are
those after training; ``split``, ``kind`` and ``value``, as in recordings; DEVIATIONS; and COUNTS, whose
product is the number of sentences that P is an unweighted share of, for tests that need it. ``num_examples`` is an alias
of ``examples_per_rung``.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.errors import InputError
from raysweep.paper.model_scores import (
    NUM_EXAMPLES,
    Counts,
    ModelScores,
    ScoredPoint,
    Scores,
    SplitScores,
    last_part,
    loss_name,
    make_configurations,
)
from raysweep.replay.recording_files import as_objects, check_columns, is_index, number_column, plain, reject_cells
from raysweep.report.summary import summarize
from raysweep.results.reader import load
from raysweep.results.settings_file import read_settings
from raysweep.results.types import BASELINES, Point, Results, RunInfo, ScoredSplit, key_name
from raysweep.results.views import averaged
from raysweep.storage.folder import Folder

if TYPE_CHECKING:
    import pandas as pd

MAX_K = 2**31  # no pool has more sentences

BUDGETS = ("examples_seen", "epoch", "step")
DEVIATIONS = ("polarity_std", "similarity_std")  # over queries
COUNTS = ("num_queries", "k")  # their product is the denominator of P, if ranks have equal weights

_TEXTS = {"model": "", "dataset": "", "kind": "plain", "split": "dev"}  # columns and their defaults
_IGNORED = ("trial", "seconds", "accuracy", "loss_value", "width")
_NO_PARAMETERS = {*_TEXTS, *BUDGETS, *DEVIATIONS, *COUNTS, *_IGNORED, "polarity", "similarity", "value", "rung"}
_NO_TRIAL = ("reference", *BASELINES)  # kinds of points, in the order of layouts


def read_run(run: Folder) -> ModelScores:
    """Return the scores of the run in a folder; dev scores are means over the replicates of a configuration.

    Test scores are left out if only part of the front has them.

    Raises:
        InputError: If the folder does not contain a run, or no rung is finished.
    """
    results = load(run)
    info = results.info
    summary = summarize(results)
    configs = {trial.trial: trial.config for trial in results.trials}
    points: dict[int, list[ScoredPoint]] = {trial: [] for trial in configs}
    for point in averaged(results):
        is_measured = point.split in summary.complete_splits and point.kind == "plain"
        if is_measured and point.trial is not None and point.step is not None:
            values = {name: plain(value) for name, value in configs[point.trial].items() if value is not None}
            points[point.trial].append(ScoredPoint(values, point.step, point.split, _point_scores(point, info)))
    configurations = make_configurations(itertools.chain.from_iterable(points.values()))
    if not configurations:
        raise InputError(f"{run.location}: no rung is finished, so there is nothing to show")
    baselines: dict[str, dict[ScoredSplit, Scores]] = defaultdict(dict)
    for kind in _NO_TRIAL:
        for point in results.points:
            if point.kind == kind and point.trial is None:
                name = key_name((kind, point.value))
                name = name if point.label is None else f"{name} {point.label}"
                baselines[name][point.split] = _point_scores(point, info)
    return ModelScores(
        model=last_part(info.model),
        origin=last_part(run.location),
        place=run.location,
        configurations=configurations,
        baselines=baselines,
        dataset=info.dataset,
        reference=last_part(info.reference),
        retrieval=f"k = {info.k}, {info.rank_weights} rank weights",
        setting=_setting(run, results),
        why_no_test=summary.front.why_partial("test"),
    )


def _point_scores(point: Point, info: RunInfo) -> Scores:
    """Return a point's scores. Deviations of 0 mean that only means are known."""
    num_queries = info.num_queries.get(point.split)
    counts = Counts(num_queries, info.k) if num_queries and info.rank_weights == "uniform" else None
    deviations = point.polarity_std or None, point.similarity_std or None
    return Scores(point.polarity, point.similarity, *deviations, counts)


def _setting(run: Folder, results: Results) -> str:
    """Return everything that scores depend on, besides the configuration and randomness."""
    info = results.info
    mining = read_settings(run, results).get("examples")
    measured = (info.dataset, info.model, info.reference, info.k, info.rank_weights)
    prompts = (info.prompt, info.reference_prompt)
    sizes = (sorted(info.num_queries.items()), sorted(info.num_pool.items()), info.label_names)
    return repr((*measured, *prompts, *sizes, mining))


def is_by_k(frame: "pd.DataFrame") -> bool:
    """Return whether the frame holds scores by k read from CSV, rather than a recording."""
    return "k" in frame and "loss" not in frame and not any(budget in frame for budget in BUDGETS)


def read_by_k(frame: "pd.DataFrame", path: Path) -> "pd.DataFrame":
    """Return the rows of a layout by k read from CSV, with NaN for missing scores.

    Raises:
        InputError: If the rows are invalid, with file and problem.
    """
    try:
        check_columns(frame, ("model", "rank_weights", "polarity", "similarity"))
        rows = frame[["model", "rank_weights"]].astype(str)
        for name in ("k", "polarity", "similarity"):
            rows[name] = number_column(frame, name)
        for name in (*DEVIATIONS, "accuracy"):
            rows[name] = number_column(frame, name, is_optional=True) if name in frame else float("nan")
        is_wrong = ~rows["k"].between(1, MAX_K) | (rows["k"] % 1 != 0)
        reject_cells(frame["k"], is_wrong, f"whole numbers from 1 to {MAX_K:,}")
        if frame.empty:
            raise InputError("no rows")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return rows.astype({"k": int})


def read_rows(frame: "pd.DataFrame", path: Path) -> list[ModelScores]:
    """Return the scores in a file's rows, for each model and dataset.

    Raises:
        InputError: If the rows are invalid, with file and, if applicable, column and row.
    """
    try:
        return list(_read_rows(frame.reset_index(drop=True), path))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _read_rows(frame: "pd.DataFrame", path: Path) -> Iterator[ModelScores]:
    import pandas as pd

    check_columns(frame, ("polarity", "similarity"))
    names_split = "split" in frame
    budget = next((column for column in BUDGETS if column in frame), None)
    for column, default in _TEXTS.items():
        cells = as_objects(frame[column]) if column in frame else pd.Series(None, frame.index, dtype=object)
        frame = frame.assign(**{column: cells.fillna(default).astype(str)})
    frame = frame[frame["split"].isin(["dev", "test"]) & frame["kind"].isin(["plain", *_NO_TRIAL])]
    is_plain = frame["kind"] == "plain"
    if not is_plain.any():
        raise InputError("no row has kind 'plain' and split 'dev' or 'test'")
    frame = _read_numbers(frame)
    points, baselines = frame[is_plain], frame[~is_plain]
    points = points.assign(rung=1.0 if budget is None else number_column(points, budget))
    if budget is not None:
        reject_cells(points[budget], (points["rung"] % 1 != 0) | (points["rung"] < 1), "whole numbers above 0")
    for (model, dataset), rows in points.groupby(["model", "dataset"], sort=False):
        # Baselines without model or dataset apply to all of them.
        is_shared = baselines["model"].isin([model, ""]) & baselines["dataset"].isin([dataset, ""])
        yield ModelScores(
            model=last_part(model) or path.stem,
            origin=path.stem,
            place=str(path),
            configurations=make_configurations(_row_points(rows, is_ordinal=budget == "examples_seen")),
            baselines=_row_baselines(baselines[is_shared]),
            dataset=dataset,
            names_split=names_split,
        )


def _read_numbers(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the frame with all columns of scores and counts as floats, and scores in [0, 1]."""
    for column in ("polarity", "similarity"):
        frame = frame.assign(**{column: number_column(frame, column)})
    for column in (*DEVIATIONS, *COUNTS, "value"):
        numbers = number_column(frame, column, is_optional=True) if column in frame else float("nan")
        frame = frame.assign(**{column: numbers})
    for column in ("polarity", *DEVIATIONS):
        reject_cells(frame[column], frame[column] < 0, "numbers from 0")
    for column in COUNTS:
        reject_cells(frame[column], (frame[column] % 1 > 0) | (frame[column] < 1), "whole numbers above 0")
    is_percent = frame["polarity"].abs() > 1.5
    if is_percent.any() != (frame["similarity"].abs() > 1.5).any():
        raise InputError(
            f"polarity is at most {frame['polarity'].max():g} and similarity at most {frame['similarity'].max():g}; "
            "allowed: both in [0, 1], or both x100"
        )
    if not is_percent.any():
        return frame
    reject_cells(frame["polarity"], ~is_percent, "scores x100, as in other rows")
    return frame.assign(**{column: frame[column] / 100 for column in ("polarity", "similarity", *DEVIATIONS)})


def _row_points(rows: "pd.DataFrame", *, is_ordinal: bool) -> Iterator[ScoredPoint]:
    """Yield the points of rows with a column ``rung``; if ``is_ordinal``, its values are replaced by ranks from 1."""
    names = [name for name in rows.columns if name not in _NO_PARAMETERS and not is_index(name)]
    configurations = rows[names].apply(as_objects)
    if is_ordinal:
        keys = configurations.apply(tuple, axis=1) if names else rows["kind"]
        keys = rows.get("trial", keys)
        rows = rows.assign(rung=rows.groupby(keys, dropna=False)["rung"].rank("dense"))
    for index, row in zip(rows.index, rows.to_dict("records"), strict=True):
        cells = configurations.loc[index]
        values: dict[str, Any] = {str(name): plain(value) for name, value in cells.items() if value is not None}
        if NUM_EXAMPLES not in values and "num_examples" in values:
            values[NUM_EXAMPLES] = values.pop("num_examples")
        if "loss" in values:
            values["loss"] = loss_name(values["loss"])
        yield ScoredPoint(values, int(row["rung"]), row["split"], _row_scores(row))


def _row_baselines(rows: "pd.DataFrame") -> Mapping[str, SplitScores]:
    """Return the scores of the baselines by name, the reference first."""
    baselines: dict[str, dict[ScoredSplit, Scores]] = defaultdict(dict)
    for kind in _NO_TRIAL:
        for row in rows[rows["kind"] == kind].to_dict("records"):
            baselines[key_name((kind, _known(row["value"])))][row["split"]] = _row_scores(row)
    return baselines


def _row_scores(row: Mapping[Any, Any]) -> Scores:
    polarity_std, similarity_std = (_known(row[name]) for name in DEVIATIONS)
    num_queries, k = (_known(row[name]) for name in COUNTS)
    counts = None if num_queries is None or k is None else Counts(int(num_queries), int(k))
    return Scores(row["polarity"], row["similarity"], polarity_std, similarity_std, counts)


def _known(number: float) -> float | None:
    """Return a number, or None for NaN, an empty cell."""
    return None if number != number else number
