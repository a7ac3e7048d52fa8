"""Report sections with text and a table, shared by ``front.md`` and the HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass

from raysweep.output import TextTable
from raysweep.report.calibration import CALIBRATION_TEXT, calibration_table
from raysweep.report.comparison import probe_sentences
from raysweep.report.data_sets import DATA_SETS_TEXT, data_sets_table
from raysweep.report.known_labels import (
    KNOWN_LABELS_TEXT,
    known_labels_sentences,
    known_labels_table,
)
from raysweep.report.measures import MEASURES_TEXT, measure_table
from raysweep.report.summary import Summary
from raysweep.report.tables import area_table, baseline_table, bill_table, cost_table, mean_table
from raysweep.report.texts import BASELINES_TEXT, bill_sentences, cost_text
from raysweep.report.trust import area_text, means_text
from raysweep.report.watched_trials import last_rungs, sentences
from raysweep.report.watched_trials import table as watched_table

PAIRS = "Pairs"


@dataclass(frozen=True)
class TableSection:
    """A section with paragraphs above a table. It is omitted if the table is empty."""

    title: str
    table: TextTable
    paragraphs: Sequence[str]


def evaluation_sections(summary: Summary) -> list[TableSection]:
    return [
        TableSection("Data sets", data_sets_table(summary), [DATA_SETS_TEXT]),
        TableSection("Calibration", calibration_table(summary), [CALIBRATION_TEXT]),
        TableSection(PAIRS, measure_table(summary), [MEASURES_TEXT]),
        TableSection(
            "Baselines", baseline_table(summary), [BASELINES_TEXT, *probe_sentences(summary)]
        ),
        TableSection("Replicates", mean_table(summary), [means_text(summary)]),
        TableSection("Hypervolume", area_table(summary), [area_text(summary)]),
        TableSection(
            "Known labels",
            known_labels_table(summary),
            [KNOWN_LABELS_TEXT, *known_labels_sentences(summary)],
        ),
    ]


def watched_section(summary: Summary) -> TableSection:
    """Return the section on watched data; its table is empty if the run has no watched data."""
    rungs = last_rungs(summary.results.watched)
    if not rungs:
        return TableSection("Watched data", TextTable((), (), frozenset()), [])
    return TableSection("Watched data", watched_table(rungs, "cosine"), sentences(rungs))


def cost_sections(summary: Summary) -> list[TableSection]:
    sections = [TableSection("Bill", bill_table(summary), [bill_sentences(summary.bill)])]
    if summary.trials:
        sections.insert(0, TableSection("Cost", cost_table(summary), [cost_text(summary.account)]))
    return sections
