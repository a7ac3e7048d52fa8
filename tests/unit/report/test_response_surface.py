"""The response surface against brute force over a grid, closed forms, and trees."""

import dataclasses
import itertools

import numpy as np
import pytest

from raysweep.report import response_surface
from raysweep.report.axes import axes_of
from raysweep.report.response_surface import Surface, main_effects

LOSSES = ("contrastive", "softmax", "triplet")


def random_configs(rng, count):
    """Return configurations with a categorical, a logarithmic, an optional and a conditional parameter."""
    configs = []
    for _ in range(count):
        loss = LOSSES[rng.integers(3)]
        clip = None if rng.uniform() < 0.3 else rng.uniform(0.5, 2)
        margin = rng.uniform(0.1, 0.9) if loss == "triplet" else None
        configs.append(
            {"loss": loss, "rate": 10 ** rng.uniform(-6, -3), "clip": clip, "margin": margin}
        )
    return configs


def test_main_effects_equal_brute_force_over_a_grid():
    rng = np.random.default_rng(0)
    axes = axes_of(random_configs(rng, 60), ("loss", "rate", "clip"))
    assert [axis.is_levels for axis in axes] == [True, False, False]
    scores = (
        0.1 * axes[0].places
        + np.sin(3 * axes[1].places) * (axes[2].places < 0)
        + rng.normal(0, 0.02, 60)
    )
    surface = Surface(axes, scores)
    shape = [len(axis.cells) for axis in axes]
    grid = np.meshgrid(*[axis.cells for axis in axes], indexing="ij")
    parts = zip(*[np.array_split(coordinates.ravel(), 200) for coordinates in grid], strict=True)
    means = np.concatenate([surface.at(part) for part in parts])
    for number, (axis, effect) in enumerate(zip(axes, surface.main_effects(), strict=True)):
        along = np.moveaxis(means.reshape(shape), number, 0)
        for other in (*axes[:number], *axes[number + 1 :]):
            along = np.tensordot(along, other.weights, (1, 0))
        center = axis.weights @ along
        assert effect == pytest.approx(axis.weights @ (along - center) ** 2, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_main_effects_approximate_sobols_g_function(seed):
    """The main effect of x_j on prod (|4 x_j - 2| + a_j) / (1 + a_j) has the variance 1 / (3 (1 + a_j)^2)."""
    rng = np.random.default_rng(seed)
    strengths = np.array([0.5, 1.0, 2.0, 4.0, 9.0])
    values = rng.uniform(size=(250, 5))
    scores = ((np.abs(4 * values - 2) + strengths) / (1 + strengths)).prod(axis=1) + rng.normal(
        0, 0.05, 250
    )
    # no range of a factor of 10
    configs = [dict(zip("abcde", row, strict=True)) for row in (1 + values).tolist()]
    effects = main_effects(axes_of(configs, "abcde"), scores)
    expected = 1 / (3 * (1 + strengths) ** 2)
    np.testing.assert_allclose(effects / effects.sum(), expected / expected.sum(), atol=0.06)
    assert np.argsort(-effects).tolist() == [0, 1, 2, 3, 4]


def test_surface_predicts_unseen_configurations_better_than_trees():
    from sklearn.ensemble import GradientBoostingRegressor

    better = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        axes = axes_of(random_configs(rng, 300), ("loss", "rate", "clip", "margin"))
        by_loss = rng.normal(size=3)[axes[0].places.astype(int)]
        rises = rng.normal(size=3)[axes[0].places.astype(int)]
        truth = (
            by_loss + (1 + 0.3 * rises) * np.sin(4 * axes[1].places) + 0.5 * (axes[2].places < 0)
        )
        scores = truth + rng.normal(0, 0.3, 300)
        seen, unseen = slice(0, 200), slice(200, 300)
        part = [dataclasses.replace(axis, places=axis.places[seen]) for axis in axes]
        of_surface = Surface(part, scores[seen]).at([axis.places[unseen] for axis in axes])
        table = np.column_stack([axis.places for axis in axes])
        trees = GradientBoostingRegressor(
            n_estimators=200, learning_rate=0.05, max_depth=4, min_samples_leaf=3, subsample=0.5
        )
        of_trees = (
            trees.set_params(random_state=seed)
            .fit(table[seen], scores[seen])
            .predict(table[unseen])
        )
        errors = [
            np.square(predicted - truth[unseen]).mean() for predicted in (of_surface, of_trees)
        ]
        better += errors[0] < 0.7 * errors[1]
    assert better >= 4


def test_many_configurations_are_subsampled(monkeypatch):
    monkeypatch.setattr(response_surface, "MAX_USED", 300)
    monkeypatch.setattr(response_surface, "MAX_TRIED", 150)
    rng = np.random.default_rng(1)
    values = rng.uniform(1, 2, size=(2000, 3))
    configs = [dict(zip("abc", row, strict=True)) for row in values.tolist()]
    scores = values @ [3.0, 2.0, 1.0] + rng.normal(0, 0.1, 2000)
    effects = main_effects(axes_of(configs, "abc"), scores)
    assert effects / effects.sum() == pytest.approx([9 / 14, 4 / 14, 1 / 14], abs=0.03)
    assert main_effects(axes_of(configs, "abc"), scores).tolist() == effects.tolist()


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_noise_free_scores_and_repeated_configurations_are_stable(noise):
    configs = [
        dict(zip("ab", pair, strict=True)) for pair in itertools.product(range(4), range(3))
    ] * 4
    rng = np.random.default_rng(0)
    scores = np.array([0.1 * config["a"] + 0.05 * config["b"] for config in configs]) + rng.normal(
        0, noise, len(configs)
    )
    effects = main_effects(axes_of(configs, "ab"), scores)
    assert effects == pytest.approx([0.01 * 15 / 12, 0.0025 * 8 / 12], rel=0.01)


def test_equal_scores_have_no_effects():
    axes = axes_of([{"a": place} for place in (0.1, 0.2, 0.3, 0.4, 0.55)], "a")
    assert main_effects(axes, np.full(5, 0.1) + np.array([0, 0, 0, 0, 1e-16])).tolist() == [0]
