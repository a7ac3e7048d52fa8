"""Reading and writing recorded sweeps as tables; see :mod:`raysweep.replay.table`.

A table has a row for each operating point of each rung, with the configuration's columns, one of ``examples_seen``,
``step`` or ``epoch`` (the training budget), ``polarity`` and ``similarity``, in [0, 1] or x100, and if known ``trial``,
``kind``, ``value`` and ``seconds`` (since the trial started). Rows of kind ``reference`` hold the reference encoder's
scores. The columns of other tables are described in a file next to the table: :mod:`raysweep.replay.description`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.config.trial import LOSS_PARAMETERS, TrialConfig
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.replay.description import WORST
from raysweep.replay.description import beside as description_beside
from raysweep.replay.table import RecordedRung, RecordedSweep, RecordedTrial
from raysweep.replay.table_checks import (
    BUDGETS,
    CHECKS,
    DEVIATIONS,
    MEASURED,
    PointRows,
    as_objects,
    check_column,
    check_columns,
    check_unit,
    number_column,
    optional_number_column,
    plain,
)
from raysweep.results.types import BASELINES, Point, Results, Rung
from raysweep.results.views import averaged, varied_parameters

if TYPE_CHECKING:
    import pandas as pd

Cells = dict[str, Any]  # one row, by column

_NO_TRIALS = ("oracle", *BASELINES)  # kinds of points that no trial produces and no search finds

NULLABLE = frozenset(
    name for name, field in TrialConfig.model_fields.items() if field.default is None and name not in LOSS_PARAMETERS
)
"""Trial parameters for which null is a value."""

MAX_BYTES = 2**28  # a million rows of twenty columns


def read(path: Path, where: Mapping[str, str] | None = None) -> RecordedSweep:
    """Read a table from .csv, .tsv or .parquet, keeping rows whose columns have the values in ``where``.

    Raises:
        InputError: If the table is invalid, with the file, the column and, if there is one, the row.
    """
    frame = read_frame(path)
    description = description_beside(path)
    if description is None:
        return from_frame(frame, str(path), where)
    try:
        chosen = _chosen(_with_kinds(frame.reset_index(drop=True)), where or {})
        described = description.applied(chosen)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    table = from_frame(described, str(path), begin=WORST)
    return replace(table, ranges=description.range_names)


def read_frame(path: Path) -> "pd.DataFrame":
    """Return the rows of a .csv, .tsv or .parquet file, unchecked.

    Raises:
        InputError: If the file is of another type or too large.
    """
    import pandas as pd

    readers = {
        ".csv": lambda file: _read_text(file, ","),
        ".tsv": lambda file: _read_text(file, "\t"),
        ".parquet": pd.read_parquet,
    }
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():  # reading a device or a pipe may never end
        raise InputError(f"{path}: is no ordinary file")
    if path.suffix not in readers:
        raise InputError(f"{path}: unsupported suffix ({path.suffix or 'none'}); a table ends in {', '.join(readers)}")
    try:
        _check_size(path)
        frame: pd.DataFrame = readers[path.suffix](path)
    except InputError:
        raise
    except Exception as error:  # a damaged file may fail in any layer, each with its own error types
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(f"{path}: cannot be read: {reason}") from None
    return frame


def _read_text(path: Path, delimiter: str) -> "pd.DataFrame":
    """Return the rows of a CSV or TSV file.

    NA, NaN, None, null and the like are empty cells in columns of numbers or booleans, as in pandas. In a column of
    names they are names, and only an empty cell is empty.

    Raises:
        InputError: If a row repeats the header.
    """
    import pandas as pd

    frame = pd.read_csv(path, sep=delimiter, low_memory=False)
    words = pd.read_csv(path, sep=delimiter, low_memory=False, keep_default_na=False, na_values=[""])
    for column in frame:
        has_names = _has_names(frame[column])
        has_only_words = frame[column].isna().all() and column not in MEASURED
        if has_names or has_only_words:
            frame[column] = words[column].array
    _check_header(frame, path)
    return frame


def _has_names(column: "pd.Series[Any]") -> bool:
    from pandas.api.types import infer_dtype

    return str(infer_dtype(column, skipna=True)) == "string"


def _check_header(frame: "pd.DataFrame", path: Path) -> None:
    """Raise InputError for a row that repeats the header, which would turn all columns into names."""
    if frame.empty or not all(_has_names(frame[column]) for column in frame):
        return
    is_name = frame.apply(lambda cells: cells.astype(str).str.strip('\ufeff" ').isin(frame.columns))
    is_header = is_name.all(axis=1).to_numpy()
    if is_header.any():
        row = int(is_header.argmax()) + 1
        raise InputError(f"{path}: row {row}: repeats the header, as in files joined into one; remove it")


def _check_size(path: Path) -> None:
    """Raise InputError, before reading, for a file larger than any recorded sweep."""
    num_bytes = path.stat().st_size
    if path.suffix == ".parquet":
        import pyarrow.parquet

        metadata = pyarrow.parquet.read_metadata(path)
        num_bytes = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    if num_bytes >= MAX_BYTES:
        raise InputError(f"{path}: is too large; allowed: tables of fewer than {MAX_BYTES:,} bytes, decompressed")


def from_frame(
    frame: "pd.DataFrame", name: str, where: Mapping[str, str] | None = None, begin: Pair | None = None
) -> RecordedSweep:
    """Return the table in a frame; ``name`` is for error messages. See :func:`read`.

    ``begin`` is the reference point of hypervolumes; by default P and half the S of the reference, or the worst
    recorded scores.
    """
    try:
        return _recorded_sweep(frame.reset_index(drop=True), where or {}, begin)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _recorded_sweep(frame: "pd.DataFrame", where: Mapping[str, str], begin: Pair | None) -> RecordedSweep:
    check_columns(frame)
    frame = _chosen(_on_dev(_with_kinds(frame)), where)
    frame = in_unit_interval(frame)
    is_reference = frame["kind"] == "reference"
    points = _point_rows(frame[~is_reference])
    for check in CHECKS:
        check(points)
    reference = _reference_scores(frame[is_reference])
    origin = begin or _reference_point(points, reference)
    nullable = NULLABLE if begin is None else frozenset[str]()  # a described table is not raysweep's
    table = RecordedSweep(_trials(points), origin, reference, nullable=nullable)
    _check_that_it_can_be_searched(table)
    return table


def _with_kinds(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame if "kind" in frame else frame.assign(kind="plain")


def _on_dev(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows of the dev split, on which searches are judged."""
    frame = frame[~frame["kind"].isin(_NO_TRIALS)]
    if "split" not in frame:
        return frame
    on_dev = frame[frame["split"] == "dev"]
    if on_dev.empty:
        raise InputError("no row has split 'dev', the one that searches are judged on")
    return on_dev


