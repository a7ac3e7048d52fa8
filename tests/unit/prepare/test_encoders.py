"""The prompts of a sweep's encoders, and encoders that a sweep rejects."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.sides import Sides
from raysweep.config.sweep import EncoderConfig, EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.locate import ADAPTER, SETTINGS
from raysweep.encoders.tokens import Tokens
from raysweep.encoders.traits import EncoderTraits
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import make_plan
from raysweep.training.workbench import Workbench
from support.displays import ListDisplay
from support.encoders import PROMPTED, tiny_bert, write_nan_encoder, write_with_prompts
from support.kinds import REJECTED, write_router, write_shape, write_static
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
    np.testing.assert_allclose(
        np.asarray(prepared.reference_embeddings.document)[:], expected, atol=1e-5
    )
    tokens = Tokens.open(prepared.tokens_artifacts.document.folder)
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
    assert own.tokens_artifacts.document != without.tokens_artifacts.document
    assert own.examples_artifacts != without.examples_artifacts


def test_prompts_of_sides_have_artifacts_of_their_own(tiny_encoder: str, tmp_path: Path) -> None:
    """Equal prompts are one prompt, and each side has the artifact of its prompt."""
    both, query, document, equal = (prepare(tmp_path, model=json.dumps({"name": tiny_encoder, "prompt": prompt})) for prompt in (
        {"query": "q: ", "document": "d: "}, "q: ", "d: ", {"query": "d: ", "document": "d: "}
    ))  # fmt: skip
    assert equal == document
    assert both.tokens_artifacts == Sides(
        query.tokens_artifacts.query, document.tokens_artifacts.document
    )
    assert both.reference_artifacts == both.tokens_artifacts
    assert both.examples_artifacts == document.examples_artifacts
    assert both.model["prompt"] == {"query": "q: ", "document": "d: "}
    both.save(tmp_path / "prepared.json")
    assert Prepared.open(tmp_path / "prepared.json") == both
    texts = both.sentences.texts(np.arange(20))
    model = SentenceTransformer(
        tiny_encoder, prompts={"query": "q: ", "document": "d: "}, device="cpu"
    )
    for rows, encode in (
        (both.reference_embeddings.query, model.encode_query),
        (both.reference_embeddings.document, model.encode_document),
    ):
        np.testing.assert_allclose(np.asarray(rows)[:], encode(texts), atol=1e-5)


@pytest.mark.parametrize("key", ["model", "reference", "examples.encoder"])
def test_adapter_is_rejected_before_preparing(tiny_encoder: str, tmp_path: Path, key: str) -> None:
    """The adapter is in the model's folder or in a module's folder, with or without base weights."""
    adapted = shutil.copytree(tiny_encoder, tmp_path / "lora")
    (adapted / ADAPTER).write_text(
        json.dumps({"peft_type": "LORA", "base_model_name_or_path": "base"})
    )
    (tmp_path / "train.csv").write_text(ROWS)
    overrides = {
        "data__train": str(tmp_path / "train.csv"),
        "storage__runs": str(tmp_path / "runs"),
        "model": tiny_encoder,
    }
    overrides[key.replace(".", "__")] = str(adapted)
    with pytest.raises(
        InputError,
        match=r"lora' cannot be .*: it has a PEFT adapter \(adapter_config.json\); allowed: ",
    ):
        prepare_here(*read(tmp_path, SWEEP, **overrides))
    modules = json.loads((adapted / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (adapted / "modules.json").write_text(json.dumps(modules))
    (adapted / "0_Transformer").mkdir()
    (adapted / ADAPTER).rename(adapted / "0_Transformer" / ADAPTER)
    with pytest.raises(InputError, match="it has a PEFT adapter"):
        make_plan(*read(tmp_path, SWEEP, **overrides))
    assert not (tmp_path / "runs").exists()


def test_missing_peft_package_is_reported(
    tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    adapted = shutil.copytree(tiny_encoder, tmp_path / "lora")
    (adapted / ADAPTER).write_text("{}")
    with pytest.raises(InputError, match=r"requires the peft package; .*: pip install peft$"):
        encoder.load(EncoderConfig(name=str(adapted)))


def test_adapter_of_an_untuned_encoder_is_applied(demo_package: object, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = tiny_bert(tmp_path, demo_package.get_model_path(), num_blocks=1)  # type: ignore[attr-defined]
    model = SentenceTransformer(base, device="cpu")
    model.add_adapter(
        peft.LoraConfig(
            r=4, lora_alpha=320, target_modules=["query", "value", "dense"], init_lora_weights=False
        )
    )
    model.save(str(tmp_path / "lora"), create_model_card=False)
    texts = ["a warm room", "cold soup"]
    config = EncoderConfig(name=str(tmp_path / "lora"))
    loaded = encoder.load(config)
    embeddings = encoder.embed_texts(loaded, texts, "", unit=False)
    np.testing.assert_allclose(embeddings, model.encode(texts), atol=1e-5)
    assert np.abs(embeddings - SentenceTransformer(base, device="cpu").encode(texts)).max() > 1e-3
    assert EncoderTraits.of(loaded).roles == {"evaluated"}


def test_untunable_encoder_is_rejected_but_can_be_a_reference(
    tiny_encoder: str, tmp_path: Path
) -> None:
    settings = json.loads((Path(tiny_encoder) / SETTINGS).read_text())
    shorter = shutil.copytree(tiny_encoder, tmp_path / "shorter")
    (shorter / SETTINGS).write_text(json.dumps({**settings, "truncate_dim": 16}))
    with pytest.raises(
        InputError,
        match=r"cannot be tuned: truncate_dim is 16 in its config_sentence_transformers.json",
    ):
        prepare(tmp_path, model=str(shorter))
    prepared = prepare(tmp_path, model=tiny_encoder, reference=str(shorter))
    texts = prepared.sentences.texts(np.arange(20))
    expected = SentenceTransformer(str(shorter), device="cpu").encode(
        texts, normalize_embeddings=True
    )
    np.testing.assert_allclose(
        np.asarray(prepared.reference_embeddings.document)[:], expected, atol=1e-5
    )


@pytest.mark.parametrize("kind", REJECTED)
@pytest.mark.parametrize("key", ["model", "reference", "examples__encoder"])
def test_kinds_without_roles_are_rejected_before_preparing(
    demo_package: ModuleType, tmp_path: Path, kind: str, key: str
) -> None:
    rejected = REJECTED[kind](tmp_path / "model", Path(demo_package.get_model_path()))
    with pytest.raises(InputError, match=f"model '{rejected}' cannot be "):
        prepare(tmp_path, **{key: rejected})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("write", [write_static, write_router])
def test_frozen_kinds_are_references_but_not_tuned(
    demo_package: ModuleType, tiny_encoder: str, tmp_path: Path, write: Callable[..., str]
) -> None:
    """Static embeddings, and a Router, which embeds queries and documents with different modules."""
    frozen = write(tmp_path / "frozen", Path(demo_package.get_model_path()))
    with pytest.raises(InputError, match="cannot be tuned: "):
        prepare(tmp_path, model=frozen)
    prepared = prepare(tmp_path, model=tiny_encoder, reference=frozen, examples__encoder=frozen)
    texts = prepared.sentences.texts(np.arange(20))
    library = SentenceTransformer(frozen, device="cpu")
    expected = library.encode_document(texts, normalize_embeddings=True)
    np.testing.assert_allclose(
        np.asarray(prepared.reference_embeddings.document)[:], expected, atol=1e-5
    )
    expected = library.encode_query(texts, normalize_embeddings=True)
    np.testing.assert_allclose(
        np.asarray(prepared.reference_embeddings.query)[:], expected, atol=1e-5
    )
    assert prepared.reference_artifacts.is_shared == (write is write_static)
    assert prepared.model["prompt"] == ""


def test_only_tokens_of_a_tuned_encoder_are_prepared(
    tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    embed = LoadedEncoder.embed

    def record(self: LoadedEncoder, tokens: Tokens) -> Any:
        embedded.append(self.config.name)
        return embed(self, tokens)

    monkeypatch.setattr(LoadedEncoder, "embed", record)
    other = shutil.copytree(tiny_encoder, tmp_path / "other")
    (other / "changed.txt").write_text("another identity")
    prepared = prepare(tmp_path, model=str(other), reference=tiny_encoder)
    assert embedded == [tiny_encoder]
    artifact = prepared.tokens_artifacts.document
    assert artifact.name.startswith("tokens-")
    assert {path.suffix for path in artifact.folder.iterdir()} == {".arrow", ".json"}
    alone = prepare(tmp_path, model=str(other))
    assert alone.tokens_artifacts.document == alone.reference_artifacts.document
    for key in ("parameter_names", "width", "num_tokens"):
        assert artifact.summary[key] == alone.tokens_artifacts.document.summary[key]
    tokens, same = (
        Tokens.open(item.folder) for item in (artifact, alone.tokens_artifacts.document)
    )
    np.testing.assert_array_equal(tokens.flat, same.flat)
    np.testing.assert_array_equal(tokens.offsets, same.offsets)
    mined = prepare(
        tmp_path, model=str(other), reference=tiny_encoder, examples__encoder=str(other)
    )
    assert mined.tokens_artifacts.document == alone.tokens_artifacts.document


def test_weights_that_are_not_finite_are_found_while_tokenizing(
    tiny_encoder: str, tmp_path: Path
) -> None:
    broken = write_nan_encoder(tiny_encoder, tmp_path / "broken")
    with pytest.raises(
        InputError, match=f"model '{broken}': its embeddings contain NaN or infinity"
    ):
        prepare(tmp_path, model=broken, reference=tiny_encoder)


def test_a_prompt_excluded_from_pooling_is_embedded_and_trained(
    tmp_path: Path, demo_package: ModuleType
) -> None:
    model = write_shape(
        "BERT without prompts in pooling", tmp_path / "model", Path(demo_package.get_model_path())
    )
    prepared = prepare(tmp_path, model=model)
    texts = prepared.sentences.texts(np.arange(20))
    expected = SentenceTransformer(model, device="cpu").encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(
        np.asarray(prepared.reference_embeddings.document)[:], expected, atol=1e-5
    )
    bench = Workbench(prepared, EvaluationConfig(k=2))
    trained = encoder.embed(bench.model, bench.tokens.document, np.arange(20))
    np.testing.assert_allclose(trained, expected, atol=1e-5)


def test_notes_are_shown_when_a_sweep_starts(tiny_encoder: str, tmp_path: Path) -> None:
    model = SentenceTransformer(tiny_encoder, device="cpu")
    model.similarity_fn_name = "dot"
    model.save(str(tmp_path / "dot"), create_model_card=False)
    (tmp_path / "train.csv").write_text(ROWS)
    places = {"data__train": str(tmp_path / "train.csv"), "storage__runs": str(tmp_path / "runs")}
    display = ListDisplay()
    prepare_here(*read(tmp_path, SWEEP, **places, model=str(tmp_path / "dot")), display)
    (line,) = (line for line in display.lines if "dot" in line and "cosine" in line)
    assert str(tmp_path / "dot") in line
