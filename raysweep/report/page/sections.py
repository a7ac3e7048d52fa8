"""The page's sections. Tables and sentences need no script; chart elements are empty until the script fills them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raysweep.report.calibration import CALIBRATION_TEXT, calibration_table
from raysweep.report.comparison import probe_sentences
from raysweep.report.known_labels import KNOWN_LABELS_TEXT, known_labels_sentences, known_labels_table
from raysweep.report.notes import notes
from raysweep.report.page.front_list import TITLE, front_list
from raysweep.report.page.importance_table import IMPORTANCE_TEXT, importance_table
from raysweep.report.page.markup import explained_table, figure, folded, joined, paragraph, section, table
from raysweep.report.page.origin import Origin
from raysweep.report.page.stopping import stopping_table, stopping_text
from raysweep.report.page.tiles import tiles
from raysweep.report.page.trial_sheet import trial_sheet
from raysweep.report.page.visible import escape
from raysweep.report.summary import Summary
from raysweep.report.tables import (
    TextTable,
    area_table,
    baseline_table,
    bill_table,
    certainty_table,
    cost_table,
    mean_table,
    settings_table,
)
from raysweep.report.texts import (
    BASELINES_TEXT,
    CERTAINTY_TEXT,
    SCORES_TEXT,
    bill_sentences,
    cost_text,
    objective_text,
)
from raysweep.report.trust import area_text, means_text, trust_sentences
from raysweep.results.readings import Readings


@dataclass(frozen=True)
class Material:
    """The inputs of a page: a run's summary, figures for readers without scripts, and the run's origin."""

    summary: Summary
    front_png: bytes
    progress_png: bytes
    origin: Origin = field(default_factory=Origin)
    importances: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by target, by parameter
    readings: Readings | None = None


def sections(material: Material) -> list[str]:
    """Return the sections in page order; a section without content is empty."""
    summary = material.summary
    return [
        _note_list(notes(summary)),
        tiles(summary),
        _front(material),
        _readings(material),
        _certainty(summary),
        explained_table("calibration", "Calibration", CALIBRATION_TEXT, calibration_table(summary)),
        _baselines(summary),
        explained_table("replicates", "Replicates", means_text(summary), mean_table(summary)),
        explained_table("hypervolume", "Hypervolume", area_text(summary), area_table(summary)),
        _known_labels(summary),
        _curves(material),
        _hyperparameters(summary),
        section("importance", "Importance", *_importance(material)),
        _trials(summary),
        _early_stopping(summary),
        _costs(summary),
        explained_table("bill", "Bill", bill_sentences(summary.bill), bill_table(summary)),
        _failures(summary),
        _settings(material),
    ]


def _known_labels(summary: Summary) -> str:
    text = " ".join([KNOWN_LABELS_TEXT, *known_labels_sentences(summary)])
    return explained_table("known-labels", "Known labels", text, known_labels_table(summary))


def head(summary: Summary) -> str:
    """Return the run's name, model, data, status and objective."""
    info = summary.results.info
    subtitle = f"{info.model} on {info.dataset}, {summary.results.status}; raysweep {info.version}"
    title = f"<h1>{escape(info.name)}</h1>"
    return joined([title, paragraph(subtitle, "soft"), paragraph(objective_text(info))])


