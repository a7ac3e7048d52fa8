"""What a trial of a sweep needs of a node's memory. No Ray is started."""

from pathlib import Path

from raysweep.config.space import Space
from raysweep.data.prepared import Prepared
from raysweep.runner.memory import needed_by_trial
from support.sweeps import settings

MIB = 2**20


def smoke(folder: Path, **overrides: str) -> Space:
    _, space = settings(folder, "smoke", space__examples_per_rung="64", **overrides)
    return space


def test_the_most_demanding_trial_counts(tiny_prepared: Prepared, tmp_path: Path) -> None:
    one = needed_by_trial(tiny_prepared, smoke(tmp_path, space__batch_size="8"), 0)
    several = needed_by_trial(tiny_prepared, smoke(tmp_path, space__batch_size="{choices: [8, 64]}"), 0)
    largest = needed_by_trial(tiny_prepared, smoke(tmp_path, space__batch_size="64"), 0)
    assert 450 * MIB < one < several == largest


def test_a_cache_counts_as_far_as_sentences_can_fill_it(tiny_prepared: Prepared, tmp_path: Path) -> None:
    without = needed_by_trial(tiny_prepared, smoke(tmp_path), 0)
    assert needed_by_trial(tiny_prepared, smoke(tmp_path), 1000) == without + 1000
    filled = needed_by_trial(tiny_prepared, smoke(tmp_path), 2**40)
    assert without < filled < without + 100 * MIB
