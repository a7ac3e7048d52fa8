"""The report as Markdown."""

from raysweep.report.calibration import CALIBRATION_TEXT, calibration_table
from raysweep.report.comparison import probe_sentences
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
    """``front.md``: what is missing, the front, its hypervolume and the settings."""
    info = summary.results.info
    lines = [
        f"# {plain(info.name)}",
        "",
        plain(objective_text(info)),
        "",
    ]
    lines += [f"> {plain(note)}\n>" for note in notes(summary)]
    if summary.members:
        lines += _section("Front", front_table(summary), SCORES_TEXT)
    certainty = certainty_table(summary)
    if certainty.rows:
        text = "\n\n".join([CERTAINTY_TEXT, *trust_sentences(summary)])
        lines += _section("Certainty", certainty, text)
    calibration = calibration_table(summary)
    if calibration.rows:
        lines += _section("Calibration", calibration, CALIBRATION_TEXT)
    if summary.baselines:
        text = "\n\n".join([BASELINES_TEXT, *probe_sentences(summary)])
        lines += _section("Baselines", baseline_table(summary), text)
    means = mean_table(summary)
    if means.rows:
        lines += _section("Replicates", means, means_text(summary))
    areas = area_table(summary)
    if areas.rows:
        lines += _section("Hypervolume", areas, area_text(summary))
    if summary.trials:
        lines += _section("Cost", cost_table(summary), cost_text(summary.account))
    bill = bill_table(summary)
    if bill.rows:
        lines += _section("Bill", bill, bill_sentences(summary.bill))
    lines += _section("Settings", settings_table(summary))
    if summary.trials:
        lines += _section("Trials", trial_table(summary))
    lines += _failures(summary)
    return "\n".join(lines) + "\n"


def _failures(summary: Summary) -> list[str]:
    """What trials raised, indented, which Markdown shows as it is."""
    lines = []
    for trial in summary.results.trials:
        if trial.traceback:
            indented = [f"    {line}" for line in trial.traceback.splitlines()]
            lines += ["", f"Trial {trial.trial}: {plain(trial.reason)}", "", *indented]
    return ["", "## Failures", *lines] if lines else []


def _section(title: str, table: TextTable, text: str = "") -> list[str]:
    paragraph = [text, ""] if text else []
    return ["", f"## {title}", "", *paragraph, *table_lines(table)]


def table_lines(table: TextTable) -> list[str]:
    """A table as Markdown."""
    rule = ["---" if column in table.text else "---:" for column in table.columns]
    rows = [[plain(cell) for cell in row] for row in table.rows]
    return ["| " + " | ".join(cells) + " |" for cells in (table.columns, rule, *rows)]


def plain(text: str) -> str:
    """Text that Markdown shows as it is: on one line, no markup of its own, no column of its own."""
    for character in "\\`*[]<>|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
