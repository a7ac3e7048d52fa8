"""The built-in demo: short opinions from a grammar in which topic and polarity vary independently.

A sentence's topic dominates its similarity to others but carries no information about polarity. So an untrained
encoder retrieves the right topic with either polarity. The ideal result is known: sentences with the query's topic
*and* polarity, of which there are many. Polarity is expressed by adjectives and verb phrases, and just as often by
negation, concession, comparison and expectation, where single words are misleading.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

LABELS = ("negative", "positive")
MAX_ATTEMPTS = 1000  # to find a sentence that has not been generated yet

# Slots: {a} and {b} are aspects of one topic ("the soup"), {at} its preposition, {thing} an instance ("this bistro").
# {adj}, {word} (a single word) and {did} describe {a} with the label's polarity; {not_word} and {not_adj_b} have the
# opposite polarity. {verdict} fits anything.
SHARED_TEMPLATES = (
    "{a} {at} {thing} {was} {adj}",
    "{when}, {a} {was} {adj}",
    "{a} {was} {adj} {when}",
    "I found {a} {word} {when}",
    "{a} {did} {when}",
    "{a} {at} {thing} {did}",
    "{a} {at} {thing} {was} {verdict}",
    "{when}, {a} {was} {verdict} and {b} {did_b}",
    "{thing} was {verdict}: {a} {did}",
    "I have been telling everyone how {verdict} {a} {was} {when}",
    "{a} {did}, and {b} {was_b} {adj_b}",
    "{a} {was} {adj}, and {b} {did_b}",
    "{a} {was} {verdict} and {b} {was_b} {adj_b}",
    "what struck me about {thing} was how {word} {a} {was}",
    "{a} {was_not} {not_word} at all",
    "{when}, {a} {was} anything but {not_word}",
    "there was nothing {not_word} about {a} {at} {thing}",
    "I expected {a} to be {not_word}, but {it_was} {adj}",
)


LABELED_TEMPLATES = (  # negative, positive
    ("I could not stand {a} {at} {thing}", "I loved {a} {at} {thing}"),
    ("{when}, we were let down by {a}", "{when}, we were delighted with {a}"),
    (
        "I will never {act} again, because {a} {was} {adj}",
        "I would gladly {act} again, because {a} {was} {adj}",
    ),
    (
        "{a} alone put me off, and I will not {act} again",
        "for {a} alone, I cannot wait to {act} again",
    ),
    (
        "this was not the {noun} I had hoped for: {a} {did}",
        "this was just the {noun} I had hoped for: {a} {did}",
    ),
    ("{thing} was a waste of money, and {a} {did}", "{thing} was worth every penny, and {a} {did}"),
    (
        "I have nothing good to say about {a} {at} {thing}",
        "I have nothing bad to say about {a} {at} {thing}",
    ),
    (
        "I had hoped for a good deal more from {a} {when}",
        "I could not have hoped for more from {a} {when}",
    ),
    (
        "{b} {was_b} {not_adj_b}, but {a} spoiled everything",
        "{b} {was_b} {not_adj_b}, but {a} made up for everything",
    ),
    (
        "{a} {was} worse than {at} any other {noun} I know",
        "{a} {was} better than {at} any other {noun} I know",
    ),
    ("{a} {was} far worse than I had been told", "{a} {was} far better than I had been told"),
    (
        "most {topic} put {thing} to shame, and {a} {did}",
        "{thing} puts most {topic} to shame, and {a} {did}",
    ),
    (
        "I would warn anyone about {a} {at} {thing}",
        "I would recommend {thing} to anyone, above all for {a}",
    ),
    ("{thing} let us down, and so did {a}", "{thing} never let us down, and neither did {a}"),
    (
        "how could anyone put up with {a} {at} {thing}?",
        "how could anyone complain about {a} {at} {thing}?",
    ),
    ("{a} {was} {adj}; avoid {thing} if you can", "{a} {was} {adj}; go for {thing} if you can"),
    ("{a} {did}, which is sadly common among {topic}", "{a} {did}, which is rare among {topic}"),
)


_VERDICTS = (
    ("terrible", "awful", "dreadful", "horrible", "poor", "disappointing", "mediocre", "appalling"),
    (
        "wonderful",
        "excellent",
        "superb",
        "great",
        "fantastic",
        "impressive",
        "outstanding",
        "marvellous",
    ),
)


_OPENERS = (
    *[""] * 20,
    "honestly, ",
    "all in all, ",
    "in the end, ",
    "frankly, ",
    "to be fair, ",
    "this time ",
)


class DemoRow(NamedTuple):
    """A sentence, its label (``negative`` or ``positive``) and its topic."""

    text: str
    label: str
    topic: str


def generate(
    seed: int = 0, num_train: int = 3000, num_test: int = 200
) -> tuple[list[DemoRow], list[DemoRow]]:
    """Generate train and test rows in random order, with distinct texts and balanced topics.

    Each topic occurs equally often with each label, give or take one row. The result is the same on every platform and
    Python version.

    Raises:
        ValueError: If the grammar runs out of distinct sentences, which takes millions of rows.
    """
    draw = _Draw(seed)
    seen: set[str] = set()
    train = _distinct_rows(draw, num_train, seen)
    test = _distinct_rows(draw, num_test, seen)
    if train is None or test is None:
        raise ValueError(
            f"demo: the grammar has fewer than {num_train} + {num_test} distinct sentences"
        )
    return train, test


def _distinct_rows(draw: "_Draw", num_rows: int, seen: set[str]) -> list[DemoRow] | None:
    """Return rows in random order, cycling through topics and labels, or None if the grammar runs out of sentences.

    The rows' texts are new to ``seen``, and are added to it.
    """
    words = vocabulary()
    cells = list(itertools.product(words.topics, (False, True)))
    rows = []
    for number in range(num_rows):
        topic, positive = cells[number % len(cells)]
        attempts = (_sentence(draw, topic, positive) for _ in range(MAX_ATTEMPTS))
        new_sentences = (sentence for sentence in attempts if sentence not in seen)
        text = next(new_sentences, None)
        if text is None:
            return None
        seen.add(text)
        rows.append(DemoRow(text, LABELS[positive], topic))
    return sorted(rows, key=lambda _: draw.random())


@dataclass(frozen=True)
class Kind:
    """The vocabulary for a kind of aspect: good and bad adjectives after "was", and good and bad verb phrases."""

    good: str
    bad: str
    did_good: str
    did_bad: str


@dataclass(frozen=True)
class Topic:
    """The vocabulary of a topic: nouns for an instance, its preposition, activity, times and aspects.

    All fields but ``at`` and ``act`` are comma-separated lists; plural aspects are marked with ``+``.
    """

    nouns: str
    at: str
    act: str
    when: str
    aspects: dict[str, str]  # keyed by kind


@dataclass(frozen=True)
class Vocabulary:
    """The words of the grammar, from ``demo_words.yaml``."""

    kinds: dict[str, Kind]
    topics: dict[str, Topic]


@cache
def vocabulary() -> Vocabulary:
    words = yaml.safe_load((Path(__file__).parent / "demo_words.yaml").read_text(encoding="utf-8"))
    kinds = {name: Kind(**kind) for name, kind in words["kinds"].items()}
    topics = {name: Topic(**topic) for name, topic in words["topics"].items()}
    return Vocabulary(kinds, topics)


class _Draw(random.Random):
    """Random choices, all derived from ``random()``, whose sequence is the same in every Python version."""

    def below(self, count: int) -> int:
        return int(self.random() * count)

    def choose(self, options: Sequence[str]) -> str:
        return options[self.below(len(options))]

    def item(self, options: str) -> str:
        """Return one item of a comma-separated list."""
        return self.choose(options.split(", "))


class _Aspect(NamedTuple):
    """An aspect and its descriptions: those with the label's polarity, and those with the opposite (``other``)."""

    name: str
    was: str
    adjective: str
    word: str
    did: str
    other_adjective: str
    other_word: str


