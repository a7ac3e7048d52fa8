"""Read and write recordings as .csv and .parquet files; see :mod:`raysweep.replay.recordings`.

A file has a row for each operating point at each rung, a column for each parameter, and the columns in COLUMNS.
``polarity`` is in [0, 1], ``similarity`` is in [-1, 1], and ``seconds`` is the time since the trial started. Rows of
kind ``reference`` contain the reference encoder's scores and have no trial. In .csv files, only an empty cell counts
as missing; ``NA`` and ``None`` are ordinary strings.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raysweep.config.space import Scalar
from raysweep.config.trial import SHARED_PARAMETERS, TrialConfig
from raysweep.errors import InputError
from raysweep.metrics.scores import GOALS
from raysweep.replay.recordings import RecordedRung, RecordedSweep, RecordedTrial
from raysweep.results.types import BASELINES, Results
from raysweep.results.views import averaged, varied_parameters

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("trial", "examples_seen", "seconds", "kind", "polarity", "similarity")
COLUMNS = (*REQUIRED, "value", "accuracy")

_NO_TRIALS = ("oracle", *BASELINES)  # kinds of points that no trial produces

NULLABLE = frozenset(
    name for name in SHARED_PARAMETERS if TrialConfig.model_fields[name].default is None
)
"""Trial parameters that may be null."""


def read(path: Path, where: Mapping[str, str] | None = None) -> RecordedSweep:
    """Read the rows that match ``where`` from a recording in a .csv or .parquet file.

    Raises:
        InputError: If the file is invalid.
    """
    return from_frame(read_frame(path), str(path), where)


def read_frame(path: Path) -> "pd.DataFrame":
    """Return the rows of a .csv or .parquet file without checking them.

    Raises:
        InputError: If the file cannot be read or its suffix is unknown.
    """
    import pandas as pd

    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():  # reading from a device or pipe may block
        raise InputError(f"{path}: not a regular file")
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path}: suffix is {path.suffix or 'missing'}; allowed: .csv, .parquet")
    try:
        if path.suffix == ".csv":
            return pd.read_csv(path, low_memory=False, keep_default_na=False, na_values=[""])
        return pd.read_parquet(path)
    # a damaged file can raise many types of errors
    except Exception as error:
        words = str(error).split()
        reason = " ".join(words)[:300] or type(error).__name__
        raise InputError(f"{path}: cannot be read: {reason}") from None


def from_frame(
    frame: "pd.DataFrame", name: str, where: Mapping[str, str] | None = None
) -> RecordedSweep:
    """Return the recording in a data frame. Error messages start with ``name``."""
    try:
        return _recorded_sweep(frame.reset_index(drop=True), where or {})
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _recorded_sweep(frame: "pd.DataFrame", where: Mapping[str, str]) -> RecordedSweep:
    check_columns(frame, REQUIRED)
    for column, value in where.items():
        frame = _select_rows(frame, column, value)
    for score in ("polarity", "similarity"):
        numbers = number_column(frame, score)
        frame = frame.assign(**{score: numbers})
    is_reference = frame["kind"] == "reference"
    points = frame[~is_reference]
    if points.empty:
        raise InputError("every row has kind 'reference'; required: at least one row of a trial")
    for column in ("examples_seen", "seconds"):
        numbers = number_column(points, column)
        points = points.assign(**{column: numbers})
    budgets = points["examples_seen"]
    reject_cells(points["trial"], points["trial"].isna(), "the trial's number")
    reject_cells(budgets, (budgets % 1 != 0) | (budgets < 1), "whole numbers above 0")
    reject_cells(points["seconds"], points["seconds"] < 0, "nonnegative numbers")
    reject_cells(points["polarity"], ~points["polarity"].between(0, 1), "numbers from 0 to 1")
    reject_cells(points["similarity"], ~points["similarity"].between(-1, 1), "numbers from -1 to 1")
    trials = _trials(points, _configurations(points))
    reference = None
    reference_point = float(points["polarity"].min()), float(points["similarity"].min())
    if is_reference.any():
        scores = frame.loc[is_reference, ["polarity", "similarity"]]
        polarity, similarity = scores.iloc[0].tolist()
        reference = polarity, similarity
        reference_point = GOALS.reference_point(reference)
    recording = RecordedSweep(trials, reference_point, reference, nullable=NULLABLE)
    recording.space  # noqa: B018 (raises InputError if the configurations do not form a valid space)
    if not recording.area:
        polarity, similarity = reference_point
        raise InputError(
            f"no point is above the reference point (P {polarity:g}, S {similarity:g}), so searches cannot be compared"
        )
    return recording


def _select_rows(frame: "pd.DataFrame", column: str, value: str) -> "pd.DataFrame":
    """Return the rows with this value in the column.

    Rows of the reference are kept if the column is ``kind`` or if all their cells in it are empty.
    """
    check_columns(frame, [column])
    try:
        number = str(plain(float(value)))  # for example, 1 for 1.0
    except (ValueError, OverflowError):
        number = value
    is_reference = frame["kind"] == "reference"
    cells = as_objects(frame[column])
    texts = cells.map(lambda cell: None if cell is None else str(plain(cell)))
    is_selected = texts.isin([value, number])
    if not is_selected[~is_reference].any():
        texts_of_points = texts[~is_reference].dropna()
        values = sorted(texts_of_points.unique())
        raise InputError(f"{column} is {value!r}; allowed: {', '.join(values[:20])}")
    if column == "kind" or texts[is_reference].isna().all():
        is_selected |= is_reference
    return frame[is_selected]


def _configurations(points: "pd.DataFrame") -> "pd.DataFrame":
    """Return the parameter columns as plain objects, with None for empty cells."""
    parameters = [name for name in points.columns if name not in COLUMNS and not is_index(name)]
    if not parameters:
        columns = ", ".join(map(str, points.columns))
        raise InputError(f"no parameter column; the columns are {columns}")
    for parameter in parameters:
        if "." in str(parameter):  # pandas also renames repeated columns this way
            raise InputError(
                f"column {parameter!r} is not the name of a parameter; required: unique names without dots"
            )
    configurations = points[parameters].apply(as_objects)
    for parameter in parameters:
        cells = configurations[parameter]
        is_scalar = cells.map(_is_scalar).astype(bool)
        reject_cells(cells, ~is_scalar, "numbers, strings, true and false")
    keys = configurations.apply(tuple, axis=1)
    keys_of_trial = keys.groupby(points["trial"])
    first_keys = keys_of_trial.transform("first")
    is_different = keys != first_keys
    if is_different.any():
        row = is_different.idxmax()
        trial = plain(points["trial"][row])
        raise InputError(
            f"row {row + 1}: trial {trial} has a different configuration in an earlier row"
        )
    return configurations


def _is_scalar(value: Any) -> bool:
    scalar = plain(value)
    if isinstance(scalar, float):
        return math.isfinite(scalar)
    return isinstance(scalar, bool | int | str | None)


def _trials(points: "pd.DataFrame", configurations: "pd.DataFrame") -> tuple[RecordedTrial, ...]:
    trials = []
    for _, points_of_trial in points.groupby("trial", sort=False):
        first_row = points_of_trial.index[0]
        cells = configurations.loc[first_row]
        values = {str(name): plain(value) for name, value in cells.items() if value is not None}
        rungs = []
        for budget, points_of_rung in points_of_trial.groupby("examples_seen", sort=True):
            seconds = float(points_of_rung["seconds"].iloc[0])
            polarities = points_of_rung["polarity"].tolist()
            similarities = points_of_rung["similarity"].tolist()
            scores = zip(polarities, similarities, strict=True)
            rungs.append(RecordedRung(int(budget), seconds, tuple(scores)))
        trials.append(RecordedTrial(values, tuple(rungs)))
    return tuple(trials)


def is_index(column: object) -> bool:
    """Return whether a column is an unnamed index written by pandas."""
    return str(column).startswith("Unnamed: ")


def check_columns(frame: "pd.DataFrame", columns: Iterable[str]) -> None:
    """Raise InputError for the first column that is missing from the frame."""
    for column in columns:
        if column not in frame:
            raise InputError(
                f"column {column!r} is missing; the columns are {', '.join(map(str, frame.columns))}"
            )


def number_column(
    frame: "pd.DataFrame", column: str, *, is_optional: bool = False
) -> "pd.Series[float]":
    """Return a column as floats. If ``is_optional``, empty cells become NaN.

    Raises:
        InputError: If a cell is not a finite number.
    """
    import pandas as pd

    numbers = pd.to_numeric(frame[column], errors="coerce").astype("float64")
    is_wrong = ~np.isfinite(numbers)
    if is_optional:
        is_wrong &= frame[column].notna()
    reject_cells(frame[column], is_wrong, "finite numbers")
    return numbers


def reject_cells(column: "pd.Series[Any]", is_wrong: "pd.Series[bool]", allowed: str) -> None:
    """Raise InputError for the first wrong cell. The message numbers rows from 1."""
    if is_wrong.any():
        row = is_wrong.idxmax()
        raise InputError(f"row {row + 1}: {column.name} is {column[row]!s}; allowed: {allowed}")


def as_objects(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column as plain objects, with None for empty cells."""
    return column.astype(object).where(column.notna(), None)


