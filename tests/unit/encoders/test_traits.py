"""The traits of encoders, and the roles that models of every kind may have."""

import json
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder, locate_evaluated
from raysweep.encoders.locate import SETTINGS, locate
from raysweep.encoders.traits import FROZEN, ROLES, EncoderTraits, limits_of_files, notes
from raysweep.errors import InputError
from support.displays import ListDisplay
from support.kinds import REJECTED, write_bare, write_router, write_static

TEXTS = ["a warm room", "Cold soup, and a spoon of it for everybody who had come late", "no"]


@pytest.fixture
def tokenizer_of(demo_package: ModuleType) -> Path:
    return Path(demo_package.get_model_path())


@pytest.mark.parametrize("kind", REJECTED)
def test_kinds_without_roles_are_rejected_by_their_files(
    kind: str, tmp_path: Path, tokenizer_of: Path
) -> None:
    config = EncoderConfig(name=REJECTED[kind](tmp_path, tokenizer_of))
    limits = limits_of_files(locate(config))
    assert limits and not set.intersection(*(set(limit.roles) for limit in limits))
    for role in ROLES:
        with pytest.raises(InputError, match=f"{config.name}.*cannot be .*; allowed: "):
            encoder.load(config, role=role)


def test_clip_is_recognized_once_loaded(tmp_path: Path, tokenizer_of: Path) -> None:
    model = SentenceTransformer(REJECTED["CLIP"](tmp_path, tokenizer_of), device="cpu")
    traits = EncoderTraits.of(model)
    assert set(traits.modalities) == {"text", "image"}
    assert traits.roles == frozenset()


def test_models_of_an_unknown_class_are_rejected(tiny_encoder: str, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    settings = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(json.dumps({**settings, "model_type": "HyperEncoder"}))
    with pytest.raises(InputError, match=f"model_type is 'HyperEncoder' in its {SETTINGS}"):
        encoder.load(EncoderConfig(name=str(folder)))


def test_traits_of_a_dense_encoder(tiny_encoder: str) -> None:
    model = encoder.load(EncoderConfig(name=tiny_encoder), role="tuned")
    traits = EncoderTraits.of(model)
    assert traits.modalities == ("text",)
    assert (traits.padding_side, traits.similarity, traits.truncate_dim) == (
        "right",
        "cosine",
        None,
    )
    assert traits.embeds_tokens
    assert not traits.has_adapter and not traits.has_router
    assert traits.roles == ROLES == {"tuned", "reference", "expert", "evaluated"}


def test_a_loaded_adapter_can_only_be_evaluated(tiny_encoder: str) -> None:
    model = encoder.load(EncoderConfig(name=tiny_encoder))
    model[0].auto_model._hf_peft_config_loaded = True  # as transformers marks it
    assert EncoderTraits.of(model).roles == {"evaluated"}


def test_static_embeddings_may_have_every_role_but_tuned(
    tmp_path: Path, tokenizer_of: Path
) -> None:
    config = EncoderConfig(name=write_static(tmp_path / "static", tokenizer_of), prompt="query: ")
    loaded = LoadedEncoder.load(config, "reference")
    assert loaded.traits.roles == FROZEN
    assert not loaded.traits.has_attention_mask
    library = SentenceTransformer(config.name, device="cpu")
    expected = library.encode(TEXTS, prompt="query: ", normalize_embeddings=True)
    np.testing.assert_allclose(loaded.embed_texts(TEXTS), expected, atol=1e-6)
    with pytest.raises(InputError, match="cannot be tuned: it has static embeddings"):
        encoder.load(config, role="tuned")
    with pytest.raises(
        InputError, match="max_tokens is 8; allowed for static embeddings: no max_tokens"
    ):
        encoder.load(EncoderConfig(name=config.name, max_tokens=8))


@pytest.mark.parametrize("default_route", [None, "query"])
@pytest.mark.parametrize("prompt", [None, "", "review: "])
def test_router_embeds_queries_and_documents(
    tmp_path: Path, tokenizer_of: Path, default_route: str | None, prompt: str | None
) -> None:
    config = EncoderConfig(name=write_router(tmp_path, tokenizer_of, default_route), prompt=prompt)
    loaded = LoadedEncoder.load(config, "expert")
    assert loaded.traits.roles == FROZEN
    library = SentenceTransformer(config.name, device="cpu")
    queries = library.encode_query(TEXTS, prompt=prompt)
    documents = library.encode_document(TEXTS, prompt=prompt)
    np.testing.assert_allclose(
        loaded.embed_texts(TEXTS, side="query", unit=False), queries, atol=1e-6
    )
    np.testing.assert_allclose(loaded.embed_texts(TEXTS, unit=False), documents, atol=1e-6)
    both = loaded.embed_retrieval(TEXTS[:1], TEXTS[1:], unit=False)
    np.testing.assert_allclose(both, np.concatenate([queries[:1], documents[1:]]), atol=1e-5)
    assert np.abs(queries - documents).max() > 0.1
    with pytest.raises(InputError, match="cannot be tuned: its Router embeds"):
        encoder.load(config, role="tuned")


def test_pickled_weights_inside_a_router_are_rejected(tmp_path: Path, tokenizer_of: Path) -> None:
    folder = Path(write_router(tmp_path, tokenizer_of))
    weights = next(folder.rglob("query_0_Transformer/model.safetensors"))
    weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(InputError, match=r"query_0_Transformer/pytorch_model.bin may execute code"):
        encoder.load(EncoderConfig(name=str(folder)))


def test_notes_name_added_pooling_and_other_similarities(
    tiny_encoder: str, tmp_path: Path, tokenizer_of: Path
) -> None:
    bare = EncoderConfig(name=write_bare("BertModel", tmp_path / "bare", tokenizer_of))
    (note,) = notes(bare, "tuned", locate(bare))
    assert "mean pooling is added" in note
    model = SentenceTransformer(tiny_encoder, device="cpu")
    roles_with_note = {
        "cosine": set(),
        "dot": ROLES - {"evaluated"},
        "euclidean": ROLES,
        "manhattan": ROLES,
    }
    for similarity, expected in roles_with_note.items():
        model.similarity_fn_name = similarity
        model.save(str(tmp_path / similarity), create_model_card=False)
        config = EncoderConfig(name=str(tmp_path / similarity))
        assert {role for role in ROLES if notes(config, role, locate(config))} == expected
    display = ListDisplay()
    locate_evaluated(config, display)
    assert any("manhattan" in line and config.name in line for line in display.lines)