def _chosen(frame: "pd.DataFrame", where: Mapping[str, str]) -> "pd.DataFrame":
    """Return the rows whose columns have these values."""
    for column, wanted in where.items():
        frame = _part(frame, column, wanted)
    return frame


def _part(frame: "pd.DataFrame", column: str, wanted: str) -> "pd.DataFrame":
    """Return the rows whose column has this value.

    Rows of the reference are kept as well, unless they have another value.
    """
    check_column(frame, column)
    is_reference = frame["kind"] == "reference"
    texts = as_objects(frame[column]).map(lambda value: None if value is None else str(plain(value)))
    is_wanted = texts.isin([wanted, _number_text(wanted)])
    is_wanted_point = is_wanted & ~is_reference
    if not is_wanted_point.any():
        present = sorted(texts[~is_reference].dropna().unique())
        listed = ", ".join(present[:20])
        raise InputError(f"no row has {column} {wanted!r}; there are {listed}")
    reference_names_none = texts[is_reference].isna().all()
    if column == "kind" or reference_names_none:
        return frame[is_wanted | is_reference]
    return frame[is_wanted]


def _number_text(text: str) -> str:
    """Return a number in the form of a table cell, such as ``1`` for ``1.0``; other text is unchanged."""
    try:
        return str(plain(float(text)))
    except (ValueError, OverflowError):
        return text


