"""Model scores from runs, recordings and files of published scores.

A file has the columns ``polarity`` and ``similarity``, in [0, 1] or x100, and one column per parameter.
``num_examples`` is an alias for ``examples_per_rung``. Optional columns:

- ``model`` and ``dataset``; each combination of their values becomes a column in layouts
- one of BUDGETS; if it is missing, all scores are assumed to be from the end of training
- ``split``, ``kind`` and ``value``, as in recordings
- DEVIATIONS
- COUNTS, required for z-tests; set them only if the rank weights are uniform
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
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
from raysweep.replay.recording_files import (
    as_objects,
    check_columns,
    is_index,
    number_column,
    plain,
    reject_cells,
)
from raysweep.report.summary import summarize
from raysweep.results.reader import load
from raysweep.results.settings_file import read_settings
from raysweep.results.types import (
    BASELINES,
    OWN_KINDS,
    Point,
    Results,
    RunInfo,
    ScoredSplit,
    key_name,
)
from raysweep.results.views import averaged
from raysweep.storage.folder import Folder

if TYPE_CHECKING:
    import pandas as pd

MAX_K = 2**31  # no pool has more sentences

BUDGETS = ("examples_seen", "epoch", "step")
DEVIATIONS = ("polarity_std", "similarity_std")  # standard deviations over queries
# their product is the denominator of P if rank weights are uniform
COUNTS = (
    "num_queries",
    "k",
)

_TEXTS = {"model": "", "dataset": "", "kind": "plain", "split": "dev"}  # columns and their defaults
_IGNORED = ("trial", "seconds", "accuracy", "loss_value", "width")
_NO_PARAMETERS = {
    *_TEXTS,
    *BUDGETS,
    *DEVIATIONS,
    *COUNTS,
    *_IGNORED,
    "polarity",
    "similarity",
    "value",
    "rung",
}
# kinds of points without a trial, in the order used by layouts
_NO_TRIAL = ("reference", *BASELINES)


def read_run(run: Folder) -> ModelScores:
    """Return the scores of a run.

    Dev scores are means over replicates. Test scores are left out if only part of the front has them.

    Raises:
        InputError: If the folder does not contain a run, or if the run has no finished rung.
    """
    results = load(run)
    info = results.info
    summary = summarize(results)
    points = _run_points(results, summary.complete_splits)
    configurations = make_configurations(points)
    if not configurations:
        raise InputError(f"{run.location}: no rung is finished, so there is nothing to show")
    settings = read_settings(run, results)
    mining = settings.get("examples")
    measured = (info.dataset, info.model, info.reference, info.k, info.rank_weights)
    prompts = (info.prompt, info.reference_prompt)
    sizes = (sorted(info.num_queries.items()), sorted(info.num_pool.items()), info.label_names)
    return ModelScores(
        model=last_part(info.model),
        origin=last_part(run.location),
        place=run.location,
        configurations=configurations,
        baselines=_run_baselines(results),
        dataset=info.dataset,
        reference=last_part(info.reference),
        retrieval=f"k = {info.k}, {info.rank_weights} rank weights",
        setting=repr((*measured, *prompts, *sizes, mining)),
        why_no_test=summary.front.why_partial("test"),
    )


def _run_points(results: Results, splits: Collection[ScoredSplit]) -> Iterator[ScoredPoint]:
    """Yield the points of tuned encoders on these splits, one trial at a time."""
    configs = {trial.trial: trial.config for trial in results.trials}
    points: dict[int, list[ScoredPoint]] = {trial: [] for trial in configs}
    for point in averaged(results):
        trial, step = point.trial, point.step
        if trial is None or step is None:
            continue
        is_shown = point.split in splits and point.kind in OWN_KINDS
        if not is_shown:
            continue
        config = configs[trial]
        values = {name: plain(value) for name, value in config.items() if value is not None}
        scores = _point_scores(point, results.info)
        scored = ScoredPoint(values, step, point.split, scores)
        points[trial].append(scored)
    return itertools.chain.from_iterable(points.values())


def _run_baselines(results: Results) -> Mapping[str, SplitScores]:
    """Return the scores of a run's baselines, keyed by name, with the reference first."""
    baselines: dict[str, dict[ScoredSplit, Scores]] = defaultdict(dict)
    for kind in _NO_TRIAL:
        for point in results.points:
            if point.kind == kind and point.trial is None:
                name = key_name(point.key)
                if point.label is not None:
                    name = f"{name} {point.label}"
                baselines[name][point.split] = _point_scores(point, results.info)
    return baselines


