"""Reading and writing recorded sweeps as tables: see :mod:`raysweep.replay.table`.

A table has a row for each operating point of each rung: the configuration's columns, one of ``examples_seen``, ``step`` or
``epoch`` (the training budget), ``polarity`` and ``similarity``, in [0, 1] or x100; and where known ``trial``, ``kind``,
``value`` and ``seconds`` (since the trial began). Rows of kind ``reference`` hold the reference encoder's scores.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raysweep.config.space import Scalar
from raysweep.errors import InputError
from raysweep.replay.table import RecordedRung, RecordedSweep, RecordedTrial
from raysweep.results.types import Results
from raysweep.results.views import averaged, varied_parameters

if TYPE_CHECKING:
    import pandas as pd

BUDGETS = ("examples_seen", "epoch", "step")
MEASURED = (*BUDGETS, "trial", "kind", "value", "seconds", "polarity", "similarity", "loss_value", "width", "split")


def read(path: Path, where: Mapping[str, str] | None = None) -> RecordedSweep:
    """Read a table from .csv, .tsv or .parquet, of its rows those whose columns have the values ``where`` gives.

    Raises InputError that names the file and column, and the row where there is one.
    """
    return from_frame(_frame(path), str(path), where)


def _frame(path: Path) -> "pd.DataFrame":
    import pandas as pd

    readers = {".csv": pd.read_csv, ".tsv": lambda file: pd.read_csv(file, sep="\t"), ".parquet": pd.read_parquet}
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.suffix not in readers:
        raise InputError(f"{path}: unsupported suffix ({path.suffix or 'none'}); a table ends in {', '.join(readers)}")
    try:
        frame: pd.DataFrame = readers[path.suffix](path)
    except (OSError, ValueError) as error:  # pandas' parser errors and pyarrow's are ValueErrors
        raise InputError(f"{path}: cannot be read: {error}") from None
    return frame


def from_frame(frame: "pd.DataFrame", name: str, where: Mapping[str, str] | None = None) -> RecordedSweep:
    """The table that a frame holds; ``name`` is for errors. See :func:`read`."""
    frame = frame.reset_index(drop=True)
    for column in ("polarity", "similarity"):
        if column not in frame:
            raise InputError(f"{name}: no column {column!r}; the columns are {', '.join(map(str, frame.columns))}")
    budget = next((column for column in BUDGETS if column in frame), None)
    if budget is None:
        raise InputError(f"{name}: no column of the training budget; allowed: {', '.join(BUDGETS)}")
    if "kind" not in frame:
        frame = frame.assign(kind="plain")
    frame = frame[frame["kind"] != "oracle"]
    if "split" in frame:
        frame = frame[frame["split"] == "dev"]
        if frame.empty:
            raise InputError(f"{name}: no row has split 'dev', the one that searches are judged on")
    for column, wanted in (where or {}).items():
        frame = _part(frame, column, wanted, name)
    frame = _scaled(frame, name)
    is_reference = frame["kind"] == "reference"
    references, frame = frame[is_reference], frame[~is_reference]
    if frame.empty:
        raise InputError(f"{name}: no rows")
    for column in (budget, *(["seconds"] if "seconds" in frame else [])):
        frame = frame.assign(**{column: _numbers(frame, column, name)})
    for column in ("polarity", "seconds"):
        if column in frame and (frame[column] < 0).any():
            row = frame[column].idxmin()
            raise InputError(f"{name}: row {row + 1}: {column} is {frame[column][row]:g}, below 0")
    odd = (frame[budget] % 1 != 0) | (frame[budget] < 1)
    if odd.any():
        raise InputError(
            f"{name}: row {odd.idxmax() + 1}: {budget} is {frame[budget][odd.idxmax()]:g}, not a whole number above 0"
        )
    reference, reference_point = None, (float(frame["polarity"].min()), float(frame["similarity"].min()))
    if len(references):
        reference = (float(references["polarity"].iloc[0]), float(references["similarity"].iloc[0]))
        reference_point = reference[0], reference[1] / 2
    table = RecordedSweep(_trials(frame, budget, name), reference_point, reference)
    try:
        table.space  # noqa: B018 (so that what is wrong with it is said with the file)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if not table.area:
        raise InputError(
            f"{name}: no point lies above P {reference_point[0]:g} and S {reference_point[1]:g}, "
            + ("P and half the S of its reference" if reference else "the worst that is recorded")
            + ", so searches cannot be told apart"
        )
    return table


def _part(frame: "pd.DataFrame", column: str, wanted: str, name: str) -> "pd.DataFrame":
    """The rows whose column has this value. R's scores stay with it, unless it is said whose they are."""
    if column not in frame:
        raise InputError(f"{name}: no column {column!r}; the columns are {', '.join(map(str, frame.columns))}")
    values = _with_gaps(frame[column]).map(lambda value: None if value is None else str(_plain(value)))
    is_reference = frame["kind"] == "reference"
    chosen = (values == wanted) | (values == _number_text(wanted))
    others = is_reference & ~(values[is_reference].notna().any() and column != "kind")
    if not (chosen & ~is_reference).any():
        there = sorted(values[~is_reference].dropna().unique())
        raise InputError(f"{name}: no row has {column} {wanted!r}; there are {', '.join(there[:20])}")
    return frame[chosen | others]


def _number_text(text: str) -> str:
    """A number as a table's cell is shown, ``1`` for ``1.0``; any other text as it is."""
    try:
        return str(_plain(float(text)))
    except (ValueError, OverflowError):
        return text


