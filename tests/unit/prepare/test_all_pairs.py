"""Examples from every ordered pair of the same class, with concatenated sentences."""

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.expert_scores import ExpertScores
from raysweep.errors import InputError
from raysweep.prepare import plan as planning
from raysweep.prepare.build import prepare_here
from raysweep.training.trial import run_trial
from support.encoders import trial
from support.sweep_files import read

ROWS = "text,label\n" + "".join(
    f"question {number % 4} phrasing {number},{number % 4}\n" for number in range(24)
)

SWEEP = """\
data: {train: train.csv, dev: train.csv}
model: demo
examples: {neighbors: all, concatenated: true, target: 100000}
evaluation: {k: 4}
space: {loss: cosine_similarity, targets: soft1, learning_rate: 1e-5, examples_per_rung: 64}
"""


@pytest.fixture
def overrides(tmp_path: Path, tiny_encoder: str) -> dict[str, str]:
    source = tmp_path / "train.csv"
    source.write_text(ROWS)
    return {
        "data__train": str(source),
        "data__dev": str(source),
        "model": tiny_encoder,
        "examples__experts": json.dumps([tiny_encoder]),
        "storage__runs": str(tmp_path / "runs"),
    }


def test_joined_sentences_are_examples_but_neither_queries_nor_pool(
    tmp_path: Path, overrides: dict[str, str], tiny_encoder: str
) -> None:
    prepared = prepare_here(*read(tmp_path, SWEEP, **overrides))
    sentences = prepared.sentences
    texts = sentences.texts(np.arange(len(sentences)))
    num_pairs = 4 * 6 * 6
    assert len(sentences) == 2 * 24 + num_pairs
    assert len(sentences.ids("train")) == len(sentences.ids("dev")) == 24
    ids, targets = prepared.examples("scored_pair")
    assert len(ids) == 2 * 3 * num_pairs
    positives = {(texts[first], texts[second]) for first, second in ids[targets == 1].tolist()}
    expected = set()
    for one in texts[:24]:
        for other in texts[:24]:
            if one.split()[1] == other.split()[1]:
                expected |= {(one, other), (f"{one} {other}", other), (f"{one} {other}", one)}
    assert positives == expected
    scores = ExpertScores.open(prepared.scores_artifacts["train"].folder)
    embeddings = SentenceTransformer(tiny_encoder, device="cpu").encode(
        texts, normalize_embeddings=True
    )
    cosines = (embeddings[ids[:, 0]] * embeddings[ids[:, 1]]).sum(axis=1)
    np.testing.assert_allclose(scores.cosines[:, 0], cosines, atol=2e-6)
    np.testing.assert_array_equal(scores.same_class, targets == 1)
    config = trial(loss="cosine_similarity", targets="soft1", examples_per_rung=16, dropout=0.0)
    (rung,) = run_trial(
        config, prepared, num_rungs=1, evaluation=EvaluationConfig(k=4), device="cpu"
    )
    assert rung.loss == pytest.approx(0, abs=1e-4), "the only expert is the untuned encoder"


def test_too_many_pairs_are_rejected_before_encoding(
    tmp_path: Path, overrides: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MAX_PAIRS", 100)
    with pytest.raises(
        InputError, match="has 144 ordered pairs of the same class; allowed: at most 100"
    ):
        prepare_here(*read(tmp_path, SWEEP, **overrides))
    assert not list((tmp_path / "runs" / "artifacts").glob("encoded-*"))
    sweep = read(tmp_path, SWEEP, **overrides, examples__anchors_per_class="3")
    prepared = prepare_here(*sweep)
    assert len(prepared.sentences) == 2 * 24 + 4 * 3 * 3
