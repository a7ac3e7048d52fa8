"""What ``expected_growth`` claims, on made learning curves with noise, in small: benchmarks/stopping_quality.py has it in full."""

import statistics

import numpy as np

from benchmarks import stopping_quality
from benchmarks.made_curves import FAMILIES, NUM_RUNGS, Curves, slow_starter


def test_few_rungs_go_to_trials_that_add_nothing_while_new_ones_wait() -> None:
    shares = []
    for seed, family in enumerate(FAMILIES):
        played = stopping_quality.play("expected_growth", Curves(family, seed), seed, budget=200)
        assert played.num_waited == 200
        assert played.num_continued > 10
        shares.append(played.num_wasted / played.num_waited)
    assert statistics.median(shares) < 0.15


def test_a_slow_starter_among_the_trials_is_run_to_its_end() -> None:
    rungs = []
    for seed, family in enumerate(FAMILIES):
        curves = Curves(family, seed)
        curves.planted[7] = slow_starter(np.random.default_rng(seed))
        played = stopping_quality.play("expected_growth", curves, seed, num_trials=25)
        assert len(played.num_rungs) == 25
        rungs.append(played.num_rungs[7])
    assert statistics.median(rungs) == NUM_RUNGS
