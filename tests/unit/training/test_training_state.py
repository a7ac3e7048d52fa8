"""A trial that was interrupted and goes on from its checkpoint is the uninterrupted trial, to the bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch

from raysweep.config.sweep import PointsConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.results.types import RungProgress
from raysweep.training import checkpoint, training_state
from raysweep.training.trainer import Training
from raysweep.training.trial import Intervals, rungs, rungs_and_progress
from raysweep.training.workbench import RungResult, Workbench
from support.encoders import EVALUATION, trial
from support.paths import TESTS

SEED, NUM_RUNGS = 5, 3
# With dropout, which is on unless turned off. A rung's last batch is smaller than the others.
CONFIGS = {
    "triplet, adamw": trial(learning_rate=1e-3),
    "softmax, adamax, emb+B0": trial(
        loss="softmax", optimizer="adamax", learning_rate=1e-3, freezing="emb+B0", examples_per_rung=60
    ),
    "adadelta, a sample and an optimizer for each rung": trial(
        optimizer="adadelta", learning_rate=1.0, resample_each_rung=True, fresh_optimizer=True
    ),
    "softmax, averaged weights, two passes, smoothed labels, rates that decay by layer": trial(
        loss="softmax",
        learning_rate=1e-3,
        average_decay=0.7,
        consistency_weight=1.0,
        label_smoothing=0.1,
        layer_decay=0.6,
        idle_rungs=3,
    ),
    "sgd, momentum, accumulated": trial(optimizer="sgd", momentum=0.9, learning_rate=0.05, accumulation_steps=2),
}


@pytest.fixture(scope="module")
def fresh(tiny_prepared: Prepared) -> Any:
    """Workbenches as new processes have them."""
    points = PointsConfig(labeled=[0.3])
    return lambda: Workbench(tiny_prepared, EVALUATION.model_copy(update={"points": points}))


def state(bench: Workbench) -> dict[str, np.ndarray]:
    weights = {name: value.numpy().copy() for name, value in bench.model.state_dict().items()}
    if bench.head is None:
        return weights
    temperature = np.array(bench.head.temperature)
    return weights | {"head": bench.head.weight, "bias": bench.head.bias, "temperature": temperature}


def same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def bits(results: Iterable[RungResult]) -> list[Any]:
    """All of a result but its times."""
    return [
        (
            *(rung.step, rung.examples_seen, rung.loss.hex(), rung.stop, rung.calibration),
            *(
                (key, each.polarity.tobytes(), each.similarity.tobytes())
                for key, each in (*rung.points.items(), *rung.labeled.items())
            ),
        )
        for rung in results
    ]


def play(config: TrialConfig, bench: Workbench, folder: Path | None = None, **options: Any) -> Iterable[RungResult]:
    return rungs(config, bench, seed=SEED, num_rungs=NUM_RUNGS, checkpoints=folder, **options)


@pytest.fixture(scope="module", params=CONFIGS)
def case(request: pytest.FixtureRequest, fresh: Any) -> tuple[TrialConfig, list[Any], dict[str, np.ndarray]]:
    """A configuration, and the results and weights of its uninterrupted trial."""
    bench = fresh()
    results = bits(play(CONFIGS[request.param], bench))
    assert len({rung[2] for rung in results}) == NUM_RUNGS
    return CONFIGS[request.param], results, state(bench)


@pytest.mark.parametrize("seconds", [300.0, 0.0])
def test_interrupted_at_the_end_of_a_rung(case: Any, fresh: Any, tmp_path: Path, seconds: float) -> None:
    """Its result may not have arrived anywhere, so it comes again, with the weights behind it."""
    config, whole, weights = case
    before, after = fresh(), fresh()
    first = play(config, before, tmp_path, checkpoint_seconds=seconds)
    assert bits([next(first), next(first)]) == whole[:2]
    second = play(config, after, tmp_path, checkpoint_seconds=seconds)
    assert bits([next(second)]) == whole[1:2]
    assert same_state(state(after), state(before))
    assert bits(second) == whole[2:]
    assert same_state(state(after), weights)


def test_interrupted_within_a_rung(case: Any, fresh: Any, tmp_path: Path) -> None:
    config, whole, weights = case
    first = Training(config, fresh(), SEED, NUM_RUNGS)
    while not first.rung_is_full:
        first.step()
    last = first.evaluate()
    first.step()
    training_state.save(first, tmp_path, last)
    first.step()  # lost
    after = fresh()
    second = Training(config, after, SEED, NUM_RUNGS)
    restored = training_state.restore(second, tmp_path)
    assert restored is not None
    assert bits([restored]) == whole[:1]
    assert second.progress.rung == 1
    assert second.progress.seen_in_rung == config.batch_size * config.accumulation_steps
    # That rung was taken before, and the weights are no longer its own, so `rungs` does not repeat it.
    assert bits(play(config, after, tmp_path)) == whole[1:]
    assert same_state(state(after), weights)


def test_interrupted_before_the_first_rung_is_over(fresh: Any, tmp_path: Path) -> None:
    config = CONFIGS["triplet, adamw"]
    first = Training(config, fresh(), SEED, NUM_RUNGS)
    first.step()
    training_state.save(first, tmp_path, None)
    assert bits(play(config, fresh(), tmp_path)) == bits(play(config, fresh()))


def test_a_trial_that_leaves_has_lost_nothing(fresh: Any, tmp_path: Path) -> None:
    """Told within a rung that its node goes away, long before a checkpoint was due."""
    config = CONFIGS["triplet, adamw"]
    options: dict[str, Any] = {"seed": SEED, "num_rungs": NUM_RUNGS, "checkpoints": tmp_path}
    intervals = Intervals(progress_seconds=0.0)
    progress = next(rungs_and_progress(config, fresh(), intervals, leaves=lambda: True, **options))
    assert isinstance(progress, RungProgress)
    again = Training(config, fresh(), SEED, NUM_RUNGS)
    training_state.restore(again, tmp_path)
    assert again.progress.seen_in_rung == progress.num_seen
    assert bits(play(config, fresh(), tmp_path)) == bits(play(config, fresh()))


def test_a_finished_trial_only_repeats_its_last_rung(case: Any, fresh: Any, tmp_path: Path) -> None:
    config, whole, weights = case
    assert bits(play(config, fresh(), tmp_path)) == whole
    bench = fresh()
    assert bits(play(config, bench, tmp_path)) == whole[2:]
    assert same_state(state(bench), weights)


def test_times_add_up_without_the_pause(fresh: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS["triplet, adamw"]
    first = next(iter(play(config, fresh(), tmp_path)))
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 1000.0)  # as after a pause of so many seconds
    resumed = time.perf_counter()
    repeated, second, third = play(config, fresh(), tmp_path)
    assert (repeated.seconds, repeated.train_seconds) == (first.seconds, first.train_seconds)
    assert 0 < first.train_seconds < second.train_seconds < third.train_seconds < third.seconds
    assert first.seconds < second.seconds < third.seconds < first.seconds + time.perf_counter() - resumed


def test_the_next_trial_on_the_same_workbench_is_unaffected(fresh: Any, tmp_path: Path) -> None:
    """Of the same frozen part, whose cache the interrupted one filled with other batches."""
    other = trial(learning_rate=3e-3, freezing="emb+B0", loss="contrastive", dropout=0.3, examples_per_rung=60)
    config = CONFIGS["softmax, adamax, emb+B0"]
    bench = fresh()
    next(iter(play(other, bench, tmp_path)))
    assert Training(config, bench, SEED, NUM_RUNGS).prefix is Training(other, bench, SEED, NUM_RUNGS).prefix is not None
    resumed = play(other, bench, tmp_path)
    next(iter(resumed))
    assert bits(play(config, bench)) == bits(play(config, fresh()))


@pytest.mark.parametrize(("values", "seed"), [({"learning_rate": 2e-3}, SEED), ({"dropout": 0.1}, SEED), ({}, 6)])
def test_the_checkpoint_of_another_trial_is_refused(fresh: Any, tmp_path: Path, values: Any, seed: int) -> None:
    bench = fresh()
    first = Training(trial(learning_rate=1e-3), bench, SEED, NUM_RUNGS)
    training_state.save(first, tmp_path, None)
    with pytest.raises(InputError, match="another configuration, seed or number of rungs"):
        training_state.restore(Training(trial(**{"learning_rate": 1e-3, **values}), bench, seed, NUM_RUNGS), tmp_path)


def test_one_checkpoint_of_plain_files_remains(fresh: Any, tmp_path: Path) -> None:
    """Nothing of it is a pickle, nor what a killed process left half-written of any use."""
    folder = tmp_path / "trial"
    half = folder / ".0a1b2c3d"
    half.mkdir(parents=True)
    (half / "values.json").write_text("{")
    config = CONFIGS["softmax, adamax, emb+B0"]
    bench = fresh()
    training = Training(config, bench, SEED, NUM_RUNGS)
    assert training_state.restore(training, folder) is None
    assert checkpoint.load(tmp_path / "none") is None
    for _ in play(config, bench, folder, checkpoint_seconds=0.0):
        (kept,) = folder.iterdir()
        assert kept.name == f"{int(kept.name):09d}"
        assert {path.name for path in kept.iterdir()} == {"tensors", "values.json"}
        safetensors.torch.load_file(kept / "tensors")
        json.loads((kept / "values.json").read_text())
        assert not any(path.read_bytes().startswith(b"\x80") for path in kept.iterdir())


@pytest.mark.ray  # not that it needs any: a dozen processes take their time
def test_killed_ten_times_at_random(tiny_prepared: Prepared, tmp_path: Path) -> None:
    """By SIGKILL, in steps and in the midst of writing checkpoints; a file of each rung is what a sweep would have got."""
    tiny_prepared.save(tmp_path / "prepared.json")
    config = trial(loss="softmax", freezing="emb+B0", learning_rate=1e-3, batch_size=4, examples_per_rung=80)
    server = subprocess.Popen(
        [sys.executable, "-m", "support.killed_trial"],
        cwd=TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert server.stdin is not None and server.stdout is not None

    def start(name: str) -> int:
        for kind in ("checkpoints", "rungs"):
            (tmp_path / kind / name).mkdir(parents=True, exist_ok=True)
        folders = {kind: str(tmp_path / kind / name) for kind in ("checkpoints", "rungs")}
        values = {
            "prepared": str(tmp_path / "prepared.json"),
            "config": config.model_dump(exclude_none=True),
            **folders,
        }
        print(json.dumps(values), file=server.stdin, flush=True)
        return int(server.stdout.readline())

    def progress() -> int:
        return max((int(path.name) for path in (tmp_path / "checkpoints" / "killed").glob("[0-9]*")), default=0)

    try:
        assert server.stdout.readline() == "ready\n"
        start("whole")
        assert server.stdout.readline() == "0\n"
        rng = random.Random(0)
        for _ in range(10):
            wanted = progress() + 4 * rng.randint(1, 5)
            pid = start("killed")
            deadline = time.monotonic() + 120
            while progress() < wanted:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)
            assert server.stdout.readline() == "-9\n"
        start("killed")
        assert server.stdout.readline() == "0\n"
    finally:
        server.stdin.close()
        server.wait(60)
    whole, killed = (
        {path.name: path.read_text() for path in sorted((tmp_path / "rungs" / name).glob("*.json"))}
        for name in ("whole", "killed")
    )
    assert len(whole) == 3
    assert killed == whole
