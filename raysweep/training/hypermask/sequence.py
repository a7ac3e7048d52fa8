"""Training on a sequence of tasks: the training loop, and the interface for continual learners."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from raysweep.training.hypermask.masks import ramped_percent
from raysweep.training.hypermask.model import HyperMask, Snapshot
from raysweep.training.hypermask.targets import TargetOutput


@dataclass(frozen=True)
class TaskData:
    """A task's float inputs (rows, inputs) and integer classes (rows,), numbered within the task."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class TrainingSettings:
    """Training settings for each task; ``seed`` determines the batches."""

    num_iterations: int
    batch_size: int = 128
    learning_rate: float = 1e-3
    seed: int = 0


class Step(NamedTuple):
    """An iteration of a task's training. Iterations are counted from 1, and tasks from 0."""

    task: int
    iteration: int
    num_iterations: int


class Learner(nn.Module, ABC):
    """A network that learns one task after another.

    Between tasks, its ``state_dict`` contains everything that later tasks need.
    """

    def start_task(self, task: int, data: TaskData) -> None:
        """Prepare for a task; called before its first iteration."""

    @abstractmethod
    def loss(self, batch: TaskData, step: Step) -> Tensor:
        """Return the loss of a batch, a scalar with gradients."""

    def finish_task(self, task: int, data: TaskData) -> None:
        """Store the state that later tasks need; called after the last iteration."""

    @abstractmethod
    def predict(self, inputs: Tensor, task: int) -> TargetOutput:
        """Return a task's output for inputs (batch, inputs), without gradients."""


class HyperMaskLearner(Learner):
    """Trains a :class:`HyperMask` with the loss cross-entropy + beta L_output + lambda L_target.

    The first task has no penalties. ``before`` is the state before the current task, or None during the first task and
    between tasks. It is not part of the ``state_dict``.
    """

    def __init__(self, model: HyperMask) -> None:
        super().__init__()
        self.model = model
        self.before: Snapshot | None = None

    def start_task(self, task: int, data: TaskData) -> None:
        self.before = self.model.snapshot(task) if task > 0 else None

    def loss(self, batch: TaskData, step: Step) -> Tensor:
        settings = self.model.settings
        percent = ramped_percent(settings.percent, *step)
        masks = self.model.masks(step.task, percent)
        logits = self.model(batch.inputs, step.task, masks).logits
        loss = nn.functional.cross_entropy(logits, batch.labels)
        if self.before is None:
            return loss
        output_loss = self.model.output_loss(self.before)
        target_loss = self.model.target_loss(self.before, masks)
        return loss + settings.beta * output_loss + settings.lambda_ * target_loss

    def finish_task(self, task: int, data: TaskData) -> None:
        self.before = None

    def predict(self, inputs: Tensor, task: int) -> TargetOutput:
        with torch.no_grad():
            output: TargetOutput = self.model(inputs, task)
        return output


class TaskTrainer:
    """Trains a learner on one task with a new Adam optimizer, as in the published code.

    ``learner`` must have finished the earlier tasks, and ``data`` must have at least one row. Tasks are counted from 0.
    Batches depend only on the seed, the task and the iteration. To resume a task exactly, restore the learner, the
    optimizer and the iteration.
    """

    def __init__(
        self, learner: Learner, task: int, data: TaskData, settings: TrainingSettings
    ) -> None:
        self.learner = learner
        self.task = task
        self.data = data
        self.settings = settings
        self.iteration = 0
        self.optimizer = torch.optim.Adam(
            learner.parameters(), lr=settings.learning_rate, fused=True
        )
        learner.start_task(task, data)

    @property
    def is_done(self) -> bool:
        return self.iteration == self.settings.num_iterations

    def run(self, num_iterations: int | None = None) -> None:
        """Train for at most ``num_iterations`` iterations, by default to the end of the task."""
        remaining = self.settings.num_iterations - self.iteration
        for _ in range(remaining if num_iterations is None else min(num_iterations, remaining)):
            batch = self._batch()
            self.iteration += 1
            step = Step(self.task, self.iteration, self.settings.num_iterations)
            self.optimizer.zero_grad()
            loss = self.learner.loss(batch, step)
            loss.backward()
            self.optimizer.step()
        if remaining and self.is_done:
            self.optimizer.zero_grad()
            self.learner.finish_task(self.task, self.data)

    def _batch(self) -> TaskData:
        """Return the next batch. Each epoch is shuffled separately and drops an incomplete last batch."""
        num_rows = len(self.data.labels)
        batch_size = min(self.settings.batch_size, num_rows)
        epoch, number = divmod(self.iteration, num_rows // batch_size)
        order = np.random.default_rng([self.settings.seed, self.task, epoch]).permutation(num_rows)
        rows = torch.from_numpy(order[number * batch_size : (number + 1) * batch_size])
        rows = rows.to(self.data.labels.device)
        return TaskData(self.data.inputs[rows], self.data.labels[rows])


def train_sequence(
    learner: Learner,
    tasks: Iterable[TaskData],
    settings: TrainingSettings,
    after_task: Callable[[int], None] | None = None,
) -> None:
    """Train a learner on tasks in order and call ``after_task`` with the number of each finished task."""
    for task, data in enumerate(tasks):
        TaskTrainer(learner, task, data, settings).run()
        if after_task is not None:
            after_task(task)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch within the context."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