def _point_scores(point: Point, info: RunInfo) -> Scores:
    """Return a point's scores; a standard deviation of 0 means that it is unknown."""
    num_queries = info.num_queries.get(point.split)
    counts = Counts(num_queries, info.k) if num_queries and info.rank_weights == "uniform" else None
    deviations = point.std("polarity") or None, point.std("similarity") or None
    return Scores(point["polarity"], point["similarity"], *deviations, counts)


def is_by_k(frame: "pd.DataFrame") -> bool:
    """Return whether a frame contains scores by k instead of a recording."""
    return "k" in frame and "loss" not in frame and not any(budget in frame for budget in BUDGETS)


def read_by_k(frame: "pd.DataFrame", path: Path) -> "pd.DataFrame":
    """Return the rows of a ``by_k`` layout; missing scores are NaN.

    Raises:
        InputError: If the rows are invalid.
    """
    try:
        check_columns(frame, ("model", "rank_weights", "polarity", "similarity"))
        rows = frame[["model", "rank_weights"]].astype(str)
        for name in ("k", "polarity", "similarity"):
            rows[name] = number_column(frame, name)
        for name in (*DEVIATIONS, "accuracy"):
            rows[name] = _optional_numbers(frame, name)
        ks = rows["k"]
        is_outside = ~ks.between(1, MAX_K)
        is_fraction = ks % 1 != 0
        allowed = f"whole numbers from 1 to {MAX_K:,}"
        reject_cells(frame["k"], is_outside | is_fraction, allowed)
        if frame.empty:
            raise InputError("no rows")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return rows.astype({"k": int})


def read_rows(frame: "pd.DataFrame", path: Path) -> list[ModelScores]:
    """Return the scores in a file's rows, one object per model and dataset.

    Raises:
        InputError: If the rows are invalid.
    """
    try:
        return list(_read_rows(frame.reset_index(drop=True), path))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _read_rows(frame: "pd.DataFrame", path: Path) -> Iterator[ModelScores]:
    check_columns(frame, ("polarity", "similarity"))
    names_split = "split" in frame
    budgets_in_file = [column for column in BUDGETS if column in frame]
    budget = budgets_in_file[0] if budgets_in_file else None
    frame = _read_texts(frame)
    is_scored_split = frame["split"].isin(["dev", "test"])
    is_known_kind = frame["kind"].isin(["plain", *_NO_TRIAL])
    is_scored = is_scored_split & is_known_kind
    frame = frame[is_scored]
    is_plain = frame["kind"] == "plain"
    if not is_plain.any():
        raise InputError("no row has kind 'plain' and split 'dev' or 'test'")
    frame = _read_numbers(frame)
    points, baselines = frame[is_plain], frame[~is_plain]
    if budget is None:
        points = points.assign(rung=1.0)
    else:
        budgets = number_column(points, budget)
        is_invalid = (budgets % 1 != 0) | (budgets < 1)
        reject_cells(points[budget], is_invalid, "whole numbers above 0")
        points = points.assign(rung=budgets)
    is_ordinal = budget == "examples_seen"
    for (model, dataset), rows in points.groupby(["model", "dataset"], sort=False):
        # Baselines without a model or dataset apply to all models or datasets.
        is_of_model = baselines["model"].isin([model, ""])
        is_of_dataset = baselines["dataset"].isin([dataset, ""])
        model_baselines = baselines[is_of_model & is_of_dataset]
        model_points = _row_points(rows, is_ordinal=is_ordinal)
        configurations = make_configurations(model_points)
        yield ModelScores(
            model=last_part(model) or path.stem,
            origin=path.stem,
            place=str(path),
            configurations=configurations,
            baselines=_row_baselines(model_baselines),
            dataset=dataset,
            names_split=names_split,
        )


