"""A short version of ``benchmarks.calibration`` with few simulated sweeps, which detects gross errors only."""

import numpy as np
import pytest

from benchmarks import calibration
from benchmarks.simulated_scores import Encoders, Queries, trial_scores

SMALL = calibration.SETTINGS[1]


@pytest.mark.parametrize("case", ["queries", "2 runs"])
def test_intervals_cover_the_truth_at_their_level(case: str) -> None:
    coverage, _ = calibration.play(case, SMALL, sweeps=20, seed=0)
    for name in ("P", "S", "retention"):
        assert coverage[name] == pytest.approx(0.9, abs=0.08), name
    for name in ("hypervolume", "share"):
        assert coverage[name] >= 0.7, name  # 14 of 20 or fewer once in a hundred times


def test_areas_of_selected_runs_are_covered_on_both_splits() -> None:
    """The report reads the replicates. Intervals without seed noise would cover at most a third of the areas."""
    coverage, _ = calibration.play("3 runs, selected", SMALL, sweeps=12, seed=0)
    for split in ("dev", "test"):
        for name in ("hypervolume", "share"):
            # 6 of 12 or fewer once in a thousand times
            assert coverage[f"on {split}: {name}"] > 0.55, (
                split,
                name,
            )
    assert coverage["on test by queries alone: hypervolume"] < 0.7


def test_simulated_scores_have_the_stated_means() -> None:
    rng = np.random.default_rng(0)
    numbers = np.repeat(np.arange(3), 4)
    encoders = Encoders.of_scores(SMALL, trial_scores(SMALL, 3, 4, rng), numbers, SMALL.shared)
    drawn = [Queries.draw(SMALL, 3, rng).scores(encoders, rng).mean(axis=-1) for _ in range(200)]
    errors = np.std(drawn, axis=0) / np.sqrt(len(drawn))
    assert np.all(np.abs(np.mean(drawn, axis=0) - encoders.truth) < 4 * errors)
    moves = np.full(12, 0.5)
    by_seed = [encoders.moved(0.5 * rng.normal(size=12), np.zeros(12)).truth for _ in range(4000)]
    errors = np.std(by_seed, axis=0) / np.sqrt(len(by_seed))
    assert np.all(
        np.abs(np.mean(by_seed, axis=0) - encoders.over_seeds(moves)) <= 4 * errors + 1e-12
    )
