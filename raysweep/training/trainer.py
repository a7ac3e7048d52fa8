"""Training of one trial, with an evaluation at the end of each rung."""

import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysweep.config import matryoshka
from raysweep.config.loss_spec import EXAMPLES
from raysweep.config.losses import find_loss
from raysweep.config.sides import Sides
from raysweep.config.soft_targets import SOFT_TARGETS
from raysweep.config.trial import TrialConfig
from raysweep.encoders import precision
from raysweep.encoders.encoder import BatchContext, embedding_width, on_device
from raysweep.encoders.frozen_prefix import Prefix
from raysweep.evaluation import operating_points
from raysweep.evaluation.calibration import calibrated
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.evaluation.operating_points import Encoded, Head, TunedEncoder
from raysweep.evaluation.relation_set import RelationSet
from raysweep.training import batches, losses
from raysweep.training.batch import Batch
from raysweep.training.batches import (
    ColumnEncoder,
    ExampleOrder,
    Examples,
    StoredColumns,
    TrainedEncoder,
)
from raysweep.training.block_checkpoints import BlockCheckpoints
from raysweep.training.dropout import RandomStreams
from raysweep.training.optimization import LearningRates, WeightAverage, build_optimizer
from raysweep.training.progress import Progress
from raysweep.training.validation import IdleRule, ValidationExamples, triplet_errors
from raysweep.training.workbench import NO_CONTEXTS, RungResult, Workbench


