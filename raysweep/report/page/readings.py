"""The sentences that the reference and front members retrieve for some queries, for the page's script."""

from collections.abc import Iterable, Mapping, Sequence

from raysweep.report.page.scores import Json
from raysweep.report.page.visible import visible
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.readings import REFERENCE, Readings, Retrieved
from raysweep.results.types import Point

MAX_CHARACTERS = 400  # longer sentences are truncated

MAX_TOTAL_CHARACTERS = 1_200_000  # of all sentences of a page; further queries are left out

COSINE_STEPS = 1000  # cosines are stored in multiples of 1/1000


def reading_values(readings: Readings, members: Iterable[Point], label_names: Sequence[str]) -> Json:
    """Return queries, the sentences retrieved by the reference and each member, and each sentence's text once.

    ``retrieved`` has, by point and query, the indexes of sentences, best first, and their cosines under the reference.
    """
    points = {member.name: name_of_point(member) for member in members}
    stored = {name: key for name, key in points.items() if key in readings.retrieved}
    if REFERENCE in readings.retrieved:
        stored["reference"] = REFERENCE
    queries = _affordable(readings, stored.values())
    sentences = _Sentences(readings, label_names)
    retrieved = {
        name: [_retrieved(readings.retrieved[key], query, sentences) for query in queries]
        for name, key in stored.items()
    }
    return {
        "split": readings.split,
        "queries": [_query(readings, query, label_names) for query in queries],
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
        self._places: dict[int, int] = {}
        self.texts: list[str] = []
        self.labels: list[str] = []

    def place(self, sentence: int) -> int:
        if sentence not in self._places:
            self._places[sentence] = len(self.texts)
            self.texts.append(_text(self._readings.texts, sentence))
            self.labels.append(_label(self._label_names, self._readings.labels[sentence]))
        return self._places[sentence]


def _affordable(readings: Readings, names: Iterable[PointName]) -> list[int]:
    """Return the leading queries whose sentences fit the page's size limit, at least one."""
    retrieved = [readings.retrieved[name] for name in names]
    known: set[int] = set()
    total = 0
    queries: list[int] = []
    for query in readings.shown:
        needed = {int(sentence) for each in retrieved for sentence in each.ids[query]} - known
        total += sum(len(_text(readings.texts, sentence)) for sentence in needed)
        if queries and total > MAX_TOTAL_CHARACTERS:
            break
        known |= needed
        queries.append(query)
    return queries


def _retrieved(each: Retrieved, query: int, sentences: _Sentences) -> list[list[int]]:
    places = [sentences.place(int(sentence)) for sentence in each.ids[query]]
    cosines = [round(COSINE_STEPS * float(cosine)) for cosine in each.cosines[query]]
    return [places, cosines]


def _query(readings: Readings, query: int, label_names: Sequence[str]) -> Json:
    text = _text(readings.texts, int(readings.query_ids[query]))
    return {"text": text, "label": _label(label_names, int(readings.query_labels[query]))}


def _text(texts: Mapping[int, str], sentence: int) -> str:
    """Return the visible text of a sentence, or its number if texts are not stored."""
    text = texts.get(sentence)
    if text is None:
        return f"sentence {sentence}"
    cut = text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
    return visible(cut)


def _label(names: Sequence[str], place: int) -> str:
    return visible(names[place]) if 0 <= place < len(names) else str(place)
