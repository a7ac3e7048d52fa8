"""Every family in the table: embeddings, gradients, adapters and exports equal those of the libraries."""

import copy
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from raysweep.config.adapter import TARGETS, Lora
from raysweep.config.loss_spec import EXAMPLES
from raysweep.config.losses import LOSSES
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import adapter, encoder
from raysweep.encoders.structure import Structure
from raysweep.encoders.tokens import tokenize
from raysweep.export import model_card
from raysweep.export.export import export
from raysweep.training.batch import Batch
from raysweep.training.batches import TrainedEncoder, embed_columns
from raysweep.training.block_checkpoints import BlockCheckpoints
from raysweep.training.dropout import Dropouts
from raysweep.training.losses import build
from raysweep.training.trainable import Trainable
from support.encoders import trial
from support.families import MODEL_TYPES, write_random_encoder
from support.losses import expected_loss
from support.minimal_run import write_minimal_run

TEXTS = (
    "a warm room",
    "The soup was cold, and so was the waiter.",
    "It was the third evening in a row that nobody had lit the stove.",
    "no",
    "Zürich: 21.5 °C!",
    "a warm room, again",
)
CLASSES = np.array([0, 0, 1, 1, 2, 2])
IDS = np.array([[0, 1, 2], [1, 0, 4], [2, 3, 5], [3, 2, 0], [4, 5, 1], [5, 4, 3]])
"""Sentence ids of triplets; the other kinds of examples are their first columns."""
NUM_BLOCKS = 3
TARGETS_OF_PAIRS = {
    "none": None,
    "float": torch.tensor([1.0, 0.0, 0.7, 0.2, 1.0, -0.5]),
    "class": torch.tensor([1, 0, 1, 0, 0, 1]),
}
REFERENCE = torch.nn.functional.normalize(
    torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
)


@pytest.fixture(scope="module", params=MODEL_TYPES)
def config(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    demo_package: ModuleType,
) -> EncoderConfig:
    folder = tmp_path_factory.mktemp(request.param)
    return EncoderConfig(
        name=write_random_encoder(request.param, folder, demo_package.get_model_path())
    )


@pytest.fixture(scope="module")
def model(config: EncoderConfig) -> Any:
    return encoder.load(config)


def stock_columns(model: Any) -> list[torch.Tensor]:
    """Return the embeddings of the columns of IDS by the model's own forward pass on padded texts."""
    embeddings = model(model.preprocess(list(TEXTS)))["sentence_embedding"]
    return [embeddings[column] for column in IDS.T]


def own_columns(model: Any) -> list[torch.Tensor]:
    return embed_columns([TrainedEncoder(model, tokenize(model, TEXTS))] * IDS.shape[1], IDS)


def gradients(model: Any, columns: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the gradient of a loss of the columns for each parameter that it depends on."""
    model.zero_grad()
    cosines = torch.nn.functional.cosine_similarity(*columns[:2])
    (cosines - torch.tensor([1.0, 0.0, -1.0, 0.5, 1.0, 0.0])).square().sum().backward()
    return {
        name: value.grad.clone()
        for name, value in model.named_parameters()
        if value.grad is not None
    }


def check_gradients(computed: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Check that gradients agree to a relative 1e-4; those that are zero, as of key biases, are rounding errors."""
    assert computed.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 1e-6
    for name, gradient in expected.items():
        difference = (computed[name] - gradient).abs().max()
        assert difference <= 1e-4 * gradient.abs().max() + 1e-6 * largest, name


def test_embeddings_equal_those_of_encode(model: Any) -> None:
    embeddings = encoder.embed_texts(model, TEXTS, "", unit=False)
    expected = model.encode(list(TEXTS))
    assert np.abs(embeddings - expected).max() < 1e-5


def test_gradients_of_every_loss_equal_those_of_the_stock_forward_pass(model: Any) -> None:
    """The library's losses of stock embeddings, and raysweep's of its own; all losses share the two forward passes."""
    own, stock = own_columns(model), stock_columns(model)
    for name, loss in LOSSES.items():
        schema = EXAMPLES[loss.examples]
        num_columns = len(schema.columns)
        ids = IDS[:, :num_columns]
        targets = (
            torch.from_numpy(CLASSES) if num_columns == 1 else TARGETS_OF_PAIRS[schema.targets]
        )
        labels = torch.from_numpy(CLASSES[ids])
        own_batch, stock_batch = (
            Batch(
                columns[:num_columns],
                targets,
                ids,
                labels,
                lambda column, ids=ids: REFERENCE[ids[:, column]],
            )
            for columns in (own, stock)
        )
        module: Any = build(name, loss.defaults, model, width=own[0].shape[1], num_labels=3)
        parameters = dict(module.named_parameters())
        values = (
            module.compute_loss(own_batch),
            expected_loss(name, loss.defaults, stock_batch, getattr(module, "head", None)),
        )
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-6, msg=name)
        computed, expected = (
            torch.autograd.grad(value, [*parameters.values()], retain_graph=True, allow_unused=True)
            for value in values
        )
        check_gradients(
            *(
                {
                    key: gradient
                    for key, gradient in zip(parameters, found, strict=True)
                    if gradient is not None
                }
                for found in (computed, expected)
            )
        )


