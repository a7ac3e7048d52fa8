"""Soft targets, against a transcription of the paper's formulas."""

from fractions import Fraction

import numpy as np
import pytest

from raysweep.config.soft_targets import SOFT_TARGETS, count_active, soft_targets


def transcribed(rule: str, same_class: bool, scores: list[float]) -> float:
    """Return the target of one pair, as in arXiv:2408.11868."""
    if rule == "soft1":
        return max(scores) if same_class else min(scores)
    if rule == "soft2":
        return float(sum(map(Fraction, scores)) / len(scores))
    highest = sorted(scores, reverse=True)[:2]
    lowest = sorted(scores)[:2]
    if rule == "soft3":
        return max(highest) if same_class else max(lowest)
    return highest[-1] if same_class else lowest[-1]


def random_pairs(num_experts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whether pairs have the same class, and scores with many ties."""
    rng = np.random.default_rng(num_experts)
    scores = rng.integers(-4, 9, (300, num_experts)).astype(np.float32) / 8
    scores[:100] += rng.normal(scale=0.05, size=(100, num_experts)).astype(np.float32)
    return rng.random(300) < 0.5, scores


@pytest.mark.parametrize("num_experts", range(1, 9))
def test_targets_equal_the_formulas(num_experts: int) -> None:
    same_class, scores = random_pairs(num_experts)
    for rule in SOFT_TARGETS:
        expected = [
            transcribed(rule, *pair)
            for pair in zip(same_class.tolist(), scores.tolist(), strict=True)
        ]
        targets = soft_targets(rule, same_class, scores)
        assert targets.dtype == np.float32
        np.testing.assert_array_equal(targets, np.array(expected, np.float32))


def test_one_expert_decides_under_every_rule() -> None:
    same_class, scores = random_pairs(1)
    for rule in SOFT_TARGETS:
        np.testing.assert_array_equal(soft_targets(rule, same_class, scores), scores[:, 0])


@pytest.mark.parametrize("num_experts", range(1, 9))
def test_active_pairs_add_up_to_all_pairs_plus_ties(num_experts: int) -> None:
    same_class, scores = random_pairs(num_experts)
    counts = np.zeros(num_experts, int)
    num_ties = 0
    for is_same, pair in zip(same_class, scores.tolist(), strict=True):
        target = max(pair) if is_same else min(pair)
        active = [score == target for score in pair]
        counts += active
        num_ties += sum(active) - 1
    np.testing.assert_array_equal(count_active(same_class, scores), counts)
    assert counts.sum() == len(scores) + num_ties
