"""Continual-learning baselines for the loop of :mod:`raysweep.training.hypermask`, and accuracies with intervals."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from raysweep.training.hypermask.model import infer_tasks
from raysweep.training.hypermask.sequence import (
    Learner,
    Step,
    TaskData,
    TrainingSettings,
    train_sequence,
)
from raysweep.training.hypermask.targets import Target, TargetOutput

FISHER_ROWS = 512
FISHER_CHUNK = 32

Weights = dict[str, Tensor]


class Sequential(Learner):
    """Trains one network on task after task and does nothing against forgetting."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target

    def loss(self, batch: TaskData, step: Step) -> Tensor:
        """Return the cross-entropy of a batch."""
        return _cross_entropy(self.target, batch, step)

    def predict(self, inputs: Tensor, task: int) -> TargetOutput:
        """Return the output of the current weights."""
        return _predict(self.target, inputs, task)


class Ewc(Sequential):
    """Elastic weight consolidation (Kirkpatrick et al. 2017, arXiv:1612.00796, equation 3).

    The loss is cross-entropy + strength / 2 times the sum over earlier tasks k of F_k (theta - theta_k)^2, where F_k is
    the diagonal of the task's Fisher information. Up to a constant, this sum equals F (theta - c)^2, where F is the sum of
    all F_k and c the mean of all theta_k weighted by F_k; only F and c are stored.
    """

    def __init__(self, target: Target, strength: float) -> None:
        super().__init__(target)
        self.strength = strength
        self.fisher = {name: torch.zeros_like(weight) for name, weight in target.named_parameters()}
        self.centers = {name: weight.detach().clone() for name, weight in target.named_parameters()}

    def loss(self, batch: TaskData, step: Step) -> Tensor:
        """Return the cross-entropy of a batch plus the penalty."""
        loss = super().loss(batch, step)
        if step.task == 0:
            return loss
        distances = []
        for name, weight in self.target.named_parameters():
            distance = self.fisher[name] * (weight - self.centers[name]).square()
            distances.append(distance.sum())
        return loss + self.strength / 2 * torch.stack(distances).sum()

    def finish_task(self, task: int, data: TaskData) -> None:
        """Add the current weights, weighted by their Fisher information."""
        rows = torch.from_numpy(
            np.random.default_rng(task).permutation(len(data.labels))[:FISHER_ROWS]
        )
        added = fisher_information(self.target, data.inputs[rows], task)
        for name, weight in self.target.named_parameters():
            total = self.fisher[name] + added[name]
            share = torch.where(total > 0, added[name] / total, 0)
            self.centers[name] += share * (weight.detach() - self.centers[name])
            self.fisher[name] = total


def fisher_information(target: Target, inputs: Tensor, task: int) -> Weights:
    """Return the diagonal of the Fisher information by name: the mean squared gradient of log-probabilities.

    Each row's class is drawn from the network's own probabilities.
    """
    weights = {name: weight.detach() for name, weight in target.named_parameters()}

    def log_probability(weights: Weights, row: Tensor, label: Tensor) -> Tensor:
        (logits,) = functional_call(target, weights, (row[None], task)).logits
        log_probabilities = logits.log_softmax(dim=-1)
        of_label: Tensor = log_probabilities.gather(0, label[None])[0]
        return of_label

    with torch.no_grad():
        probabilities = target(inputs, task).logits.softmax(dim=-1)
    generator = torch.Generator().manual_seed(task)
    labels = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
    gradients_of_rows = vmap(grad(log_probability), in_dims=(None, 0, 0))
    sums = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    chunks = zip(inputs.split(FISHER_CHUNK), labels.split(FISHER_CHUNK), strict=True)
    for rows, row_labels in chunks:
        for name, gradients in gradients_of_rows(weights, rows, row_labels).items():
            sums[name] += gradients.square().sum(dim=0)
    return {name: total / len(inputs) for name, total in sums.items()}


