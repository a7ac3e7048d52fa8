"""The report as Markdown."""

from raysweep.output import TextTable, escape_markdown, markdown_lines
from raysweep.report.notes import notes
from raysweep.report.summary import Summary
from raysweep.report.table_sections import cost_sections, evaluation_sections, watched_section
from raysweep.report.tables import certainty_table, front_table, settings_table, trial_table
from raysweep.report.texts import CERTAINTY_TEXT, objective_text, scores_text
from raysweep.report.trust import trust_sentences


def markdown(summary: Summary) -> str:
    """Return the content of ``front.md``."""
    info = summary.results.info
    title = escape_markdown(info.name)
    objective = escape_markdown(objective_text(info))
    lines = [f"# {title}", "", objective, ""]
    for note in notes(summary):
        lines.append(f"> {escape_markdown(note)}\n>")
    lines += _section("Front", front_table(summary), scores_text(summary.results.info))
    certainty = certainty_table(summary)
    sentences = trust_sentences(summary)
    lines += _section("Certainty", certainty, CERTAINTY_TEXT, *sentences)
    sections = [*evaluation_sections(summary), watched_section(summary), *cost_sections(summary)]
    for section in sections:
        lines += _section(section.title, section.table, *section.paragraphs)
    lines += _section("Settings", settings_table(summary))
    lines += _section("Trials", trial_table(summary))
    failed = [trial for trial in summary.results.trials if trial.traceback]
    if failed:
        lines += ["", "## Failures"]
    for trial in failed:
        reason = escape_markdown(trial.reason)
        code = [f"    {line}" for line in trial.traceback.splitlines()]
        lines += ["", f"Trial {trial.trial}: {reason}", "", *code]
    return "\n".join(lines) + "\n"


def _section(title: str, table: TextTable, *paragraphs: str) -> list[str]:
    """Return the lines of a section, or an empty list if the table has no rows."""
    if not table.rows:
        return []
    lines = ["", f"## {title}", ""]
    for text in paragraphs:
        lines += [text, ""]
    return lines + markdown_lines(table)
