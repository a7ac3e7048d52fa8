"""Search for phrases that occur word for word inside longer texts.

A phrase is inside a text if the text contains its words consecutively and has additional words. Case, punctuation and
Unicode form (NFKC) are ignored. A phrase without words is not inside any text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unicodedata import category, normalize

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

Pairs = tuple[Integers, Integers]
"""Positions of texts, and :attr:`Phrases.ends` of phrases inside them, (pairs,) each."""


class _Spaces(dict[int, int]):
    """Translation table for ``str.translate`` that replaces punctuation with spaces, filled on demand."""

    def __missing__(self, character: int) -> int:
        kind = category(chr(character))
        is_accent = kind == "Sk"  # a standalone accent; some corpora use accents as quotes
        self[character] = ord(" ") if is_accent or kind.startswith("P") else character
        return self[character]


_SPACES = _Spaces()


def split_words(text: str) -> list[str]:
    """Return the words of a text, ignoring case, punctuation and Unicode form (NFKC)."""
    return normalize("NFKC", text).casefold().translate(_SPACES).split()


class Phrases:
    """A trie of phrases, with one edge per word.

    Nodes are numbered level by level from the root (0), and within a level by parent and word. ``ends`` (phrases,)
    contains the node at which each phrase ends.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        vocabulary: dict[str, int] = {}  # word numbers, from 1
        lines = _Lines.of(texts, lambda word: vocabulary.setdefault(word, len(vocabulary) + 1))
        self._vocabulary = vocabulary
        self._levels: list[_Level] = []
        self.num_nodes = 1
        self.ends = np.zeros(len(texts), np.int64)
        depth = 0
        longer = np.flatnonzero(lines.lengths)  # the phrases with more than ``depth`` words
        while len(longer):
            places = lines.starts[longer] + depth
            edges_of_phrases = self._edges(self.ends[longer], lines.numbers[places])
            edges, numbers = np.unique(edges_of_phrases, return_inverse=True)
            level = _Level(edges, self.num_nodes)
            self._levels.append(level)
            self.ends[longer] = level.first_node + numbers
            self.num_nodes += len(edges)
            depth += 1
            is_longer = lines.lengths[longer] > depth
            longer = longer[is_longer]
        self._is_end = np.zeros(self.num_nodes, bool)
        self._is_end[self.ends] = True

    def _edges(self, parents: Integers, next_words: Integers) -> Integers:
        """Return a unique number for each pair of a parent node and a next word. No edge has word 0."""
        num_words = len(self._vocabulary) + 1
        return parents * num_words + next_words

    def inside(self, texts: Sequence[str]) -> Pairs:
        """Return the distinct pairs of a text and a phrase inside it, sorted by text and then by end.

        Memory use is proportional to the total length of the texts.
        """
        lines = _Lines.of(texts, lambda word: self._vocabulary.get(word, 0))
        texts_of_words = np.repeat(np.arange(len(texts)), lines.lengths + 1)
        # starts of word sequences that are still on a path of the trie
        starts = np.flatnonzero(lines.numbers)
        nodes = np.zeros(len(starts), np.int64)  # the node that each sequence has reached
        codes_by_level = [np.zeros(0, np.int64)]
        for depth, level in enumerate(self._levels, 1):
            places = starts + depth - 1
            edges = self._edges(nodes, lines.numbers[places])
            is_on_path, nodes = level.follow(edges)
            starts = starts[is_on_path]
            positions = texts_of_words[starts]
            is_shorter = depth < lines.lengths[positions]
            is_phrase = self._is_end[nodes] & is_shorter
            codes = positions * self.num_nodes + nodes  # one number for each pair
            codes_by_level.append(codes[is_phrase])
        all_codes = np.concatenate(codes_by_level)
        return np.divmod(np.unique(all_codes), self.num_nodes)


@dataclass(frozen=True)
class _Level:
    """The edges to the nodes of a level, ascending, and the number of the level's first node."""

    edges: Integers
    first_node: int

    def follow(self, edges: Integers) -> tuple[npt.NDArray[np.bool_], Integers]:
        """Return which of these edges exist, and the nodes that the existing edges lead to."""
        places = np.searchsorted(self.edges, edges)
        places[places == len(self.edges)] = 0
        exists = self.edges[places] == edges
        return exists, self.first_node + places[exists]


@dataclass(frozen=True)
class _Lines:
    """Texts as word numbers, concatenated, with a 0 after each text."""

    numbers: Integers
    lengths: Integers  # in words, (texts,)

    @classmethod
    def of(cls, texts: Sequence[str], number_of: Callable[[str], int]) -> "_Lines":
        numbers: list[int] = []
        lengths = []
        for text in texts:
            words = split_words(text)
            lengths.append(len(words))
            numbers.extend(map(number_of, words))
            numbers.append(0)
        return cls(np.array(numbers, np.int64), np.array(lengths, np.int64))

    @property
    def starts(self) -> Integers:
        """Return the position at which each text begins, (texts,)."""
        return np.cumsum(self.lengths + 1) - self.lengths - 1
