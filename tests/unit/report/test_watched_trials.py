"""The adiabatic range of made trials whose changes are planted."""

from dataclasses import replace

import numpy as np
import pytest

from raysweep.data.relations import Relations, RelationsBuilder
from raysweep.evaluation.measures import Measured
from raysweep.evaluation.watched import WatchedRelations
from raysweep.metrics.closeness import GEOMETRIES
from raysweep.report.watched_trials import AdiabaticRange, adiabatic_range, worsened
from raysweep.results.watched import WatchedRung

NUM_QUERIES = 60


def made_relations(name: str) -> Relations:
    builder = RelationsBuilder(name, "retrieval")
    for query in range(NUM_QUERIES):
        group = builder.group(query, f"query {query}")
        for number in range(20):
            builder.add(
                group, f"query {query}", [f"{query}, {number}"], is_positive=number % 2 == 0
            )
    return builder.build()


def made_trial(rate: float, seed: int, target: float, worse: float, better: float) -> WatchedRung:
    """Return a rung after which the positives of four sets are closer or farther, in deviations of the common noise."""
    rng = np.random.default_rng(seed)
    shifts = {"target": target, "fixed": 0.0, "worse": -worse, "better": better}
    relations = [made_relations(name) for name in shifts]
    base, tuned = [], []
    for made, shift in zip(relations, shifts.values(), strict=True):
        noise = rng.normal(size=len(made.first))
        base.append(dict.fromkeys(GEOMETRIES, Measured(made, noise + made.is_positive)))
        tuned.append(
            dict.fromkeys(GEOMETRIES, Measured(made, noise + (1 + shift) * made.is_positive))
        )
    watched = WatchedRelations(relations, has_target=True, seed=0).compare(tuned, base)
    return WatchedRung(0, 1, replace(watched, learning_rate=rate))


@pytest.mark.parametrize("seed", range(20))
def test_planted_changes_are_classified(seed: int) -> None:
    trial = made_trial(1e-5, seed, target=0.5, worse=0.5, better=0.5)
    watched = trial.watched
    assert watched.target is not None and watched.target.whole_by("cosine").verdict == "improved"
    assert [found.whole_by("cosine").verdict for found in watched.sets] == [
        "unchanged",
        "worsened",
        "improved",
    ]
    assert worsened(watched, "cosine") == ["worse"]


def test_range_has_the_rates_at_which_the_target_improves_and_nothing_worsens() -> None:
    trials = [
        made_trial(1e-5, 0, target=0.5, worse=0.5, better=0.0),
        made_trial(1e-7, 1, target=0.5, worse=0.0, better=0.0),
        made_trial(1e-8, 2, target=0.0, worse=0.0, better=0.0),
        made_trial(1e-6, 3, target=0.5, worse=0.0, better=0.5),
    ]
    assert adiabatic_range(trials, "cosine") == AdiabaticRange(
        [1e-7, 1e-6], [1e-8, 1e-7, 1e-6, 1e-5]
    )


@pytest.mark.parametrize(
    ("target", "worse", "reason"),
    [
        (0.5, 0.5, "PND already rises significantly at learning rate 1e-07, on worse"),
        (0.0, 0.0, "the target does not improve"),
    ],
)
def test_reason_for_an_empty_range(target: float, worse: float, reason: str) -> None:
    trials = [made_trial(rate, 5, target, worse, 0.0) for rate in (1e-6, 1e-7)]
    found = adiabatic_range(trials, "cosine")
    assert found is not None and found.rates == []
    assert found.reason.startswith(reason)
