"""The prompts of a sweep's encoders, and encoders that a sweep rejects."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EncoderConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.locate import ADAPTER, SETTINGS
from raysweep.encoders.tokens import Tokens
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import make_plan
from support.encoders import PROMPTED, tiny_bert, write_with_prompts
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
def test_embeddings_match_the_models_encode(tiny_encoder: str, tmp_path: Path, kind: str) -> None:
    model = write_with_prompts(tiny_encoder, tmp_path / "model", kind)
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


def test_artifact_keys_include_the_prompt(tiny_encoder: str, tmp_path: Path) -> None:
    model = write_with_prompts(tiny_encoder, tmp_path / "model", "default")
    own, same, without = (prepare(tmp_path, model=json.dumps({"name": model, **prompt})) for prompt in (
        {}, {"prompt": "query: "}, {"prompt": ""}
    ))  # fmt: skip
    assert own == same
    assert own.tokens_artifact != without.tokens_artifact
    assert own.examples_artifacts != without.examples_artifacts


@pytest.mark.parametrize("key", ["model", "reference", "examples.encoder"])
def test_adapter_is_rejected_before_preparing(tiny_encoder: str, tmp_path: Path, key: str) -> None:
    """The adapter is in the model's folder or in a module's folder, with or without base weights."""
    adapted = shutil.copytree(tiny_encoder, tmp_path / "lora")
    (adapted / ADAPTER).write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "base"}))
    (tmp_path / "train.csv").write_text(ROWS)
    overrides = {
        "data__train": str(tmp_path / "train.csv"),
        "storage__runs": str(tmp_path / "runs"),
        "model": tiny_encoder,
    }
    overrides[key.replace(".", "__")] = str(adapted)
    with pytest.raises(InputError, match=r"lora' is a PEFT adapter \(adapter_config.json\), .*; allowed: "):
        prepare_here(*read(tmp_path, SWEEP, **overrides))
    modules = json.loads((adapted / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (adapted / "modules.json").write_text(json.dumps(modules))
    (adapted / "0_Transformer").mkdir()
    (adapted / ADAPTER).rename(adapted / "0_Transformer" / ADAPTER)
    with pytest.raises(InputError, match="is a PEFT adapter"):
        make_plan(*read(tmp_path, SWEEP, **overrides))
    assert not (tmp_path / "runs").exists()


def test_loaded_adapter_is_rejected(tiny_encoder: str) -> None:
    config = EncoderConfig(name=tiny_encoder)
    model = encoder.load(config)
    encoder.check_no_adapter(model, config)
    model[0].auto_model._hf_peft_config_loaded = True  # as transformers marks it
    with pytest.raises(InputError, match="has a PEFT adapter loaded"):
        encoder.check_no_adapter(model, config)


def test_missing_peft_package_is_reported(tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    adapted = shutil.copytree(tiny_encoder, tmp_path / "lora")
    (adapted / ADAPTER).write_text("{}")
    with pytest.raises(InputError, match=r"needs the package peft: pip install peft$"):
        encoder.load(EncoderConfig(name=str(adapted)))


def test_adapter_of_an_untuned_encoder_is_applied(demo_package: object, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = tiny_bert(tmp_path, demo_package.get_model_path(), num_blocks=1)  # type: ignore[attr-defined]
    model = SentenceTransformer(base, device="cpu")
    model.add_adapter(
        peft.LoraConfig(r=4, lora_alpha=320, target_modules=["query", "value", "dense"], init_lora_weights=False)
    )
    model.save(str(tmp_path / "lora"), create_model_card=False)
    texts = ["a warm room", "cold soup"]
    config = EncoderConfig(name=str(tmp_path / "lora"))
    loaded = encoder.load(config)
    embeddings = encoder.embed_texts(loaded, texts, "", unit=False)
    np.testing.assert_allclose(embeddings, model.encode(texts), atol=1e-5)
    assert np.abs(embeddings - SentenceTransformer(base, device="cpu").encode(texts)).max() > 1e-3
    with pytest.raises(InputError, match="has a PEFT adapter loaded"):
        encoder.check_no_adapter(loaded, config)


def test_untunable_encoder_is_rejected_but_can_be_a_reference(tiny_encoder: str, tmp_path: Path) -> None:
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


def test_router_is_rejected(tiny_encoder: str, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Router

    one, other = (list(SentenceTransformer(tiny_encoder, device="cpu")) for _ in range(2))
    router = Router.for_query_document(one, other, default_route="document")
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path / "routed"))
    with pytest.raises(
        InputError, match="cannot be tuned: its Router embeds queries and documents with different modules"
    ):
        prepare(tmp_path, model=str(tmp_path / "routed"))
