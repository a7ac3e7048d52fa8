"""Masks equal a transcription in NumPy, and pass gradients where they are not cut off."""

import numpy as np
import pytest
import torch

from raysweep.training.hypermask.masks import MaskKind, ramped_percent, threshold


@pytest.mark.parametrize("kind", ["signed", "absolute"])
@pytest.mark.parametrize("percent", [0, 0.5, 30, 57, 99, 100])
@pytest.mark.parametrize("shape", [(7,), (13, 101), (1, 1)])
def test_masks_equal_numpy(kind: MaskKind, percent: float, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, shape)
    magnitudes = np.abs(values)
    expected = magnitudes if kind == "absolute" else values
    if percent > 0:
        expected = np.where(magnitudes > np.percentile(magnitudes, percent), expected, 0.0)
    np.testing.assert_allclose(
        threshold(torch.from_numpy(values), percent, kind), expected, atol=1e-6
    )


def test_ties_at_the_threshold_become_zeros() -> None:
    values = torch.tensor([0.1, -0.5, 0.5, 0.5, 0.9])
    assert threshold(values, 50, "signed").tolist() == pytest.approx([0, 0, 0, 0, 0.9])


def test_all_values_stay_at_0_percent_and_none_at_100() -> None:
    values = torch.tensor([0.25, -0.5, 0.25])
    assert threshold(values, 0, "signed").tolist() == [0.25, -0.5, 0.25]
    assert threshold(values, 0, "absolute").tolist() == [0.25, 0.5, 0.25]
    assert threshold(values, 100, "absolute").tolist() == [0, 0, 0]


def test_the_share_of_zeros_is_the_percentage() -> None:
    values = torch.randn(200, 50, generator=torch.Generator().manual_seed(0))
    for percent in (10, 30, 70):
        assert (threshold(values, percent) == 0).double().mean() == pytest.approx(
            percent / 100, abs=1e-4
        )


@pytest.mark.parametrize(
    ("kind", "slopes"), [("signed", [0, 1, 0, 1]), ("absolute", [0, -1, 0, 1])]
)
def test_gradients_pass_where_the_mask_does(kind: MaskKind, slopes: list[float]) -> None:
    values = torch.tensor([0.1, -0.8, 0.2, 0.9], requires_grad=True)
    threshold(values, 50, kind).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == slopes


def test_the_share_of_zeros_grows_in_the_first_task_only() -> None:
    assert [ramped_percent(40, 0, iteration, 4) for iteration in (1, 2, 3, 4)] == [10, 20, 30, 40]
    assert {ramped_percent(40, 1, iteration, 4) for iteration in (1, 2, 3, 4)} == {40}