def _scaled(frame: "pd.DataFrame", name: str) -> "pd.DataFrame":
    """With scores in [0, 1], also where all were x100."""
    for column in ("polarity", "similarity"):
        frame = frame.assign(**{column: _numbers(frame, column, name)})
    percent = frame["polarity"].abs() > 1.5
    if percent.any() != (frame["similarity"].abs() > 1.5).any():
        raise InputError(
            f"{name}: polarity is at most {frame['polarity'].max():g} and similarity at most {frame['similarity'].max():g}; "
            "allowed: both in [0, 1], or both x100"
        )
    if not percent.any():
        return frame
    if not percent.all():
        row = percent.idxmin()
        raise InputError(
            f"{name}: row {row + 1}: polarity is {frame['polarity'][row]:g}, where other rows have it x100; allowed: all in "
            "[0, 1], or all x100"
        )
    return frame.assign(polarity=frame["polarity"] / 100, similarity=frame["similarity"] / 100)


def _numbers(frame: "pd.DataFrame", column: str, name: str) -> "pd.Series[float]":
    import pandas as pd

    numbers = pd.to_numeric(frame[column], errors="coerce").astype("float64")
    wrong = ~np.isfinite(numbers.to_numpy())
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{name}: row {frame.index[row] + 1}: {column} is {frame[column].iloc[row]}, not a finite number"
        )
    return numbers


def _trials(frame: "pd.DataFrame", budget: str, name: str) -> tuple[RecordedTrial, ...]:
    # pandas calls the index that it wrote into a file so.
    parameters = [c for c in frame.columns if c not in MEASURED and not str(c).startswith("Unnamed: ")]
    if not parameters:
        raise InputError(f"{name}: no column of the configuration beside {', '.join(map(str, frame.columns))}")
    configurations = frame[parameters].apply(_with_gaps)
    for column in parameters:
        if "." in str(column):  # a space's prefixes end in one, and pandas tells columns of one name apart by it
            raise InputError(
                f"{name}: column {column!r}: a parameter's name has no dot, and no two columns have one name; rename it"
            )
        for row, value in configurations[column].items():
            plain = _plain(value)
            if not isinstance(plain, bool | int | float | str | None) or plain in (math.inf, -math.inf):
                raise InputError(
                    f"{name}: row {row + 1}: {column} is {value!r}; allowed: numbers, words, true and false"
                )
    keys = configurations.apply(tuple, axis=1)
    groups = keys
    if "trial" in frame:
        groups = frame["trial"]
        if groups.isna().any():
            raise InputError(f"{name}: row {groups.isna().idxmax() + 1}: trial is empty")
        differs = keys != keys.groupby(groups).transform("first")
        if differs.any():
            row = differs.idxmax()
            raise InputError(
                f"{name}: row {row + 1}: trial {_plain(groups[row])} has another configuration than in rows above"
            )
    trials = []
    for _, rows in frame.groupby(groups, sort=False, dropna=False):
        values = {name: _plain(value) for name, value in configurations.loc[rows.index[0]].items() if value is not None}
        rungs = []
        for reached, rung in rows.groupby(budget, sort=True):
            seconds = float(rung["seconds"].iloc[0]) if "seconds" in rung else float(reached)
            points = zip(rung["polarity"].tolist(), rung["similarity"].tolist(), strict=True)
            rungs.append(RecordedRung(int(reached), seconds, tuple(points)))
        trials.append(RecordedTrial({str(k): v for k, v in values.items()}, tuple(rungs)))
    return tuple(trials)


def _with_gaps(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Plain objects, None where there is nothing, whatever type of column stands for it."""
    return column.astype(object).where(column.notna(), None)


def _plain(value: Any) -> Scalar:
    """A cell as YAML would have it: a whole number stays one although a column with gaps holds floats."""
    value = value.item() if isinstance(value, np.generic) else value
    scalar: Scalar = int(value) if isinstance(value, float) and value.is_integer() else value
    return scalar


def write(results: Results, path: Path) -> int:
    """Write a run as a table; how many trials it holds. InputError when the suffix is unknown or no rung is done."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path}: unsupported suffix ({path.suffix or 'none'}); a table ends in .csv or .parquet")
    frame = frame_of(results)
    try:
        if path.suffix == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False, compression="zstd")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return int(frame["trial"].nunique())


def frame_of(results: Results) -> "pd.DataFrame":
    """A run's dev points as a table; of a configuration with replicates the means. InputError when no rung is done."""
    import pandas as pd

    if not results.rungs:
        raise InputError(f"{results.folder}: no rung is done, so there is nothing to record")
    configs = {trial.trial: trial.config for trial in results.trials}
    names = varied_parameters(results.trials)
    rungs = {(rung.trial, rung.step): rung for rung in results.rungs}
    rows = []
    for point in averaged(results):
        if point.split != "dev" or point.kind == "oracle":
            continue
        row: dict[str, Any] = {"trial": point.trial}
        if point.trial is not None and point.step is not None:
            rung = rungs[point.trial, point.step]
            row |= {name: configs[point.trial].get(name) for name in names}
            row |= {"examples_seen": rung.examples_seen, "seconds": round(rung.seconds, 3)}
        scores = {"polarity": round(point.polarity, 6), "similarity": round(point.similarity, 6)}
        rows.append({**row, "kind": point.kind, "value": point.value, **scores})
    frame = pd.DataFrame(rows).astype({"trial": "Int64", "examples_seen": "Int64"})
    for name in names:  # whole numbers, where some trials lack them
        if all(type(config.get(name)) in (int, type(None)) for config in configs.values()):
            frame[name] = frame[name].astype("Int64")
    columns = ["trial", *names, "examples_seen", "seconds", "kind", "value", "polarity", "similarity"]
    return frame[columns]
