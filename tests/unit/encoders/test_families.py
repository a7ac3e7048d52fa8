"""Every family in the table: embeddings and gradients equal those of sentence-transformers, freezing leaks nothing, and
adapters equal those of peft."""

import copy
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from raysweep.config.adapter import TARGETS, Lora
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import adapter, encoder
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


def layers_in_blocks(model: Any) -> set[str]:
    """Return the linear layers in a block, whose names contain its number."""
    modules = model[0].auto_model.named_modules()
    return {
        name for name, module in modules if isinstance(module, torch.nn.Linear) and re.search(r"\.\d+\.", f".{name}")
    }


def test_targets_are_the_linear_layers_of_the_blocks(model: Any) -> None:
    structure = Structure.of(model)
    linear = [name for name, module in model[0].auto_model.named_modules() if isinstance(module, torch.nn.Linear)]
    attention, feed_forward, all_linear = (set(structure.adapted_layers(linear, targets)) for targets in TARGETS)
    assert all_linear == layers_in_blocks(model) == attention | feed_forward
    assert attention == {name for name in all_linear if re.search("att", name, re.IGNORECASE)}
    assert not attention & feed_forward


def test_adapter_gradients_equal_those_of_peft(model: Any) -> None:
    """The expected gradients are those of peft's own model, in the stock forward pass."""
    peft = pytest.importorskip("peft")
    stock = copy.deepcopy(model)
    layers = sorted(layers_in_blocks(stock))
    peft_config = peft.LoraConfig(r=3, lora_alpha=5.0, target_modules=layers)
    stock.requires_grad_(False)
    peft.get_peft_model(stock[0].auto_model, peft_config)
    embeddings = encoder.embed_texts(model, TEXTS, "", unit=False)
    names = list(model.state_dict())
    adapter.attach(model, Structure.of(model), Lora(rank=3, alpha=5.0, targets="all_linear"))
    try:
        assert np.array_equal(encoder.embed_texts(model, TEXTS, "", unit=False), embeddings)
        parameters, stock_parameters = dict(model.named_parameters()), dict(stock.named_parameters())
        adapted = {name for name, parameter in parameters.items() if parameter.requires_grad}
        assert adapted == {name for name, parameter in stock_parameters.items() if parameter.requires_grad}
        with torch.no_grad():
            for name in sorted(adapted):
                parameters[name].copy_(0.2 * torch.randn(parameters[name].shape))
                stock_parameters[name].copy_(parameters[name])
        expected = gradients(stock, stock_columns(stock))
        computed = gradients(model, embed_columns(TrainedEncoder(model, tokenize(model, TEXTS)), IDS))
        assert computed.keys() == expected.keys() == adapted
        for name, gradient in expected.items():
            difference = (computed[name] - gradient).abs().max()
            assert difference <= 1e-4 * gradient.abs().max() + 1e-7, name
    finally:
        adapter.remove(model)
        model.requires_grad_(True)
    assert list(model.state_dict()) == names
    assert np.array_equal(encoder.embed_texts(model, TEXTS, "", unit=False), embeddings)