def _aspect(draw: _Draw, name: str, kind_name: str, positive: bool) -> _Aspect:
    kind = vocabulary().kinds[kind_name]
    same = kind.good if positive else kind.bad
    other = kind.bad if positive else kind.good
    # The order of the draws is part of the demo: a different order would change the sentences.
    return _Aspect(
        name="the " + name.replace("+", ""),
        was="were" if "+" in name else "was",
        adjective=draw.item(same),
        word=draw.choose(_single_words(same)),
        did=draw.item(kind.did_good if positive else kind.did_bad),
        other_adjective=draw.item(other),
        other_word=draw.choose(_single_words(other)),
    )


def _single_words(adjectives: str) -> list[str]:
    return [adjective for adjective in adjectives.split(", ") if " " not in adjective]


def _sentence(draw: _Draw, topic: str, positive: bool) -> str:
    about = vocabulary().topics[topic]
    kinds = [(name, kind) for kind, names in about.aspects.items() for name in names.split(", ")]
    first = draw.below(len(kinds))
    steps = 1 + draw.below(len(kinds) - 1)
    second = (first + steps) % len(kinds)  # a different kind
    a = _aspect(draw, *kinds[first], positive)
    b = _aspect(draw, *kinds[second], positive)
    label_templates = [pair[positive] for pair in LABELED_TEMPLATES]
    template = draw.choose([*SHARED_TEMPLATES, *label_templates])
    opener = draw.choose(_OPENERS)
    if template.startswith(("{when}", "how ")):
        opener = ""
    noun = draw.item(about.nouns)
    determiner = draw.choose(("this", "that", "the", "the new"))
    sentence = (opener + template).format(
        a=a.name,
        was=a.was,
        was_not="wasn't" if a.was == "was" else "weren't",
        it_was="it was" if a.was == "was" else "they were",
        adj=a.adjective,
        word=a.word,
        did=a.did,
        not_word=a.other_word,
        b=b.name,
        was_b=b.was,
        adj_b=b.adjective,
        did_b=b.did,
        not_adj_b=b.other_adjective,
        topic=topic,
        noun=noun,
        thing=f"{determiner} {noun}",
        verdict=draw.choose(_VERDICTS[positive]),
        at=about.at,
        act=about.act,
        when=draw.item(about.when),
    )
    end = "" if sentence.endswith("?") else "."
    return sentence[0].upper() + sentence[1:] + end
