"""Tables of published scores, and digests of the queries that they were measured on."""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from raysweep.results.scores import Score
from raysweep.results.types import Point, ScoredSplit


@dataclass(frozen=True)
class PublishedTable:
    """A table of published scores, stored in ``raysweep/paper/published``.

    The file's header comment cites the source. Each row contains a method's means and standard deviations over queries,
    x100. The first row is the untuned encoder.
    """

    file: str
    model: str
    width: int  # embedding dimension
    num_queries: int
    queries_digest: str  # see :func:`digest`

    def measured_on(self, texts: Iterable[str]) -> bool:
        """Return whether the texts are the table's queries, ignoring order, case, spaces and punctuation."""
        return digest(texts) == self.queries_digest

    @property
    def untuned_similarity(self) -> float:
        """Return the untuned encoder's S in [0, 1].

        A different value indicates a different reference encoder or pool.
        """
        return float(next(self._rows())["similarity"]) / 100

    def points(self, split: ScoredSplit) -> Iterator[Point]:
        """Yield one point per row; retention is relative to the untuned encoder."""
        rows = list(self._rows())
        untuned = float(rows[0]["similarity"])
        for row in rows:
            similarity = float(row["similarity"])
            yield Point(
                trial=None,
                step=None,
                kind="published",
                value=None,
                split=split,
                width=self.width,
                scores={
                    "polarity": Score(
                        float(row["polarity"]) / 100, float(row["polarity_std"] or 0) / 100
                    ),
                    "similarity": Score(similarity / 100, float(row["similarity_std"] or 0) / 100),
                    "retention": Score(similarity / untuned),
                },
                label=f"{self.model}, {row['method']}",
            )

    def _rows(self) -> Iterator[dict[str, str]]:
        file = resources.files("raysweep.paper") / "published" / self.file
        lines = file.read_text(encoding="utf-8").splitlines()
        yield from csv.DictReader(line for line in lines if not line.startswith("#"))


def digest(texts: Iterable[str]) -> str:
    """Return the SHA-256 digest of the texts' ASCII letters and digits, independent of order and case.

    Other characters are ignored because copies of the same data set differ in spaces, quotes and accents.
    """
    bare = sorted(
        "".join(
            character for character in text.lower() if character.isascii() and character.isalnum()
        )
        for text in texts
    )
    return hashlib.sha256("\n".join(bare).encode()).hexdigest()


TABLES: Mapping[str, PublishedTable] = {
    "sst2": PublishedTable(
        file="sst2.csv",
        model="all-MiniLM-L6-v2",
        width=384,
        num_queries=872,
        queries_digest="ae043338450361cc596cf501baf4d13ffbb0f2981d28c1cd179fd45849ef5066",
    )
}
"""Tables, keyed by name in ``baselines.published``."""
