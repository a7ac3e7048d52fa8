"""RUN/report: the front, tables, figures and a page, from a run's stored results alone."""

import dataclasses
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.errors import InputError
from raysweep.report import figures, html
from raysweep.report.markdown import markdown
from raysweep.report.summary import SPLITS, Summary, summarise
from raysweep.results.reader import load
from raysweep.results.types import Point

if TYPE_CHECKING:
    pass


SCORES = ("polarity", "polarity_std", "similarity", "similarity_std", "retention")


@dataclass(frozen=True)
class Report:
    """A written report: its folder, the files in it, and what they were made from."""

    folder: Path
    files: tuple[Path, ...]
    summary: Summary


def write(run_folder: Path) -> Report:
    """Write ``run_folder/report``, over an earlier one. All scores in its files are x100.

    Every file is complete before the first takes its place, so a report that fails leaves the earlier one as it was.
    Raises InputError when the folder holds no run or cannot be written to.
    """
    summary = summarise(load(run_folder))
    contents = _contents(summary)
    folder = run_folder / "report"
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as unfinished:
            for name, content in contents.items():
                (Path(unfinished) / name).write_bytes(content)
            for name in contents:
                (Path(unfinished) / name).replace(folder / name)
    except OSError as error:
        raise InputError(f"{folder}: cannot write the report ({error.strerror}); the folder must be writable") from None
    return Report(folder, tuple(folder / name for name in contents), summary)


def _contents(summary: Summary) -> dict[str, bytes]:
    results = summary.results
    front_png, progress_png = figures.front_figure(summary), figures.progress_figure(summary)
    points = [_scaled(point) for point in results.points]
    trials = [{**dataclasses.asdict(t), "config": json.dumps(dict(t.config), sort_keys=True)} for t in results.trials]
    return {
        "front.json": _json(_front_rows(summary)),
        "points.json": _json(points),
        "costs.json": _json(_cost_rows(summary)),
        "points.parquet": _parquet(points, _POINT_TYPES),
        "rungs.parquet": _parquet([dataclasses.asdict(rung) for rung in results.rungs], _RUNG_TYPES),
        "trials.parquet": _parquet(trials, _TRIAL_TYPES),
        "front.md": markdown(summary).encode(),
        "front.png": front_png,
        "progress.png": progress_png,
        "report.html": html.render(summary, front_png, progress_png).encode(),
    }


def _front_rows(summary: Summary) -> list[dict[str, Any]]:
    names = ("trial", "step", "kind", "value", "split", "polarity", "similarity", "retention")
    points = [point for split in SPLITS for member in summary.members if (point := member.on(split))]
    return [{name: row[name] for name in names} for row in map(_scaled, points)]


def _cost_rows(summary: Summary) -> list[dict[str, Any]]:
    """By kind of trial, and last of all trials; money is null where nothing has a price."""
    rows = []
    for entry in (*summary.account.entries, summary.account.total):
        cost = dataclasses.asdict(entry.cost) | ({} if summary.account.priced else {"money": None})
        counts = {"kind": entry.kind, "num_trials": entry.num_trials, "num_rungs": entry.num_rungs}
        rows.append({**counts, **cost, "saved_seconds": entry.saved_seconds})
    return rows


def _scaled(point: Point) -> dict[str, Any]:
    row = dataclasses.asdict(point)
    return {**row, **{name: round(100 * row[name], 4) for name in SCORES}}


def _json(rows: list[dict[str, Any]]) -> bytes:
    return ("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n").encode()


# Stated, since a column of which every row is null, or a table without rows, tells Arrow no type.
_POINT_TYPES = {
    "trial": "int64",
    "step": "int64",
    "kind": "string",
    "value": "float64",
    "split": "string",
    "width": "int64",
    **dict.fromkeys(SCORES, "float64"),
}


_RUNG_TYPES = {"trial": "int64", "step": "int64", "examples_seen": "int64", "seconds": "float64", "loss": "float64"}


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
}


def _parquet(rows: list[dict[str, Any]], types: dict[str, str]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(alias)) for name, alias in types.items()])
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())
