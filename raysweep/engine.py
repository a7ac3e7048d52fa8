"""One trial: train a candidate encoder rung by rung. An ordinary function; Ray is not involved."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep import encoder, freezing, metrics, operating
from raysweep.artifacts import Prepared, open_array
from raysweep.config import EncoderConfig, EvaluationConfig
from raysweep.encoder import Tokens
from raysweep.evaluation import EvaluationSet, TrialDivergedError
from raysweep.operating import Head
from raysweep.results import PointKey, point_values
from raysweep.trial import TrialConfig

if TYPE_CHECKING:
    import torch

    from raysweep.prefix import Prefix


DRAWS_PER_SENTENCE = 4  # a process runs several trials, so that a cache pays for itself before one has read everything


@dataclass(frozen=True)
class RungResult:
    """One evaluation. ``loss`` is the mean over the rung's batches; ``seconds`` since the trial began, pauses excluded.

    ``points`` holds per-query scores of every operating point, the plain one first. ``stop`` is the reason why the trial
    ends here by a rule of its own, or None.
    """

    step: int
    examples_seen: int
    loss: float
    points: dict[PointKey, metrics.Scores]
    seconds: float
    train_seconds: float
    stop: str | None = None

    @property
    def scores(self) -> metrics.Scores:
        """Of the tuned encoder as it is."""
        return self.points["plain", None]

    @property
    def polarity(self) -> float:
        return float(self.scores.polarity.mean())

    @property
    def similarity(self) -> float:
        return float(self.scores.similarity.mean())


@dataclass
class Workbench:
    """What trials over the same artifacts share in a process: the base encoder, its initial weights, the data."""

    prepared: Prepared
    evaluation: EvaluationConfig
    device: str = "cpu"
    cache_bytes: int = 2 << 30
    head: Head | None = field(default=None, init=False)  # of the trial in the model, after a rung

    def __post_init__(self) -> None:
        from raysweep.dropout import Dropouts

        self.model = encoder.load(EncoderConfig(**self.prepared.model), device=self.device)
        self.dropouts = Dropouts(self.model, self.model.device.type)
        self.initial = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        folder = self.prepared.tokens_folder
        self.tokens = Tokens(open_array(folder, "flat"), open_array(folder, "offsets"))
        self.parameter_names = [name for name, _ in self.model.named_parameters()]
        self._prefix: Prefix | None = None

    @cached_property
    def dev(self) -> EvaluationSet:
        return EvaluationSet.of(self.prepared, "dev", self.evaluation)

    @cached_property
    def test(self) -> EvaluationSet:
        return EvaluationSet.of(self.prepared, "test", self.evaluation)

    def reset(self, weights: "dict[str, torch.Tensor] | None" = None, head: Head | None = None) -> None:
        """Put the base weights back, then ``weights`` (a subset) over them."""
        self.model.load_state_dict(self.initial)
        if weights:  # in a second step, since tied weights have two names of which only one is given
            self.model.load_state_dict(weights, strict=False)
        self.head = head
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(weights is None or name in weights)
            parameter.grad = None

    def freeze(self, config: TrialConfig) -> None:
        """Fix what the trial's level freezes, and set its dropout."""
        level = config.freezing
        frozen = freezing.frozen_names(self.parameter_names, level, freeze_output_dense=config.freeze_output_dense)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name not in frozen)
        resting = freezing.frozen_modules(self.parameter_names, self.dropouts.names, level)
        self.dropouts.set(config.dropout, () if config.frozen_dropout else resting)

    def prefix(self, config: TrialConfig, arithmetic: str, num_draws: int) -> "Prefix | None":
        """The cache of what the trial's frozen blocks give; the last trial's where it froze as much.

        None where there is nothing to keep, or where the ``num_draws`` sentences that the trial reads are so few of all
        that computing whole groups of them would not pay.
        """
        import torch

        from raysweep.prefix import Prefix

        modules = [name for name, _ in self.model.named_modules()]
        names = freezing.prefix_names(self.parameter_names, modules, config.freezing)
        few = len(self.tokens) > DRAWS_PER_SENTENCE * num_draws
        if names is None or config.frozen_dropout or not self.cache_bytes or few:
            return None
        dtype = torch.bfloat16 if arithmetic == "bf16" else torch.float32
        if self._prefix is None or (self._prefix.names, self._prefix.dtype) != (names, dtype):
            self._prefix = None  # frees the memory before more is taken
            self._prefix = Prefix(self.model, names, self.tokens, self.cache_bytes, dtype)
        return self._prefix

    def measure(self, evaluation: EvaluationSet, keys: list[PointKey]) -> dict[PointKey, metrics.Scores]:
        """Scores of points of the weights that :meth:`reset` put into the model."""
        found, _ = operating.measure(self.model, self.tokens, evaluation, keys, head=self.head, base=self.initial)
        return found

    def describe(self, evaluation: EvaluationSet, scores: dict[PointKey, metrics.Scores]) -> list[dict[str, Any]]:
        """These points as a ledger's event holds them, without the trial and step, which the event has."""
        described = []
        for key, each in scores.items():
            width = operating.width(key, self.model, evaluation, self.head)
            point = evaluation.point(each, trial=None, step=None, kind=key[0], value=key[1], width=width)
            described.append(point_values(point))
        return described


