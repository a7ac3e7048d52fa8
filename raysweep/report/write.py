"""The files in RUN/report, built from a run's stored results."""

import dataclasses
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysweep.errors import DamagedError, InputError
from raysweep.output import json_text
from raysweep.report import figures, side_by_side_texts, watched_trials
from raysweep.report.data_sets import all_scores
from raysweep.report.importance import importances
from raysweep.report.markdown import markdown
from raysweep.report.measures import pairs_figure
from raysweep.report.page.document import render, render_comparison
from raysweep.report.page.origin import Origin
from raysweep.report.page.sections import Material
from raysweep.report.side_by_side import SideBySide
from raysweep.report.summary import SPLITS, Summary, summary_of
from raysweep.report.watched_figure import figure as watched_figure
from raysweep.report.watched_trials import last_rungs
from raysweep.results.account import Account
from raysweep.results.readings import Readings, load_readings
from raysweep.results.settings_file import check_settings
from raysweep.results.types import Measure, Point, flat_point
from raysweep.results.views import extra_scores, score_columns
from raysweep.results.watched import WatchedRung
from raysweep.storage.folder import Folder, LocalFolder, as_folder

Row = dict[str, Any]  # a table's cells, keyed by column


@dataclass(frozen=True)
class Report:
    """A written report and the summary it was built from."""

    location: str
    folder: Path
    files: tuple[Path, ...]
    summary: Summary


