"""Recordings from recorded tables: see :mod:`raysweep.replay.recording_files` for their columns.

In addition, each value of the columns ``model`` and ``dataset`` becomes a recording, ``num_examples`` is an alias of
``examples_per_rung``, and a table without a training budget holds the scores after training. The columns
``num_queries`` and ``k`` are the numbers of sentences that P is an unweighted share of, for tests that need them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.errors import InputError
from raysweep.paper.file_checks import (
    BUDGETS,
    CHECKS,
    COUNTS,
    DEVIATIONS,
    PointRows,
    check_column,
    in_unit_interval,
    number_column,
    optional_count_column,
    optional_number_column,
    plain,
)
from raysweep.paper.recording import (
    NUM_EXAMPLES,
    Configuration,
    Counts,
    Recording,
    Scores,
    SplitScores,
    last_part,
    loss_name,
    mean_scores,
    without_repeats,
)
from raysweep.paper.run_source import OF_NO_TRIAL, baseline_name
from raysweep.results.types import ScoredSplit

if TYPE_CHECKING:
    import pandas as pd

_AFTER_TRAINING = "step"  # the budget column of tables without one

_DEFAULTS = {"model": "", "dataset": "", "kind": "plain", "split": "dev"}


def recordings_of_frame(frame: "pd.DataFrame", path: Path) -> list[Recording]:
    """Return a recording for each model and dataset.

    Raises:
        InputError: If the table is invalid, with file and, if applicable, column and row.
    """
    try:
        return list(_recordings(frame.reset_index(drop=True), path))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _recordings(frame: "pd.DataFrame", path: Path) -> Iterator[Recording]:
    names_split = "split" in frame
    points, baselines = _checked(frame)
    for (model, dataset), rows in points.frame.groupby(["model", "dataset"], sort=False):
        # Baselines without model or dataset apply to all of them.
        goes_with = baselines["model"].isin([model, ""]) & baselines["dataset"].isin([dataset, ""])
        yield Recording(
            model=last_part(model) or path.stem,
            origin=path.stem,
            place=str(path),
            configurations=without_repeats(_configurations(PointRows(rows, points.budget))),
            baselines=_baselines(baselines[goes_with]),
            dataset=dataset,
            names_split=names_split,
        )


def _checked(frame: "pd.DataFrame") -> tuple[PointRows, "pd.DataFrame"]:
    """Return the points of trials, and those of baselines.

    Both have the columns ``model``, ``dataset``, ``kind`` and ``split``.
    """
    import pandas as pd

    if frame.empty:
        raise InputError("holds no rows")
    for column in ("polarity", "similarity"):
        check_column(frame, column)
    for column, default in _DEFAULTS.items():
        given = frame[column].astype(object) if column in frame else pd.Series(None, frame.index, dtype=object)
        frame = frame.assign(**{column: given.where(given.notna(), default).astype(str)})
    frame = frame[frame["split"].isin(["dev", "test"])]
    if frame.empty:
        raise InputError("no row has split 'dev' or 'test'")
    frame = in_unit_interval(frame)
    for column in COUNTS:
        if column in frame:
            frame = frame.assign(**{column: optional_count_column(frame, column)})
    rows = _point_rows(frame[frame["kind"] == "plain"])
    baselines = frame[frame["kind"].isin(OF_NO_TRIAL)]
    if "value" in baselines:
        baselines = baselines.assign(value=optional_number_column(baselines, "value"))
    return rows, baselines


def _point_rows(points: "pd.DataFrame") -> PointRows:
    if points.empty:
        raise InputError("no row has kind 'plain', the tuned encoder as it is")
    budget = next((column for column in BUDGETS if column in points), _AFTER_TRAINING)
    numbers = number_column(points, budget) if budget in points else 1.0
    points = points.assign(**{budget: numbers})
    if "seconds" in points:
        points = points.assign(seconds=optional_number_column(points, "seconds"))
    rows = PointRows(points, budget)
    for check in CHECKS:
        check(rows)
    return rows


def _configurations(points: PointRows) -> Iterator[Configuration]:
    for _, rows in points.frame.groupby(points.trials, sort=False, dropna=False):
        values = points.configurations.loc[rows.index[0]]
        yield Configuration(_parameters(values), _rungs(rows, points.budget))


def _parameters(cells: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the parameters under raysweep's names, without empty ones."""
    values = {str(name): plain(value) for name, value in cells.items() if value is not None}
    del values["model"], values["dataset"]
    if NUM_EXAMPLES not in values and "num_examples" in values:
        values[NUM_EXAMPLES] = values.pop("num_examples")
    if "loss" in values:
        values["loss"] = loss_name(values["loss"])
    return values


def _rungs(rows: "pd.DataFrame", budget: str) -> Mapping[int, SplitScores]:
    """Return scores by epoch or step; if the budget is in examples, rungs are numbered from 1."""
    rungs = {}
    for place, (spent, rung) in enumerate(rows.groupby(budget, sort=True), 1):
        number = place if budget == "examples_seen" else int(spent)
        rungs[number] = _by_split(rung)
    return rungs


def _by_split(rung: "pd.DataFrame") -> SplitScores:
    """Return the means of a rung's rows, by split."""
    found: dict[ScoredSplit, list[Scores]] = defaultdict(list)
    for row in rung.to_dict("records"):
        found[row["split"]].append(_scores(row))
    return {split: mean_scores(several) for split, several in found.items()}


def _baselines(rows: "pd.DataFrame") -> Mapping[str, SplitScores]:
    """Return the scores of the baselines by name, the reference first."""
    found: dict[str, dict[ScoredSplit, Scores]] = {}
    for kind in OF_NO_TRIAL:
        for row in rows[rows["kind"] == kind].to_dict("records"):
            name = baseline_name(kind, _known(row.get("value")), None)
            found.setdefault(name, {})[row["split"]] = _scores(row)
    return found


def _scores(row: Mapping[Any, Any]) -> Scores:
    polarity_std, similarity_std = (_known(row.get(name)) for name in DEVIATIONS)
    num_queries, k = (_known(row.get(name)) for name in COUNTS)
    counts = None if num_queries is None or k is None else Counts(int(num_queries), int(k))
    return Scores(float(row["polarity"]), float(row["similarity"]), polarity_std, similarity_std, counts)


def _known(cell: Any) -> float | None:
    """Return a number, or None for an empty cell, which is NaN."""
    return None if cell is None or cell != cell else float(cell)
