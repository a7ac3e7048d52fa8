"""Validation examples among dev sentences, and the rule that stops idle trials."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.config.sides import Sides
from raysweep.data.dev_examples import NUM_NEIGHBORS
from raysweep.training.trial import rungs
from raysweep.training.validation import IdleRule, ValidationExamples, triplet_errors
from raysweep.training.workbench import Workbench
from support.encoders import trial

INFINITY = float("inf")


def make_prepared(num: int = 40, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(2 * num, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = rng.integers(0, 3, 2 * num)
    return SimpleNamespace(
        sentences=SimpleNamespace(labels=labels), reference_embeddings=Sides.same(vectors)
    )


def nearest(prepared: Any, queries: np.ndarray, anchor: int, same: bool) -> set[int]:
    labels, vectors = (
        prepared.sentences.labels[queries],
        prepared.reference_embeddings.document[queries],
    )
    others = [
        i for i in range(len(queries)) if i != anchor and (labels[i] == labels[anchor]) == same
    ]
    return set(sorted(others, key=lambda i: -float(vectors[i] @ vectors[anchor]))[:NUM_NEIGHBORS])


def test_triplets_contain_the_nearest_sentences_of_both_sides() -> None:
    prepared, queries = make_prepared(), np.arange(80)[::2]
    examples = ValidationExamples.of(prepared, "triplet", queries, (1.0, 0.0))
    expected = {
        (anchor, own, other)
        for anchor in range(len(queries))
        for own in nearest(prepared, queries, anchor, True)
        for other in nearest(prepared, queries, anchor, False)
    }
    assert {
        tuple(row) for row in examples.rows.tolist()
    } == expected  # all of them, since there are few
    assert examples.targets is None
    np.testing.assert_array_equal(examples.rows, examples.triplets)


def test_targets_of_pairs_and_labels_of_labeled_sentences() -> None:
    prepared, queries = make_prepared(), np.arange(80)[1::2]
    labels = prepared.sentences.labels[queries]
    scored = ValidationExamples.of(prepared, "scored_pair", queries, (0.9, 0.1))
    same = labels[scored.rows[:, 0]] == labels[scored.rows[:, 1]]
    np.testing.assert_allclose(scored.targets, np.where(same, 0.9, 0.1))
    plain = ValidationExamples.of(prepared, "labeled_sentence", queries, (1.0, 0.0))
    assert plain.rows.tolist() == [[i] for i in range(len(queries))]
    np.testing.assert_array_equal(plain.targets, labels)
    assert len(plain.triplets)


def test_triplet_errors_count_negatives_at_least_as_near() -> None:
    vectors = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0.8, 0.6]], np.float32)
    triplets = np.array([[0, 1, 2], [0, 2, 1], [0, 1, 3]])
    assert triplet_errors(Sides.same(vectors), triplets) == 2


def test_rung_improves_only_if_loss_and_errors_both_decrease() -> None:
    """A rung is compared with the last one that improved, not with idle ones."""
    rule = IdleRule(3)
    rungs = [(1.0, 10), (0.9, 10), (0.95, 9), (0.9, 9), (0.94, 8), (0.8, 12), (0.85, 8)]
    idle_counts = []
    for rung in rungs:
        assert rule.update(*rung) is None
        idle_counts.append(rule.idle)
    assert idle_counts == [0, 1, 0, 1, 0, 1, 2]
    reason = rule.update(0.9, 20)
    assert (
        reason is not None
        and "3 rungs" in reason
        and "loss (0.9)" in reason
        and "errors (20)" in reason
    )


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 50)), min_size=1, max_size=20),
    st.integers(1, 4),
)
def test_idle_rule_equals_its_definition(rungs: list[tuple[float, int]], patience: int) -> None:
    rule = IdleRule(patience)
    stopped = next((i for i, rung in enumerate(rungs) if rule.update(*rung)), None)

    improved = [0]
    for i in range(1, len(rungs)):
        if rungs[i][0] < rungs[improved[-1]][0] and rungs[i][1] < rungs[improved[-1]][1]:
            improved.append(i)
    idle = [i - max(j for j in improved if j <= i) for i in range(len(rungs))]
    expected = next((i for i, count in enumerate(idle) if count == patience), None)
    assert stopped == expected


@pytest.mark.parametrize("loss", [float("nan"), INFINITY])
def test_non_finite_loss_is_not_an_improvement(loss: float) -> None:
    rule = IdleRule(1)
    assert rule.update(1.0, 5) is None
    assert rule.update(loss, 5) is not None


@pytest.mark.parametrize("loss", ["triplet", "multiple_negatives", "softmax"])
def test_idle_trial_stops_even_if_interrupted(
    loss: str, tiny_bench: Workbench, tmp_path: Path
) -> None:
    """The learning rate changes no weight, so the second and third rungs are idle."""
    config = trial(loss=loss, learning_rate=1e-20, idle_rungs=2, examples_per_rung=8)

    def play() -> Any:
        return rungs(config, tiny_bench, seed=0, num_rungs=6, checkpoints=tmp_path)

    before = play()
    assert [next(before).stop, next(before).stop] == [None, None]
    repeated, last = play()
    assert (repeated.step, repeated.stop, last.step) == (2, None, 3)
    assert last.stop is not None and last.stop.startswith("idle for 2 rungs")
    assert [(rung.step, rung.stop) for rung in play()] == [(3, last.stop)]


def test_learning_trial_continues(tiny_bench: Workbench) -> None:
    config = trial(loss="softmax", learning_rate=1e-3, idle_rungs=1, examples_per_rung=200)
    assert [rung.stop for rung in rungs(config, tiny_bench, seed=0, num_rungs=3)][:2] == [
        None,
        None,
    ]
