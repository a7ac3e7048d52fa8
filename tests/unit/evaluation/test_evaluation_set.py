"""Readings: the sentences that points retrieve."""

import numpy as np
import pytest

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.evaluation import evaluation_set
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.results.readings import REFERENCE


@pytest.fixture
def dev(tiny_prepared: Prepared) -> EvaluationSet:
    return EvaluationSet.of(tiny_prepared, "dev", EvaluationConfig(k=8, num_pool=200))


def test_reading_has_sentences_and_cosines_by_rank(
    dev: EvaluationSet, tiny_prepared: Prepared
) -> None:
    rng = np.random.default_rng(0)
    other = [
        side + 0.3 * rng.normal(size=side.shape).astype(np.float32)
        for side in (dev.reference_queries, dev.reference_pool)
    ]
    name = (3, 1, "plain", None)
    reading = dev.reading({REFERENCE: dev.reference_scores, name: dev.score(*other)})
    assert reading.names == (REFERENCE, name)
    embeddings = np.asarray(
        tiny_prepared.reference_embeddings.document[np.arange(len(tiny_prepared.sentences))]
    )
    for row, (queries, pool) in enumerate([(dev.reference_queries, dev.reference_pool), other]):
        nearest = np.argsort(-(queries @ pool.T), axis=1, kind="stable")[:, :8]
        ids = dev.pool[nearest]
        assert (reading.ids[row] == ids).all()
        cosines = np.einsum("qd,qkd->qk", embeddings[dev.queries], embeddings[ids])
        np.testing.assert_allclose(reading.cosines[row], cosines, atol=1e-6)
    weighted = reading.cosines[1] @ dev.weights
    assert weighted.mean() == pytest.approx(dev.score(*other)["similarity"].mean(), abs=1e-6)


def test_readings_of_many_queries_are_limited(
    dev: EvaluationSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_reading = dev.reading({REFERENCE: dev.reference_scores})
    monkeypatch.setattr(
        evaluation_set, "readable_rows", lambda num_queries: np.array([0, 5, num_queries - 1])
    )
    limited = EvaluationSet(
        **{name: value for name, value in vars(dev).items() if name in dev.__dataclass_fields__}
    )
    reading = limited.reading({REFERENCE: limited.reference_scores})
    assert (reading.ids == full_reading.ids[:, [0, 5, -1]]).all()
    assert (reading.cosines == full_reading.cosines[:, [0, 5, -1]]).all()
    assert len(limited.reference_scores["polarity"]) == len(dev.queries)
