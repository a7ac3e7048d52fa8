"""The report as one HTML page that needs nothing else: styles and figures are inside, and there is no script."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from raysweep.report.comparison import probe_sentences
from raysweep.report.notes import notes
from raysweep.report.summary import Member, Summary
from raysweep.report.tables import (
    MISSES,
    TextTable,
    area_table,
    baseline_table,
    bill_table,
    cost_table,
    front_table,
    mean_table,
    settings_table,
    show,
    show_area,
    show_share,
    trial_counts,
    trial_table,
)
from raysweep.report.texts import (
    BASELINES_TEXT,
    HYPERVOLUME_TEXT,
    MEANS_TEXT,
    SCORES_TEXT,
    bill_sentences,
    cost_text,
    objective_text,
)
from raysweep.results.account import Entry

MAX_OPEN_TRIALS = 30  # longer tables of trials start folded

MAX_OPEN_ROWS = 20  # longer tables scroll under their head

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5b6670; --line: #dfe3e8; --back: #ffffff; --card: #f6f7f9;
  --mark: #fff6d6; --note: #9a5b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #a3adb8; --line: #39414a; --back: #14181c;
  --card: #1e242a; --mark: #3a3315; --note: #f0b95c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p { margin: .4rem 0; max-width: 75ch; }
.soft, figcaption { color: var(--soft); overflow-wrap: anywhere; }
ul.notes { margin: 1rem 0; padding: .6rem 1rem .6rem 2rem; border-left: 4px solid var(--note);
  background: var(--card); }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: .75rem; margin: 1.4rem 0; }
dl.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; }
dl.tiles dt { color: var(--soft); font-size: .8rem; }
dl.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
dl.tiles small { display: block; font-size: .78rem; font-weight: 400; color: var(--soft); }
figure { margin: 0; }
figcaption { margin-top: .4rem; font-size: .86rem; }
figure img { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; padding: .5rem; }
figure.narrow { max-width: 860px; }
td.t span { display: inline-block; max-width: 100%; }
.scroll { overflow-x: auto; }
.long { max-height: 40rem; overflow-y: auto; border-bottom: 1px solid var(--line); }
.long thead th { position: sticky; top: 0; background: var(--back); box-shadow: 0 2px 0 var(--line); }
@media print { .long { max-height: none; } }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; width: 100%; }
table.fit { width: auto; }
th, td { padding: .32rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 600; border-bottom-width: 2px; vertical-align: bottom; }
td.n, th.n { text-align: right; }
td.n, tr.mark td:first-child { white-space: nowrap; }
td.t { max-width: 24rem; overflow-wrap: break-word; }
tr.misses td { color: var(--soft); }
tr.mark td { background: var(--mark); }
summary { cursor: pointer; font-weight: 600; padding: .3rem 0; }
"""


def render(summary: Summary, front_png: bytes, progress_png: bytes) -> str:
    """The page. All text of the run is escaped; the figures are embedded."""
    sections = [
        _head(summary),
        _note_list(notes(summary)),
        _tiles(summary),
        _front(summary, front_png),
        _baselines(summary),
        _explained_table("Replicates", MEANS_TEXT, mean_table(summary)),
        _explained_table("Hypervolume", HYPERVOLUME_TEXT, area_table(summary)),
        _progress(summary, progress_png),
        _costs(summary),
        _explained_table("Bill", bill_sentences(summary.bill), bill_table(summary)),
        _trials(summary),
        _failures(summary),
        _section("Settings", _table(settings_table(summary), "fit")),
    ]
    return _page(title=f"raysweep: {summary.results.info.name}", body=_joined(sections))


