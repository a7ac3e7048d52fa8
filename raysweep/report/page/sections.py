"""The sections of a run's page. Charts require JavaScript; text and tables do not."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from raysweep.metrics.scores import Goals, spec_of
from raysweep.output import ABSENT, TextTable, escape_html
from raysweep.report.choice import export_command, probe_command
from raysweep.report.front import Member
from raysweep.report.importance import MIN_RUNGS, MIN_TRIALS, Importance, Share
from raysweep.report.notes import ENDINGS, notes
from raysweep.report.page.markup import (
    details,
    figure,
    join,
    note_list,
    paragraph,
    scripted_section,
    scroll_box,
    section,
    table,
)
from raysweep.report.page.members import TITLE, member_table
from raysweep.report.page.origin import Origin, hide_places
from raysweep.report.page.trials import stopping_table, stopping_text, trial_table
from raysweep.report.summary import Summary
from raysweep.report.table_sections import (
    PAIRS,
    TableSection,
    cost_sections,
    evaluation_sections,
    watched_section,
)
from raysweep.report.tables import (
    certainty_table,
    settings_table,
    show,
    show_area,
    show_interval,
    show_share,
    trial_counts,
)
from raysweep.report.texts import (
    CERTAINTY_TEXT,
    CORRECTED,
    front_title,
    objective_text,
    scores_text,
)
from raysweep.report.trust import trust_sentences
from raysweep.report.watched_trials import last_rungs, tensor_table
from raysweep.results.commands import format_command, format_resume, resume_options
from raysweep.results.readings import Readings
from raysweep.results.types import Point
from raysweep.uncertainty.interval import LEVEL

IMPORTANCE_TEXT = (
    "Each parameter's share of the variance that individual parameters explain. All evaluated trials, including paused "
    "and stopped ones, are compared at equal budgets. Variance that only interactions explain is left out. "
    f"Brackets contain {LEVEL:.0%} bootstrap intervals over trials."
)


@dataclass(frozen=True)
class Material:
    """The inputs to a run's page."""

    summary: Summary
    front_png: bytes
    progress_png: bytes
    origin: Origin
    importance: Importance
    readings: Readings | None
    watched_png: bytes | None = None
    pairs_png: bytes | None = None  # None if the run has no measures on sentence pairs


def header(summary: Summary) -> str:
    """Return the run's name, model, data, status and objective."""
    info = summary.results.info
    status = ENDINGS.get(summary.results.status, summary.results.status)
    subtitle = f"Model {info.model}, data {info.dataset}; {status}; raysweep {info.version}"
    title = f"<h1>{escape_html(info.name)}</h1>"
    return join([title, paragraph(subtitle, "soft"), paragraph(objective_text(info))])


def sections(material: Material) -> list[str]:
    """Return the sections in page order; sections without content are empty strings."""
    summary = material.summary
    tracebacks = []
    for trial in summary.results.trials:
        if trial.traceback:
            content = f'<pre class="scroll" tabindex="0">{escape_html(hide_places(trial.traceback))}</pre>'
            tracebacks.append(details(f"Trial {trial.trial}: {trial.reason}", content))
    evaluations = []
    for evaluation in evaluation_sections(summary):
        picture = ""
        if evaluation.title == PAIRS and material.pairs_png is not None:
            picture = figure(material.pairs_png, "Precision against recall of neighbor pairs")
        evaluations.append(_table_section(evaluation, picture=picture))
    stopping = TableSection("Early stopping", stopping_table(summary), [stopping_text(summary)])
    return [
        note_list(notes(summary)),
        tiles(summary),
        _front(material),
        next_steps(summary),
        _readings(material),
        _certainty(summary),
        *evaluations,
        _watched(material),
        _curves(material),
        _hyperparameters(summary),
        _importance(material),
        _trials(summary),
        _table_section(stopping, "stopping"),
        *(_table_section(content) for content in cost_sections(summary)),
        section("failures", "Failures", *tracebacks),
        _settings(material),
    ]