class Training:
    """The training of one trial, starting from the workbench's base weights.

    :mod:`raysweep.training.checkpoint` saves and restores its state.
    """

    def __init__(self, config: TrialConfig, bench: Workbench, seed: int, num_rungs: int) -> None:
        self.config = config
        self.bench = bench
        self.seed = seed
        self.num_rungs = num_rungs
        # restoring a checkpoint subtracts the time already spent
        self.began = time.perf_counter()
        torch.manual_seed(seed)
        bench.dropouts.generator.seed(seed)
        bench.start(config)
        self.model = bench.model
        self.device = bench.model.device
        self.specification = find_loss(config.loss)
        self.sides = EXAMPLES[self.specification.examples].sides
        checkpoints = (
            BlockCheckpoints(bench.model, bench.dropouts) if bench.checkpoints_blocks else None
        )
        sources = bench.tokens.zip(bench.trainable.weight_contexts)
        self.trained = sources.map(
            lambda source: TrainedEncoder(bench.model, source[0], checkpoints, source[1])
        )
        encoders: Sides[ColumnEncoder] = self.trained
        if config.tower == "query":
            encoders = Sides(self.trained.query, StoredColumns(bench.stored_documents, self.device))
        self.column_encoders = [encoders.of(side) for side in self.sides]
        loss: Any = losses.build(
            config.loss,
            config.loss_parameters,
            self.model,
            width=embedding_width(self.model),
            num_labels=len(bench.prepared.sentences.label_names),
        )
        self.loss = loss.to(self.device)
        self.widths: tuple[int, ...] = ()
        if config.matryoshka is not None:
            self.widths = matryoshka.widths(config.matryoshka, embedding_width(bench.model))
        self.parameters = self._trained_parameters()
        self.optimizer = self._build_optimizer()
        self.average = None
        if config.average_decay is not None:
            self.average = WeightAverage(self.parameters, config.average_decay)
        self.learning_rates = LearningRates(config, num_rungs)
        self.order = ExampleOrder(
            bench.prepared,
            self.specification.examples,
            seed,
            no_duplicates=config.no_duplicates,
            per_class=self._per_class,
            soft_targets=self._soft_targets,
        )
        self.set_precision(precision.resolve(config.precision, self.device.type, self.model))
        self.idle = IdleRule(config.idle_rungs) if config.idle_rungs else None
        self.progress = Progress()
        self.streams = RandomStreams(bench.dropouts, self.device)
        # whether the backward pass recomputes activations
        self.recomputes = False
        # sum of the current rung's batch losses
        self.loss_sum = torch.zeros((), device=self.device)

    @property
    def _per_class(self) -> int | None:
        """Return how many examples of the same class are adjacent in a batch, or None if the order ignores classes."""
        if self.specification.batches == "plain":
            return None
        return int(self.config.loss_parameters["examples_per_class"])

    @property
    def _soft_targets(self) -> str | None:
        """Return the rule that computes targets from expert scores, or None to use the stored targets."""
        rule = self.config.loss_parameters.get("targets")
        return str(rule) if rule in SOFT_TARGETS else None

    def _build_optimizer(self) -> torch.optim.Optimizer:
        heights = {} if self.config.layer_decay == 1.0 else self.bench.trainable.heights()
        return build_optimizer(self.config, self.parameters, heights)

    def _trained_parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the trainable parameters of the encoder and, with the prefix ``loss.``, of the loss."""
        parameters = self.bench.trainable.parameters
        of_encoder = set(map(id, self.model.parameters()))
        for name, parameter in self.loss.named_parameters():
            is_own = id(parameter) not in of_encoder  # the encoder is also a submodule of the loss
            if is_own and parameter.requires_grad:
                parameters[f"loss.{name}"] = parameter
        return parameters

    def set_precision(self, arithmetic: str) -> None:
        """Set the precision of training and of the prefix caches to ``fp32`` or ``bf16``."""
        self.precision = arithmetic
        num_examples = self.config.examples_per_rung * self.num_rungs
        num_columns = sum(isinstance(encoder, TrainedEncoder) for encoder in self.column_encoders)
        num_reads = num_examples * num_columns
        self.use_prefixes(self.bench.prefixes(self.config, arithmetic, num_reads))

    def use_prefixes(self, prefixes: Sides[Prefix] | None) -> None:
        """Set the caches of the frozen blocks' outputs, or None to run the frozen blocks."""
        self.prefixes = prefixes
        contexts = self.batch_contexts
        for trained, context in self.trained.zip(contexts).distinct:
            trained.batch_context = context

    @property
    def rung_is_full(self) -> bool:
        """Return whether all of the rung's examples have been used."""
        return self.progress.seen_in_rung >= self.config.examples_per_rung

    @property
    def seconds(self) -> float:
        """Return the seconds since the trial began, excluding interruptions."""
        return time.perf_counter() - self.began

    @property
    def batch_contexts(self) -> Sides[BatchContext]:
        """Return the contexts for forward passes, which use the prefix caches if there are any."""
        return (
            NO_CONTEXTS
            if self.prefixes is None
            else self.prefixes.map(lambda prefix: prefix.replayed)
        )

    def step(self) -> None:
        """Take one optimizer step over ``accumulation_steps`` batches, or fewer at the end of a rung."""
        started = time.perf_counter()
        progress = self.progress
        self.show_average(shown=False)
        if not self.model.training:  # train() visits every module, which takes a millisecond
            self.model.train()
        self.learning_rates.apply(self.optimizer, progress.rung, progress.steps_in_rung)
        batch_size = self.config.batch_size
        num_left = self.config.examples_per_rung - progress.seen_in_rung
        num_batches = min(self.config.accumulation_steps, -(-num_left // batch_size))
        step_batches = []
        for number in range(num_batches):
            # A rung's last batch may be smaller.
            size = min(batch_size, num_left - number * batch_size)
            step_batches.append(self.order.take(size))
        batch_losses = self._add_gradients(step_batches)
        for (ids, _), loss in zip(step_batches, batch_losses, strict=True):
            self.loss_sum += loss
            progress.add_batch(len(ids))
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.config.max_gradient_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()
        progress.steps_in_rung += 1
        progress.train_seconds += time.perf_counter() - started

    def show_average(self, *, shown: bool) -> None:
        """Load the averaged weights into the model if ``shown``, otherwise the weights being trained.

        Do nothing if the trial does not average its weights.
        """
        if self.average is not None and self.average.is_shown != shown:
            self.average.swap()

    def _add_gradients(self, step_batches: Sequence[Examples]) -> list[Tensor]:
        """Accumulate the gradients of a step's batches and return their detached losses.

        After running out of memory, recompute activations in this and all later backward passes.
        """
        num_batches = len(step_batches)
        position = self.streams.position()
        try:
            return [self.add_gradient(ids, targets, num_batches) for ids, targets in step_batches]
        except RuntimeError as error:
            # PyTorch raises different errors on GPUs and CPUs.
            is_out_of_memory = isinstance(
                error, torch.OutOfMemoryError
            ) or "can't allocate memory" in str(error)
            if self.recomputes or not is_out_of_memory:
                raise
        self.recomputes = True
        self.streams.go_to(position)
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        print("training: out of memory, recomputing activations from now on", flush=True)
        return [self.add_gradient(ids, targets, num_batches) for ids, targets in step_batches]

    def add_gradient(
        self, ids: npt.NDArray[np.integer], targets: npt.NDArray[Any] | None, num_batches: int = 1
    ) -> Tensor:
        """Accumulate the gradient of one of ``num_batches`` batches and return its loss."""
        if not self.recomputes:
            loss = self.batch_loss(ids, targets)
            (loss / num_batches).backward()
            return loss.detach()
        passes = [
            batches.RecomputedBatch(self.column_encoders, ids, self.streams, self._autocast)
            for _ in range(self._num_passes)
        ]
        loss = self._loss_of_passes([batch.columns for batch in passes], ids, targets)
        (loss / num_batches).backward()
        for batch in passes:
            batch.backward()
        return loss.detach()

    def batch_loss(self, ids: npt.NDArray[np.integer], targets: npt.NDArray[Any] | None) -> Tensor:
        """Return the scalar loss of a batch, with gradients.

        ``ids`` has shape (batch, columns). ``targets`` has shape (batch,) or is None.
        """
        with self._autocast():
            passes = [
                batches.embed_columns(self.column_encoders, ids) for _ in range(self._num_passes)
            ]
        return self._loss_of_passes(passes, ids, targets)

    def _autocast(self) -> torch.autocast:
        return precision.autocast(self.precision, self.device.type)

    @property
    def _num_passes(self) -> int:
        """Return the number of forward passes per batch, each with new dropout masks."""
        return 2 if self._consistency_weight else 1

    @property
    def _consistency_weight(self) -> float:
        return float(self.config.loss_parameters.get("consistency_weight", 0.0))

    def _loss_of_passes(
        self,
        passes: list[list[Tensor]],
        ids: npt.NDArray[np.integer],
        targets: npt.NDArray[Any] | None,
    ) -> Tensor:
        """Return the mean loss over a batch's passes, plus the weighted divergence if there are two."""
        first, *second = passes
        loss = self._loss_of(first, ids, targets)
        for columns in second:
            loss = (loss + self._loss_of(columns, ids, targets)) / 2
            divergence = self.loss.divergence(first[0], columns[0])
            loss = loss + self._consistency_weight * divergence
        return loss

    def _loss_of(
        self, columns: list[Tensor], ids: npt.NDArray[np.integer], targets: npt.NDArray[Any] | None
    ) -> Tensor:
        batch = self.make_batch(columns, ids, targets)
        loss = self.own_loss(batch)
        if self.config.retention_weight:
            loss = loss + self.config.retention_weight * losses.retention_term(batch)
        return loss

    def own_loss(self, batch: Batch) -> Tensor:
        """Return the trial's loss without the retention term, summed over any ``matryoshka`` widths."""
        if self.widths:
            return losses.sum_over_widths(self.loss, batch, self.widths)
        loss: Tensor = self.loss.compute_loss(batch)
        return loss

    def make_batch(
        self, columns: list[Tensor], ids: npt.NDArray[np.integer], targets: npt.NDArray[Any] | None
    ) -> Batch:
        """Return a batch of embedding ``columns``, with ``ids`` (batch, columns) and ``targets`` (batch,)."""
        prepared = self.bench.prepared

        def read_reference(column: int) -> Tensor:
            embeddings = prepared.reference_embeddings.of(self.sides[column])
            return self._on_device(np.asarray(embeddings[ids[:, column]]))

        return Batch(
            columns=columns,
            targets=None if targets is None else self._on_device(targets),
            ids=ids,
            labels=self._on_device(np.asarray(prepared.sentences.labels[ids])),
            read_reference=read_reference,
            read_teacher=lambda column: self._on_device(
                np.asarray(prepared.teacher_probabilities[column])
            ),
        )

    def _on_device(self, array: npt.NDArray[Any]) -> Tensor:
        return on_device(array, self.device)

    def head(self) -> Head | None:
        """Return a copy of the current softmax head, or None if the loss has no head."""
        if not self.specification.has_head:
            return None
        linear = self.loss.head
        weight = linear.weight.detach().cpu().numpy().copy()
        bias = linear.bias.detach().cpu().numpy().copy()
        return Head(weight, bias)

    def evaluate(self) -> RungResult:
        """End the rung and score the model on dev in fp32.

        The model has the scored weights until the next step.

        Raises:
            TrialDivergedError: If the loss is not finite.
        """
        progress = self.progress
        mean_loss = float(self.loss_sum) / progress.batches_in_rung
        progress.rung += 1
        if not np.isfinite(mean_loss):
            raise TrialDivergedError(
                f"the loss became {mean_loss} in rung {progress.rung} (after {progress.seen:,} examples)"
            )
        self.show_average(shown=True)
        self.bench.head = self.head()
        tuned = self._tuned()
        encoded = operating_points.encode(tuned, self.bench.dev)
        head = self.bench.head
        if head is not None and self.bench.evaluation.points.calibrate:
            # Calibrate the workbench's copy of the head, not the head being trained.
            labels = self.bench.labeled_dev.query_labels
            self.bench.head = calibrated(head, encoded.queries, labels)
            encoded = encoded.under(self.bench.head)
        tuned = self._tuned()
        grid, has_head = self.bench.evaluation.points, tuned.head is not None
        keys = operating_points.wanted(grid, has_head=has_head, tower=self.config.tower)
        labeled_keys = operating_points.wanted_labeled(grid, has_head=has_head)
        scores = operating_points.measure(tuned, self.bench.dev, [*keys, *labeled_keys], encoded)
        stop = None
        if self.idle is not None:
            loss, errors = self._validate(encoded)
            stop = self.idle.update(loss, errors)
        is_last = progress.rung == self.num_rungs or stop is not None
        watched = self.bench.measure_watched(self.config, is_last=is_last)
        progress.begin_rung()
        self.loss_sum.zero_()
        if self.config.resample_each_rung:
            self.order.restart()
        if self.config.fresh_optimizer:
            self.optimizer = self._build_optimizer()
        return RungResult(
            step=progress.rung,
            examples_seen=progress.seen,
            loss=mean_loss,
            points={key: scores[key] for key in keys},
            labeled={key: scores[key] for key in labeled_keys},
            seconds=self.seconds,
            train_seconds=progress.train_seconds,
            stop=stop,
            calibration=self.bench.calibration(self.bench.dev, encoded),
            measures=self.bench.pair_measures(self.bench.dev, encoded),
            watched=watched,
        )

    def _tuned(self) -> TunedEncoder:
        # Evaluation runs in fp32, so it cannot use a bf16 cache.
        return self.bench.tuned(self.batch_contexts if self.precision == "fp32" else NO_CONTEXTS)

    @cached_property
    def _validation_examples(self) -> ValidationExamples:
        """Return the validation examples, which are the same for all rungs."""
        kind = self.specification.examples
        prepared = self.bench.prepared
        cosines = prepared.target_cosines(kind)
        dev = self.bench.dev
        if isinstance(dev, RelationSet):
            return ValidationExamples.of_relations(dev.pairs, kind, cosines)
        queries = dev.queries
        examples = ValidationExamples.of(prepared, kind, queries, cosines)
        if self._soft_targets:
            examples = examples.with_soft_targets(prepared, self._soft_targets, queries)
        if self._per_class is not None:
            examples = examples.interleaved(self._per_class, self.bench.labeled_dev.query_labels)
        return examples

    def _validate(self, encoded: Encoded) -> tuple[float, int]:
        """Return the loss on the validation examples and the number of errors.

        Errors are misclassified queries if the loss has a softmax head, and incorrectly ranked triplets otherwise.
        """
        examples = self._validation_examples
        dev = self.bench.dev
        if isinstance(dev, RelationSet):
            sentences = Sides(dev.queries, dev.pool)
            embeddings = Sides(encoded.queries, encoded.pool)
        else:
            sentences = Sides.same(dev.queries)
            embeddings = operating_points.embed_on_both_sides(self._tuned(), dev, encoded.queries)
        on_device = embeddings.map(self._on_device)
        # Time and memory of losses that compare classes within a batch are cubic in the batch size.
        num_at_once = len(examples.rows) if self._per_class is None else self.config.batch_size
        losses_of_parts, sizes = [], []
        for start in range(0, len(examples.rows), num_at_once):
            part = slice(start, start + num_at_once)
            rows = examples.rows[part]
            positions = self._on_device(rows)
            columns = [
                on_device.of(side)[positions[:, column]] for column, side in enumerate(self.sides)
            ]
            targets = None if examples.targets is None else examples.targets[part]
            ids = [sentences.of(side)[rows[:, column]] for column, side in enumerate(self.sides)]
            batch = self.make_batch(columns, np.stack(ids, axis=1), targets)
            with torch.no_grad():
                loss_of_part = self.own_loss(batch)
            losses_of_parts.append(float(loss_of_part))
            sizes.append(len(rows))
        loss = (
            losses_of_parts[0]
            if len(sizes) == 1
            else float(np.average(losses_of_parts, weights=sizes))
        )
        if encoded.query_classes is None:
            return loss, triplet_errors(embeddings, examples.triplets)
        predicted = encoded.query_classes.argmax(axis=1)
        is_wrong = predicted != self.bench.labeled_dev.query_labels
        return loss, int(is_wrong.sum())


def measure_peak_bytes(
    bench: Workbench, configs: Iterable[TrialConfig], *, recomputes: bool = False
) -> int:
    """Return the peak GPU memory in bytes that PyTorch reserves for any of these trials.

    Each trial takes one optimizer step on the longest sentences, which is the worst case. The bench must be on a GPU.
    """
    device = bench.model.device
    lengths = np.max(
        [tokens.lengths(np.arange(len(tokens))) for tokens in bench.tokens.distinct], axis=0
    )
    longest_first = np.argsort(-lengths, kind="stable")
    torch.cuda.reset_peak_memory_stats(device)
    for config in configs:
        training = Training(config, bench, seed=0, num_rungs=1)
        training.model.train()  # dropout needs memory too
        ids, targets = training.order.take(config.batch_size)
        longest_ids = np.resize(longest_first[: ids.size], ids.shape)
        training.recomputes = recomputes
        training.add_gradient(longest_ids, targets)
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
    return int(torch.cuda.max_memory_reserved(device))
