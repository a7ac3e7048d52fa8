"""One trial: train a candidate encoder rung by rung. An ordinary function; Ray is not involved."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raysweep import criterion, encoder, freezing, metrics, schedules
from raysweep.artifacts import Prepared, open_array
from raysweep.config import EncoderConfig, EvaluationConfig, TrialConfig
from raysweep.encoder import Tokens
from raysweep.evaluation import EvaluationSet, TrialDivergedError, evaluate
from raysweep.losses import LOSSES

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

TOKENS_PER_BUCKET = (
    512  # a training batch is cut into buckets of like length; smaller ones pad less, larger ones overlap more
)


@dataclass(frozen=True)
class RungResult:
    """One evaluation. ``loss`` is the mean over the rung's batches; ``seconds`` since the trial began."""

    step: int
    examples_seen: int
    loss: float
    scores: metrics.Scores
    seconds: float
    train_seconds: float

    @property
    def polarity(self) -> float:
        return float(self.scores.polarity.mean())

    @property
    def similarity(self) -> float:
        return float(self.scores.similarity.mean())


class Workbench:
    """What trials over the same artifacts share in a process: the base encoder, its initial weights, the data."""

    def __init__(self, prepared: Prepared, evaluation: EvaluationConfig, device: str = "cpu") -> None:
        self.prepared = prepared
        self.evaluation = evaluation
        self.model = encoder.load(EncoderConfig(**prepared.model), device=device)
        self.initial = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.tokens = Tokens(open_array(prepared.tokens_folder, "flat"), open_array(prepared.tokens_folder, "offsets"))

    @cached_property
    def dev(self) -> EvaluationSet:
        return EvaluationSet.of(self.prepared, "dev", self.evaluation)

    @cached_property
    def test(self) -> EvaluationSet:
        return EvaluationSet.of(self.prepared, "test", self.evaluation)

    def reset(self, weights: "dict[str, torch.Tensor] | None" = None) -> None:
        """Put the base weights back, then ``weights`` (a subset) over them."""
        self.model.load_state_dict({**self.initial, **(weights or {})})
        for parameter in self.model.parameters():
            parameter.requires_grad_(True)
            parameter.grad = None


def trial_seed(sweep_seed: int, config: TrialConfig) -> int:
    """The seed of a trial's every random draw, in [0, 2**32): a hash of the sweep's seed and the configuration."""
    text = json.dumps([sweep_seed, config.model_dump(mode="json")], sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def run_trial(
    config: TrialConfig,
    prepared: Prepared,
    *,
    seed: int = 0,
    num_rungs: int = 6,
    evaluation: EvaluationConfig | None = None,
    device: str | None = None,
    on_rung: Callable[[RungResult], bool | None] = lambda rung: None,
) -> list[RungResult]:
    """Train and evaluate one configuration in this process; ``on_rung`` takes each rung and may return False to stop.

    Needs nothing but artifacts: no Ray, no cluster. ``device`` is a GPU where there is one.
    Raises TrialDivergedError when the loss is no longer finite.
    """
    workbench = Workbench(prepared, evaluation or EvaluationConfig(), device or encoder.best_device())
    results: list[RungResult] = []
    for result in rungs(config, workbench, seed=seed, num_rungs=num_rungs):
        results.append(result)
        if on_rung(result) is False:
            break
    return results


def rungs(config: TrialConfig, workbench: Workbench, *, seed: int, num_rungs: int) -> Iterator[RungResult]:
    """Train rung after rung, yielding after each; the model in ``workbench`` then holds that rung's weights."""
    import torch

    began = time.perf_counter()
    torch.manual_seed(seed)
    workbench.reset()
    model = workbench.model
    frozen = freezing.frozen_names(
        [name for name, _ in model.named_parameters()], config.freezing, freeze_output_dense=config.freeze_output_dense
    )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    loss = criterion.build(config.loss, config.model_dump(), model)
    optimizer = _optimizer(config, model)
    order = _Order(workbench.prepared, LOSSES[config.loss].example_kind, np.random.default_rng(seed))
    steps_per_rung = -(-config.examples_per_rung // config.batch_size)
    span = steps_per_rung if config.restart_each_rung else steps_per_rung * num_rungs
    warmup = round(config.warmup_fraction * span) if config.warmup_steps is None else config.warmup_steps
    seen = 0
    train_seconds = 0.0
    for rung in range(1, num_rungs + 1):
        started = time.perf_counter()
        model.train()
        total = torch.zeros((), device=model.device)
        for step in range(steps_per_rung):
            batch = min(config.batch_size, config.examples_per_rung - step * config.batch_size)
            position = step if config.restart_each_rung else (rung - 1) * steps_per_rung + step
            rate = config.learning_rate * schedules.multiplier(config.schedule, position, span, warmup)
            for group in optimizer.param_groups:
                group["lr"] = rate
            ids, targets = order.take(batch)
            labels = None if targets is None else torch.from_numpy(targets).to(model.device)
            value = loss.compute_loss_from_embeddings(embed_columns(model, workbench.tokens, ids), labels)
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_gradient_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += value.detach()
            seen += batch
        mean = float(total) / steps_per_rung
        if not np.isfinite(mean):
            raise TrialDivergedError(f"the loss became {mean} within rung {rung} (after {seen} examples)")
        train_seconds += time.perf_counter() - started
        scores = evaluate(model, workbench.tokens, workbench.dev)
        yield RungResult(rung, seen, mean, scores, time.perf_counter() - began, train_seconds)


def embed_columns(model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer]) -> "list[torch.Tensor]":
    """Embeddings of a batch of examples: one tensor (batch, width) a column of ``ids`` (batch, columns), with gradients.

    Each distinct sentence is embedded once, in buckets of like length; columns are rows of the result.
    """
    import torch

    unique, inverse = np.unique(ids, return_inverse=True)
    inverse = inverse.reshape(ids.shape)
    cut = list(encoder.buckets(tokens.lengths(unique), TOKENS_PER_BUCKET))
    rows = torch.cat([encoder.forward(model, tokens, unique[bucket]) for bucket in cut])
    row_of = np.empty(len(unique), np.int64)
    row_of[np.concatenate(cut)] = np.arange(len(unique))
    return [rows[torch.from_numpy(row_of[inverse[:, column]]).to(rows.device)] for column in range(ids.shape[1])]


def _optimizer(config: TrialConfig, model: "SentenceTransformer") -> "torch.optim.Optimizer":
    """AdamW; matrices decay, biases and norms do not, as in the stock trainer."""
    import torch

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


class _Order:
    """Examples in a seeded order without replacement, shuffled anew at each pass."""

    def __init__(self, prepared: Prepared, kind: str, rng: np.random.Generator) -> None:
        self.ids, self.targets = prepared.examples(kind)
        self._rng = rng
        self._left = np.empty(0, np.int64)

    def take(self, count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32] | None]:
        while len(self._left) < count:
            self._left = np.concatenate([self._left, self._rng.permutation(len(self.ids))])
        chosen, self._left = self._left[:count], self._left[count:]
        return self.ids[chosen], None if self.targets is None else self.targets[chosen]