def test_frozen_parameters_get_no_gradient(model: Any) -> None:
    """Everything that the forward pass reads and a level does not freeze has a gradient, and nothing else."""
    structure = Structure.of(model)
    read_parameters = set(gradients(model, stock_columns(model)))
    try:
        for level in structure.levels():
            frozen = structure.frozen_names(level)
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name not in frozen)
            assert set(gradients(model, own_columns(model))) == read_parameters - frozen, level
    finally:
        model.requires_grad_(True)


def layers_in_blocks(model: Any) -> set[str]:
    """Return the linear layers in a block, whose names contain its number."""
    modules = model[0].auto_model.named_modules()
    return {
        name
        for name, module in modules
        if isinstance(module, torch.nn.Linear) and re.search(r"\.\d+\.", f".{name}")
    }


def test_targets_are_the_linear_layers_of_the_blocks(model: Any) -> None:
    structure = Structure.of(model)
    linear = [
        name
        for name, module in model[0].auto_model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    attention, feed_forward, all_linear = (
        set(structure.adapted_layers(linear, targets)) for targets in TARGETS
    )
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
        parameters, stock_parameters = (
            dict(model.named_parameters()),
            dict(stock.named_parameters()),
        )
        adapted = {name for name, parameter in parameters.items() if parameter.requires_grad}
        assert adapted == {
            name for name, parameter in stock_parameters.items() if parameter.requires_grad
        }
        with torch.no_grad():
            for name in sorted(adapted):
                parameters[name].copy_(0.2 * torch.randn(parameters[name].shape))
                stock_parameters[name].copy_(parameters[name])
        expected = gradients(stock, stock_columns(stock))
        computed = gradients(model, own_columns(model))
        assert computed.keys() == adapted
        check_gradients(computed, expected)
    finally:
        adapter.remove(model)
        model.requires_grad_(True)
    assert list(model.state_dict()) == names
    assert np.array_equal(encoder.embed_texts(model, TEXTS, "", unit=False), embeddings)


def test_exported_encoder_equals_the_trained_one(
    config: EncoderConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run stores only what a level leaves trainable; the rest comes from the base model."""
    trainable = Trainable(encoder.load(config))
    base = encoder.embed_texts(trainable.model, TEXTS, "", unit=False)
    trainable.start(trial(freezing="emb"))
    with torch.no_grad():
        for parameter in trainable.parameters.values():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    expected = encoder.embed_texts(trainable.model, TEXTS, "", unit=False)
    assert np.abs(expected - base).max() > 1e-3
    write_minimal_run(tmp_path / "run", config, trainable.trained(), freezing="emb")
    monkeypatch.setattr(model_card, "write", lambda *arguments: None)  # draws figures
    export(tmp_path / "run", "0:1", tmp_path / "model")
    exported = SentenceTransformer(str(tmp_path / "model"), device="cpu", local_files_only=True)
    assert np.abs(exported.encode(list(TEXTS)) - expected).max() < 1e-5


def kept_bytes(
    model: Any, checkpoints: BlockCheckpoints | None
) -> tuple[int, dict[str, torch.Tensor]]:
    """Return the bytes that a forward pass keeps for the backward pass, without parameters, and the gradients."""
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        columns = embed_columns(
            [TrainedEncoder(model, tokenize(model, TEXTS), checkpoints)] * IDS.shape[1], IDS
        )
        num_bytes = sum(kept.values())
    return num_bytes, gradients(model, columns)


def test_checkpointed_blocks_give_the_same_gradients(config: EncoderConfig) -> None:
    """With dropout, whose masks are drawn again, and with much less memory for activations."""
    model = encoder.load(config)
    dropouts = Dropouts(model, "cpu")
    dropouts.set(0.2)
    model.train()
    results = []
    for checkpoints in (None, BlockCheckpoints(model, dropouts)):
        torch.manual_seed(3)
        dropouts.generator.seed(3)
        results.append(kept_bytes(model, checkpoints))
    (num_bytes, expected), (fewer_bytes, computed) = results
    check_gradients(computed, expected)
    assert fewer_bytes < 0.5 * num_bytes
    assert not any("forward" in vars(module) for module in model.modules())


def test_bf16_weights_equal_rounded_ones(config: EncoderConfig) -> None:
    """Embeddings and an adapter's gradients are those of an fp32 encoder with the rounded matrices."""
    pytest.importorskip("peft")
    models = [
        encoder.load(config.model_copy(update={"weights": weights})) for weights in ("bf16", "fp32")
    ]
    narrow = {
        name: value for name, value in models[0].named_parameters() if value.dtype == torch.bfloat16
    }
    assert len(narrow) >= len(layers_in_blocks(models[1])) - NUM_BLOCKS
    with torch.no_grad():
        for name, value in narrow.items():
            rounded = models[1].get_parameter(name)
            assert torch.equal(rounded.bfloat16(), value)
            rounded.copy_(value)
    columns = [own_columns(model) for model in models]
    torch.testing.assert_close(*columns, rtol=0, atol=1e-5)
    lora = trial(adapter="lora", lora_rank=2)
    for model in models:
        trainable = Trainable(model)
        torch.manual_seed(5)
        trainable.start(lora)
        for parameter in trainable.parameters.values():
            torch.nn.init.normal_(parameter, std=0.2)
    check_gradients(*(gradients(model, own_columns(model)) for model in models))
