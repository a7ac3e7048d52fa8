"""A model that compares by inner product is trained, scored and exported by cosine."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel

from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.export.export import export
from raysweep.metrics import retrieval
from raysweep.results.reader import load
from support.encoders import sentence_encoder

Run = tuple[Path, Prepared, EvaluationSet]


@pytest.fixture(scope="module")
def encoder_by_product(tmp_path_factory: pytest.TempPathFactory, demo_package: object) -> str:
    """Write an encoder without normalization, whose norms vary."""
    folder = tmp_path_factory.mktemp("dot")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    backbone = BertModel(BertConfig(**sizes, initializer_range=0.3))
    written = sentence_encoder(backbone, folder, demo_package.get_model_path())  # type: ignore[attr-defined]
    model = SentenceTransformer(written, device="cpu")
    del model[-1]
    with torch.no_grad():
        weight = model[0].auto_model.encoder.layer[-1].output.LayerNorm.weight
        weight.mul_(torch.linspace(0.1, 3, len(weight)))
    model.similarity_fn_name = "dot"
    model.save(str(folder / "by-product"), create_model_card=False)
    return str(folder / "by-product")


def test_exported_similarity_gives_the_scores_of_the_report(
    encoder_by_product: str,
    tmp_path: Path,
    write_run: Callable[[Path, str], Run],
    all_on_the_front: None,
) -> None:
    (tmp_path / "run").mkdir()
    folder, prepared, dev = write_run(tmp_path / "run", encoder_by_product)
    for name in ("1:1", "0:1", "1:1:concat=0.3", "1:1:interpolate=0.4"):
        target = tmp_path / name.replace(":", "-")
        export(folder, name, target)
        model = SentenceTransformer(str(target), device="cpu")
        assert model.similarity_fn_name == "cosine"
        queries, pool = (
            model.encode(prepared.sentences.texts(ids)) for ids in (dev.queries, dev.pool)
        )
        scores = dev.score_retrieved(
            retrieval.top_k(model.similarity(queries, pool).numpy(), dev.k)
        )
        stored = next(point for point in load(folder).points if point.name == name)
        assert scores["polarity"].mean() == pytest.approx(stored["polarity"], abs=1e-4)
        assert scores["similarity"].mean() == pytest.approx(stored["similarity"], abs=1e-4)
        if name == "1:1":
            by_product = dev.score_retrieved(retrieval.top_k(queries @ pool.T, dev.k))
            assert abs(by_product.mean("similarity") - stored["similarity"]) > 1e-3
