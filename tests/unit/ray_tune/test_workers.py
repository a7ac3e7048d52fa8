"""What a trial of a sweep needs of a node's memory. No Ray is started."""

from pathlib import Path

from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders.locate import locate_same
from raysweep.encoders.size import EncoderSize
from raysweep.ray_tune.workers import needed_by_trial
from support.sweeps import settings

MIB = 2**20


def smoke(folder: Path, **overrides: str) -> Space:
    _, space = settings(folder, "smoke", space__examples_per_rung="64", **overrides)
    return space


def test_memory_is_that_of_the_most_demanding_trial(
    tiny_prepared: Prepared, tmp_path: Path
) -> None:
    small_bytes = needed_by_trial(tiny_prepared, smoke(tmp_path, space__batch_size="8"), 0)
    several = needed_by_trial(
        tiny_prepared, smoke(tmp_path, space__batch_size="{choices: [8, 64]}"), 0
    )
    largest = needed_by_trial(tiny_prepared, smoke(tmp_path, space__batch_size="64"), 0)
    assert 450 * MIB < small_bytes < several == largest


def test_memory_of_averages_and_second_passes(tiny_prepared: Prepared, tmp_path: Path) -> None:
    softmax = {"space__loss": "softmax", "space__batch_size": "64"}
    plain_bytes = needed_by_trial(tiny_prepared, smoke(tmp_path, **softmax), 0)
    averaged = needed_by_trial(
        tiny_prepared, smoke(tmp_path, **softmax, space__average_decay="0.9"), 0
    )
    source = locate_same(EncoderConfig(**tiny_prepared.model), tiny_prepared.model_identity)
    assert averaged - plain_bytes == EncoderSize.of(source.folder).weights_bytes
    either = "{choices: [0.0, 1.0]}"
    twice = needed_by_trial(
        tiny_prepared, smoke(tmp_path, **softmax, space__consistency_weight=either), 0
    )
    doubled = needed_by_trial(
        tiny_prepared, smoke(tmp_path, **{**softmax, "space__batch_size": "128"}), 0
    )
    assert plain_bytes < twice == doubled


def test_memory_of_separate_encoders(tiny_prepared: Prepared, tmp_path: Path) -> None:
    """Weights, gradients, the optimizer's state, averages and a checkpoint exist twice; the initial weights are shared."""
    averaged = {"space__loss": "triplet", "space__average_decay": "0.9"}
    towers = ("both", "query", "separate", "{choices: [both, query, separate]}")
    both, query, separate, any_tower = (
        needed_by_trial(tiny_prepared, smoke(tmp_path, space__tower=tower, **averaged), 0)
        for tower in towers
    )
    source = locate_same(EncoderConfig(**tiny_prepared.model), tiny_prepared.model_identity)
    assert (
        query
        == both
        < separate
        == any_tower
        == both + 6 * EncoderSize.of(source.folder).weights_bytes
    )


def test_cache_counts_up_to_the_states_of_all_sentences(
    tiny_prepared: Prepared, tmp_path: Path
) -> None:
    uncached_bytes = needed_by_trial(tiny_prepared, smoke(tmp_path), 0)
    assert needed_by_trial(tiny_prepared, smoke(tmp_path), 1000) == uncached_bytes + 1000
    filled = needed_by_trial(tiny_prepared, smoke(tmp_path), 2**40)
    assert uncached_bytes < filled < uncached_bytes + 100 * MIB
