"""Baselines of continual learning equal brute force."""

import numpy as np
import pytest
import torch

from benchmarks.continual import Accuracies, Ewc, Separate, fisher_information, follow, interval
from raysweep.training.hypermask.sequence import (
    Step,
    TaskData,
    TaskTrainer,
    TrainingSettings,
    seeded,
)
from raysweep.training.hypermask.targets import Classifier


def make_target(number: int = 0) -> Classifier:
    with seeded(number):
        return Classifier(3, [4], [2, 2])


def make_data(seed: int) -> TaskData:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(40, 3, generator=generator)
    return TaskData(inputs, (inputs[:, seed] > 0).long())


def test_fisher_information_is_the_mean_squared_gradient() -> None:
    target = make_target()
    inputs = make_data(0).inputs
    probabilities = target(inputs, 1).logits.softmax(dim=1).detach()
    labels = torch.multinomial(probabilities, 1, generator=torch.Generator().manual_seed(1))[:, 0]
    expected = {name: torch.zeros_like(weight) for name, weight in target.named_parameters()}
    for row, label in zip(inputs, labels, strict=True):
        log_probability = target(row[None], 1).logits.log_softmax(dim=1)[0, label]
        gradients = torch.autograd.grad(log_probability, list(target.parameters()))
        for name, gradient in zip(expected, gradients, strict=True):
            expected[name] += gradient**2 / len(inputs)
    fisher = fisher_information(target, inputs, 1)
    for name, values in expected.items():
        torch.testing.assert_close(fisher[name], values)


def test_ewc_penalizes_the_distance_to_each_task() -> None:
    learner = Ewc(make_target(), strength=6.0)
    data = [make_data(0), make_data(1)]
    memories = []
    for task in (0, 1):
        with torch.no_grad():
            for weight in learner.target.parameters():
                weight += 0.1
        learner.finish_task(task, data[task])
        weights = {
            name: weight.detach().clone() for name, weight in learner.target.named_parameters()
        }
        rows = np.random.default_rng(task).permutation(40)
        memories.append(
            (fisher_information(learner.target, data[task].inputs[rows], task), weights)
        )

    def losses() -> tuple[float, float]:
        loss = torch.nn.functional.cross_entropy(
            learner.target(data[1].inputs, 1).logits, data[1].labels
        )
        for fisher, weights in memories:
            for name, weight in learner.target.named_parameters():
                loss = loss + 3 * (fisher[name] * (weight - weights[name]) ** 2).sum()
        return learner.loss(data[1], Step(1, 1, 1)).item(), loss.item()

    ewc, direct = losses()
    with torch.no_grad():
        for weight in learner.target.parameters():
            weight += 0.5
    ewc_moved, direct_moved = losses()
    assert ewc_moved - ewc == pytest.approx(direct_moved - direct, rel=1e-4)
    assert ewc_moved - ewc > 0.1


def test_separate_networks_do_not_change_each_other() -> None:
    learner = Separate([make_target(0), make_target(1)])
    settings = TrainingSettings(num_iterations=5, batch_size=8)
    TaskTrainer(learner, 0, make_data(0), settings).run()
    before = [weight.clone() for weight in learner.targets[0].parameters()]
    TaskTrainer(learner, 1, make_data(1), settings).run()
    assert all(map(torch.equal, before, learner.targets[0].parameters()))


@pytest.mark.parametrize("has_shared_classes", [True, False])
def test_accuracies_of_a_learner_that_knows_everything(has_shared_classes: bool) -> None:
    """The second task has the classes of the first in reverse, so a row's class is right only under its own task."""
    learner = Separate([make_target(0), make_target(1)])
    inputs = torch.eye(3).repeat(8, 1)
    first = TaskData(inputs, inputs[:, 0].long())
    second = TaskData(inputs, 1 - first.labels)
    tasks = [first, second]
    settings = TrainingSettings(num_iterations=150, batch_size=24, learning_rate=0.05)
    accuracies = follow(learner, tasks, tasks.__getitem__, settings, has_shared_classes)
    assert accuracies.right_after == accuracies.at_end == [100, 100]
    assert accuracies.forgetting == 0
    assert accuracies.without_identity == accuracies.share_inferred == 50


def test_forgetting_leaves_out_the_last_task() -> None:
    assert Accuracies([90, 80, 70], [60, 70, 70], 0, 0).forgetting == pytest.approx(20)


def test_interval_of_student() -> None:
    estimate = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert estimate.mean == 3
    assert estimate.half_width == pytest.approx(2.776445 * np.sqrt(2.5 / 5), rel=1e-6)
    assert str(estimate) == "3.00 ± 1.96"