def trial_seed(sweep_seed: int, config: TrialConfig, run: int = 0) -> int:
    """The seed of a trial's every random draw, in [0, 2**32): a hash of the sweep's seed and the configuration.

    ``run`` counts a configuration's replicates from 1; each has a seed of its own.
    """
    parts = [sweep_seed, config.model_dump(mode="json"), *([run] if run else [])]
    text = json.dumps(parts, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def run_trial(
    config: TrialConfig,
    prepared: Prepared,
    *,
    seed: int = 0,
    num_rungs: int = 6,
    evaluation: EvaluationConfig | None = None,
    device: str | None = None,
    checkpoints: Path | None = None,
    on_rung: Callable[[RungResult], bool | None] = lambda rung: None,
) -> list[RungResult]:
    """Train and evaluate one configuration in this process; ``on_rung`` takes each rung and may return False to stop.

    Needs nothing but artifacts: no Ray, no cluster. ``device`` is a GPU where there is one. In the folder ``checkpoints``
    the trial keeps its state; called again after an interruption it goes on from there, and first repeats the result of a
    rung that had just ended. Raises TrialDivergedError when the loss is no longer finite.
    """
    workbench = Workbench(prepared, evaluation or EvaluationConfig(), device or encoder.best_device())
    results: list[RungResult] = []
    for result in rungs(config, workbench, seed=seed, num_rungs=num_rungs, checkpoints=checkpoints):
        results.append(result)
        if on_rung(result) is False:
            break
    return results


def rungs(
    config: TrialConfig,
    workbench: Workbench,
    *,
    seed: int,
    num_rungs: int,
    checkpoints: Path | None = None,
    checkpoint_seconds: float = 300.0,
) -> Iterator[RungResult]:
    """Train rung after rung, yielding after each; the model in ``workbench`` then holds that rung's weights.

    With ``checkpoints`` the state is kept in that folder, at each rung and every ``checkpoint_seconds``. Where it holds
    one already the trial goes on from there, to the same bits on a CPU; a rung that had just ended is yielded once more.
    """
    from raysweep.training import Training

    training = Training(config, workbench, seed, num_rungs)
    last = training.restore(checkpoints) if checkpoints is not None else None
    if last is not None and not training.seen_in_rung:  # else it was taken, and the model has moved on since
        yield last
    while training.rung < num_rungs and not (last and last.stop):
        saved = time.monotonic()
        while not training.rung_is_full:
            training.step()
            due = time.monotonic() - saved >= checkpoint_seconds and not training.rung_is_full  # which is saved below
            if checkpoints is not None and due:
                training.save(checkpoints, last)
                saved = time.monotonic()
        last = training.evaluate()
        if checkpoints is not None:
            training.save(checkpoints, last)
        yield last


__all__ = ["RungResult", "TrialDivergedError", "Workbench", "run_trial", "rungs", "trial_seed"]
