"""Training on a sequence: the loss, the effect of the penalties, and continuing between tasks."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from raysweep.training.hypermask.model import HyperMask, MaskSettings
from raysweep.training.hypermask.sequence import (
    HyperMaskLearner,
    Step,
    TaskData,
    TaskTrainer,
    TrainingSettings,
    seeded,
    train_sequence,
)
from raysweep.training.hypermask.targets import Classifier

SETTINGS = TrainingSettings(num_iterations=40, batch_size=16, learning_rate=1e-2, seed=3)


def make_tasks(num_tasks: int = 2) -> list[TaskData]:
    """Return tasks whose classes are the sign of a random projection."""
    draws = np.random.default_rng(0)
    tasks = []
    for _ in range(num_tasks):
        inputs = draws.normal(size=(100, 6)).astype(np.float32)
        labels = inputs @ draws.normal(size=6) > 0
        tasks.append(TaskData(torch.from_numpy(inputs), torch.from_numpy(labels.astype(np.int64))))
    return tasks


def make_learner(**settings: object) -> HyperMaskLearner:
    with seeded(1):
        target = Classifier(6, [12], [2, 2])
        return HyperMaskLearner(HyperMask(target, 2, MaskSettings(hidden_layers=(16,), **settings)))  # type: ignore[arg-type]


def accuracy(learner: HyperMaskLearner, data: TaskData, task: int) -> float:
    predicted = learner.predict(data.inputs, task).logits.argmax(dim=1)
    return float((predicted == data.labels).double().mean())


def largest_change(before: dict[str, Tensor], after: dict[str, Tensor]) -> float:
    return max(float((after[name] - before[name]).abs().max()) for name in before)


def test_the_loss_is_the_weighted_sum() -> None:
    learner = make_learner(percent=40, beta=0.7, lambda_=0.3)
    first, second = make_tasks()
    TaskTrainer(learner, 0, first, SETTINGS).run()
    learner.start_task(1, second)
    model, before = learner.model, learner.before
    assert before is not None
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.01
    masks = model.masks(1)
    cross_entropy = torch.nn.functional.cross_entropy(model(second.inputs, 1).logits, second.labels)
    expected = (
        cross_entropy + 0.7 * model.output_loss(before) + 0.3 * model.target_loss(before, masks)
    )
    assert learner.loss(second, Step(1, 1, 40)).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_first_task_has_no_penalty_and_fewer_zeros() -> None:
    learner = make_learner(percent=80, beta=1e6, lambda_=1e6)
    first, _ = make_tasks()
    learner.start_task(0, first)
    masks = learner.model.masks(0, 20)
    expected = torch.nn.functional.cross_entropy(
        learner.model(first.inputs, 0, masks).logits, first.labels
    )
    assert learner.loss(first, Step(0, 10, 40)).item() == pytest.approx(expected.item(), rel=1e-6)


def test_tasks_are_learned() -> None:
    learner = make_learner(percent=20)
    tasks = make_tasks()
    settings = TrainingSettings(num_iterations=200, batch_size=16, learning_rate=1e-2)
    right_after = []
    train_sequence(
        learner,
        tasks,
        settings,
        lambda task: right_after.append(accuracy(learner, tasks[task], task)),
    )
    assert min(right_after) > 0.95


@pytest.mark.parametrize("masked", [True, False])
def test_strong_penalties_keep_masks_and_weights_of_earlier_tasks(masked: bool) -> None:
    first, second = make_tasks()
    settings = TrainingSettings(num_iterations=200, batch_size=16, learning_rate=1e-3)
    changes = {}
    for strength in (0.0, 1e6):
        learner = make_learner(percent=30, beta=strength, lambda_=strength, masked=masked)
        TaskTrainer(learner, 0, first, SETTINGS).run()
        outputs, theta = learner.model.snapshot(1)
        accuracy_before = accuracy(learner, first, 0)
        TaskTrainer(learner, 1, second, settings).run()
        outputs_after, theta_after = learner.model.snapshot(1)
        output_change = float((outputs_after - outputs).abs().max())
        changes[strength] = (output_change, largest_change(theta, theta_after))
        if strength:
            assert accuracy(learner, first, 0) == pytest.approx(accuracy_before, abs=0.011)
    # Adam's steps around the minimum have the size of the learning rate, whatever the penalty.
    assert changes[1e6][0] < 0.02
    assert changes[1e6][1] < 0.005
    assert changes[0.0][0] > 0.2
    assert changes[0.0][1] > 0.05


def test_the_learner_alone_continues_between_tasks() -> None:
    first, second = make_tasks()
    complete = make_learner()
    state = {}
    train_sequence(
        complete, [first], SETTINGS, lambda _: state.update(copy.deepcopy(complete.state_dict()))
    )
    TaskTrainer(complete, 1, second, SETTINGS).run()
    resumed = make_learner()
    resumed.load_state_dict(state)
    TaskTrainer(resumed, 1, second, SETTINGS).run()
    assert largest_change(complete.model.state_dict(), resumed.model.state_dict()) == 0


def test_an_epoch_uses_each_row_once() -> None:
    inputs = torch.arange(10.0)[:, None].expand(10, 6)
    data = TaskData(inputs, torch.zeros(10, dtype=torch.int64))
    learner = make_learner()
    rows: list[list[float]] = []
    original = learner.loss

    def loss(batch: TaskData, step: Step) -> Tensor:
        rows.append(batch.inputs[:, 0].tolist())
        return original(batch, step)

    learner.loss = loss  # type: ignore[method-assign]
    TaskTrainer(learner, 0, data, TrainingSettings(num_iterations=4, batch_size=5)).run()
    assert sorted(rows[0] + rows[1]) == sorted(rows[2] + rows[3]) == list(range(10))
    assert rows[0] + rows[1] != rows[2] + rows[3]


def test_initial_weights_depend_only_on_the_seed() -> None:
    torch.manual_seed(5)
    first = make_learner().model.state_dict()
    following = torch.rand(1)
    second = make_learner().model.state_dict()
    assert largest_change(first, second) == 0
    torch.manual_seed(5)
    assert torch.rand(1) == following
