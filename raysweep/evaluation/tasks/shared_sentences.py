"""Detection of task sentences that also occur in the data that a model was tuned on.

Two sentences are equal if their letters and digits are, ignoring case, spacing and punctuation. If most letters of a
sentence are ASCII, only ASCII letters and digits are compared, because corpora lose and mangle the others: ``touché !``
in one is ``Touch`` in another. Otherwise all letters and digits are compared, in the Unicode form NFKC.
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
    """Data that models were tuned on: sources and their text column. ``models`` name this data in their provenance.

    ``subset`` is the configuration name of a source on the Hub.
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
        """Return the pieces of the sources, or raise InputError if one does not exist."""
        return sources.pieces(self.source, subset=self.subset)

    def check(self) -> None:
        """Raise InputError if a source does not exist or lacks the column. The Hub is not contacted yet."""
        for piece in self.pieces:
            if piece.file is not None:
                files.positions(piece.name, sources.column_names(piece), (self.text_column,))

    def of_model(self, model: str) -> "TunedOn":
        """Return the same data with this model added."""
        return replace(self, models=(*self.models, model))


def key(sentence: str) -> str:
    """Return the part of a sentence that is compared; "" (never equal) without letters and digits."""
    folded = normalize("NFKC", sentence).casefold()
    ascii_only = _NOT_ASCII.sub("", folded)
    if folded.isascii():
        return ascii_only
    everything = "".join(filter(str.isalnum, folded))
    letters = list(filter(str.isalpha, everything))
    num_ascii = sum(map(str.isascii, letters))
    return ascii_only if num_ascii > len(letters) / 2 else everything


def found_in(data: TunedOn, sentences: Iterable[str], advance: Advance = lambda done, total, unit: None) -> set[str]:
    """Return the keys of the sentences that occur in the data, which is read once, in bounded memory.

    ``advance`` is called with the number of rows read.

    Raises:
        InputError: If the data cannot be read.
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