def _read_texts(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the frame with all text columns, filling missing cells with defaults."""
    frame = frame.copy()
    for column, default in _TEXTS.items():
        if column in frame:
            cells = as_objects(frame[column])
            frame[column] = cells.fillna(default).astype(str)
        else:
            frame[column] = default
    return frame


def _read_numbers(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the frame with all score and count columns as floats; percentages are divided by 100."""
    frame = frame.copy()
    for column in ("polarity", "similarity"):
        frame[column] = number_column(frame, column)
    for column in (*DEVIATIONS, *COUNTS, "value"):
        frame[column] = _optional_numbers(frame, column)
    for column in ("polarity", *DEVIATIONS):
        scores = frame[column]
        is_negative = scores < 0
        reject_cells(scores, is_negative, "nonnegative numbers")
    for column in COUNTS:
        counts = frame[column]
        is_invalid = (counts % 1 > 0) | (counts < 1)
        reject_cells(counts, is_invalid, "whole numbers above 0")
    polarity, similarity = frame["polarity"], frame["similarity"]
    is_percent = polarity.abs() > 1.5
    is_similarity_percent = similarity.abs() > 1.5
    has_percents = is_percent.any()
    if has_percents != is_similarity_percent.any():
        max_polarity, max_similarity = polarity.max(), similarity.max()
        raise InputError(
            f"polarity is at most {max_polarity:g} and similarity at most {max_similarity:g}; "
            "allowed: both in [0, 1], or both x100"
        )
    if has_percents:
        reject_cells(polarity, ~is_percent, "scores x100, as in the other rows")
        for column in ("polarity", "similarity", *DEVIATIONS):
            frame[column] = frame[column] / 100
    return frame


def _optional_numbers(frame: "pd.DataFrame", column: str) -> "pd.Series[float] | float":
    """Return a column's numbers, or NaN if the frame lacks this column."""
    return number_column(frame, column, is_optional=True) if column in frame else float("nan")


def _row_points(rows: "pd.DataFrame", *, is_ordinal: bool) -> Iterator[ScoredPoint]:
    """Yield the points in rows with a ``rung`` column.

    If ``is_ordinal``, each rung is replaced by its rank within the trial or configuration, starting at 1.
    """
    parameters = [
        name for name in rows.columns if name not in _NO_PARAMETERS and not is_index(name)
    ]
    configurations = rows[parameters].apply(as_objects)
    if is_ordinal:
        if "trial" in rows:
            keys = rows["trial"]
        elif parameters:
            keys = configurations.apply(tuple, axis=1)
        else:
            keys = rows["kind"]  # constant; all rows have the same configuration
        budgets = rows.groupby(keys, dropna=False)["rung"]
        rows = rows.assign(rung=budgets.rank("dense"))
    for index, row in zip(rows.index, rows.to_dict("records"), strict=True):
        cells = configurations.loc[index]
        values = {str(name): plain(value) for name, value in cells.items() if value is not None}
        if NUM_EXAMPLES not in values and "num_examples" in values:
            values[NUM_EXAMPLES] = values.pop("num_examples")
        if "loss" in values:
            values["loss"] = loss_name(values["loss"])
        yield ScoredPoint(values, int(row["rung"]), row["split"], _row_scores(row))


def _row_baselines(rows: "pd.DataFrame") -> Mapping[str, SplitScores]:
    """Return the baselines' scores, keyed by name, with the reference first."""
    baselines: dict[str, dict[ScoredSplit, Scores]] = defaultdict(dict)
    for kind in _NO_TRIAL:
        for row in rows[rows["kind"] == kind].to_dict("records"):
            name = key_name((kind, _known(row["value"])))
            baselines[name][row["split"]] = _row_scores(row)
    return baselines


def _row_scores(row: Mapping[Any, Any]) -> Scores:
    polarity_std, similarity_std = (_known(row[name]) for name in DEVIATIONS)
    num_queries, k = (_known(row[name]) for name in COUNTS)
    counts = None if num_queries is None or k is None else Counts(int(num_queries), int(k))
    return Scores(row["polarity"], row["similarity"], polarity_std, similarity_std, counts)


def _known(number: float) -> float | None:
    """Return a number, or None for NaN (an empty cell)."""
    return None if number != number else number