def _note_list(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _place(name: str, text: str = "", keys: str = "") -> str:
    """Return an element for the script to fill, hidden without one. ``text`` explains its use, ``keys`` the arrow keys."""
    told = paragraph(text, "hint") if text else ""
    if keys:
        sentence = f"With the keyboard: arrows {keys}; Enter pins, Escape lets go."
        told += paragraph(sentence, "hint keys")
    return f'<div class="scripted" id="{name}" hidden>{told}</div>'


def _without_script(content: str) -> str:
    return f"<noscript>{content}</noscript>"


def _front(material: Material) -> str:
    summary = material.summary
    picture = _without_script(figure(material.front_png, "Polarity against similarity"))
    if not summary.members:
        return section("front", "Front", paragraph("No rung finished, so there is no front to show."), picture)
    text = f"By falling similarity on dev, where the front was chosen. {SCORES_TEXT}"
    keys = "left and right go along the front, up and down through the rungs of a trial"
    chart = _place("front-chart", "Point at a mark to see its configuration, click to pin it.", keys)
    listed = folded(f"{TITLE} ({len(summary.members)})", front_list(summary), is_open=True)
    return section("front", "Front", chart, picture, listed, paragraph(text, "soft"))


def _readings(material: Material) -> str:
    """Return the element of the reading panel if the run has readings."""
    readings = material.readings
    if readings is None or not readings.shown or not material.summary.members:
        return ""
    text = (
        f"What the reference and the pinned point retrieve for a query of {readings.split}, best first; queries come first "
        "for which points differ most. ✓ marks sentences that have the query's label, ✗ others."
    )
    if not readings.texts:
        text += " The run stores no texts (report.texts is false)."
    return _scripted_section("readings", "Readings", _place("readings-panel", text))


def _scripted_section(name: str, title: str, content: str) -> str:
    """Return a section that is hidden until the script fills it."""
    heading = f'<h2 id="{name}-title">{title}</h2>'
    return f'<section id="{name}" class="scripted" hidden aria-labelledby="{name}-title">\n{heading}\n{content}\n</section>'


def _certainty(summary: Summary) -> str:
    rows = certainty_table(summary)
    if not rows.rows:
        return ""
    said = [paragraph(sentence) for sentence in trust_sentences(summary)]
    listed = table(rows, "Intervals and stability of the front's members")
    return section("certainty", "Certainty", *said, listed, paragraph(CERTAINTY_TEXT, "soft"))


def _baselines(summary: Summary) -> str:
    if not summary.baselines:
        return ""
    texts = [paragraph(text) for text in (BASELINES_TEXT, *probe_sentences(summary))]
    return section("baselines", "Baselines", *texts, table(baseline_table(summary), "Baselines"))


def _curves(material: Material) -> str:
    if not material.summary.members:
        return ""
    picture = figure(material.progress_png, "Objective against training examples seen")
    text = "A line is a trial, on dev, by each rung's best point; the sign at its end says how it ended."
    chart = _place("curves-chart", text, "left and right go from trial to trial, up and down by the last score")
    return section("curves", "Learning curves", chart, _without_script(picture))


def _hyperparameters(summary: Summary) -> str:
    """Return chart elements only: the table of trials shows the same data without a script."""
    if not summary.members:
        return ""
    lines = (
        "Each trial's best point as a line. Drag along an axis to select; a click on the axis lets go. The filter of the "
        "table of trials does the same without a mouse."
    )
    keys = "left and right go from trial to trial, up and down by the objective"
    parallel = _place("parallel-chart", lines, keys)
    marks = "Each trial's best point on dev, against one parameter at a time."
    slices = _place("slices-chart", marks, "left and right go along the parameter, up and down by the score")
    sections = [
        _scripted_section("parallel", "Parallel coordinates", parallel),
        _scripted_section("slices", "Slices", slices),
    ]
    return joined(sections)


def _importance(material: Material) -> Iterator[str]:
    content = importance_table(material.importances)
    if content:
        yield paragraph(IMPORTANCE_TEXT)
        yield content


def _trials(summary: Summary) -> str:
    if not summary.trials:
        return section("trials", "Trials", paragraph("No trial was proposed."))
    text = f"All {len(summary.trials)}, with the best dev point of each under the objective"
    if summary.results.info.constraints:
        text += ", in parentheses where it misses a constraint"
    return section("trials", "Trials", paragraph(f"{text}."), _place("trials-filter"), trial_sheet(summary))


def _early_stopping(summary: Summary) -> str:
    return explained_table("stopping", "Early stopping", stopping_text(summary), stopping_table(summary))


def _costs(summary: Summary) -> str:
    if not summary.trials:
        return ""
    return explained_table("cost", "Cost", cost_text(summary.account), cost_table(summary))


def _failures(summary: Summary) -> str:
    """Return the tracebacks of failed trials, folded."""
    return section("failures", "Failures", *_tracebacks(summary))


def _tracebacks(summary: Summary) -> Iterator[str]:
    for trial in summary.results.trials:
        if trial.traceback:
            content = f'<pre class="scroll" tabindex="0">{escape(trial.traceback)}</pre>'
            yield folded(f"Trial {trial.trial}: {trial.reason}", content)


def _settings(material: Material) -> str:
    origin = material.origin
    parts = [table(settings_table(material.summary), "Settings", "fit")]
    if origin.identities:
        rows = TextTable(("of", "fingerprint"), origin.identities, frozenset({"of", "fingerprint"}))
        text = "Fingerprints hash data, weights and parameters: two runs with the same ones read the same."
        parts += [paragraph(text), table(rows, "Fingerprints", "fit")]
    if origin.configuration:
        content = f'<pre class="scroll long" tabindex="0">{escape(origin.configuration)}</pre>'
        parts.append(folded("The whole configuration", content))
    return section("settings", "Settings", *parts)
