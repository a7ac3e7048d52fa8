"""The Gaussian process over configurations and training budgets."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.space import Choices, Fixed, Range, Space
from raysweep.search import mfgp
from raysweep.search.encoding import RandomSuggester, axes
from raysweep.search.gaussian_process import KernelParams, TrainingSet
from raysweep.search.mfgp import Surrogate

SPACE = Space(
    {
        "loss": Choices({"a": {"margin": Range(0.01, 1.0, True, False)}, "b": {"scale": Range(5, 50, False, True)}, "c": {}}),
        "learning_rate": Range(1e-6, 1e-3, True, False),
        "freezing": Choices({"emb+B0": {}, "none": {}, "emb+B0-10": {}, "emb+B0-2": {}}),
        "batch_size": Choices({32: {}, 128: {}, 64: {}}),
        "warmup_fraction": Choices({0.0: {}, 0.1: {}, 0.2: {}}),
        "optimizer": Fixed("adamw"),
    }
)  # fmt: skip


def test_parameters_are_seen_by_what_they_are() -> None:
    seen = {axis.name: axis for axis in axes(SPACE.parameters, "")}
    assert list(seen) == [
        "loss", "loss=a.margin", "loss=b.scale", "learning_rate", "freezing", "batch_size", "warmup_fraction"
    ]  # fmt: skip
    assert [axis.name for axis in seen.values() if axis.unlike] == ["loss"]
    assert seen["learning_rate"].code({"learning_rate": 10**-4.5}) == pytest.approx(0.5)
    assert seen["loss=a.margin"].code({"loss": "b"}) == 0.5  # absent: in the middle
    assert seen["loss=b.scale"].code({"loss=b.scale": 14}) == pytest.approx(0.2)
    depths = [seen["freezing"].code({"freezing": level}) for level in ("none", "emb+B0", "emb+B0-2", "emb+B0-10")]
    assert depths == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [seen["batch_size"].code({"batch_size": size}) for size in (32, 64, 128)] == pytest.approx([0, 0.5, 1])
    assert seen["warmup_fraction"].code({"warmup_fraction": 0.1}) == pytest.approx(0.5)


@given(st.integers(0, 1000))
def test_what_is_drawn_lies_in_the_space(seed: int) -> None:
    drawn = RandomSuggester(np.random.default_rng(seed))
    values = SPACE.draw(drawn)
    assert SPACE.recall(values).params == drawn.params


def test_whole_numbers_are_drawn_evenly() -> None:
    drawn = RandomSuggester(np.random.default_rng(0))
    counts = np.bincount([drawn.suggest_int("x", 1, 4) for _ in range(4000)])
    assert counts[0] == 0 and len(counts) == 5 and counts[1:].min() > 900


def covariance(one: tuple[np.ndarray, float], other: tuple[np.ndarray, float], chosen: KernelParams) -> float:
    """Of two worths, from the model as the module states it: f(x) (1 + s r) + c r."""
    (x, r), (y, q) = one, other
    single = [math.exp(-0.5 * w * (a - b) ** 2) for w, a, b in zip(chosen.precisions, x, y, strict=True)]
    kernel = math.prod(single) + sum(a * k for a, k in zip(chosen.shares, single, strict=True))
    s = chosen.slope
    return kernel * (1 + s * r) * (1 + s * q) + s * r * s * q


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_predictions_are_those_of_the_joint_normal_distribution(seed: int, num_waiting: int) -> None:
    random = np.random.default_rng(seed)
    model = Surrogate(Space({"a": Range(0, 1, False, False), "b": Range(0, 1, False, False)}), seed)
    chosen = KernelParams.draw(random, 2)
    rows, ahead = random.random((4, 2)), random.random((num_waiting + 3, 2))
    index, doublings = np.array([0, 0, 1, 2, 3, 3]), np.array([0.0, 2.0, 0.0, 0.0, 0.0, 1.0])
    values = random.normal(size=6)
    # Let the one setting be all that the model has: new ones weigh nothing against it.
    model._settings = [chosen]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mfgp, "TRIES", 0)
        mean, deviation = model._predict(TrainingSet(rows, index, doublings, values, 2.5), ahead, num_waiting)

    at = [*((rows[i], r) for i, r in zip(index, doublings, strict=True)), *((x, 2.5) for x in ahead)]
    joint = np.array([[covariance(one, other, chosen) for other in at] for one in at])
    kernel = 1 + chosen.shares.sum()  # of a configuration with itself
    jitter = 1e-6 * np.mean(kernel * (1 + chosen.slope * doublings) ** 2)
    joint[:6, :6] += jitter * np.eye(6)
    for i in range(6):
        for j in range(6):
            joint[i, j] += 0.5 * chosen.noise * (index[i] == index[j]) + 0.5 * chosen.noise * (i == j)
    for i in range(6, 6 + num_waiting):
        joint[i, i] += chosen.noise
    inverse = np.linalg.inv(joint[:6, :6])
    at_ahead = 6 + num_waiting
    assert mean == pytest.approx(joint[at_ahead:, :6] @ inverse @ values, abs=1e-5)
    inverse = np.linalg.inv(joint[:at_ahead, :at_ahead])
    cross = joint[at_ahead:, :at_ahead]
    assert deviation**2 == pytest.approx(np.diag(joint[at_ahead:, at_ahead:] - cross @ inverse @ cross.T), abs=1e-5)


def quality(params: dict[str, object]) -> float:
    """Best at a learning rate of 1e-4, with loss a and a large margin."""
    rate, margin = float(params["learning_rate"]), float(params.get("loss=a.margin", 0.1))  # type: ignore[arg-type]
    loss = {"a": 1.0, "b": 0.7, "c": 0.5}[str(params["loss"])]
    return loss * math.exp(-((math.log10(rate) + 4) ** 2)) * (1 + 0.3 * math.log10(margin))


def searched(seed: int, num_trials: int) -> list[float]:
    """The quality of each trial; every fourth goes on to twice and four times the budget."""
    model, random = Surrogate(SPACE, seed), np.random.default_rng(seed)
    found = []
    for number in range(num_trials):
        params = model.propose()
        assert params is not None
        model.begin(number, params)
        found.append(quality(params))
        for doubling in range(1 if number % 4 else 3):
            model.report(number, 100 * 2**doubling, found[-1] * (1 + doubling) + 0.02 * random.normal())
    return found


def test_it_finds_what_is_best_sooner_than_chance() -> None:
    later = [np.mean(searched(seed, 40)[mfgp.STARTUP :]) for seed in range(5)]
    early = [np.mean(searched(seed, 40)[: mfgp.STARTUP]) for seed in range(5)]
    assert min(later) > 2.5 * np.mean(early)
    assert np.median([max(searched(seed, 40)) for seed in range(5)]) > 0.9


def test_the_first_trials_try_every_choice_alike() -> None:
    model, losses = Surrogate(SPACE, 5), []
    for number in range(6):
        params = model.propose()
        assert params is not None
        losses.append(params["loss"])
        model.begin(number, params)
    assert sorted(losses) == ["a", "a", "b", "b", "c", "c"]


def test_the_same_calls_give_the_same_proposals() -> None:
    assert searched(3, 20) == searched(3, 20) != searched(4, 20)


def test_where_trials_fail_it_does_not_stay() -> None:
    model, failed = Surrogate(SPACE, 0), 0
    for number in range(60):
        params = model.propose()
        assert params is not None
        model.begin(number, params)
        if params["learning_rate"] > 1e-5:  # where quality would rise further
            model.fail(number)
            failed += number >= 40
        else:
            model.report(number, 100, quality(params))
    assert failed < 10


def test_nothing_is_proposed_twice_nor_once_all_was_tried() -> None:
    space = Space(
        {"loss": Choices({"a": {}, "b": {}}), "batch_size": Choices({size: {} for size in (8, 16, 32, 64, 128, 256)})}
    )
    model, random = Surrogate(space, 0), np.random.default_rng(0)
    every = space.grid()
    for number, params in enumerate(every[: mfgp.STARTUP]):
        model.begin(number, params)
        model.report(number, 100, random.random())
    proposed = []
    while (params := model.propose()) is not None:
        number = mfgp.STARTUP + len(proposed)
        model.begin(number, params)
        proposed.append(params)
    assert sorted(map(str, proposed)) == sorted(map(str, every[mfgp.STARTUP :]))


def test_a_space_without_choices_is_left_to_the_study() -> None:
    model = Surrogate(Space({"loss": Fixed("a")}), 0)
    for number in range(20):
        assert model.propose() == (None if number else {})
        model.begin(number, {})
        model.report(number, 100, 1.0)


def test_a_parameter_of_a_recorded_table_may_be_called_freezing() -> None:
    for options in (("full", "half"), (True, False), ("none", "whole")):
        (axis,) = axes({"freezing": Choices({key: {} for key in options})}, "")
        assert axis.unlike


def test_values_below_zero_tell_how_far_a_trial_misses() -> None:
    model = Surrogate(Space({"x": Range(0, 1, False, False)}), 0)
    for number in range(12):
        model.begin(number, {"x": number / 11})
        model.report(number, 100, number / 11 - 2)
    nearest = [model.propose() for _ in range(5)]
    assert min(params["x"] for params in nearest if params) > 0.7