class Separate(Learner):
    """Trains a network of its own for each task."""

    def __init__(self, targets: Sequence[Target]) -> None:
        super().__init__()
        self.targets = nn.ModuleList(targets)

    def loss(self, batch: TaskData, step: Step) -> Tensor:
        """Return the cross-entropy of a batch."""
        return _cross_entropy(self.targets[step.task], batch, step)

    def predict(self, inputs: Tensor, task: int) -> TargetOutput:
        """Return the output of the task's network."""
        return _predict(self.targets[task], inputs, task)


def _cross_entropy(target: nn.Module, batch: TaskData, step: Step) -> Tensor:
    logits = target(batch.inputs, step.task).logits
    return nn.functional.cross_entropy(logits, batch.labels)


def _predict(target: nn.Module, inputs: Tensor, task: int) -> TargetOutput:
    with torch.no_grad():
        output: TargetOutput = target(inputs, task)
    return output


@dataclass(frozen=True)
class Accuracies:
    """Test accuracies (tasks,) of one learner, right after each task and at the end, in percent.

    ``share_inferred`` is the share of test rows whose task is inferred correctly by entropy, and ``without_identity``
    the accuracy with inferred tasks.
    """

    right_after: list[float]
    at_end: list[float]
    share_inferred: float
    without_identity: float

    @property
    def forgetting(self) -> float:
        """The mean loss of accuracy from right after a task to the end, over all tasks but the last."""
        return float(np.mean(np.subtract(self.right_after, self.at_end)[:-1]))


def follow(
    learner: Learner,
    train: Iterable[TaskData],
    test: Callable[[int], TaskData],
    settings: TrainingSettings,
    has_shared_classes: bool,
) -> Accuracies:
    """Train a learner on a sequence and return its accuracies on the test rows of each task.

    With ``has_shared_classes``, all tasks have the same classes, so that a class can be right under another task's mask.
    """
    right_after: list[float] = []
    train_sequence(
        learner,
        train,
        settings,
        lambda task: right_after.append(_accuracy(learner, test(task), task)),
    )
    tasks = range(len(right_after))
    at_end = [_accuracy(learner, test(task), task) for task in tasks]
    are_tasks_right, are_classes_right = [], []
    for task in tasks:
        data = test(task)
        inferred = infer_tasks(learner.predict, data.inputs, tasks)
        is_task_right = inferred == task
        classes_by_task = torch.stack([_predict_classes(learner, data, other) for other in tasks])
        classes = classes_by_task.gather(0, inferred[None])[0]
        is_class_right = classes == data.labels
        are_tasks_right.append(is_task_right)
        are_classes_right.append(
            is_class_right if has_shared_classes else is_class_right & is_task_right
        )
    share_inferred = _percentage(torch.cat(are_tasks_right))
    without_identity = _percentage(torch.cat(are_classes_right))
    return Accuracies(right_after, at_end, share_inferred, without_identity)


def _accuracy(learner: Learner, data: TaskData, task: int) -> float:
    return _percentage(_predict_classes(learner, data, task) == data.labels)


def _predict_classes(learner: Learner, data: TaskData, task: int) -> Tensor:
    return learner.predict(data.inputs, task).logits.argmax(dim=1)


def _percentage(is_true: Tensor) -> float:
    return 100 * float(is_true.double().mean())


class Interval(NamedTuple):
    """A mean and half the width of its 95% interval."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        return (
            f"{self.mean:.2f}"
            if math.isnan(self.half_width)
            else f"{self.mean:.2f} ± {self.half_width:.2f}"
        )


def interval(values: Sequence[float]) -> Interval:
    """Return the mean with Student's interval, whose width is NaN for a single value."""
    if len(values) == 1:
        return Interval(values[0], float("nan"))
    factor = stats.t.ppf(0.975, len(values) - 1)
    return Interval(float(np.mean(values)), float(factor * stats.sem(values)))
