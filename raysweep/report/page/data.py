"""The data that a run's page passes to its scripts, as JSON."""

from collections.abc import Iterable, Mapping, Sequence

from raysweep.output import escape_controls
from raysweep.report.page.members import member_values
from raysweep.report.page.points import Json, ShownPoints, compared_points, score_keys, score_texts
from raysweep.report.page.trials import common_values, parameters, statuses, trial_values
from raysweep.report.style import DARK_PALETTE, PALETTE
from raysweep.report.summary import SPLITS, Summary
from raysweep.report.texts import constraints_text, front_title, objective_formula
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.readings import REFERENCE, Readings
from raysweep.results.types import Point

MAX_CHARACTERS = 400  # longer sentences are truncated

# maximum total length of all sentences on a page; more queries are left out
MAX_TOTAL_CHARACTERS = 1_200_000

COSINE_STEPS = 1000  # cosines are stored as multiples of 1/1000


def page_data(summary: Summary, readings: Readings | None) -> Json:
    """Return the page's data, with scores x100 and control characters escaped."""
    results = summary.results
    info = results.info
    keys = score_keys(summary)
    shown_points = ShownPoints.of(summary)
    indices = shown_points.indices
    trials = [trial_summary.trial for trial_summary in summary.trials]
    members = [member.dev for member in summary.members]
    return {
        "run": {
            "name": escape_controls(info.name),
            "objective": objective_formula(info),
            "constraints": constraints_text(info),
            "k": info.k,
        },
        "scores": score_texts(keys),
        "title": front_title(summary.goals),
        "palette": {"light": PALETTE, "dark": DARK_PALETTE},
        "statuses": statuses(),
        "splits": list(summary.complete_splits),
        "parameters": parameters(trials, info.logarithmic),
        "common": common_values(trials),
        "points": shown_points.columns(keys),
        "trials": trial_values(summary, indices),
        "members": [
            member_values(member, indices[member.dev], summary) for member in summary.members
        ],
        "limits": {split: compared_points(summary, split) for split in SPLITS},
        "readings": None
        if readings is None
        else reading_values(readings, members, info.label_names),
        "isRunning": results.status == "running" and results.has_driver is not False,
    }


def reading_values(
    readings: Readings, members: Iterable[Point], label_names: Sequence[str]
) -> Json:
    """Return the queries and the sentences that the reference and the members retrieve for them.

    For each point and query, ``retrieved`` contains the sentences' indices, best first, and their
    cosines under the reference.
    """
    point_names = {member.name: name_of_point(member) for member in members}
    stored = {name: key for name, key in point_names.items() if key in readings.retrieved}
    if REFERENCE in readings.retrieved:
        stored["reference"] = REFERENCE
    query_indices = _leading_queries(readings, stored.values())
    sentences = _Sentences(readings, label_names)
    retrieved = {name: sentences.retrieved(key, query_indices) for name, key in stored.items()}
    queries = [
        {
            "text": _text(readings.texts, int(readings.query_ids[query])),
            "label": _label(label_names, int(readings.query_labels[query])),
        }
        for query in query_indices
    ]
    return {
        "split": readings.split,
        "queries": queries,
        "retrieved": retrieved,
        "texts": sentences.texts,
        "labels": sentences.labels,
        "hasTexts": bool(readings.texts),
    }


class _Sentences:
    """The sentences that the page embeds, in order of first use."""

    def __init__(self, readings: Readings, label_names: Sequence[str]) -> None:
        self._readings = readings
        self._label_names = label_names
        self._indices: dict[int, int] = {}
        self.texts: list[str] = []
        self.labels: list[str] = []

    def index(self, sentence: int) -> int:
        """Return the index of a sentence; add the sentence if it is new."""
        if sentence not in self._indices:
            self._indices[sentence] = len(self.texts)
            self.texts.append(_text(self._readings.texts, sentence))
            self.labels.append(_label(self._label_names, self._readings.labels[sentence]))
        return self._indices[sentence]

    def retrieved(self, point: PointName, queries: Iterable[int]) -> list[list[list[int]]]:
        """Return the indices and cosines of the sentences that a point retrieves for each query."""
        retrieved = self._readings.retrieved[point]
        by_query = []
        for query in queries:
            indices = [self.index(int(sentence)) for sentence in retrieved.ids[query]]
            cosines = [round(COSINE_STEPS * float(cosine)) for cosine in retrieved.cosines[query]]
            by_query.append([indices, cosines])
        return by_query


def _leading_queries(readings: Readings, points: Iterable[PointName]) -> list[int]:
    """Return the first queries whose sentences fit on the page, or the first query if none fit."""
    retrievals = [readings.retrieved[point] for point in points]
    embedded: set[int] = set()
    total = 0
    queries: list[int] = []
    for query in readings.shown:
        sentences: set[int] = set()
        for retrieved in retrievals:
            sentences.update(map(int, retrieved.ids[query]))
        added = sentences - embedded
        texts = [_text(readings.texts, sentence) for sentence in added]
        total += sum(map(len, texts))
        if queries and total > MAX_TOTAL_CHARACTERS:
            break
        embedded |= added
        queries.append(query)
    return queries


def _text(texts: Mapping[int, str], sentence: int) -> str:
    """Return the text of a sentence, or its number if texts are not stored."""
    text = texts.get(sentence)
    if text is None:
        return f"sentence {sentence}"
    truncated = text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
    return escape_controls(truncated)


def _label(names: Sequence[str], label: int) -> str:
    return escape_controls(names[label]) if 0 <= label < len(names) else str(label)