def write(place: Path | Folder, to: Path | None = None) -> Report:
    """Write a run's report to the folder ``to`` or, by default, to the run's ``report`` folder.

    Scores in the files are x100. If the report cannot be created, an earlier report is left unchanged.
    Damaged scores and readings are omitted and listed in a note in the report.

    Raises:
        InputError: If ``place`` does not contain a run, if the run's settings have changed since the
            sweep started, if the run's ``report`` folder is a symbolic link, or if the report cannot be written.
    """
    run = as_folder(place)
    report = run.within("report") if to is None else LocalFolder(to)
    folder = report.path
    if to is None and folder.is_symlink():
        raise InputError(
            f"{folder}: is a symbolic link; allowed: a regular folder, or another location with --to"
        )
    summary = summary_of(run)
    check_settings(run, summary.results.config_digests)
    readings = None
    try:
        readings = load_readings(run, summary.results)
    except DamagedError as error:
        summary = dataclasses.replace(summary, damage={**summary.damage, "readings": str(error)})
    contents = _contents(summary, Origin.read(run), readings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_files(folder, contents)
        for name in contents:
            report.store(name)
    except OSError as error:
        raise InputError(
            f"{report.location}: cannot write the report ({error.strerror}); allowed: a writable folder"
        ) from None
    files = tuple(folder / name for name in contents)
    return Report(report.location, folder, files, summary)


def replace_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files to a folder, replacing existing files only after all new files are complete."""
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as unfinished:
        for name, content in contents.items():
            (Path(unfinished) / name).write_bytes(content)
        for name in contents:
            (Path(unfinished) / name).replace(folder / name)


def write_comparison(comparison: SideBySide, folder: Path) -> None:
    """Write compare.md, compare.json, an interactive page and a figure of all fronts to a folder."""
    png = figures.comparison_figure(comparison)
    contents = {
        "compare.md": side_by_side_texts.markdown(comparison).encode(),
        "compare.html": render_comparison(comparison, png),
        "compare.json": json_text(side_by_side_texts.as_json(comparison)).encode(),
        side_by_side_texts.FIGURE: png,
    }
    folder.mkdir(parents=True, exist_ok=True)
    replace_files(folder, contents)


def _contents(summary: Summary, origin: Origin, readings: Readings | None) -> dict[str, bytes]:
    """Return the content of each file, keyed by file name."""
    results = summary.results
    front_png, progress_png = figures.front_figure(summary), figures.progress_figure(summary)
    extras = extra_scores(results.points)
    columns = score_columns(results.points)
    points = [_point_row(point, columns) for point in results.points]
    rungs = [dataclasses.asdict(rung) for rung in results.rungs]
    trials = []
    for trial in results.trials:
        row = dataclasses.asdict(trial)
        row["config"] = json.dumps(dict(trial.config), sort_keys=True)
        if not summary.account.priced:
            row["money"] = None
        trials.append(row)
    members = []
    scores = dict.fromkeys([*summary.goals.written_scores, *extras])
    names = ("trial", "step", "kind", "value", "split", *scores)
    for split in SPLITS:
        for member in summary.members:
            point = member.on(split)
            if point is not None:
                row = _point_row(point, columns)
                members.append({name: row[name] for name in names})
    watched_png = watched_figure(last_rungs(results.watched), "cosine") if results.watched else None
    pairs_png = pairs_figure(summary)
    material = Material(
        summary,
        front_png,
        progress_png,
        origin,
        importances(summary),
        readings,
        watched_png,
        pairs_png,
    )
    return {
        "front.json": _json(members),
        "points.json": _json(points),
        "labeled.json": _json([_point_row(point, columns) for point in results.labeled]),
        "costs.json": _json(_cost_rows(summary.account)),
        "points.parquet": _parquet(
            points, {**_POINT_FIELDS, **dict.fromkeys(columns, "float64"), "label": "string"}
        ),
        "rungs.parquet": _parquet(rungs, _RUNG_TYPES),
        "trials.parquet": _parquet(trials, _TRIAL_TYPES),
        **_measure_files(results.measures),
        **(
            {"data_sets.json": _json([scores.as_json() for scores in all_scores(summary)])}
            if results.tasks
            else {}
        ),
        "front.md": markdown(summary).encode(),
        "front.png": front_png,
        "progress.png": progress_png,
        **({} if pairs_png is None else {"pairs.png": pairs_png}),
        "report.html": render(material),
        **_watched_contents(results.watched, watched_png),
    }


def _watched_contents(rungs: Sequence[WatchedRung], figure_png: bytes | None) -> dict[str, bytes]:
    if figure_png is None:
        return {}
    last = json.dumps(watched_trials.as_json(last_rungs(rungs)), indent=1)
    return {
        "watch.json": f"{last}\n".encode(),
        "watch.png": figure_png,
        "watched.parquet": _parquet(watched_trials.rows(rungs), _WATCHED_TYPES),
    }


def _measure_files(measures: Sequence[Measure]) -> dict[str, bytes]:
    if not measures:
        return {}
    rows = [dataclasses.asdict(measure) for measure in measures]
    return {
        "measures.json": _json(rows),
        "measures.parquet": _parquet(
            [{key: row[key] for key in _MEASURE_TYPES} for row in rows], _MEASURE_TYPES
        ),
    }


def _cost_rows(account: Account) -> list[Row]:
    """Return a row for each kind of trial, followed by the total. ``money`` is None if there are no prices."""
    rows: list[Row] = []
    for entry in (*account.entries, account.total):
        row = {
            "kind": entry.kind,
            "num_trials": entry.num_trials,
            "num_rungs": entry.num_rungs,
        }
        row |= dataclasses.asdict(entry.cost)
        if not account.priced:
            row["money"] = None
        rows.append({**row, "saved_seconds": entry.saved_seconds})
    return rows


def _point_row(point: Point, columns: Iterable[str]) -> Row:
    """Return a point as a row, with the scores in ``columns`` x100."""
    values = flat_point(point)
    row = {name: value for name, value in values.items() if name in _POINT_FIELDS}
    for name in columns:
        score = values.get(name)
        row[name] = None if score is None else round(100 * score, 4)
    return {**row, "label": point.label}


def _json(rows: Sequence[Row]) -> bytes:
    """Return a JSON array with one row per line."""
    return ("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n").encode()


# Types are explicit because Arrow cannot infer them from an empty table or an all-null column.
_POINT_FIELDS = {
    "trial": "int64",
    "step": "int64",
    "kind": "string",
    "value": "float64",
    "split": "string",
    "width": "int64",
}


_RUNG_TYPES = {
    "trial": "int64",
    "step": "int64",
    "examples_seen": "int64",
    "seconds": "float64",
    "loss": "float64",
}


_MEASURE_TYPES = {
    "trial": "int64",
    "step": "int64",
    "split": "string",
    "name": "string",
    "value": "float64",
    "low": "float64",
    "high": "float64",
}


_WATCHED_TYPES = {
    "trial": "int64",
    "step": "int64",
    "role": "string",
    "data": "string",
    "kind": "string",
    "measure": "string",
    "closeness": "string",
    "value": "float64",
    "base": "float64",
    "improvement": "float64",
    "low": "float64",
    "high": "float64",
    "verdict": "string",
    "pairs": "int64",
    "z": "float64",
    "z_verdict": "string",
}


_TRIAL_TYPES = {
    "trial": "int64",
    "config": "string",
    "status": "string",
    "reason": "string",
    "seconds": "float64",
    "cpu_seconds": "float64",
    "gpu_seconds": "float64",
    "money": "float64",
    "num_rungs": "int64",
    "replicate_of": "int64",
    "traceback": "string",
}


def _parquet(rows: Sequence[Row], types: Mapping[str, str]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [(name, pyarrow.type_for_alias(alias)) for name, alias in types.items()]
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())
