"""The adiabatic range of made trials whose changes are planted."""

import numpy as np
import pytest

from raysweep.config.sweep import EncoderConfig
from raysweep.data.relations import Relations, RelationsBuilder
from raysweep.evaluation.measures import DataMeasures, Measured
from raysweep.evaluation.watched import AdiabaticRange, TunedTrial, WatchedSet, WatchedTrial, adiabatic_range
from raysweep.metrics.closeness import GEOMETRIES

NUM_QUERIES = 60


def made_relations(name: str) -> Relations:
    builder = RelationsBuilder(name, "retrieval")
    for query in range(NUM_QUERIES):
        group = builder.group(query, f"query {query}")
        for number in range(20):
            builder.add(group, f"query {query}", [f"{query}, {number}"], is_positive=number % 2 == 0)
    return builder.build()


def made_set(name: str, rng: np.random.Generator, before: float, after: float) -> WatchedSet:
    """Return a set whose positives are closer by ``before`` and ``after`` deviations of the common noise."""
    relations = made_relations(name)
    noise = rng.normal(size=len(relations.first))
    base, tuned = (
        dict.fromkeys(GEOMETRIES, Measured(relations, noise + shift * relations.is_positive))
        for shift in (before, after)
    )
    return WatchedSet(DataMeasures(relations, tuned, base), seed=0)


def made_trial(rate: float, seed: int, target: float, worse: float, better: float) -> WatchedTrial:
    rng = np.random.default_rng(seed)
    trial = TunedTrial(0, 1, rate, "both", EncoderConfig(name="demo"), lambda: pytest.fail("not needed"))
    watched = [
        made_set("fixed", rng, 1.0, 1.0),
        made_set("worse", rng, 1.0, 1.0 - worse),
        made_set("better", rng, 1.0, 1.0 + better),
    ]
    return WatchedTrial(trial, made_set("target", rng, 1.0, 1.0 + target), watched)


@pytest.mark.parametrize("seed", range(20))
def test_planted_changes_are_classified(seed: int) -> None:
    trial = made_trial(1e-5, seed, target=0.5, worse=0.5, better=0.5)
    assert trial.target.whole("cosine").verdict == "improved"
    assert [watched.whole("cosine").verdict for watched in trial.watched] == ["unchanged", "worsened", "improved"]
    assert trial.worsened("cosine") == ["worse"]


def test_range_has_the_rates_at_which_the_target_improves_and_nothing_worsens() -> None:
    trials = [
        made_trial(1e-5, 0, target=0.5, worse=0.5, better=0.0),
        made_trial(1e-7, 1, target=0.5, worse=0.0, better=0.0),
        made_trial(1e-8, 2, target=0.0, worse=0.0, better=0.0),
        made_trial(1e-6, 3, target=0.5, worse=0.0, better=0.5),
    ]
    assert adiabatic_range(trials, "cosine") == AdiabaticRange([1e-7, 1e-6], [1e-8, 1e-7, 1e-6, 1e-5])


@pytest.mark.parametrize(
    ("target", "worse", "reason"),
    [
        (0.5, 0.5, "at the learning rate 1e-07, PND rises first: worse"),
        (0.0, 0.0, "the target improves significantly at no"),
    ],
)
def test_reason_for_an_empty_range(target: float, worse: float, reason: str) -> None:
    trials = [made_trial(rate, 5, target, worse, 0.0) for rate in (1e-6, 1e-7)]
    found = adiabatic_range(trials, "cosine")
    assert found.rates == []
    assert found.reason.startswith(reason)