def _table_section(content: TableSection, name: str = "", picture: str = "") -> str:
    """Return a section with a table. Its HTML id is ``name``, or derived from the title."""
    title = content.title
    if not content.table.rows:
        return ""
    paragraphs = [paragraph(text) for text in content.paragraphs]
    style = "" if title == "Baselines" else "fit"
    return section(
        name or title.lower().replace(" ", "-"),
        title,
        *paragraphs,
        picture,
        table(content.table, title, style),
    )


@dataclass(frozen=True)
class Tile:
    """A large number with a heading and a caption."""

    name: str
    value: str
    detail: str

    def render(self) -> str:
        value = f"{escape_html(self.value)}<small>{escape_html(self.detail)}</small>"
        return f"<div><dt>{escape_html(self.name)}</dt><dd>{value}</dd></div>"


def tiles(summary: Summary) -> str:
    """Return the run's key figures as tiles."""
    num_started, _, num_planned = trial_counts(summary).partition(" of ")
    all_tiles = [
        Tile("trials", num_started, f"of {num_planned}"),
        Tile("front members", str(len(summary.members)), "chosen on dev"),
    ]
    for member in summary.members:
        all_tiles += _member_tiles(member, summary.goals)
    total = summary.account.total
    if total.cost.seconds:
        detail = "worker time"
        if total.saved_seconds:
            detail += f"; early stopping saved about {total.saved_seconds:,.0f}"
        seconds = f"{total.cost.seconds:,.0f}"
        all_tiles.append(Tile("trial-seconds", seconds, detail))
    for split, area in summary.areas.items():
        detail = f"front's hypervolume {show_area(area.front)}"
        uncertainty = summary.uncertainty.get(split)
        if uncertainty is not None and uncertainty.share is not None:
            interval = show_interval(uncertainty.share, show_share)
            detail = f"{interval} {CORRECTED}; {detail}"
        name = f"share of the oracle's hypervolume, {split}"
        all_tiles.append(Tile(name, show_share(area.share), detail))
    content = "".join(tile.render() for tile in all_tiles)
    return f'<dl class="tiles">{content}</dl>'


def _member_tiles(member: Member, goals: Goals) -> Iterator[Tile]:
    """Yield a tile if the member is the knee, and one if it is the best point."""
    point = member.test or member.dev
    p, s = goals.headings
    names = f"{p} / {s} on {point.split}"
    scores = _score_pair(point, goals)
    detail = f"trial {point.trial}, rung {point.step}"
    if member.test:
        detail = f"{_score_pair(member.dev, goals)} on dev, where it was chosen; {detail}"
    if member.is_knee:
        yield Tile(f"knee, {names}", scores, detail)
    if member.is_best:
        yield Tile(f"best objective, {names}", scores, detail)


def _score_pair(point: Point, goals: Goals) -> str:
    return " / ".join(map(show, point.pair(goals)))


def script_element(name: str, text: str = "", keys: str = "") -> str:
    """Return an element that is hidden until the script fills it.

    ``text`` explains its use; ``keys`` explains the arrow keys.
    """
    hints = paragraph(text, "hint") if text else ""
    if keys:
        sentence = f"Keyboard: {keys}; Enter pins, Escape unpins."
        hints += paragraph(sentence, "hint keys")
    return f'<div class="scripted" id="{name}" hidden>{hints}</div>'


def _front(material: Material) -> str:
    summary = material.summary
    image = figure(material.front_png, front_title(summary.goals))
    picture = f"<noscript>{image}</noscript>"
    if not summary.members:
        return section(
            "front", "Front", paragraph("No rungs have finished, so the front is empty."), picture
        )
    hint = "Hover over a mark to see its configuration, and click it to pin it."
    keys = "left and right arrows move along the front, up and down arrows move through a trial's rungs"
    chart = script_element("front-chart", hint, keys)
    title = f"{TITLE} ({len(summary.members)})"
    members = details(title, member_table(summary), is_open=True)
    definitions = paragraph(scores_text(summary.results.info), "soft")
    order = (
        f"The knee comes first. The other members are sorted by decreasing {summary.goals.s} on dev, where the front was "
        "chosen."
    )
    return section("front", "Front", chart, picture, definitions, members, paragraph(order, "soft"))


