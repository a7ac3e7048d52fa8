"""The sampler that learns from trials at several training budgets."""

import math

import numpy as np

from raysweep.config.space import Choices, Fixed, Range, Space
from raysweep.search.mfgp import NUM_STARTUP_TRIALS, MultiFidelitySampler
from support.landscape import MIXED as SPACE


def quality(params: dict[str, object]) -> float:
    """Best at a learning rate of 1e-4, with loss a and a large margin."""
    rate, margin = float(params["learning_rate"]), float(params.get("loss=a.margin", 0.1))  # type: ignore[arg-type]
    loss = {"a": 1.0, "b": 0.7, "c": 0.5}[str(params["loss"])]
    return loss * math.exp(-((math.log10(rate) + 4) ** 2)) * (1 + 0.3 * math.log10(margin))


def searched(seed: int, num_trials: int) -> list[float]:
    """The quality of each trial; every fourth goes on to twice and four times the budget."""
    model, random = MultiFidelitySampler(SPACE, seed), np.random.default_rng(seed)
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
    later = [np.mean(searched(seed, 40)[NUM_STARTUP_TRIALS:]) for seed in range(5)]
    early = [np.mean(searched(seed, 40)[:NUM_STARTUP_TRIALS]) for seed in range(5)]
    assert min(later) > 2.5 * np.mean(early)
    assert np.median([max(searched(seed, 40)) for seed in range(5)]) > 0.9


def test_the_first_trials_try_every_choice_alike() -> None:
    model, losses = MultiFidelitySampler(SPACE, 5), []
    for number in range(6):
        params = model.propose()
        assert params is not None
        losses.append(params["loss"])
        model.begin(number, params)
    assert sorted(losses) == ["a", "a", "b", "b", "c", "c"]


def test_the_same_calls_give_the_same_proposals() -> None:
    assert searched(3, 20) == searched(3, 20) != searched(4, 20)


def test_where_trials_fail_it_does_not_stay() -> None:
    model, failed = MultiFidelitySampler(SPACE, 0), 0
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
    model, random = MultiFidelitySampler(space, 0), np.random.default_rng(0)
    every = space.grid()
    for number, params in enumerate(every[:NUM_STARTUP_TRIALS]):
        model.begin(number, params)
        model.report(number, 100, random.random())
    proposed = []
    while (params := model.propose()) is not None:
        number = NUM_STARTUP_TRIALS + len(proposed)
        model.begin(number, params)
        proposed.append(params)
    assert sorted(map(str, proposed)) == sorted(map(str, every[NUM_STARTUP_TRIALS:]))


def test_a_space_without_choices_is_left_to_the_study() -> None:
    model = MultiFidelitySampler(Space({"loss": Fixed("a")}), 0)
    for number in range(20):
        assert model.propose() == (None if number else {})
        model.begin(number, {})
        model.report(number, 100, 1.0)


def test_values_below_zero_tell_how_far_a_trial_misses() -> None:
    model = MultiFidelitySampler(Space({"x": Range(0, 1, False, False)}), 0)
    for number in range(12):
        model.begin(number, {"x": number / 11})
        model.report(number, 100, number / 11 - 2)
    nearest = [model.propose() for _ in range(5)]
    assert min(params["x"] for params in nearest if params) > 0.7


def best_of_bowl(seed: int) -> float:
    """After 60 trials, 1 being the greatest value there is."""
    space = Space({f"x{axis}": Range(0, 1, False, False) for axis in range(4)})
    model, best = MultiFidelitySampler(space, seed), 0.0
    for number in range(60):
        params = model.propose()
        assert params is not None
        model.begin(number, params)
        value = 1 - sum((float(x) - 0.3) ** 2 for x in params.values())
        model.report(number, 1, value)
        best = max(best, value)
    return best


def test_it_comes_to_an_optimum_and_not_only_near_it() -> None:
    """The best of 60 random points has a median of 0.953, of a thousand 0.988."""
    assert np.median([best_of_bowl(seed) for seed in range(5)]) > 0.995


def test_what_is_best_may_change_with_the_budget() -> None:
    """At the smallest budget 0.9 is best, after three doublings 0.3; one trial in four goes on so far."""

    def value(x: float, doublings: int) -> float:
        return 1 + 0.2 * doublings - (x - 0.9 + 0.2 * doublings) ** 2

    last = []
    for seed in range(5):
        model = MultiFidelitySampler(Space({"x": Range(0, 1, False, False)}), seed)
        for number in range(40):
            params = model.propose()
            assert params is not None
            model.begin(number, params)
            for doublings in range(1 if number % 4 else 4):
                model.report(number, 2**doublings, value(float(params["x"]), doublings))
        proposed = model.propose()
        assert proposed is not None
        last.append(proposed["x"])
    assert abs(np.median(last) - 0.3) < 0.1
