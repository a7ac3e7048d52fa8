"""Encoders in the shapes of models that people tune: embeddings and gradients equal sentence-transformers' own."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder, packed
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.size import embedding_width
from raysweep.encoders.tokens import excluded_prompt_length, tokenize
from raysweep.errors import InputError
from raysweep.training.batches import TrainedEncoder, embed_columns
from support.kinds import SHAPES, TEMPLATE, write_shape, write_with_template

TEXTS = [
    "a warm room",
    "The soup was cold, and so was the waiter.",
    "It was the third evening in a row that nobody had lit the stove, so they sat in their coats.",
    "no",
    "Zürich: 21.5 °C!",
    "word " * 100,  # longer than the limit
]
IDS = np.array([[0, 1], [2, 3], [4, 5], [0, 4]])


@pytest.fixture(scope="module", params=SHAPES)
def loaded(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    demo_package: ModuleType,
) -> LoadedEncoder:
    folder = tmp_path_factory.mktemp("shape")
    config = EncoderConfig(
        name=write_shape(request.param, folder, Path(demo_package.get_model_path()))
    )
    return LoadedEncoder.load(config, "tuned")


@pytest.mark.parametrize("prompt", [None, "", "review this: "])
def test_embeddings_equal_those_of_encode(loaded: LoadedEncoder, prompt: str | None) -> None:
    prompted = LoadedEncoder.load(loaded.config.model_copy(update={"prompt": prompt}))
    library = SentenceTransformer(loaded.config.name, device="cpu")
    expected = library.encode(TEXTS, prompt=prompt)
    np.testing.assert_allclose(prompted.embed_texts(TEXTS, unit=False), expected, atol=1e-5)
    for text, row in zip(TEXTS, expected, strict=True):  # nothing depends on the batch
        np.testing.assert_allclose(library.encode(text, prompt=prompt), row, atol=1e-5)


def test_shortened_embeddings_equal_those_of_encode(loaded: LoadedEncoder, tmp_path: Path) -> None:
    library = SentenceTransformer(loaded.config.name, device="cpu", truncate_dim=8)
    library.save(str(tmp_path), create_model_card=False)
    config = EncoderConfig(name=str(tmp_path))
    expected = library.encode(TEXTS, normalize_embeddings=True)
    for role in ("reference", "expert", "evaluated"):
        shortened = LoadedEncoder.load(config, role)
        np.testing.assert_allclose(shortened.embed_texts(TEXTS), expected, atol=1e-5)
        assert shortened.width == 8
    with pytest.raises(InputError, match="cannot be tuned: truncate_dim is 8"):
        LoadedEncoder.load(config, "tuned")


def test_gradients_equal_those_of_the_stock_forward_pass(loaded: LoadedEncoder) -> None:
    model: Any = loaded.model
    prompt = loaded.source.prompt_of(loaded.config)

    def gradients(columns: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        cosines = torch.nn.functional.cosine_similarity(*columns)
        (cosines - torch.tensor([1.0, 0.0, -1.0, 0.5])).square().sum().backward()
        return {
            name: value.grad.clone()
            for name, value in model.named_parameters()
            if value.grad is not None
        }

    stock = [model.preprocess([TEXTS[i] for i in column], prompt=prompt) for column in IDS.T]
    expected = gradients([model(features)["sentence_embedding"] for features in stock])
    trained = TrainedEncoder(model, tokenize(model, TEXTS, prompt))
    computed = gradients(embed_columns([trained] * IDS.shape[1], IDS))
    assert computed.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (computed[name] - gradient).abs().max() <= 1e-4 * gradient.abs().max() + 1e-7, name


def test_width_in_the_files_is_that_of_the_embeddings(loaded: LoadedEncoder) -> None:
    """Also behind Dense heads; that of INSTRUCTOR is narrower than the hidden states."""
    assert embedding_width(loaded.source) == loaded.width


def test_prompts_are_left_out_of_packed_passes(tmp_path: Path, demo_package: ModuleType) -> None:
    folder = write_shape(
        "BERT without prompts in pooling", tmp_path, Path(demo_package.get_model_path())
    )
    loaded = LoadedEncoder.load(EncoderConfig(name=folder), "tuned")
    prompt = loaded.source.own_prompt()
    ids_of_prompt = loaded.model.tokenizer(prompt)["input_ids"]
    # without the final token
    assert excluded_prompt_length(loaded.model, prompt) == len(ids_of_prompt) - 1
    assert packed.is_packable(loaded.model)
    trained = TrainedEncoder(loaded.model, loaded.tokenize(TEXTS))
    (pack,) = trained.packs(np.arange(len(TEXTS)))
    assert len(pack) > 1
    with torch.no_grad():
        (column,) = embed_columns([trained], np.arange(len(TEXTS))[:, None])
    library = SentenceTransformer(folder, device="cpu")
    np.testing.assert_allclose(column.numpy(), library.encode(TEXTS), atol=1e-5)
    assert (
        np.abs(
            library.encode(TEXTS) - library.encode([prompt + text for text in TEXTS], prompt="")
        ).max()
        > 0.01
    )


@pytest.mark.parametrize("prompt", ["", "Represent this sentence."])
def test_chat_templates_are_rendered_as_by_encode(
    tmp_path: Path, demo_package: ModuleType, prompt: str
) -> None:
    folder = write_with_template(tmp_path, Path(demo_package.get_model_path()))
    loaded = LoadedEncoder.load(EncoderConfig(name=folder, prompt=prompt), "tuned")
    assert set(loaded.traits.modalities) == {"text", "message"}
    library = SentenceTransformer(folder, device="cpu")
    np.testing.assert_allclose(
        loaded.embed_texts(TEXTS, unit=False), library.encode(TEXTS, prompt=prompt), atol=1e-5
    )
    ids = loaded.tokenize(TEXTS[:1]).flat.tolist()
    system = f"[SEP] {prompt} " if prompt else ""
    assert (
        loaded.model.tokenizer.decode(ids)
        == f"{system.lower().replace('[sep]', '[SEP]')}[CLS] {TEXTS[0]} [SEP]"
    )


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{{ raise_exception('broken') }}", ""),
        ("{% for message in messages %}{{ message.content }", ""),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
            + TEMPLATE,
            "a: ",
        ),
    ],
)
def test_broken_templates_are_rejected_in_one_line(
    tmp_path: Path, demo_package: ModuleType, template: str, prompt: str
) -> None:
    folder = write_with_template(tmp_path, Path(demo_package.get_model_path()), template)
    with pytest.raises(
        InputError, match=f"chat template fails with prompt {prompt!r}: .*; allowed: "
    ) as caught:
        encoder.load(EncoderConfig(name=folder, prompt=prompt))
    assert "\n" not in str(caught.value)
