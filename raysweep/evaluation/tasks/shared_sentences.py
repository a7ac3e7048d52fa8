"""Which sentences of tasks also stand in the data that a model was tuned on.

Two sentences are the same if their letters and digits are: case, spacing and punctuation do not count. Of a sentence whose
letters are mostly ASCII's only ASCII's letters and digits are compared, because corpora lose and mangle the others: where
one has ``touché !`` another has ``Touch``. Of any other sentence all letters and digits are, in the Unicode form NFKC.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from unicodedata import normalize

from raysweep.data import files, sources
from raysweep.terminal import Advance

_NOT_ASCII = re.compile("[^a-z0-9]+")


@dataclass(frozen=True)
class TunedOn:
    """Data that models were tuned on: sources and their column of sentences. ``models`` are those that say so themselves.

    ``subset`` is the configuration name of a source on the hub.
    """

    source: tuple[str, ...]
    text_column: str = "text"
    subset: str | None = None
    models: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return sources.shown(self.source)

    @property
    def pieces(self) -> list[sources.Piece]:
        """What the sources are made of. Raises InputError where one is not there."""
        return sources.pieces(self.source, subset=self.subset)

    def check(self) -> None:
        """Raise InputError where a source is not there, or has no such column. Of the hub nothing is asked yet."""
        for piece in self.pieces:
            if piece.file is not None:
                files.positions(piece.name, sources.column_names(piece), (self.text_column,))

    def of_model(self, model: str) -> "TunedOn":
        """The same data, as what this model was tuned on too."""
        return replace(self, models=(*self.models, model))


def key(sentence: str) -> str:
    """What of a sentence is compared; "" for one that has neither letters nor digits, which is the same as no other."""
    folded = normalize("NFKC", sentence).casefold()
    ascii_only = _NOT_ASCII.sub("", folded)
    if folded.isascii():
        return ascii_only
    everything = "".join(filter(str.isalnum, folded))
    letters = list(filter(str.isalpha, everything))
    num_ascii = sum(map(str.isascii, letters))
    return ascii_only if num_ascii > len(letters) / 2 else everything


def found_in(data: TunedOn, sentences: Iterable[str], advance: Advance = lambda done, total, unit: None) -> set[str]:
    """The keys of those sentences that stand in the data, which is read once, in bounded memory.

    ``advance`` is told how many rows have been read. Raises InputError where the data cannot be read.
    """
    wanted = {key(sentence) for sentence in sentences} - {""}
    found: set[str] = set()
    num_rows = 0
    for piece in data.pieces:
        for (texts,) in sources.read_values(piece, (data.text_column,)):
            found.update(wanted.intersection(key(text) for text in texts if isinstance(text, str)))
            num_rows += len(texts)
            advance(num_rows, 0, "rows")
    return found
