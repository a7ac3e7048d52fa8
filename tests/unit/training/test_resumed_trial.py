"""A trial resumed from its checkpoint equals the uninterrupted trial, to the bit."""

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
from raysweep.training import checkpoint
from raysweep.training.trainer import Training
from raysweep.training.trial import Intervals, rungs, rungs_and_progress
from raysweep.training.workbench import RungResult, Workbench
from support.encoders import EVALUATION, trial
from support.paths import TESTS

SEED, NUM_RUNGS = 5, 3
# All with dropout, the default. The last batch of a rung is smaller than the others.
CONFIGS = {
    "triplet, adamw": trial(learning_rate=1e-3),
    "softmax, adamax, emb+B0": trial(
        loss="softmax",
        optimizer="adamax",
        learning_rate=1e-3,
        freezing="emb+B0",
        examples_per_rung=60,
    ),
    "adadelta, new sample and optimizer at each rung": trial(
        optimizer="adadelta", learning_rate=1.0, resample_each_rung=True, fresh_optimizer=True
    ),
    "softmax, averaged weights, two passes, smoothed labels, layer decay": trial(
        loss="softmax",
        learning_rate=1e-3,
        average_decay=0.7,
        consistency_weight=1.0,
        label_smoothing=0.1,
        layer_decay=0.6,
        idle_rungs=3,
    ),
    "softmax, lora with dropout, layer decay, averaged weights": trial(
        loss="softmax",
        learning_rate=1e-2,
        adapter="lora",
        lora_rank=4,
        lora_targets="attention",
        lora_dropout=0.2,
        layer_decay=0.6,
        average_decay=0.7,
    ),
    "separate encoders with lora and averaged weights": trial(
        tower="separate",
        learning_rate=1e-2,
        adapter="lora",
        lora_rank=4,
        lora_dropout=0.2,
        average_decay=0.7,
    ),
    "sgd, momentum, accumulated": trial(
        optimizer="sgd", momentum=0.9, learning_rate=0.05, accumulation_steps=2
    ),
}


@pytest.fixture(scope="module")
def new_bench(tiny_prepared: Prepared) -> Any:
    """Return a function that makes a workbench like that of a new process."""
    points = PointsConfig(labeled=[0.3])
    return lambda: Workbench(tiny_prepared, EVALUATION.model_copy(update={"points": points}))


def read_state(bench: Workbench) -> dict[str, np.ndarray]:
    tensors = bench.model.state_dict() | bench.trainable.trained().tensors
    weights = {name: value.numpy().copy() for name, value in tensors.items()}
    if bench.head is None:
        return weights
    temperature = np.array(bench.head.temperature)
    return weights | {
        "head": bench.head.weight,
        "bias": bench.head.bias,
        "temperature": temperature,
    }


