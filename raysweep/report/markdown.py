"""The report as Markdown."""

import re

from raysweep.report.calibration import CALIBRATION_TEXT, calibration_table
from raysweep.report.comparison import probe_sentences
from raysweep.report.known_labels import KNOWN_LABELS_TEXT, known_labels_sentences, known_labels_table
from raysweep.report.notes import notes
from raysweep.report.summary import Summary
from raysweep.report.tables import (
    TextTable,
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
        f"# {plain(info.name)}",
        "",
        plain(objective_text(info)),
        "",
    ]
    lines += [f"> {plain(note)}\n>" for note in notes(summary)]
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
            lines += ["", f"Trial {trial.trial}: {plain(trial.reason)}", "", *indented]
    return ["", "## Failures", *lines] if lines else []


def _section(title: str, table: TextTable, *paragraphs: str) -> list[str]:
    """Return a heading, paragraphs and a table; empty if the table has no rows."""
    if not table.rows:
        return []
    text = "\n\n".join(paragraphs)
    return ["", f"## {title}", "", *([text, ""] if text else []), *table_lines(table)]


def table_lines(table: TextTable) -> list[str]:
    """Return a table as lines of Markdown."""
    rule = ["---" if column in table.text else "---:" for column in table.columns]
    rows = [[plain(cell) for cell in row] for row in table.rows]
    columns = map(plain, table.columns)
    return ["| " + " | ".join(cells) + " |" for cells in (columns, rule, *rows)]


def plain(text: str) -> str:
    """Escape text for Markdown, on one line and without column separators."""
    for character in "\\`*[]<>|":
        text = text.replace(character, "\\" + character)
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\_", text)  # not markup within a word
    return " ".join(text.split())
