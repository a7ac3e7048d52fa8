"""Every family on a GPU: embeddings and gradients equal those of the stock forward pass on a CPU."""

import copy
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from raysweep.config.adapter import Lora
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import adapter, encoder
from raysweep.encoders.structure import Structure
from raysweep.encoders.tokens import tokenize
from raysweep.training.batches import TrainedEncoder, embed_columns
from raysweep.training.block_checkpoints import BlockCheckpoints
from raysweep.training.dropout import Dropouts
from support.families import MODEL_TYPES, write_random_encoder

TEXTS = (
    "a warm room",
    "The soup was cold, and so was the waiter.",
    "It was the third evening in a row that nobody had lit the stove.",
    "no",
)
PAIRS = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
COSINES = torch.tensor([1.0, 0.0, -1.0, 0.5])


@pytest.fixture(scope="module", params=MODEL_TYPES)
def models(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    demo_package: ModuleType,
) -> Any:
    """Return the same encoder on a GPU and on a CPU."""
    pytest.importorskip("peft")
    folder = tmp_path_factory.mktemp(request.param)
    name = write_random_encoder(request.param, folder, demo_package.get_model_path())
    model = encoder.load(EncoderConfig(name=name), device="cuda")
    return model, copy.deepcopy(model).to("cpu")


def own_columns(model: Any, checkpoints: BlockCheckpoints | None = None) -> list[torch.Tensor]:
    trained = TrainedEncoder(model, tokenize(model, TEXTS), checkpoints)
    return embed_columns([trained, trained], PAIRS)


def stock_columns(model: Any) -> list[torch.Tensor]:
    embeddings = model(model.preprocess(list(TEXTS)))["sentence_embedding"]
    return [embeddings[column] for column in PAIRS.T]


def gradients(model: Any, columns: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    cosines = torch.nn.functional.cosine_similarity(*columns)
    (cosines - COSINES.to(cosines.device)).square().sum().backward()
    return {
        name: value.grad.cpu().clone()
        for name, value in model.named_parameters()
        if value.grad is not None
    }


def check_gradients(computed: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Check that gradients agree to a relative 1e-3; those that are zero, as of key biases, are rounding errors."""
    assert computed.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        difference = (computed[name] - gradient).abs().max()
        assert difference <= 1e-3 * gradient.abs().max() + 1e-5 * largest, name


def test_embeddings(models: Any) -> None:
    on_gpu, on_cpu = models
    embeddings = encoder.embed_texts(on_gpu, TEXTS, "", unit=False)
    assert np.abs(embeddings - on_cpu.encode(list(TEXTS))).max() < 1e-4


def test_gradients(models: Any) -> None:
    on_gpu, on_cpu = models
    check_gradients(
        gradients(on_gpu, own_columns(on_gpu)), gradients(on_cpu, stock_columns(on_cpu))
    )


def test_gradients_of_an_adapter(models: Any) -> None:
    for model in models:
        torch.manual_seed(0)
        adapter.attach(model, Structure.of(model), Lora(rank=3, alpha=5.0, targets="all_linear"))
    parameters = [dict(model.named_parameters()) for model in models]
    try:
        with torch.no_grad():
            for name, value in parameters[1].items():
                if value.requires_grad:
                    torch.nn.init.normal_(value, std=0.2)
                    parameters[0][name].copy_(value)
        on_gpu, on_cpu = models
        check_gradients(
            gradients(on_gpu, own_columns(on_gpu)), gradients(on_cpu, stock_columns(on_cpu))
        )
    finally:
        for model in models:
            adapter.remove(model)
            model.requires_grad_(True)


def test_checkpointed_blocks_with_dropout(models: Any) -> None:
    model = copy.deepcopy(models[0])
    dropouts = Dropouts(model, "cuda")
    dropouts.set(0.2)
    model.train()
    results = []
    for checkpoints in (None, BlockCheckpoints(model, dropouts)):
        torch.manual_seed(3)
        results.append(gradients(model, own_columns(model, checkpoints)))
    check_gradients(results[1], results[0])
