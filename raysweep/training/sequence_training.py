"""HyperMask training of a trial on a sequence of data sets, with one rung per data set."""

import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raysweep.config.trial import TrialConfig
from raysweep.evaluation import operating_points
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.storage.folder import Folder
from raysweep.training import checkpoint
from raysweep.training.hypermask.model import HyperMask, MaskSettings, Snapshot
from raysweep.training.hypermask.sequence import (
    HyperMaskLearner,
    Step,
    TaskData,
    TaskTrainer,
    TrainingSettings,
    seeded,
)
from raysweep.training.hypermask.targets import Adapter
from raysweep.training.progress import Progress
from raysweep.training.sequence_bench import SequenceBench
from raysweep.training.sub_embeddings import SubEmbeddings
from raysweep.training.workbench import RungResult


class _Learner(HyperMaskLearner):
    """A learner that sums its batch losses and reports each step."""

    def __init__(self, model: HyperMask, bench: SequenceBench) -> None:
        super().__init__(model)
        self._bench = bench
        self.loss_sum = torch.zeros((), device=bench.device)

    def loss(self, batch: TaskData, step: Step) -> Tensor:
        loss = super().loss(batch, step)
        self.loss_sum += loss.detach()
        self._bench.on_step()
        return loss


class SequenceTraining:
    """A trial's training on a sequence, with the interface of :class:`raysweep.training.checkpoint.SavedTraining`."""

    recomputes = False  # the adapter's activations are small

    def __init__(
        self, config: TrialConfig, bench: SequenceBench, seed: int, num_rungs: int
    ) -> None:
        self.config = config
        self.bench = bench
        self.seed = seed
        self.num_rungs = num_rungs
        # restore() subtracts the time already spent
        self.began = time.perf_counter()
        self.progress = Progress()
        parameters: Mapping[str, Any] = config.loss_parameters
        num_classes = bench.prepared.sequence.num_classes
        width = bench.prepared.reference_embeddings.document.shape[1]
        settings = MaskSettings(
            percent=parameters["p"],
            kind=parameters["mask"],
            beta=parameters["beta"],
            lambda_=parameters["lambda"],
            masked=parameters["masked"],
            embedding_size=parameters["embedding_size"],
            hidden_layers=(parameters["hidden_size"],) * parameters["hidden_layers"],
        )
        with seeded(seed):
            target = Adapter(width, [parameters["adapter_size"]], num_classes, parameters["heads"])
            model = HyperMask(target, len(num_classes), settings)
            self.learner = _Learner(model, bench).to(bench.device)
        self.trainer = self._start_task()

    @cached_property
    def settings(self) -> TrainingSettings:
        """Return the training settings, which are the same for all data sets."""
        batch_size = self.config.batch_size
        num_iterations = -(-self.config.examples_per_rung // batch_size)
        return TrainingSettings(num_iterations, batch_size, self.config.learning_rate, self.seed)

    def _start_task(self) -> TaskTrainer:
        """Reset the loss sum and return a trainer for the first unfinished data set."""
        self.learner.loss_sum.zero_()
        task = self.progress.rung
        sentences = self.bench.prepared.sequence
        train = sentences.ids("train")
        ids = train[sentences.data_sets_of(train) == task]
        embeddings = np.asarray(self.bench.prepared.reference_embeddings.document[ids])
        labels = sentences.local_labels(ids)
        device = self.bench.device
        data = TaskData(
            torch.tensor(embeddings, device=device), torch.tensor(labels, device=device)
        )
        return TaskTrainer(self.learner, task, data, self.settings)

    @property
    def rung_is_full(self) -> bool:
        """Return whether training on the current data set is finished."""
        return self.trainer.is_done

    @property
    def seconds(self) -> float:
        """Return the seconds since the trial began, excluding interruptions."""
        return time.perf_counter() - self.began

    def step(self) -> None:
        """Take one optimizer step."""
        started = time.perf_counter()
        left = self.config.examples_per_rung - self.progress.seen_in_rung
        self.trainer.run(1)
        self.progress.add_batch(min(self.config.batch_size, left))
        self.progress.steps_in_rung += 1
        self.progress.train_seconds += time.perf_counter() - started

    def evaluate(self) -> RungResult:
        """End the rung and score the adapter on dev for each data set learned so far.

        Operating points are scored only in the last rung.

        Raises:
            TrialDivergedError: If the loss is not finite.
        """
        progress, bench = self.progress, self.bench
        mean_loss = float(self.learner.loss_sum) / self.settings.num_iterations
        progress.rung += 1
        if not np.isfinite(mean_loss):
            raise TrialDivergedError(
                f"the loss became {mean_loss} in rung {progress.rung} (after {progress.seen:,} examples)"
            )
        self._show()
        is_last = progress.rung == self.num_rungs
        evaluation = bench.sequence_dev if is_last else bench.sequence_dev.first(progress.rung)
        encoded = bench.encode(evaluation)
        keys = operating_points.wanted(bench.evaluation.points, has_head=False) if is_last else []
        result = RungResult(
            step=progress.rung,
            examples_seen=progress.seen,
            loss=mean_loss,
            points=bench.measure(evaluation, keys, encoded),
            tasks=bench.task_scores(evaluation, encoded),
            seconds=self.seconds,
            train_seconds=progress.train_seconds,
        )
        progress.begin_rung()
        if not is_last:
            self.trainer = self._start_task()
        return result

    def _show(self) -> None:
        """Store the current adapter in the workbench, with the masks of the data sets learned so far."""
        self.bench.sub_embeddings = SubEmbeddings.of(self.learner.model, self.progress.rung)

    def save(self, folder: str | Path | Folder, last: RungResult | None) -> None:
        """Write a checkpoint, like :func:`raysweep.training.checkpoint.save`."""
        tensors = {
            **{f"weight.{name}": weight for name, weight in self.learner.state_dict().items()},
            "total": self.learner.loss_sum,
            **checkpoint.optimizer_tensors(self.trainer.optimizer),
        }
        before = self.learner.before
        if before is not None:
            tensors["outputs"] = before.outputs
            tensors |= {f"before.{name}": value for name, value in before.weights.items()}
        checkpoint.save_state(self, folder, tensors, {"spent_before": self.seconds}, last)

    def restore(self, folder: str | Path | Folder) -> RungResult | None:
        """Load the latest checkpoint, like :func:`raysweep.training.checkpoint.restore`."""
        state = checkpoint.read_state(self, folder)
        if state is None:
            return None
        tensors, values = state
        self.learner.load_state_dict(_with_prefix(tensors, "weight."))
        self.progress = checkpoint.progress_of(values)
        self.began -= values["spent_before"]
        if self.progress.rung < self.num_rungs:
            self.trainer = self._start_task()
            self.trainer.iteration = self.progress.steps_in_rung
            self.learner.loss_sum.copy_(tensors["total"])
            checkpoint.restore_optimizer(self.trainer.optimizer, tensors)
            if "outputs" in tensors:
                device = self.bench.device
                weights = {
                    name: value.to(device)
                    for name, value in _with_prefix(tensors, "before.").items()
                }
                self.learner.before = Snapshot(tensors["outputs"].to(device), weights)
        self._show()
        return checkpoint.last_result(tensors, values)


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, with the prefix removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