def plain(value: Any) -> Scalar:
    """Return a cell as a Python scalar.

    Whole floats become integers, because pandas stores integer columns with gaps as floats.
    """
    value = value.item() if isinstance(value, np.generic) else value
    scalar: Scalar = int(value) if isinstance(value, float) and value.is_integer() else value
    return scalar


def write(results: Results, path: Path) -> int:
    """Write a run as a recording, and return its number of trials.

    Raises:
        InputError: If the suffix is unknown, the file cannot be written, or :func:`to_frame` rejects the run.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path}: suffix is {path.suffix or 'missing'}; allowed: .csv, .parquet")
    frame = to_frame(results)
    try:
        if path.suffix == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False, compression="zstd")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return int(frame["trial"].nunique())


def to_frame(results: Results) -> "pd.DataFrame":
    """Return a run's dev points as a recording. Replicates of a configuration are averaged.

    Raises:
        InputError: If no rung has finished, or if the run's points have no polarity or similarity.
    """
    import pandas as pd

    if results.info.is_related:
        goals = " and ".join(results.info.goals)
        raise InputError(
            f"{results.folder}: the run's goals are {goals}; allowed: polarity and similarity"
        )
    if not results.rungs:
        raise InputError(f"{results.folder}: no rung has finished, so there is nothing to record")
    parameters = varied_parameters(results.trials)
    configs = {trial.trial: trial.config for trial in results.trials}
    rungs = {(rung.trial, rung.step): rung for rung in results.rungs}
    rows = []
    for point in averaged(results):
        if point.split != "dev" or point.kind in _NO_TRIALS:
            continue
        row: dict[str, Any] = {"trial": point.trial, "kind": point.kind, "value": point.value}
        for name in ("polarity", "similarity", "accuracy"):
            score = point.get(name)
            row[name] = None if score is None else round(score, 6)
        if point.trial is not None and point.step is not None:
            rung = rungs[point.trial, point.step]
            config = configs[point.trial]
            row |= {name: config.get(name) for name in parameters}
            row["examples_seen"] = rung.examples_seen
            row["seconds"] = round(rung.seconds, 3)
        rows.append(row)
    frame = pd.DataFrame(rows).astype({"trial": "Int64", "examples_seen": "Int64"})
    for name in parameters:
        types = {type(config.get(name)) for config in configs.values()}
        if types <= {int, type(None)}:  # pandas converts integer columns with gaps to floats
            frame[name] = frame[name].astype("Int64")
    scores = ["kind", "value", "polarity", "similarity", "accuracy"]
    return frame[["trial", *parameters, "examples_seen", "seconds", *scores]]
