"""Which prompt a sweep's encoders are used with, and which encoders a sweep cannot use."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.locate import SETTINGS
from raysweep.encoders.tokens import Tokens
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from support.encoders import PROMPTED, with_prompts
from support.sweep_files import read

ROWS = "text,label\n" + "".join(f"sentence {number},{number % 2}\n" for number in range(20))

SWEEP = """\
data: {train: train.csv}
model: demo
evaluation: {k: 2}
space:
  loss: triplet
  learning_rate: 1e-5
  examples_per_rung: 2048
"""


def prepare(folder: Path, **overrides: str) -> Prepared:
    (folder / "train.csv").write_text(ROWS)
    places = {"data__train": str(folder / "train.csv"), "storage__runs": str(folder / "runs")}
    return prepare_here(*read(folder, SWEEP, **places, **overrides))


@pytest.mark.parametrize("kind", PROMPTED)
def test_a_sweep_embeds_as_the_models_encode(tiny_encoder: str, tmp_path: Path, kind: str) -> None:
    model = with_prompts(tiny_encoder, tmp_path / "model", kind)
    prepared = prepare(tmp_path, model=model)
    texts = prepared.sentences.texts(np.arange(20))
    library = SentenceTransformer(model, device="cpu")
    expected = library.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(np.asarray(prepared.reference_embeddings)[:], expected, atol=1e-5)
    tokens = Tokens.open(prepared.tokens_artifact.folder)
    trained = encoder.embed(library, tokens, np.arange(20))
    np.testing.assert_allclose(trained, expected, atol=1e-5)
    own = {"default": "query: "}.get(kind, "")
    assert prepared.model["prompt"] == prepared.reference["prompt"] == own


def test_artifacts_are_those_of_the_prompt_that_is_used(tiny_encoder: str, tmp_path: Path) -> None:
    """A sweep with the model's own prompt reads nothing that was made without one."""
    model = with_prompts(tiny_encoder, tmp_path / "model", "default")
    own, same, without = (prepare(tmp_path, model=json.dumps({"name": model, **prompt})) for prompt in (
        {}, {"prompt": "query: "}, {"prompt": ""}
    ))  # fmt: skip
    assert own == same
    assert own.tokens_artifact != without.tokens_artifact
    assert own.examples_artifacts != without.examples_artifacts


def test_what_cannot_be_tuned_is_rejected_and_can_be_a_reference(tiny_encoder: str, tmp_path: Path) -> None:
    settings = json.loads((Path(tiny_encoder) / SETTINGS).read_text())
    shorter = shutil.copytree(tiny_encoder, tmp_path / "shorter")
    (shorter / SETTINGS).write_text(json.dumps({**settings, "truncate_dim": 16}))
    with pytest.raises(
        InputError, match=r"cannot be tuned: truncate_dim is 16 in its config_sentence_transformers.json"
    ):
        prepare(tmp_path, model=str(shorter))
    prepared = prepare(tmp_path, model=tiny_encoder, reference=str(shorter))
    texts = prepared.sentences.texts(np.arange(20))
    expected = SentenceTransformer(str(shorter), device="cpu").encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(np.asarray(prepared.reference_embeddings)[:], expected, atol=1e-5)


def test_a_router_cannot_be_tuned(tiny_encoder: str, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Router

    one, other = (list(SentenceTransformer(tiny_encoder, device="cpu")) for _ in range(2))
    router = Router.for_query_document(one, other, default_route="document")
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path / "routed"))
    with pytest.raises(
        InputError, match="cannot be tuned: its Router embeds queries and documents by different modules"
    ):
        prepare(tmp_path, model=str(tmp_path / "routed"))
