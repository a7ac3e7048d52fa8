"""Every family in the table: embeddings and gradients equal those of sentence-transformers, and freezing leaks nothing."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.structure import Structure
from raysweep.encoders.tokens import tokenize
from raysweep.training.batches import TrainedEncoder, embed_columns
from support.families import MODEL_TYPES, write_random_encoder

TEXTS = (
    "a warm room",
    "The soup was cold, and so was the waiter.",
    "It was the third evening in a row that nobody had lit the stove.",
    "no",
    "Zürich: 21.5 °C!",
    "a warm room, again",
)
IDS = np.array([[0, 1], [2, 3], [4, 5], [0, 4]])


@pytest.fixture(scope="module", params=MODEL_TYPES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    config = EncoderConfig(name=write_random_encoder(request.param, folder, demo_package.get_model_path()))
    return encoder.load(config)


def stock_columns(model: Any) -> list[torch.Tensor]:
    """Return the embeddings of the two columns of IDS by the model's own forward pass on padded texts."""
    columns = []
    for column in IDS.T:
        features = model.preprocess([TEXTS[i] for i in column])
        columns.append(model(features)["sentence_embedding"])
    return columns


def gradients(model: Any, columns: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    cosines = torch.nn.functional.cosine_similarity(*columns)
    (cosines - torch.tensor([1.0, 0.0, -1.0, 0.5])).square().sum().backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def test_embeddings_equal_those_of_encode(model: Any) -> None:
    embeddings = encoder.embed_texts(model, TEXTS, "", unit=False)
    expected = model.encode(list(TEXTS))
    assert np.abs(embeddings - expected).max() < 1e-5


def test_gradients_equal_those_of_the_stock_forward_pass(model: Any) -> None:
    expected = gradients(model, stock_columns(model))
    trained = TrainedEncoder(model, tokenize(model, TEXTS))
    computed = gradients(model, embed_columns(trained, IDS))
    assert computed.keys() == expected.keys()
    for name, gradient in expected.items():
        difference = (computed[name] - gradient).abs().max()
        assert difference <= 1e-4 * gradient.abs().max() + 1e-7, name


def test_frozen_parameters_get_no_gradient(model: Any) -> None:
    """Everything that the forward pass reads and a level does not freeze has a gradient, and nothing else."""
    structure = Structure.of(model)
    trained = TrainedEncoder(model, tokenize(model, TEXTS))
    read_parameters = set(gradients(model, stock_columns(model)))
    try:
        for level in structure.levels():
            frozen = structure.frozen_names(level)
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name not in frozen)
            assert set(gradients(model, embed_columns(trained, IDS))) == read_parameters - frozen, level
    finally:
        model.requires_grad_(True)
