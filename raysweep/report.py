"""RUN/report: the front, tables, figures and a page, from a run's stored results alone."""

import dataclasses
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from raysweep import figures, page
from raysweep.errors import InputError
from raysweep.page import HYPERVOLUME_TEXT, MEANS_TEXT, SCORES_TEXT, cost_text
from raysweep.results import Point, load
from raysweep.summary import SPLITS, Summary, constraints_text, goal_text, summarise
from raysweep.tables import Table, area_table, cost_table, front_table, mean_table, settings, show, trial_table

if TYPE_CHECKING:
    import rich.table

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


def terminal_table(summary: Summary) -> "rich.table.Table":
    """The front for a terminal of 80 columns or more: without intervals, retention, and kinds that are all plain.

    Configurations stand below the table, one line a trial of the front.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    info = summary.results.info
    table = front_table(summary, intervals=False)
    omitted = {"dev retention", "test retention", "configuration"}
    if all(member.dev.kind == "plain" for member in summary.members):
        omitted |= {"kind", "width"}
    shown = [column for column in table.columns if column not in omitted]
    configurations = {
        row[table.columns.index("trial")]: row[table.columns.index("configuration")] for row in table.rows
    }
    caption = [
        f"trial {trial}: {text}" for trial, text in sorted(configurations.items(), key=lambda item: int(item[0]))
    ]
    if info.constraints:
        caption.append(f"constraints: {constraints_text(info)}")
    caption += [
        f"R on {split}: P {show(p.polarity)}, S {show(p.similarity)}" for split, p in summary.references.items()
    ]
    for split, area in summary.areas.items():
        share = "" if area.share is None else f", {100 * area.share:.1f}% of the oracle's"
        caption.append(f"hypervolume on {split}: {1e4 * area.front:.1f}{share}")
    rich_table = RichTable(
        title=Text(f"Front of {info.name}, scores x100"),
        caption=Text("\n".join(caption)),
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        collapse_padding=True,
        pad_edge=False,
    )
    for column in shown:
        justify: Literal["left", "right"] = "left" if column in table.text else "right"
        rich_table.add_column(column, justify=justify, no_wrap=column != "mark", overflow="fold")
    rich_table.columns[shown.index("mark")].max_width = 6
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        rich_table.add_row(*(Text(cells[column]) for column in shown))
    return rich_table


def markdown(summary: Summary) -> str:
    """``front.md``: what is missing, the front, its hypervolume and the settings."""
    info = summary.results.info
    lines = [f"# {_plain(info.name)}", "", _plain(goal_text(info)), ""]
    lines += [f"> {_plain(note)}\n>" for note in summary.notes]
    if summary.members:
        lines += ["", "## Front", "", SCORES_TEXT, ""]
        lines += _markdown_table(front_table(summary))
    means = mean_table(summary)
    if means.rows:
        lines += ["", "## Replicates", "", MEANS_TEXT, "", *_markdown_table(means)]
    areas = area_table(summary)
    if areas.rows:
        lines += ["", "## Hypervolume", "", HYPERVOLUME_TEXT, "", *_markdown_table(areas)]
    if summary.trials:
        lines += ["", "## Cost", "", cost_text(summary), "", *_markdown_table(cost_table(summary))]
    rows = tuple(settings(summary))
    lines += [
        "",
        "## Settings",
        "",
        *_markdown_table(Table(("setting", "value"), rows, frozenset({"setting", "value"}))),
    ]
    if summary.trials:
        lines += ["", "## Trials", "", *_markdown_table(trial_table(summary))]
    return "\n".join(lines) + "\n"


def _markdown_table(table: Table) -> list[str]:
    rule = ["---" if column in table.text else "---:" for column in table.columns]
    cells = [table.columns, rule, *([_plain(cell) for cell in row] for row in table.rows)]
    return ["| " + " | ".join(row) + " |" for row in cells]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is: on one line, no markup of its own, no column of its own."""
    for character in "\\`*[]<>|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


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
        "report.html": page.render(summary, front_png, progress_png).encode(),
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
