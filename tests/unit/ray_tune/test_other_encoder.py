"""Scores of encoders that no trial trained, such as SetFit models, whose head is a pickle."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from raysweep.config.sweep import EncoderConfig, EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.ray_tune.baselines import check_other_encoder, score_other_encoder
from support.encoders import write_nan_encoder
from support.hostile import Canary


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary.make(tmp_path)


@pytest.fixture
def saved(tiny_encoder: str, tmp_path: Path, canary: Canary) -> Path:
    """Return the files of ``SetFitModel.save_pretrained``: the body, and next to it the head and its settings."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoder, folder)
    (folder / "config_setfit.json").write_text(
        json.dumps({"labels": None, "normalize_embeddings": False})
    )
    (folder / "model_head.pkl").write_bytes(canary.pickle)
    return folder


def test_setfit_body_is_scored_without_opening_its_head(
    tiny_prepared: Prepared, saved: Path, canary: Canary
) -> None:
    from sentence_transformers import SentenceTransformer

    dev = EvaluationSet.of(tiny_prepared, "dev", EvaluationConfig(k=8, num_pool=200))
    config = EncoderConfig(name=str(saved), prompt="review: ")
    check_other_encoder(config)
    result = score_other_encoder(config, tiny_prepared.sentences, [dev])
    assert not canary.path.exists()
    model = SentenceTransformer(str(saved), device="cpu")
    queries, pool = (
        model.encode(
            [f"review: {text}" for text in tiny_prepared.sentences.texts(ids)],
            normalize_embeddings=True,
        )
        for ids in (dev.queries, dev.pool)
    )
    nearest = np.argsort(
        -(queries.astype(np.float64) @ pool.T.astype(np.float64)), axis=1, kind="stable"
    )[:, : dev.k]
    polarity = (dev.pool_labels[nearest] == dev.query_labels[:, None]).mean(axis=1)
    similarity = np.einsum("qd,qkd->q", dev.reference_queries, dev.reference_pool[nearest]) / dev.k
    scores = result.by_split["dev"]
    agree = (np.abs(scores["polarity"] - polarity) < 1e-6) & (
        np.abs(scores["similarity"] - similarity) < 1e-5
    )
    assert agree.mean() > 0.95, "near-ties may fall either way"
    assert result.width == 64


def test_pickled_body_is_rejected(tiny_prepared: Prepared, saved: Path, canary: Canary) -> None:
    next(saved.rglob("model.safetensors")).unlink()
    (saved / "pytorch_model.bin").write_bytes(canary.pickle)
    config = EncoderConfig(name=str(saved))
    with pytest.raises(
        InputError, match=r"reading pytorch_model.bin may execute code; allowed: weights in"
    ):
        check_other_encoder(config)
    with pytest.raises(InputError, match=r"reading pytorch_model.bin may execute code"):
        score_other_encoder(config, tiny_prepared.sentences, [])
    assert not canary.path.exists()


def test_missing_folder_is_rejected_early(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        check_other_encoder(EncoderConfig(name=str(tmp_path / "gone")))


def test_embeddings_that_are_not_finite_are_rejected(
    tiny_prepared: Prepared, tiny_encoder: str, tmp_path: Path
) -> None:
    broken = write_nan_encoder(tiny_encoder, tmp_path)
    dev = EvaluationSet.of(tiny_prepared, "dev", EvaluationConfig(k=8, num_pool=200))
    with pytest.raises(InputError, match="its embeddings contain NaN or infinity"):
        score_other_encoder(EncoderConfig(name=broken), tiny_prepared.sentences, [dev])


def test_demo_encoder(tiny_prepared: Prepared, tiny_encoder: str, tmp_path: Path) -> None:
    """The untrained body scores like the reference; its head is not used."""
    setfit = pytest.importorskip("setfit", reason="the setfit extra is not installed")
    model = setfit.SetFitModel.from_pretrained(tiny_encoder)
    model.model_head.fit(model.model_body.encode(["good", "bad"]), [1, 0])
    model.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "model_head.pkl").is_file()
    dev = EvaluationSet.of(tiny_prepared, "dev", EvaluationConfig(k=8, num_pool=200))
    result = score_other_encoder(
        EncoderConfig(name=str(tmp_path / "model")), tiny_prepared.sentences, [dev]
    )
    scores = result.by_split["dev"]
    np.testing.assert_allclose(
        scores["polarity"].mean(), dev.reference_scores["polarity"].mean(), atol=5e-3
    )
    np.testing.assert_allclose(
        scores["similarity"].mean(), dev.reference_scores["similarity"].mean(), atol=1e-3
    )
