"""A trial that is resumed after its first rung."""

from pathlib import Path

import numpy as np

from raysweep.config.trial import TrialConfig
from raysweep.training.trial import rungs
from raysweep.training.workbench import Workbench


def check_resumed_trial(config: TrialConfig, bench: Workbench, checkpoints: Path) -> None:
    """Check that a trial of two rungs that is resumed after the first one equals an uninterrupted one to the bit."""
    uninterrupted = list(rungs(config, bench, seed=3, num_rungs=2))
    next(iter(rungs(config, bench, seed=3, num_rungs=2, checkpoints=checkpoints)))
    bench.reset()
    resumed = list(rungs(config, bench, seed=3, num_rungs=2, checkpoints=checkpoints))
    assert [rung.loss for rung in resumed] == [rung.loss for rung in uninterrupted]
    for key, scores in uninterrupted[-1].points.items():
        for name, values in scores.named.items():
            np.testing.assert_array_equal(resumed[-1].points[key][name], values)
