"""Trials with a user's own loss, an in-batch loss and Matryoshka widths: training, resuming and truncated points."""

from pathlib import Path

import numpy as np
import optuna
import pytest
import torch

from raysweep.config.load import load
from raysweep.config.sweep import PointsConfig
from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import width
from raysweep.training.trainer import Training
from raysweep.training.trial import Intervals, rungs, rungs_and_progress
from raysweep.training.workbench import RungResult, Workbench
from support.documented_loss import NAME, write_documented_loss
from support.encoders import EVALUATION, trial


def test_the_documented_loss_trains_from_its_file(
    tmp_path: Path, tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its value is that of the definition on the stock forward, and steps lower it."""
    loaded = load(write_documented_loss(tmp_path, monkeypatch))
    assert set(loaded.space.values("loss")) == {"triplet", NAME}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    drawn = [trial_config(loaded.space.draw(study.ask())) for _ in range(12)]
    config = next(config for config in drawn if config.loss == NAME)
    assert config.loss_parameters.keys() == {"margin", "reduction"}

    config = config.model_copy(
        update={"learning_rate": 1e-3, "examples_per_rung": 80, "dropout": 0.0, "precision": "fp32"}
    )
    training = Training(config, tiny_bench, seed=0, num_rungs=1)
    ids, targets = training.order.take(8)
    texts = [tiny_bench.prepared.sentences.texts(column) for column in ids.T]
    training.model.eval()
    with torch.no_grad():
        embeddings = [
            training.model.encode(column, convert_to_numpy=True, show_progress_bar=False)
            for column in texts
        ]
        value = float(training.batch_loss(ids, targets))
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in embeddings]
    base = [tiny_bench.prepared.reference_embeddings.document[column] for column in ids.T]

    def differences(rows: list[np.ndarray]) -> np.ndarray:
        return np.asarray((rows[0] * rows[2]).sum(1) - (rows[0] * rows[1]).sum(1))

    losses = np.maximum(differences(units) + config.loss_parameters["margin"], 0) * (
        differences(base) < 0
    )  # type: ignore[operator]
    expected = losses.mean() if config.loss_parameters["reduction"] == "mean" else losses.sum()
    assert value == pytest.approx(expected, rel=1e-4)
    while not training.rung_is_full:
        training.step()
    with torch.no_grad():
        assert float(training.batch_loss(ids, targets)) < value


@pytest.mark.parametrize("loss", ["multiple_negatives", "softmax"])
def test_trials_with_less_memory_have_the_same_values(loss: str, tiny_prepared: Prepared) -> None:
    """Activations are recomputed for the batch, in every block, or both; with dropout, a cache and Matryoshka widths."""
    points = PointsConfig(concat=[], class_concat=[], truncate=[32])
    values = {"optimizer": "sgd", "learning_rate": 0.05, "examples_per_rung": 80, "dropout": 0.1}
    config = trial(loss=loss, freezing="emb+B0", matryoshka="32", **values)

    def run(*, recomputes: bool, checkpoints: bool) -> tuple[list[float], np.ndarray]:
        evaluation = EVALUATION.model_copy(update={"points": points})
        bench = Workbench(tiny_prepared, evaluation, checkpoints_blocks=checkpoints)
        results = rungs_and_progress(
            config, bench, Intervals(), seed=3, num_rungs=2, recomputes=recomputes
        )
        losses = []
        for result in results:
            assert isinstance(result, RungResult)
            assert result.points.keys() == {("plain", None), ("truncate", 32)}
            losses.append(result.loss)
        return losses, bench.encode(bench.dev).queries

    expected_losses, expected = run(recomputes=False, checkpoints=False)
    for recomputes, checkpoints in ((True, False), (False, True), (True, True)):
        losses, embeddings = run(recomputes=recomputes, checkpoints=checkpoints)
        assert losses == pytest.approx(expected_losses, rel=1e-4)
        np.testing.assert_allclose(embeddings, expected, atol=1e-4)


@pytest.mark.parametrize("loss", ["batch_hard_triplet", NAME])
def test_a_resumed_trial_equals_an_uninterrupted_one(
    loss: str, tmp_path: Path, tiny_prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, with the order of classes, truncated points and Matryoshka widths."""
    write_documented_loss(tmp_path, monkeypatch)
    evaluation = EVALUATION.model_copy(update={"points": PointsConfig(concat=[], truncate=[32])})
    config = trial(loss=loss, matryoshka="halves", dropout=0.1, idle_rungs=5)

    def run(folder: Path, num_rungs: int) -> list[np.ndarray]:
        bench = Workbench(tiny_prepared, evaluation)
        results = rungs(config, bench, seed=3, num_rungs=3, checkpoints=folder)
        points = [next(results).points for _ in range(num_rungs)]
        return [scores["similarity"] for by_key in points for scores in by_key.values()]

    whole = run(tmp_path / "whole", 3)
    first = run(tmp_path / "parts", 2)
    rest = run(tmp_path / "parts", 2)  # the second rung again, and the third
    np.testing.assert_array_equal(whole, [*first, *rest[2:]])
    assert len(whole) == 6


def test_a_truncated_point_retrieves_by_the_first_coordinates(tiny_bench: Workbench) -> None:
    tiny_bench.reset()
    encoded = tiny_bench.encode(tiny_bench.dev)
    queries, pool = (
        rows[:, :16] / np.linalg.norm(rows[:, :16], axis=1, keepdims=True)
        for rows in (encoded.queries, encoded.pool)
    )
    expected = tiny_bench.dev.score(queries, pool)
    for known in (encoded, None):
        scores = tiny_bench.measure(tiny_bench.dev, [("plain", None), ("truncate", 16)], known)
        assert list(scores) == [("plain", None), ("truncate", 16)]
        truncated = scores["truncate", 16]
        for name in expected.named:
            np.testing.assert_array_equal(truncated[name], expected[name])
        np.testing.assert_array_equal(truncated.retrieved, expected.retrieved)
    assert (scores["plain", None]["similarity"] != expected["similarity"]).any()
    assert width(("truncate", 16), tiny_bench.tuned(), tiny_bench.dev) == 16


def test_widths_are_below_that_of_the_embeddings(tiny_bench: Workbench) -> None:
    tiny_bench.reset()
    with pytest.raises(InputError, match=r"evaluation\.points\.truncate is 64; allowed: below 64"):
        tiny_bench.measure(tiny_bench.dev, [("truncate", 64)])
    with pytest.raises(InputError, match=r"matryoshka is '64,32'; allowed: widths below 64"):
        Training(trial(matryoshka="64,32"), tiny_bench, seed=0, num_rungs=1)