def _page(title: str, body: str) -> str:
    """``body`` is HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, *parts: str) -> str:
    return _joined([f"<h2>{title}</h2>", *parts])


def _explained_table(title: str, text: str, table: TextTable) -> str:
    """A section, or nothing where the table has no rows."""
    if not table.rows:
        return ""
    return _section(title, _paragraph(text), _table(table, "fit"))


def _joined(parts: Iterable[str]) -> str:
    """One part a line, without those that are empty."""
    return "\n".join(part for part in parts if part)


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _head(summary: Summary) -> str:
    info = summary.results.info
    subtitle = f"{info.model} on {info.dataset}, {summary.results.status}; raysweep {info.version}"
    title = f"<h1>{escape(info.name)}</h1>"
    return _joined([title, f'<p class="soft">{escape(subtitle)}</p>', _paragraph(objective_text(info))])


def _note_list(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="notes">{items}</ul>' if items else ""


@dataclass(frozen=True)
class _Tile:
    """A number in large print; ``detail`` says what it is of."""

    name: str
    value: str
    detail: str

    def render(self) -> str:
        value = f"{escape(self.value)}<small>{escape(self.detail)}</small>"
        return f"<div><dt>{escape(self.name)}</dt><dd>{value}</dd></div>"


def _tiles(summary: Summary) -> str:
    begun, _, most = trial_counts(summary).partition(" of ")
    tiles = [
        _Tile("trials", begun, f"of {most}"),
        _Tile("front members", str(len(summary.members)), "chosen on dev"),
    ]
    for member in summary.members:
        tiles += _member_tiles(member)
    total = summary.account.total
    if total.cost.seconds:
        tiles.append(_seconds_tile(total))
    for split, area in summary.areas.items():
        name = f"of the oracle's hypervolume, {split}"
        front = f"front {show_area(area.front)}"
        tiles.append(_Tile(name, show_share(area.share), front))
    content = "".join(tile.render() for tile in tiles)
    return f'<dl class="tiles">{content}</dl>'


def _member_tiles(member: Member) -> Iterator[_Tile]:
    """Of the knee and of the best point, which may be one member."""
    split, point = ("test", member.test) if member.test else ("dev", member.dev)
    scores = f"{show(point.polarity)} / {show(point.similarity)}"
    where = f"P / S on {split}, trial {point.trial}, step {point.step}"
    if member.is_knee:
        yield _Tile("knee", scores, where)
    if member.is_best:
        yield _Tile("best objective", scores, where)


def _seconds_tile(total: Entry) -> _Tile:
    detail = "of workers"
    if total.saved_seconds:
        detail += f"; stopping early saved about {total.saved_seconds:,.0f}"
    return _Tile("trial-seconds", f"{total.cost.seconds:,.0f}", detail)


def _front(summary: Summary, png: bytes) -> str:
    title = "Polarity against similarity"
    style = "" if summary.has_test else "narrow"
    if not summary.members:
        return _section("Front", _figure(png, title, "", style))
    caption = "Thin lines join the points of one trial in the order of training (of the best trials only)."
    text = f"By falling similarity on dev, where the front was chosen. {SCORES_TEXT}"
    return _section("Front", _figure(png, title, caption, style), _paragraph(text), _table(front_table(summary)))


def _baselines(summary: Summary) -> str:
    if not summary.baselines:
        return ""
    texts = [_paragraph(text) for text in (BASELINES_TEXT, *probe_sentences(summary))]
    return _section("Baselines", *texts, _table(baseline_table(summary)))


def _progress(summary: Summary, png: bytes) -> str:
    if not summary.members:
        return ""
    objective = f"{objective_text(summary.results.info)} On dev, of each rung's best point."
    caption = f"{objective} A line is a trial; the marker at its end says how the trial ended."
    figure = _figure(png, "Objective against training examples seen", caption, "narrow")
    return _section("Training and early stopping", figure)


def _figure(png: bytes, title: str, caption: str, style: str = "") -> str:
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<figure class="{style}"><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _costs(summary: Summary) -> str:
    if not summary.trials:
        return ""
    return _explained_table("Cost", cost_text(summary.account), cost_table(summary))


def _trials(summary: Summary) -> str:
    if not summary.trials:
        return _section("Trials", _paragraph("No trial was proposed."))
    num_trials = len(summary.trials)
    is_open = " open" if num_trials <= MAX_OPEN_TRIALS else ""
    text = f"All ({num_trials}), with the best dev point of each under the objective"
    if summary.results.info.constraints:
        text += ", in parentheses where it misses a constraint"
    table = _table(trial_table(summary))
    details = f"<details{is_open}><summary>{text}</summary>{table}</details>"
    return _section("Trials", details)


def _failures(summary: Summary) -> str:
    """What trials raised, folded."""
    raised = [trial for trial in summary.results.trials if trial.traceback]
    if not raised:
        return ""
    details = [
        f"<details><summary>Trial {trial.trial}: {escape(trial.reason)}</summary>"
        f'<pre class="scroll">{escape(trial.traceback)}</pre></details>'
        for trial in raised
    ]
    return _section("Failures", *details)


def _table(table: TextTable, style: str = "") -> str:
    head = _cells("th", table, [escape(column) for column in table.columns])
    rows = [_row(table, row) for row in table.rows]
    content = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    box = "scroll long" if len(table.rows) > MAX_OPEN_ROWS else "scroll"
    return f'<div class="{box}"><table class="{style}">{content}</table></div>'


def _row(table: TextTable, row: Sequence[str]) -> str:
    cells = _cells("td", table, [_broken(cell) for cell in row])
    mark = row[0] if table.columns[0] == "mark" else ""
    if not mark:
        return f"<tr>{cells}</tr>"
    style = "misses" if mark == MISSES else "mark"
    return f'<tr class="{style}">{cells}</tr>'


def _cells(tag: str, table: TextTable, contents: Sequence[str]) -> str:
    """``contents``, HTML already, as the cells of one row."""
    cells = []
    for column, content in zip(table.columns, contents, strict=True):
        style = "t" if column in table.text else "n"
        cells.append(f'<{tag} class="{style}">{content}</{tag}>')
    return "".join(cells)


def _broken(text: str) -> str:
    """Escaped, and broken where it lists things rather than inside ``1e-05``."""
    *terms, last = text.split(", ")
    pieces = [*(f"{term}," for term in terms), last]
    return " ".join(f"<span>{escape(piece)}</span>" for piece in pieces)
