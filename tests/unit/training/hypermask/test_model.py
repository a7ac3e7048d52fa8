"""The masked network, its penalties and the inferred tasks equal a transcription in NumPy."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
import torch

from raysweep.training.hypermask.masks import MaskKind
from raysweep.training.hypermask.model import (
    HyperMask,
    MaskSettings,
    entropies,
    infer_tasks,
    masked_weights,
)
from raysweep.training.hypermask.sequence import seeded
from raysweep.training.hypermask.targets import Adapter, Classifier, Target

Array = npt.NDArray[np.float64]

NUM_TASKS = 3
NUM_CLASSES = (2, 4, 3)


def build(target_class: type[Target] = Classifier, **settings: object) -> HyperMask:
    with seeded(1):
        target = target_class(5, [6], NUM_CLASSES)  # type: ignore[call-arg]
        model = HyperMask(
            target, NUM_TASKS, MaskSettings(embedding_size=4, hidden_layers=(7,), **settings)
        )  # type: ignore[arg-type]
    return model.double()


def perturb(model: HyperMask) -> None:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)


def state(model: HyperMask) -> dict[str, Array]:
    return {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def raw_outputs(weights: Mapping[str, Array]) -> Array:
    """Return the hypernetwork's outputs of every task, (tasks, weights)."""
    name = "hypernetwork.layers"
    hidden = (
        weights["hypernetwork.embeddings.weight"] @ weights[f"{name}.0.weight"].T
        + weights[f"{name}.0.bias"]
    )
    hidden = np.where(hidden > 0, hidden, np.expm1(hidden))
    return np.tanh(hidden @ weights[f"{name}.2.weight"].T + weights[f"{name}.2.bias"])


def numpy_masks(
    weights: Mapping[str, Array], task: int, percent: float, kind: str
) -> dict[str, Array]:
    outputs = raw_outputs(weights)[task]
    masks, start = {}, 0
    for name, weight in weights.items():
        if not name.startswith("target.") or name == "target.heads.linears.0.bias":
            continue
        values = outputs[start : start + weight.size].reshape(weight.shape)
        start += weight.size
        kept = np.abs(values) if kind == "absolute" else values
        masks[name] = (
            np.where(np.abs(values) > np.percentile(np.abs(values), percent), kept, 0)
            if percent
            else kept
        )
    assert start == len(outputs)
    return masks


def numpy_layers(
    weights: Mapping[str, Array], masks: Mapping[str, Array], inputs: Array
) -> tuple[Array, Array]:
    """Return the layers before the heads of a classifier and of an adapter."""
    masked = {name: weight * masks.get(name, 1.0) for name, weight in weights.items()}
    hidden = np.maximum(inputs @ masked["target.body.0.weight"].T + masked["target.body.0.bias"], 0)
    if "target.body.2.weight" not in masked:
        return hidden, hidden
    sums = inputs + hidden @ masked["target.body.2.weight"].T + masked["target.body.2.bias"]
    embeddings = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return embeddings, embeddings * np.sqrt(inputs.shape[1])


def numpy_logits(
    weights: Mapping[str, Array], masks: Mapping[str, Array], features: Array, task: int
) -> Array:
    head = weights["target.heads.linears.0.weight"] * masks["target.heads.linears.0.weight"]
    return (features @ head.T + weights["target.heads.linears.0.bias"])[:, : NUM_CLASSES[task]]


@pytest.mark.parametrize("kind", ["signed", "absolute"])
@pytest.mark.parametrize("percent", [0.0, 30.0])
@pytest.mark.parametrize("target_class", [Classifier, Adapter])
def test_outputs_equal_numpy(kind: MaskKind, percent: float, target_class: type[Target]) -> None:
    model = build(target_class, kind=kind, percent=percent)
    inputs = np.random.default_rng(3).normal(size=(8, 5))
    for task in range(NUM_TASKS):
        weights = state(model)
        masks = numpy_masks(weights, task, percent, kind)
        for name, mask in model.masks(task).items():
            np.testing.assert_allclose(mask.detach(), masks[f"target.{name}"], atol=1e-6)
        embeddings, features = numpy_layers(weights, masks, inputs)
        output = model(torch.from_numpy(inputs), task)
        np.testing.assert_allclose(output.embeddings.detach(), embeddings, atol=1e-6)
        np.testing.assert_allclose(
            output.logits.detach(), numpy_logits(weights, masks, features, task), atol=1e-6
        )


