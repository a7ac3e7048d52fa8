"""The state of one trial's training: steps, rungs, and all that a checkpoint holds."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from raysweep.config.losses import LOSSES
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import precision
from raysweep.encoders.encoder import Replay, nothing_replayed
from raysweep.errors import InputError
from raysweep.evaluation import operating_points
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.evaluation.operating_points import Encoded, Head
from raysweep.metrics.retrieval import Scores
from raysweep.training import batches, checkpoint, losses, optimizers, schedules
from raysweep.training.validation import IdleRule, ValidationExamples, triplet_errors
from raysweep.training.workbench import RungResult, Workbench


class Training:
    """A trial between two optimizer steps. Taking over the workbench's model, it begins at the base weights."""

    def __init__(self, config: TrialConfig, bench: Workbench, seed: int, num_rungs: int) -> None:
        self.config, self.bench, self.seed, self.num_rungs = config, bench, seed, num_rungs
        self._began = time.perf_counter()
        torch.manual_seed(seed)
        bench.dropouts.generator.seed(seed)
        bench.reset()
        bench.freeze(config)
        self.model, self.device = bench.model, bench.model.device
        sentences = bench.prepared.sentences
        width = int(self.model.get_embedding_dimension() or 0)
        self.kind = LOSSES[config.loss].example_kind
        self.loss: Any = losses.build(
            config.loss, config.model_dump(), self.model, width=width, num_labels=len(sentences.label_names)
        ).to(self.device)  # type: ignore[attr-defined]
        self.parameters = {
            name: parameter
            for name, parameter in (
                *self.model.named_parameters(),
                *((f"loss.{n}", p) for n, p in self.loss.named_parameters() if not n.startswith("model.")),
            )
            if parameter.requires_grad
        }
        self.optimizer = optimizers.build(config, self.parameters.values())
        self.order = _Order(bench.prepared, self.kind, seed)
        self.precision = precision.resolve(config.precision, self.device.type)
        self.num_draws = config.examples_per_rung * num_rungs * self.order.ids.shape[1]
        self.prefix = bench.prefix(config, self.precision, self.num_draws)
        self.idle = IdleRule(config.idle_rungs) if config.idle_rungs else None
        self.rung = 0  # finished ones
        self.seen_in_rung = self.steps_in_rung = self.batches_in_rung = self.seen = 0
        self.total = torch.zeros((), device=self.device)
        self.train_seconds = self.spent_before = 0.0
        per_step = config.batch_size * config.accumulation_steps
        self.steps_per_rung = -(-config.examples_per_rung // per_step)
        self.span = self.steps_per_rung if config.restart_each_rung else self.steps_per_rung * num_rungs
        given = config.warmup_steps
        self.warmup = round(config.warmup_fraction * self.span) if given is None else given

    @property
    def rung_is_full(self) -> bool:
        return self.seen_in_rung >= self.config.examples_per_rung

    @property
    def replay(self) -> Replay:
        """The contexts that forward passes run in: those of the frozen part's cache, where there is one."""
        return nothing_replayed if self.prefix is None else self.prefix.replayed

    def step(self) -> None:
        """One optimizer step: ``accumulation_steps`` batches, fewer where the rung ends."""
        started = time.perf_counter()
        config = self.config
        self.model.train()
        position = self.steps_in_rung + (0 if config.restart_each_rung else self.rung * self.steps_per_rung)
        factor = schedules.multiplier(
            config.schedule, position, self.span, self.warmup, rung=self.rung, decay=config.decay
        )
        for group in self.optimizer.param_groups:
            group["lr"] = config.peak_learning_rate * factor
        left = config.examples_per_rung - self.seen_in_rung
        num_batches = min(config.accumulation_steps, -(-left // config.batch_size))
        for _ in range(num_batches):
            batch = min(config.batch_size, config.examples_per_rung - self.seen_in_rung)
            value = self.batch_loss(*self.order.take(batch))
            (value / num_batches).backward()
            self.total += value.detach()
            self.seen_in_rung += batch
            self.seen += batch
            self.batches_in_rung += 1
        torch.nn.utils.clip_grad_norm_(self.parameters.values(), config.max_gradient_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps_in_rung += 1
        self.train_seconds += time.perf_counter() - started

    def batch_loss(self, ids: npt.NDArray[np.integer], targets: npt.NDArray[Any] | None) -> torch.Tensor:
        """The loss of a batch, a scalar with gradients: ``ids`` (batch, columns), ``targets`` (batch,) or None."""
        with precision.autocast(self.precision, self.device.type):
            columns = batches.embed_columns(self.model, self.bench.tokens, ids, self.replay)
        labels = None if targets is None else torch.from_numpy(targets).to(self.device)
        value: torch.Tensor = self.loss.compute_loss_from_embeddings(columns, labels)
        if self.config.retention_weight:
            vectors = np.asarray(self.bench.prepared.reference_embeddings[ids])
            reference = [torch.from_numpy(vectors[:, column]).to(self.device) for column in range(ids.shape[1])]
            value = value + self.config.retention_weight * losses.retention_term(columns, reference)
        return value

    def head(self) -> Head | None:
        """The softmax head as it stands, or None under other losses."""
        linear = getattr(self.loss, "head", None)
        if linear is None:
            return None
        return Head(linear.weight.detach().cpu().numpy().copy(), linear.bias.detach().cpu().numpy().copy())

    def evaluate(self) -> RungResult:
        """End the rung: score it on dev in fp32. Raises TrialDivergedError when the loss is no longer finite."""
        mean = float(self.total) / self.batches_in_rung
        self.rung += 1
        if not np.isfinite(mean):
            raise TrialDivergedError(f"the loss became {mean} within rung {self.rung} (after {self.seen:,} examples)")
        bench = self.bench
        bench.head = self.head()
        keys = operating_points.wanted(bench.evaluation.points, has_head=bench.head is not None)
        replay = self.replay if self.precision == "fp32" else nothing_replayed
        points, encoded = operating_points.measure(
            self.model, bench.tokens, bench.dev, keys, head=bench.head, base=bench.initial, replay=replay
        )
        assert encoded is not None
        stop = self.idle.update(*self._validate(encoded)) if self.idle is not None else None
        self.seen_in_rung = self.steps_in_rung = self.batches_in_rung = 0
        self.total.zero_()
        return RungResult(self.rung, self.seen, mean, points, self._seconds(), self.train_seconds, stop)

    def _validate(self, encoded: Encoded) -> tuple[float, int]:
        """The trial's loss over validation examples, and its count of errors."""
        dev = self.bench.dev
        targets = self.order.targets  # of scored pairs two cosines, of the same and of other classes
        cosines = (1.0, 0.0) if targets is None else (float(targets.max()), float(targets.min()))
        examples = ValidationExamples.of(self.bench.prepared, self.kind, dev.queries, cosines)
        rows = torch.from_numpy(encoded.queries).to(self.device)
        columns = [rows[torch.from_numpy(np.asarray(column)).to(self.device)] for column in examples.rows.T]
        labels = None if examples.targets is None else torch.from_numpy(np.asarray(examples.targets)).to(self.device)
        with torch.no_grad():
            loss = float(self.loss.compute_loss_from_embeddings(columns, labels))
        if encoded.query_classes is not None:
            return loss, int((encoded.query_classes.argmax(axis=1) != dev.query_labels).sum())
        return loss, triplet_errors(encoded.queries, examples.triplets)

    def _seconds(self) -> float:
        return self.spent_before + time.perf_counter() - self._began

    def save(self, folder: Path, last: RungResult | None) -> None:
        """Write the whole state, with the last rung's result, which may not have reached its reader yet."""
        tensors = {f"weight.{name}": parameter for name, parameter in self.parameters.items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items() if value is not None}
        tensors |= {"rng.cpu": torch.get_rng_state(), "total": self.total, "left": torch.from_numpy(self.order.left)}
        if self.device.type == "cuda":
            tensors["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        values: dict[str, Any] = {name: getattr(self, name) for name in _COUNTERS}
        values |= {
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "num_rungs": self.num_rungs,
            "precision": self.precision,
            "spent_before": self._seconds(),
            "order": self.order.rng.bit_generator.state,
            "dropout": self.bench.dropouts.state(),
            "idle": None if self.idle is None else vars(self.idle),
        }
        if last is not None:
            plain = {name: getattr(last, name) for name in ("step", "examples_seen", "loss", "seconds")}
            values["last"] = {**plain, "train_seconds": last.train_seconds, "stop": last.stop, "keys": [*last.points]}
            for index, scores in enumerate(last.points.values()):
                tensors[f"last.{index}"] = torch.from_numpy(np.stack([scores.polarity, scores.similarity]))
        checkpoint.save(folder, self.seen, tensors, values)

    def restore(self, folder: Path) -> RungResult | None:
        """Take over the latest checkpoint of ``folder``, if any; the last rung's result, if there was one.

        InputError when it is of another configuration or seed.
        """
        found = checkpoint.load(folder)
        if found is None:
            return None
        tensors, values = found
        given = {"config": self.config.model_dump(mode="json"), "seed": self.seed, "num_rungs": self.num_rungs}
        if any(values[name] != value for name, value in given.items()):
            raise InputError(
                f"{folder}: the checkpoint there is of another configuration, seed or number of rungs; give a new folder"
            )
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[f"weight.{name}"])
        slots: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                slots.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": slots})
        torch.set_rng_state(tensors["rng.cpu"])
        if "rng.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["rng.cuda"], self.device)
        self.total.copy_(tensors["total"])
        self.order.left = tensors["left"].numpy()
        self.order.rng.bit_generator.state = values["order"]
        self.bench.dropouts.restore(values["dropout"])
        for name in (*_COUNTERS, "precision", "spent_before"):
            setattr(self, name, values[name])
        self.prefix = self.bench.prefix(self.config, self.precision, self.num_draws)
        if self.idle is not None:
            self.idle = IdleRule(**values["idle"])
        if "last" not in values:
            return None
        last = values["last"]
        keys = [(kind, value) for kind, value in last.pop("keys")]
        scores = [Scores(*tensors[f"last.{index}"].numpy()) for index in range(len(keys))]
        self.bench.head = self.head()
        return RungResult(**last, points=dict(zip(keys, scores, strict=True)))


_COUNTERS = ("rung", "seen", "seen_in_rung", "steps_in_rung", "batches_in_rung", "train_seconds")


class _Order:
    """Examples in a seeded order without replacement, shuffled anew at each pass."""

    def __init__(self, prepared: Prepared, kind: str, seed: int) -> None:
        self.ids, self.targets = prepared.examples(kind)
        self.rng = np.random.default_rng(seed)
        self.left = np.empty(0, np.int64)

    def take(self, count: int) -> tuple[npt.NDArray[np.integer], npt.NDArray[Any] | None]:
        while len(self.left) < count:
            self.left = np.concatenate([self.left, self.rng.permutation(len(self.ids))])
        chosen, self.left = self.left[:count], self.left[count:]
        return np.asarray(self.ids[chosen]), None if self.targets is None else self.targets[chosen]
