"""Parameters as axes: levels, ranges and missing values."""

import numpy as np
import pytest

from raysweep.report.axes import axes_of


def configs(**columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def places(axes, name):
    (axis,) = [axis for axis in axes if axis.name == name]
    return axis.places.tolist()


def test_strings_and_few_numbers_are_equally_weighted_levels():
    axes = axes_of(
        configs(loss=["b", "a", "c", "a"], batch_size=[64, 16, 16, 64]), ("loss", "batch_size")
    )
    assert places(axes, "loss") == [1, 0, 2, 0]
    assert places(axes, "batch_size") == [1, 0, 0, 1]
    assert [axis.cells.tolist() for axis in axes] == [[0, 1, 2], [0, 1]]
    assert [axis.weights.tolist() for axis in axes] == [[1 / 3] * 3, [1 / 2] * 2]


def test_other_numbers_are_a_range_and_wide_ranges_are_logarithmic():
    rates, margins = [1e-6, 1e-5, 1e-4], [0.1, 0.25, 0.5]
    axes = axes_of(configs(learning_rate=rates, margin=margins), ("learning_rate", "margin"))
    assert places(axes, "learning_rate") == pytest.approx([0, 0.5, 1])
    assert places(axes, "margin") == pytest.approx([0, 0.375, 1])
    for axis in axes:
        assert axis.weights.sum() == pytest.approx(1)


def test_constants_have_no_axis():
    assert (
        axes_of(configs(loss=["a", "a"], margin=[None, None]), ("loss", "margin", "unknown")) == []
    )


def test_a_conditional_parameter_has_no_effect_if_it_does_not_apply():
    rng = np.random.default_rng(0)
    losses = [("softmax", "triplet")[index] for index in rng.integers(2, size=400)]
    margins = [float(rng.uniform(0.1, 0.9)) if loss == "triplet" else None for loss in losses]
    axes = axes_of(configs(loss=losses, margin=margins), ("loss", "margin"))
    margins = np.array(places(axes, "margin"))
    is_triplet = np.array([loss == "triplet" for loss in losses])
    assert margins.min() >= 0
    assert margins[~is_triplet].mean() == pytest.approx(margins[is_triplet].mean(), abs=0.05)
    assert margins[~is_triplet].std() == pytest.approx(margins[is_triplet].std(), abs=0.05)


def test_independent_none_is_a_separate_value():
    rng = np.random.default_rng(0)
    losses = ["ab"[index] for index in rng.integers(2, size=40)]
    dropouts = [(None, 0.0, 0.1)[index] for index in rng.integers(3, size=40)]
    clips = [None if clip < 0.25 else clip for clip in rng.uniform(size=40)]
    axes = axes_of(configs(loss=losses, dropout=dropouts, clip=clips), ("loss", "dropout", "clip"))
    assert set(places(axes, "dropout")) == {0, 1, 2}
    share = sum(clip is None for clip in clips) / 40
    clip = next(axis for axis in axes if axis.name == "clip")
    assert set(clip.places[clip.places < 0]) == {clip.cells[0]}
    assert clip.weights[0] == pytest.approx(share)
    assert clip.weights.sum() == pytest.approx(1)


def test_a_number_used_once_is_a_level():
    axes = axes_of(configs(average_decay=[None, None, 0.99, None]), ("average_decay",))
    assert places(axes, "average_decay") == [0, 0, 1, 0]
    assert [axis.cells.tolist() for axis in axes] == [[0, 1]]
