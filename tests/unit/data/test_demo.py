"""The built-in demo: balance, distinctness and stability."""

import hashlib
import itertools
import math
import re
from collections import Counter

import pytest

from raysweep.data import demo


def test_topics_are_balanced_by_label():
    for rows, count in zip(demo.generate(), (60, 4), strict=True):
        cells = Counter((row.topic, row.label) for row in rows)
        assert len({topic for topic, _ in cells}) == 25
        assert len(cells) == 50
        assert set(cells.values()) == {count}


def test_sentences_are_distinct_and_well_formed():
    train, test = demo.generate()
    texts = [row.text for row in train + test]
    assert len({text.casefold() for text in texts}) == len(texts) == 3200
    for text in texts:
        assert re.fullmatch(r"[A-Z][\w ,;:'é-]+[.?]", text), text
        assert "  " not in text
        assert 4 <= len(text.split()) <= 30, text


def test_order_is_random():
    train, _ = demo.generate()
    changes = sum(a.label != b.label for a, b in itertools.pairwise(train))
    assert abs(changes - len(train) / 2) < 5 * (len(train) / 4) ** 0.5


def test_topic_words_do_not_predict_the_label():
    rows = [row for split in demo.generate(num_train=20_000) for row in split]
    for name, topic in demo.vocabulary().topics.items():
        aspects = [
            aspect.replace("+", "")
            for listed in topic.aspects.values()
            for aspect in listed.split(", ")
        ]
        for word in [*aspects, *topic.nouns.split(", "), *topic.when.split(", ")]:
            counts = Counter(
                row.label
                for row in rows
                if row.topic == name and word.casefold() in row.text.casefold()
            )
            total = counts.total()
            assert total >= 20, word
            assert abs(counts["positive"] - total / 2) < 5 * (total / 4) ** 0.5, word


def test_words_mislead_but_polarity_can_be_learned():
    """A vote of words beats chance but is not perfect, because negation is not in single words."""
    train, test = demo.generate()
    counts = {label: Counter() for label in demo.LABELS}
    for row in train:
        counts[row.label].update(set(re.findall(r"[\w']+", row.text.casefold())))
    right = 0
    for row in test:
        words = set(re.findall(r"[\w']+", row.text.casefold()))
        score = sum(
            math.log((counts["positive"][w] + 1) / (counts["negative"][w] + 1)) for w in words
        )
        right += (score > 0) == (row.label == "positive")
    assert 0.8 < right / len(test) < 0.97


def test_sentences_never_change():
    train, test = demo.generate()
    digest = hashlib.sha256("\n".join("\t".join(row) for row in train + test).encode()).hexdigest()
    assert digest == "9535f0104767c5c77d73a09802979f94c9e8635b0ca7c51f93d74b91effab3c1"
    assert demo.generate(seed=1)[0] != train
    assert demo.generate(num_train=100, num_test=0)[1] == []


def test_exhausted_grammar_is_reported(monkeypatch):
    monkeypatch.setattr(demo, "SHARED_TEMPLATES", ("{topic}: {verdict}",))
    monkeypatch.setattr(demo, "LABELED_TEMPLATES", ())
    with pytest.raises(ValueError, match="3000 \\+ 200"):
        demo.generate()