class Step(NamedTuple):
    """A command that usually follows a sweep, with its purpose."""

    text: str
    command: str


def next_steps(summary: Summary) -> str:
    """Return the section on next steps, or an empty string if the run has no knee."""
    items = []
    for step in steps(summary):
        command = f'<code class="command">{escape_html(step.command)}</code>'
        items.append(f"<li>{paragraph(step.text)}{command}</li>")
    return (
        section("next", "What to do next", f'<ul class="card steps">{join(items)}</ul>')
        if items
        else ""
    )


def steps(summary: Summary) -> Iterator[Step]:
    """Yield the suggested next steps."""
    knee = next((member.dev for member in summary.members if member.is_knee), None)
    if knee is None:
        return
    results = summary.results
    floors = [front.floor for front in summary.uncertainty.values()]
    if any(floor and floor.is_better for floor in floors) and (command := probe_command(summary)):
        yield Step(
            "Export the probe, which needs no training and is better than the front:", command
        )
    yield Step(
        f"Export the knee, trial {knee.trial} at rung {knee.step}:",
        export_command(summary, knee.name),
    )
    p, s = summary.goals.headings
    limit = math.floor(100 * knee[summary.goals.s])
    condition = f"{summary.goals.s} >= {limit}"
    show_command = format_command(
        "show", results.folder, "--where", condition, "--best", summary.goals.p
    )
    yield Step(
        f"Look at another trade-off, such as the highest {p} with an {s} of at least {limit}:",
        show_command,
    )
    if results.status != "running":
        options = resume_options(results) or ["--trials", str(2 * results.info.num_trials)]
        yield Step(
            "Continue the sweep with a larger budget:", format_resume(results.folder, *options)
        )


def _readings(material: Material) -> str:
    readings = material.readings
    if readings is None or not readings.shown or not material.summary.members:
        return ""
    text = (
        f"The sentences that the reference and the pinned point retrieve for a query from {readings.split}, best "
        "first. Queries on which the points differ most come first. ✓ marks sentences with the query's label, ✗ marks "
        "others."
    )
    if not readings.texts:
        text += " The run does not store texts (report.texts is false)."
    return scripted_section("readings", "Readings", script_element("readings-panel", text))


def _certainty(summary: Summary) -> str:
    content = certainty_table(summary)
    if not content.rows:
        return ""
    sentences = [paragraph(sentence) for sentence in trust_sentences(summary)]
    intervals = table(content, "Intervals and stability of front members")
    return section(
        "certainty", "Certainty", *sentences, intervals, paragraph(CERTAINTY_TEXT, "soft")
    )


def _watched(material: Material) -> str:
    if material.watched_png is None:
        return ""
    content = watched_section(material.summary)
    picture = figure(material.watched_png, "Relative improvement in PND by learning rate")
    tensors = tensor_table(last_rungs(material.summary.results.watched))
    changed = details(
        "Parameter tensors that changed the most", table(tensors, "Changed tensors", "fit")
    )
    paragraphs = [paragraph(text) for text in content.paragraphs]
    return section(
        "watched",
        content.title,
        *paragraphs,
        picture,
        table(content.table, content.title, "fit"),
        changed,
    )


def _curves(material: Material) -> str:
    if not material.summary.members:
        return ""
    picture = figure(material.progress_png, "Objective against training examples seen")
    text = "Each line connects the best dev points of a trial's rungs. The symbol at its end shows the trial's status."
    chart = script_element(
        "curves-chart",
        text,
        "left and right arrows step through the trials in start order, up and down arrows by last score",
    )
    return section("curves", "Learning curves", chart, f"<noscript>{picture}</noscript>")


