"""Published scores, from small tables that ship with the package, for the split that they were measured on."""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from raysweep.results.types import Point, ScoredSplit


@dataclass(frozen=True)
class PublishedTable:
    """A file of ``raysweep/evaluation/published``, whose comment says where it is from and how it was measured.

    It has a row a method, the first one that of the untuned encoder, with means and standard deviations over queries, x100.
    """

    file: str
    model: str
    width: int  # of its embeddings
    num_queries: int
    queries_digest: str  # see :func:`digest`

    def measured_on(self, texts: Iterable[str]) -> bool:
        """Whether these are the queries, up to case, spacing and punctuation, in any order."""
        return digest(texts) == self.queries_digest

    @property
    def untuned_similarity(self) -> float:
        """S of the untuned encoder, in [0, 1], by which another reference encoder or pool shows."""
        return float(next(self._rows())["similarity"]) / 100

    def points(self, split: ScoredSplit) -> Iterator[Point]:
        """A point for each row, as one of this split. Retention is relative to the table's own untuned encoder."""
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
                polarity=float(row["polarity"]) / 100,
                polarity_std=float(row["polarity_std"] or 0) / 100,
                similarity=similarity / 100,
                similarity_std=float(row["similarity_std"] or 0) / 100,
                retention=similarity / untuned,
                label=f"{self.model}, {row['method']}",
            )

    def _rows(self) -> Iterator[dict[str, str]]:
        file = resources.files("raysweep.evaluation") / "published" / self.file
        lines = file.read_text(encoding="utf-8").splitlines()
        yield from csv.DictReader(line for line in lines if not line.startswith("#"))


def digest(texts: Iterable[str]) -> str:
    """The SHA-256 of texts in any order, of their ASCII letters and digits: copies differ in spaces, quotes and accents."""
    bare = sorted("".join(each for each in text.lower() if each.isascii() and each.isalnum()) for text in texts)
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
"""By their names in ``baselines.published``."""