def test_penalties_equal_numpy() -> None:
    for masked in (True, False):
        model = build(percent=30, masked=masked, kind="signed")
        weights_before = state(model)
        before = model.snapshot(2)
        perturb(model)
        weights = state(model)

        changes = raw_outputs(weights)[:2] - raw_outputs(weights_before)[:2]
        output_loss = np.mean([np.sum(change**2) for change in changes])
        masks = numpy_masks(weights, 2, 30, "signed") if masked else {}
        target_loss = sum(
            np.sum(np.abs(weight - weights_before[name]) * np.abs(masks.get(name, 1.0)))
            for name, weight in weights.items()
            if name.startswith("target.")
        )
        assert model.output_loss(before).item() == pytest.approx(output_loss, rel=1e-6)
        assert model.target_loss(before, model.masks(2)).item() == pytest.approx(
            target_loss, rel=1e-6
        )


def test_no_penalty_before_the_first_task() -> None:
    model = build()
    before = model.snapshot(0)
    perturb(model)
    assert model.output_loss(before).item() == 0


def test_inferred_tasks_equal_numpy() -> None:
    model = build(percent=20, kind="signed")
    perturb(model)
    inputs = np.random.default_rng(3).normal(size=(40, 5))
    weights = state(model)
    expected = []
    for task in range(NUM_TASKS):
        masks = numpy_masks(weights, task, 20, "signed")
        logits = numpy_logits(weights, masks, numpy_layers(weights, masks, inputs)[1], task)
        odds = np.exp(logits)
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        expected.append(-np.sum(probabilities * np.log(probabilities), axis=1))
    tensor = torch.from_numpy(inputs)
    np.testing.assert_allclose(entropies(model, tensor, range(NUM_TASKS)), expected, atol=1e-6)
    np.testing.assert_array_equal(
        infer_tasks(model, tensor, range(NUM_TASKS)), np.argmin(expected, axis=0)
    )
    np.testing.assert_array_equal(
        infer_tasks(model, tensor, [2, 1]), 2 - np.argmin(expected[:0:-1], axis=0)
    )


def test_entropies_of_certain_classes_are_zero() -> None:
    model = build()
    with torch.no_grad():
        model.target.get_parameter("heads.linears.0.bias")[0] = 1e4
    assert entropies(model, torch.zeros(2, 5, dtype=torch.float64), [0, 1]).tolist() == [
        [0, 0],
        [0, 0],
    ]


def test_a_target_without_masks_can_load_a_tasks_weights() -> None:
    model = build(Adapter, percent=30)
    plain = build(Adapter).target
    plain.load_state_dict(masked_weights(model.target, model.masks(1)))
    inputs = torch.randn(4, 5, dtype=torch.float64)
    assert torch.equal(plain(inputs, 1).logits, model(inputs, 1).logits)


def test_heads_per_task_are_masked_except_their_biases() -> None:
    target = Classifier(5, [6], NUM_CLASSES, heads="per_task")
    model = HyperMask(target, NUM_TASKS, MaskSettings())
    unmasked = {name for name, _ in target.named_parameters()} - set(model.masks(0))
    assert unmasked == {f"heads.linears.{task}.bias" for task in range(NUM_TASKS)}
    assert [model(torch.zeros(2, 5), task).logits.shape[1] for task in range(NUM_TASKS)] == list(
        NUM_CLASSES
    )


def test_an_adapter_that_is_masked_out_leaves_embeddings_unchanged() -> None:
    model = build(Adapter, percent=100)
    inputs = torch.randn(4, 5, dtype=torch.float64)
    units = inputs / inputs.norm(dim=1, keepdim=True)
    torch.testing.assert_close(model(inputs, 0).embeddings, units)
