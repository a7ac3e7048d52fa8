"""The report as Markdown."""

from raysweep.output import TextTable, escape_markdown, markdown_lines
from raysweep.report.calibration import CALIBRATION_TEXT, calibration_table
from raysweep.report.comparison import probe_sentences
from raysweep.report.known_labels import KNOWN_LABELS_TEXT, known_labels_sentences, known_labels_table
from raysweep.report.notes import notes
from raysweep.report.summary import Summary
from raysweep.report.tables import (
    area_table,
    baseline_table,
    bill_table,
    certainty_table,
    cost_table,
    front_table,
    mean_table,
    settings_table,
    trial_table,
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


def markdown(summary: Summary) -> str:
    """Return the content of ``front.md``: notes, the front, its hypervolume, and the settings."""
    info = summary.results.info
    lines = [
        f"# {escape_markdown(info.name)}",
        "",
        escape_markdown(objective_text(info)),
        "",
    ]
    lines += [f"> {escape_markdown(note)}\n>" for note in notes(summary)]
    lines += _section("Front", front_table(summary), SCORES_TEXT)
    lines += _section("Certainty", certainty_table(summary), CERTAINTY_TEXT, *trust_sentences(summary))
    lines += _section("Calibration", calibration_table(summary), CALIBRATION_TEXT)
    lines += _section("Baselines", baseline_table(summary), BASELINES_TEXT, *probe_sentences(summary))
    lines += _section("Replicates", mean_table(summary), means_text(summary))
    lines += _section("Hypervolume", area_table(summary), area_text(summary))
    known_labels = known_labels_table(summary)
    lines += _section("Known labels", known_labels, KNOWN_LABELS_TEXT, *known_labels_sentences(summary))
    if summary.trials:
        lines += _section("Cost", cost_table(summary), cost_text(summary.account))
    lines += _section("Bill", bill_table(summary), bill_sentences(summary.bill))
    lines += _section("Settings", settings_table(summary))
    lines += _section("Trials", trial_table(summary))
    lines += _failures(summary)
    return "\n".join(lines) + "\n"


def _failures(summary: Summary) -> list[str]:
    """Return the tracebacks of failed trials, indented as Markdown code blocks."""
    lines = []
    for trial in summary.results.trials:
        if trial.traceback:
            indented = [f"    {line}" for line in trial.traceback.splitlines()]
            lines += ["", f"Trial {trial.trial}: {escape_markdown(trial.reason)}", "", *indented]
    return ["", "## Failures", *lines] if lines else []


def _section(title: str, table: TextTable, *paragraphs: str) -> list[str]:
    """Return a heading, paragraphs and a table; empty if the table has no rows."""
    if not table.rows:
        return []
    text = "\n\n".join(paragraphs)
    return ["", f"## {title}", "", *([text, ""] if text else []), *markdown_lines(table)]