def is_same_state(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def read_bits(results: Iterable[RungResult]) -> list[Any]:
    """Return everything in the results except times."""
    return [
        (
            *(rung.step, rung.examples_seen, rung.loss.hex(), rung.stop, rung.calibration),
            *(
                (key, scores["polarity"].tobytes(), scores["similarity"].tobytes())
                for key, scores in (*rung.points.items(), *rung.labeled.items())
            ),
        )
        for rung in results
    ]


def train_rungs(
    config: TrialConfig, bench: Workbench, folder: Path | None = None, **options: Any
) -> Iterable[RungResult]:
    return rungs(config, bench, seed=SEED, num_rungs=NUM_RUNGS, checkpoints=folder, **options)


@pytest.fixture(scope="module", params=CONFIGS)
def case(
    request: pytest.FixtureRequest, new_bench: Any
) -> tuple[TrialConfig, list[Any], dict[str, np.ndarray]]:
    """A configuration, and the results and weights of its uninterrupted trial."""
    if "lora" in request.param:
        pytest.importorskip("peft")
    bench = new_bench()
    results = read_bits(train_rungs(CONFIGS[request.param], bench))
    assert len({rung[2] for rung in results}) == NUM_RUNGS
    return CONFIGS[request.param], results, read_state(bench)


def test_interrupted_at_the_end_of_a_rung(case: Any, new_bench: Any, tmp_path: Path) -> None:
    """The rung's result may be lost, so it is repeated, with the weights that gave it.

    Trials with the loss softmax also write a checkpoint after each step.
    """
    config, uninterrupted, weights = case
    seconds = 0.0 if config.loss == "softmax" else 300.0
    before, after = new_bench(), new_bench()
    first = train_rungs(config, before, tmp_path, checkpoint_seconds=seconds)
    assert read_bits([next(first), next(first)]) == uninterrupted[:2]
    second = train_rungs(config, after, tmp_path, checkpoint_seconds=seconds)
    assert read_bits([next(second)]) == uninterrupted[1:2]
    assert is_same_state(read_state(after), read_state(before))
    assert read_bits(second) == uninterrupted[2:]
    assert is_same_state(read_state(after), weights)


def test_interrupted_within_a_rung(case: Any, new_bench: Any, tmp_path: Path) -> None:
    config, uninterrupted, weights = case
    first = Training(config, new_bench(), SEED, NUM_RUNGS)
    while not first.rung_is_full:
        first.step()
    last = first.evaluate()
    first.step()
    checkpoint.save(first, tmp_path, last)
    first.step()  # lost
    after = new_bench()
    second = Training(config, after, SEED, NUM_RUNGS)
    restored = checkpoint.restore(second, tmp_path)
    assert restored is not None
    assert read_bits([restored]) == uninterrupted[:1]
    assert second.progress.rung == 1
    assert second.progress.seen_in_rung == config.batch_size * config.accumulation_steps
    # That rung was taken before, and the weights have changed since, so `rungs` does not repeat it.
    assert read_bits(train_rungs(config, after, tmp_path)) == uninterrupted[1:]
    assert is_same_state(read_state(after), weights)


def test_interrupted_within_the_first_rung(new_bench: Any, tmp_path: Path) -> None:
    config = CONFIGS["triplet, adamw"]
    first = Training(config, new_bench(), SEED, NUM_RUNGS)
    first.step()
    checkpoint.save(first, tmp_path, None)
    assert read_bits(train_rungs(config, new_bench(), tmp_path)) == read_bits(
        train_rungs(config, new_bench())
    )


def test_trial_that_leaves_its_node_loses_no_step(new_bench: Any, tmp_path: Path) -> None:
    """Its node is drained within a rung, long before a checkpoint is due."""
    config = CONFIGS["triplet, adamw"]
    options: dict[str, Any] = {"seed": SEED, "num_rungs": NUM_RUNGS, "checkpoints": tmp_path}
    intervals = Intervals(progress_seconds=0.0)
    progress = next(
        rungs_and_progress(config, new_bench(), intervals, leaves=lambda: True, **options)
    )
    assert isinstance(progress, RungProgress)
    again = Training(config, new_bench(), SEED, NUM_RUNGS)
    checkpoint.restore(again, tmp_path)
    assert again.progress.seen_in_rung == progress.num_seen
    assert read_bits(train_rungs(config, new_bench(), tmp_path)) == read_bits(
        train_rungs(config, new_bench())
    )


@pytest.mark.parametrize("num_updates", [1, 2])
def test_trial_that_is_closed_within_a_rung_loses_no_step(
    num_updates: int, new_bench: Any, tmp_path: Path
) -> None:
    """A time limit ends it, for example."""
    config = CONFIGS["triplet, adamw"]
    options: dict[str, Any] = {"seed": SEED, "num_rungs": NUM_RUNGS, "checkpoints": tmp_path}
    results = rungs_and_progress(config, new_bench(), Intervals(progress_seconds=0.0), **options)
    for _ in range(num_updates):
        progress = next(results)
    assert checkpoint.read(tmp_path) is None
    results.close()  # type: ignore[attr-defined]
    again = Training(config, new_bench(), SEED, NUM_RUNGS)
    checkpoint.restore(again, tmp_path)
    assert isinstance(progress, RungProgress)
    assert again.progress.seen_in_rung == progress.num_seen
    assert read_bits(train_rungs(config, new_bench(), tmp_path)) == read_bits(
        train_rungs(config, new_bench())
    )


def test_finished_trial_only_repeats_its_last_rung(
    case: Any, new_bench: Any, tmp_path: Path
) -> None:
    config, uninterrupted, weights = case
    assert read_bits(train_rungs(config, new_bench(), tmp_path)) == uninterrupted
    bench = new_bench()
    assert read_bits(train_rungs(config, bench, tmp_path)) == uninterrupted[2:]
    assert is_same_state(read_state(bench), weights)


def test_times_exclude_the_pause(
    new_bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIGS["triplet, adamw"]
    first = next(iter(train_rungs(config, new_bench(), tmp_path)))
    clock = time.perf_counter
    # as after a pause of 1000 seconds
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 1000.0)
    resumed = time.perf_counter()
    repeated, second, third = train_rungs(config, new_bench(), tmp_path)
    assert (repeated.seconds, repeated.train_seconds) == (first.seconds, first.train_seconds)
    assert 0 < first.train_seconds < second.train_seconds < third.train_seconds < third.seconds
    assert (
        first.seconds
        < second.seconds
        < third.seconds
        < first.seconds + time.perf_counter() - resumed
    )


def test_next_trial_on_the_same_workbench_is_unaffected(new_bench: Any, tmp_path: Path) -> None:
    """It has the same frozen blocks, whose cache the interrupted trial filled with other batches."""
    other = trial(
        learning_rate=3e-3, freezing="emb+B0", loss="contrastive", dropout=0.3, examples_per_rung=60
    )
    config = CONFIGS["softmax, adamax, emb+B0"]
    bench = new_bench()
    next(iter(train_rungs(other, bench, tmp_path)))
    assert (
        Training(config, bench, SEED, NUM_RUNGS).prefixes
        is Training(other, bench, SEED, NUM_RUNGS).prefixes
        is not None
    )
    resumed = train_rungs(other, bench, tmp_path)
    next(iter(resumed))
    assert read_bits(train_rungs(config, bench)) == read_bits(train_rungs(config, new_bench()))


@pytest.mark.parametrize(
    ("values", "seed", "difference"),
    [
        ({"learning_rate": 2e-3}, SEED, "config"),
        ({"dropout": 0.1}, SEED, "config"),
        ({}, 6, "seed"),
    ],
)
def test_checkpoint_of_another_trial_is_rejected(
    new_bench: Any, tmp_path: Path, values: Any, seed: int, difference: str
) -> None:
    bench = new_bench()
    first = Training(trial(learning_rate=1e-3), bench, SEED, NUM_RUNGS)
    checkpoint.save(first, tmp_path, None)
    with pytest.raises(InputError, match=f"{tmp_path}.*a different {difference};"):
        checkpoint.restore(
            Training(trial(**{"learning_rate": 1e-3, **values}), bench, seed, NUM_RUNGS), tmp_path
        )


def test_one_checkpoint_without_pickles_remains(new_bench: Any, tmp_path: Path) -> None:
    """A checkpoint that a killed process left incomplete is ignored."""
    folder = tmp_path / "trial"
    half = folder / ".0a1b2c3d"
    half.mkdir(parents=True)
    (half / "values.json").write_text("{")
    config = CONFIGS["softmax, adamax, emb+B0"]
    bench = new_bench()
    training = Training(config, bench, SEED, NUM_RUNGS)
    assert checkpoint.restore(training, folder) is None
    assert checkpoint.read(tmp_path / "none") is None
    for _ in train_rungs(config, bench, folder, checkpoint_seconds=0.0):
        (latest,) = folder.iterdir()
        assert latest.name == f"{int(latest.name):09d}"
        assert {path.name for path in latest.iterdir()} == {"tensors", "values.json"}
        safetensors.torch.load_file(latest / "tensors")
        json.loads((latest / "values.json").read_text())
        assert not any(path.read_bytes().startswith(b"\x80") for path in latest.iterdir())


@pytest.mark.recovery
def test_killed_ten_times_at_random(tiny_prepared: Prepared, tmp_path: Path) -> None:
    """SIGKILL arrives within steps and while checkpoints are written; one file per rung replaces a sweep's results."""
    tiny_prepared.save(tmp_path / "prepared.json")
    config = trial(
        loss="softmax", freezing="emb+B0", learning_rate=1e-3, batch_size=4, examples_per_rung=80
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "support.killed_trial"],
        cwd=TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        },
    )
    assert server.stdin is not None and server.stdout is not None

    def start(name: str) -> int:
        for kind in ("checkpoints", "rungs"):
            (tmp_path / kind / name).mkdir(parents=True, exist_ok=True)
        folders = {kind: str(tmp_path / kind / name) for kind in ("checkpoints", "rungs")}
        values = {
            "prepared": str(tmp_path / "prepared.json"),
            "config": config.recorded,
            **folders,
        }
        print(json.dumps(values), file=server.stdin, flush=True)
        return int(server.stdout.readline())

    def progress() -> int:
        return max(
            (int(path.name) for path in (tmp_path / "checkpoints" / "killed").glob("[0-9]*")),
            default=0,
        )

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
    uninterrupted, killed = (
        {path.name: path.read_text() for path in sorted((tmp_path / "rungs" / name).glob("*.json"))}
        for name in ("whole", "killed")
    )
    assert len(uninterrupted) == 3
    assert killed == uninterrupted