def _hyperparameters(summary: Summary) -> str:
    """Return charts only; without JavaScript, the trial table shows the same data."""
    if not summary.members:
        return ""
    parallel_text = (
        "Each line is a trial's best point. Drag along an axis to select a range, and click the axis to clear the "
        "selection. Without a mouse, use the filter above the table of trials."
    )
    parallel_keys = "left and right arrows step through the trials in start order, up and down arrows by objective"
    parallel = script_element("parallel-chart", parallel_text, parallel_keys)
    slices_text = "Each mark is a trial's best point on dev, plotted against one parameter."
    slices_keys = "left and right arrows step through the trials by parameter value, up and down arrows by score"
    slices = script_element("slices-chart", slices_text, slices_keys)
    return join(
        [
            scripted_section("parallel", "Parallel coordinates", parallel),
            scripted_section("slices", "Slices", slices),
        ]
    )


def _importance(material: Material) -> str:
    importance = material.importance
    if importance.num_missing:
        text = (
            f"Importance is shown once {MIN_TRIALS} trials have at least {MIN_RUNGS} rungs; "
            f"{importance.num_missing} more are needed."
        )
        return (
            section("importance", "Importance", paragraph(text)) if material.summary.trials else ""
        )
    content = importance_table(importance.shares)
    return (
        section("importance", "Importance", paragraph(IMPORTANCE_TEXT), content) if content else ""
    )


def importance_table(importances: Mapping[str, Mapping[str, Share]]) -> str:
    """Return a table of shares, sorted by decreasing share of the objective's variance."""
    all_names = [
        *importances.get("objective", ()),
        *itertools.chain.from_iterable(importances.values()),
    ]
    names = dict.fromkeys(all_names)  # distinct, in order
    if not names:
        return ""
    titles = [spec_of(target).title for target in importances]
    heads = [f'<th scope="col">{escape_html(title)}</th>' for title in ("parameter", *titles)]
    rows = []
    for name in names:
        cells = [f'<th scope="row">{escape_html(name)}</th>']
        for shares in importances.values():
            cells.append(_share_cell(shares.get(name)))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    content = f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return scroll_box(f'<table class="fit bars">{content}</table>', "Importance, table")


def _share_cell(share: Share | None) -> str:
    if share is None:
        return f'<td class="n">{ABSENT}</td>'
    width = min(100.0, max(0.0, 100 * share.value))
    low, high = share.interval.low, share.interval.high
    bar = (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="ground" width="100" height="10"/><rect width="{width:.1f}" height="10"/></svg>'
    )
    return f'<td class="n">{bar}<span>{share.value:.0%} [{low:.0%}, {high:.0%}]</span></td>'


def _trials(summary: Summary) -> str:
    if not summary.trials:
        return section("trials", "Trials", paragraph("No trials were proposed."))
    text = f"All trials ({len(summary.trials)}), each with the dev scores of its best point by the objective."
    if summary.results.info.constraints:
        text += " Parentheses mark points that violate a constraint."
    return section(
        "trials", "Trials", paragraph(text), script_element("trials-filter"), trial_table(summary)
    )


def _settings(material: Material) -> str:
    origin = material.origin
    parts = [table(settings_table(material.summary), "Settings", "fit")]
    if origin.identities:
        rows = TextTable(
            ("input", "fingerprint"), origin.identities, frozenset({"input", "fingerprint"})
        )
        text = (
            "Fingerprints are hashes of data, weights and parameters. Runs with the same fingerprints used the same "
            "inputs."
        )
        parts += [paragraph(text), table(rows, "Fingerprints", "fit")]
    if origin.configuration:
        content = f'<pre class="scroll long" tabindex="0">{escape_html(origin.configuration)}</pre>'
        parts.append(details("Complete configuration", content))
    return section("settings", "Settings", *parts)