def in_unit_interval(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the frame with scores and their deviations in [0, 1], even if all were x100.

    Raises:
        InputError: If a cell is not a number.
    """
    for column in ("polarity", "similarity"):
        frame = frame.assign(**{column: number_column(frame, column)})
    deviations = [column for column in DEVIATIONS if column in frame]
    frame = frame.assign(**{column: optional_number_column(frame, column) for column in deviations})
    is_percent = frame["polarity"].abs() > 1.5
    check_unit(frame, is_percent)
    if not is_percent.any():
        return frame
    return frame.assign(**{column: frame[column] / 100 for column in ("polarity", "similarity", *deviations)})


def _point_rows(frame: "pd.DataFrame") -> PointRows:
    if frame.empty:
        raise InputError("no rows")
    budget = next(column for column in BUDGETS if column in frame)
    for column in (budget, "seconds"):
        if column in frame:
            frame = frame.assign(**{column: number_column(frame, column)})
    return PointRows(frame, budget)


def _reference_scores(references: "pd.DataFrame") -> Pair | None:
    if references.empty:
        return None
    first = references.iloc[0]
    return float(first["polarity"]), float(first["similarity"])


def _reference_point(points: PointRows, reference: Pair | None) -> Pair:
    """Return the reference point of hypervolumes."""
    if reference is not None:
        return reference[0], reference[1] / 2
    return float(points.frame["polarity"].min()), float(points.frame["similarity"].min())


def _trials(points: PointRows) -> tuple[RecordedTrial, ...]:
    trials = []
    for _, rows in points.frame.groupby(points.trials, sort=False, dropna=False):
        configuration = points.configurations.loc[rows.index[0]]
        values = {str(name): plain(value) for name, value in configuration.items() if value is not None}
        rungs = [_rung(int(budget), rung) for budget, rung in rows.groupby(points.budget, sort=True)]
        trials.append(RecordedTrial(values, tuple(rungs)))
    return tuple(trials)


def _rung(budget: int, rows: "pd.DataFrame") -> RecordedRung:
    seconds = float(rows["seconds"].iloc[0]) if "seconds" in rows else float(budget)
    points = zip(rows["polarity"].tolist(), rows["similarity"].tolist(), strict=True)
    return RecordedRung(budget, seconds, tuple(points))


def _check_that_it_can_be_searched(table: RecordedSweep) -> None:
    table.space  # noqa: B018 (raises InputError if the configurations form no space)
    if not table.area:
        polarity, similarity = table.reference_point
        origin = "P and half the S of its reference" if table.reference else "the worst that is recorded or allowed"
        raise InputError(
            f"no point lies above P {polarity:g} and S {similarity:g}, {origin}, so searches cannot be told apart"
        )


def write(results: Results, path: Path) -> int:
    """Write a run as a table and return the number of its trials.

    Raises:
        InputError: If the suffix is unknown or no rung is finished.
    """
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
    """Return a run's dev points as a table, with means for configurations that have replicates.

    Raises:
        InputError: If no rung is finished.
    """
    import pandas as pd

    if not results.rungs:
        raise InputError(f"{results.folder}: no rung is done, so there is nothing to record")
    names = varied_parameters(results.trials)
    parameter_cells = {trial.trial: {name: trial.config.get(name) for name in names} for trial in results.trials}
    rung_cells = {(rung.trial, rung.step): _rung_cells(rung) for rung in results.rungs}
    rows = []
    for point in averaged(results):
        if point.split != "dev" or point.kind in _NO_TRIALS:
            continue
        row: Cells = {"trial": point.trial}
        if point.trial is not None and point.step is not None:
            row |= parameter_cells[point.trial] | rung_cells[point.trial, point.step]
        rows.append(row | _score_cells(point))
    frame = pd.DataFrame(rows).astype({"trial": "Int64", "examples_seen": "Int64"})
    for name in names:
        types = {type(cells[name]) for cells in parameter_cells.values()}
        if types <= {int, type(None)}:  # pandas turns integer columns with gaps into floats
            frame[name] = frame[name].astype("Int64")
    columns = [
        "trial",
        *names,
        "examples_seen",
        "seconds",
        "kind",
        "value",
        "polarity",
        "similarity",
        "accuracy",
    ]
    return frame[columns]


def _rung_cells(rung: Rung) -> Cells:
    return {"examples_seen": rung.examples_seen, "seconds": round(rung.seconds, 3)}


def _score_cells(point: Point) -> Cells:
    return {
        "kind": point.kind,
        "value": point.value,
        "polarity": round(point.polarity, 6),
        "similarity": round(point.similarity, 6),
        "accuracy": None if point.accuracy is None else round(point.accuracy, 6),
    }
