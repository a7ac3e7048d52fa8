"""Texts that are looked for inside other texts, word for word.

A phrase stands inside a text when its words are a run of the text's words, and the text has more of them. Case,
punctuation and Unicode form (NFKC) do not count. A phrase without words stands inside nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unicodedata import category, normalize

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


Pairs = tuple[Integers, Integers]
"""Positions of texts, and ends of phrases that stand inside them, (pairs,) each."""


class _Spaces(dict[int, int]):
    """For ``str.translate``: punctuation becomes a space, any other character stays. Filled as characters come."""

    def __missing__(self, character: int) -> int:
        kind = category(chr(character))
        is_punctuation = (
            kind.startswith("P") or kind == "Sk"
        )  # Sk: accents that stand alone, with which some corpora quote
        self[character] = ord(" ") if is_punctuation else character
        return self[character]


_SPACES = _Spaces()


def words(text: str) -> list[str]:
    """The words of a text, case, punctuation and Unicode form (NFKC) aside."""
    return normalize("NFKC", text).casefold().translate(_SPACES).split()


class Phrases:
    """A tree of the phrases' words. Phrases share a path from the root as far as they begin alike.

    Nodes have numbers: 0 for the root, then level by level, and in a level by their parents and words. ``ends``, (phrases,),
    are the nodes at which the phrases end, so those of equal phrases are equal.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._vocabulary: dict[str, int] = {}  # numbers of words, from 1
        lines = _Lines.of(texts, self._learn)
        self._levels: list[_Level] = []
        self.num_nodes = 1
        self.ends = np.zeros(len(texts), np.int64)
        self._grow(lines)
        self._is_end = np.zeros(self.num_nodes, bool)
        self._is_end[self.ends] = True

    def _learn(self, word: str) -> int:
        new_number = len(self._vocabulary) + 1
        return self._vocabulary.setdefault(word, new_number)

    def _look_up(self, word: str) -> int:
        return self._vocabulary.get(word, 0)

    def _grow(self, lines: "_Lines") -> None:
        """Make the nodes of one level after the other."""
        depth = 0
        longer = np.flatnonzero(lines.lengths)  # the phrases with more than ``depth`` words
        while len(longer):
            places = lines.starts[longer] + depth
            wanted = self._edges(self.ends[longer], lines.numbers[places])
            edges, numbers = np.unique(wanted, return_inverse=True)
            level = _Level(edges, self.num_nodes)
            self._levels.append(level)
            self.ends[longer] = level.first_node + numbers
            self.num_nodes += len(edges)
            depth += 1
            is_longer = lines.lengths[longer] > depth
            longer = longer[is_longer]

    def _edges(self, parents: Integers, next_words: Integers) -> Integers:
        """One number for each pair of a node and the number of a word that follows it. 0, no word, makes no edge."""
        most_words = len(self._vocabulary) + 1
        return parents * most_words + next_words

    def inside(self, texts: Sequence[str]) -> Pairs:
        """Which phrases stand inside which texts, each pair once, by texts and then by ends.

        It depends on nothing else, and takes memory for its arguments only, so it may be mapped over blocks of texts.
        """
        lines = _Lines.of(texts, self._look_up)
        texts_of_words = np.repeat(np.arange(len(texts)), lines.lengths + 1)
        starts = np.flatnonzero(lines.numbers)  # of the runs that are still on a path of the tree
        nodes = np.zeros(len(starts), np.int64)  # where on it they are
        found = [np.zeros(0, np.int64)]
        for depth, level in enumerate(self._levels, 1):
            next_words = lines.numbers[starts + depth - 1]
            edges = self._edges(nodes, next_words)
            is_on_path, nodes = level.follow(edges)
            starts = starts[is_on_path]
            positions = texts_of_words[starts]
            is_shorter = depth < lines.lengths[positions]
            is_found = self._is_end[nodes] & is_shorter
            pairs = positions * self.num_nodes + nodes
            found.append(pairs[is_found])
        all_found = np.concatenate(found)
        each_once = np.unique(all_found)
        return np.divmod(each_once, self.num_nodes)


@dataclass(frozen=True)
class _Level:
    """The edges that lead to the nodes of a level, ascending, and the number of the first of these nodes."""

    edges: Integers
    first_node: int

    def follow(self, edges: Integers) -> tuple[npt.NDArray[np.bool_], Integers]:
        """Which of these edges exist, and the nodes to which those lead."""
        places = np.searchsorted(self.edges, edges)
        places[places == len(self.edges)] = 0
        exists = self.edges[places] == edges
        return exists, self.first_node + places[exists]


@dataclass(frozen=True)
class _Lines:
    """Texts as the numbers of their words, one text after the other, with a 0 behind each."""

    numbers: Integers
    lengths: Integers  # (texts,): in words

    @classmethod
    def of(cls, texts: Sequence[str], number_of: Callable[[str], int]) -> "_Lines":
        numbers: list[int] = []
        lengths = []
        for text in texts:
            found = words(text)
            lengths.append(len(found))
            numbers.extend(map(number_of, found))
            numbers.append(0)
        return cls(np.array(numbers, np.int64), np.array(lengths, np.int64))

    @property
    def starts(self) -> Integers:
        """Where each text begins, (texts,)."""
        return np.cumsum(self.lengths + 1) - self.lengths - 1
