"""The report as one HTML page that needs nothing else: styles and figures are inside, and there is no script."""

import base64
from collections.abc import Iterable
from html import escape

from raysweep.report.summary import Summary, goal_text
from raysweep.report.tables import (
    ABSENT,
    MISSES,
    TextTable,
    area_table,
    cost_table,
    front_table,
    mean_table,
    settings,
    show,
    trial_counts,
    trial_table,
)
from raysweep.results.account import sentence

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
    info = summary.results.info
    subtitle = f"{info.model} on {info.dataset}, {summary.results.status}; raysweep {info.version}"
    parts = [
        f"<h1>{escape(info.name)}</h1>",
        f'<p class="soft">{escape(subtitle)}</p>',
        f"<p>{escape(goal_text(info))}</p>",
        _notes(summary.notes),
        _tiles(summary),
        "<h2>Front</h2>",
        _figure(
            front_png, "Polarity against similarity", _front_caption(summary), "" if summary.has_test else "narrow"
        ),
    ]
    if summary.members:
        parts += [_front_text(summary), _table(front_table(summary))]
    means = mean_table(summary)
    if means.rows:
        parts += ["<h2>Replicates</h2>", f"<p>{escape(MEANS_TEXT)}</p>", _table(means, "fit")]
    areas = area_table(summary)
    if areas.rows:
        parts += ["<h2>Hypervolume</h2>", f"<p>{escape(HYPERVOLUME_TEXT)}</p>", _table(areas, "fit")]
    if summary.members:
        caption = f"{goal_text(info)} On dev, of each rung's best point. {_PROGRESS_CAPTION}"
        figure = _figure(progress_png, "Objective against training examples seen", caption, "narrow")
        parts += ["<h2>Training and early stopping</h2>", figure]
    if summary.trials:
        parts += ["<h2>Cost</h2>", f"<p>{escape(cost_text(summary))}</p>", _table(cost_table(summary), "fit")]
    parts += [
        "<h2>Trials</h2>",
        _trials(summary),
        "<h2>Settings</h2>",
        _table(TextTable(("setting", "value"), tuple(settings(summary)), frozenset({"setting", "value"})), "fit"),
    ]
    title = escape(f"raysweep: {info.name}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


HYPERVOLUME_TEXT = (
    "The area that the front dominates above the stated point: P of the reference encoder R and half of its S, on the "
    "same split, with scores x100. The oracle front is the limit no encoder can pass; the share is the part of its "
    "area that the front reaches. On test it is the front chosen on dev that is measured. Points that miss a constraint of "
    "the sweep count for nothing."
)


MEANS_TEXT = (
    "Front members whose configuration was trained more than once, each time with another seed: P and S of the member "
    "itself, and their means over the runs, ± one standard deviation over the runs. A member that is above its mean is so "
    "partly by luck. All on dev."
)


SCORES_TEXT = (
    "P is the weighted share of retrieved sentences with the query's label, S their weighted mean cosine under the "
    "reference encoder, retention S divided by that encoder's own S; all x100, means over queries. ± is the half-width "
    "of the mean's 95% interval over queries; it does not cover the choice of the front on dev, nor training seeds. "
    "The knee is the point farthest beyond the chord between the front's ends, both objectives scaled to the front."
)


def cost_text(summary: Summary) -> str:
    """The account in words, and what its numbers mean."""
    text = sentence(summary.account)
    return f"{text[0].upper()}{text[1:]}. {_COST_TEXT}"


_COST_TEXT = (
    "Seconds are those for which trials held their CPUs and GPUs. What was saved is an estimate: what trials that were "
    "stopped would have taken to their end, at the pace of the rungs they did."
)


_PROGRESS_CAPTION = "A line is a trial; the marker at its end says how the trial ended."


def _front_text(summary: Summary) -> str:
    return f"<p>By falling similarity on dev, where the front was chosen. {escape(SCORES_TEXT)}</p>"


def _front_caption(summary: Summary) -> str:
    caption = "Thin lines join the points of one trial in the order of training (of the best trials only)."
    return caption if summary.members else ""


def _notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _tiles(summary: Summary) -> str:
    begun, _, most = trial_counts(summary).partition(" of ")
    tiles = [("trials", begun, f"of {most}")]
    tiles.append(("front members", str(len(summary.members)), "chosen on dev"))
    for member in summary.members:
        split, point = ("test", member.test) if member.test else ("dev", member.dev)
        for name, on in (("knee", member.is_knee), ("best objective", member.is_best)):
            if on:
                where = f"P / S on {split}, trial {point.trial}, step {point.step}"
                tiles.append((name, f"{show(point.polarity)} / {show(point.similarity)}", where))
    found = summary.account
    if found.total.cost.seconds:
        saved = f"; stopping early saved about {found.total.saved_seconds:,.0f}" if found.total.saved_seconds else ""
        tiles.append(("trial-seconds", f"{found.total.cost.seconds:,.0f}", f"of workers{saved}"))
    for split, area in summary.areas.items():
        share = ABSENT if area.share is None else f"{100 * area.share:.1f}%"
        tiles.append((f"of the oracle's hypervolume, {split}", share, f"front {1e4 * area.front:.1f}"))
    cells = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(detail)}</small></dd></div>"
        for name, value, detail in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _figure(png: bytes, title: str, caption: str, style: str = "") -> str:
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<figure class="{style}"><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _trials(summary: Summary) -> str:
    if not summary.trials:
        return "<p>No trial was proposed.</p>"
    is_open = " open" if len(summary.trials) <= MAX_OPEN_TRIALS else ""
    text = f"All ({len(summary.trials)}), with the best dev point of each under the objective"
    if summary.results.info.constraints:
        text += ", in parentheses where it misses a constraint"
    return f"<details{is_open}><summary>{text}</summary>{_table(trial_table(summary))}</details>"


def _table(table: TextTable, style: str = "") -> str:
    kinds = ["t" if column in table.text else "n" for column in table.columns]
    head = "".join(f'<th class="{kind}">{escape(c)}</th>' for kind, c in zip(kinds, table.columns, strict=True))
    rows = []
    for row in table.rows:
        cells = "".join(f'<td class="{kind}">{_cell(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        marked = ""
        if table.columns[0] == "mark" and row[0]:
            marked = ' class="misses"' if row[0] == MISSES else ' class="mark"'
        rows.append(f"<tr{marked}>{cells}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    box = "scroll long" if len(table.rows) > MAX_OPEN_ROWS else "scroll"
    return f'<div class="{box}"><table class="{style}">{body}</table></div>'


def _cell(text: str) -> str:
    """Escaped, and broken where it lists things rather than inside ``1e-05``."""
    *parts, last = text.split(", ")
    return " ".join(f"<span>{escape(part)}</span>" for part in (*(f"{part}," for part in parts), last))
