"""Temperatures and calibration errors against brute force, closed forms and scikit-learn's log loss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from raysweep.config.sweep import EvaluationConfig, PointsConfig
from raysweep.data.prepared import Prepared
from raysweep.evaluation import calibration
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.evaluation.operating_points import Head
from raysweep.training import trial as engine
from raysweep.training.workbench import RungResult, Workbench
from support.encoders import trial


def softmax(logits: np.ndarray) -> np.ndarray:
    probabilities: np.ndarray = torch.softmax(
        torch.from_numpy(np.asarray(logits, np.float64)), dim=1
    ).numpy()
    return probabilities


def noisy(seed: int, classes: int, rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return logits that predict most labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    logits = rng.normal(scale=rng.uniform(0.5, 6), size=(rows, classes))
    logits[np.arange(rows), labels] += rng.uniform(0.5, 3)
    return logits, labels


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_fitted_temperature_minimizes_log_loss(seed: int, classes: int) -> None:
    logits, labels = noisy(seed, classes)
    fitted = calibration.fit_temperature(logits, labels)
    temperatures = np.geomspace(calibration.MIN_TEMPERATURE, calibration.MAX_TEMPERATURE, 60)
    near = fitted * np.array([0.99, 1.01])

    def loss(temperature: float) -> float:
        return float(log_loss(labels, softmax(logits / temperature), labels=range(classes)))

    minimum = loss(fitted)
    assert all(minimum <= loss(temperature) + 1e-12 for temperature in temperatures)
    if calibration.MIN_TEMPERATURE < fitted < calibration.MAX_TEMPERATURE:
        assert all(minimum < loss(temperature) for temperature in near)


@pytest.mark.parametrize("factor", [0.1, 0.5, 1.0, 2.9, 15.0])
def test_known_factor_is_recovered(factor: float) -> None:
    """Labels occur exactly in proportion to their probabilities, which minimizes the log loss."""
    # of 16 sentences with the same logits
    shares = np.array([[12, 3, 1], [4, 8, 4], [1, 1, 14], [2, 7, 7]])
    rows = np.repeat(np.arange(4), 16)
    labels = np.concatenate([np.repeat(np.arange(3), counts) for counts in shares])
    # to whose rows anything may be added
    logits = factor * np.log(shares / 16)[rows] + np.arange(4)[rows, None]
    assert calibration.fit_temperature(logits, labels) == pytest.approx(factor, rel=1e-6)


def test_bound_is_returned_without_a_minimum_of_log_loss() -> None:
    logits = np.array([[3.0, -1.0], [-2.0, 0.5], [1.0, 0.9]])
    right = logits.argmax(axis=1)
    assert calibration.fit_temperature(logits, right) == calibration.MIN_TEMPERATURE
    assert calibration.fit_temperature(logits, 1 - right) == calibration.MAX_TEMPERATURE
    assert calibration.fit_temperature(np.zeros((3, 2)), right) == calibration.MIN_TEMPERATURE
    # powers that underflow
    assert calibration.fit_temperature(1e6 * logits, right) == calibration.MIN_TEMPERATURE


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 200))
def test_calibration_equals_its_definitions(seed: int, classes: int, rows: int) -> None:
    logits, labels = noisy(seed, classes, rows)
    probabilities = softmax(logits)
    expected = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels))
    assert calibration.cross_entropy(logits, labels) == pytest.approx(
        float(expected), rel=1e-12, abs=1e-12
    )

    by_confidence = sorted(range(rows), key=lambda row: probabilities[row].max())
    size, rest = divmod(rows, calibration.NUM_BINS)
    error, start = 0.0, 0
    for number in range(calibration.NUM_BINS):
        members = by_confidence[start : start + size + (number < rest)]
        start += len(members)
        if members:
            accuracy = np.mean([probabilities[row].argmax() == labels[row] for row in members])
            confidence = np.mean([probabilities[row].max() for row in members])
            error += len(members) / rows * abs(accuracy - confidence)
    assert calibration.calibration_error(probabilities, labels) == pytest.approx(error, abs=1e-12)


def test_temperature_divides_the_logits() -> None:
    rng = np.random.default_rng(0)
    head = Head(rng.normal(size=(3, 8)).astype(np.float32), rng.normal(size=3).astype(np.float32))
    embeddings = rng.normal(size=(50, 8)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    labels = rng.integers(0, 3, 50)
    folded = calibration.calibrated(head, embeddings, labels)
    fitted = calibration.fit_temperature(head.logits(embeddings), labels)
    assert folded.temperature == fitted != 1
    np.testing.assert_allclose(
        folded.probabilities(embeddings),
        softmax(head.logits(embeddings) / fitted),
        atol=1e-6,
        rtol=1e-5,
    )
    measured = calibration.calibration_of(folded, embeddings, labels, "dev")
    own = calibration.calibration_of(head, embeddings, labels, "dev")
    assert (
        own.cross_entropy_before
        == own.cross_entropy
        == pytest.approx(measured.cross_entropy_before, rel=1e-6)
    )
    assert own.error_before == own.error == pytest.approx(measured.error_before, abs=1e-6)
    assert measured.cross_entropy < measured.cross_entropy_before
    useless = Head(np.full((3, 8), np.nan, np.float32), np.zeros(3, np.float32))
    with pytest.raises(TrialDivergedError, match="softmax head.* not finite"):
        calibration.calibrated(useless, embeddings, labels)


def rungs_with(prepared: Prepared, *, calibrate: bool) -> tuple[list[RungResult], Workbench]:
    points = PointsConfig(concat=[0.5], class_concat=[0.3], calibrate=calibrate)
    bench = Workbench(prepared, EvaluationConfig(k=8, num_pool=200, points=points))
    config = trial(loss="softmax", learning_rate=3e-4, examples_per_rung=80)
    return list(engine.rungs(config, bench, seed=0, num_rungs=2)), bench


def test_training_does_not_depend_on_the_temperature(tiny_prepared: Prepared) -> None:
    """Only points that use class probabilities change."""
    plain, without = rungs_with(tiny_prepared, calibrate=False)
    fitted, bench = rungs_with(tiny_prepared, calibrate=True)
    assert [rung.loss for rung in plain] == [rung.loss for rung in fitted]
    for plain_rung, fitted_rung in zip(plain, fitted, strict=True):
        for key in (("plain", None), ("concat", 0.5)):
            np.testing.assert_array_equal(
                plain_rung.points[key]["similarity"], fitted_rung.points[key]["similarity"]
            )
        before, after = plain_rung.calibration, fitted_rung.calibration
        assert before is not None and after is not None
        assert before.temperature == 1
        assert after.temperature != 1
        assert after.cross_entropy < after.cross_entropy_before
        assert after.cross_entropy_before == pytest.approx(before.cross_entropy, rel=1e-5)
    assert (
        plain[1].points["class_concat", 0.3]["similarity"]
        != fitted[1].points["class_concat", 0.3]["similarity"]
    ).any()
    assert bench.head is not None and without.head is not None
    last = fitted[1].calibration
    assert last is not None
    assert bench.head.temperature == last.temperature
    np.testing.assert_allclose(
        bench.head.weight * np.float32(last.temperature), without.head.weight, rtol=1e-6
    )


def test_calibration_of_a_head_is_measured_on_dev(tiny_prepared: Prepared) -> None:
    (*_, rung), bench = rungs_with(tiny_prepared, calibrate=True)
    head, dev = bench.head, bench.dev
    assert head is not None and rung.calibration is not None
    texts = bench.prepared.sentences.texts(dev.queries)
    embeddings = bench.model.encode(texts, normalize_embeddings=True)
    expected = log_loss(
        dev.query_labels, head.probabilities(embeddings), labels=range(len(head.bias))
    )
    assert rung.calibration.cross_entropy == pytest.approx(expected, rel=1e-4)
