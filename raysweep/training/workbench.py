"""What trials in one process share, and the result of a rung."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from raysweep.config import freezing
from raysweep.config.sweep import EncoderConfig, EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.artifacts import open_array
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.tokens import Tokens
from raysweep.evaluation import operating_points
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import Head
from raysweep.metrics import retrieval
from raysweep.results.types import PointKey, point_values

if TYPE_CHECKING:
    import torch

    from raysweep.encoders.frozen_prefix import Prefix


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
    points: dict[PointKey, retrieval.Scores]
    seconds: float
    train_seconds: float
    stop: str | None = None

    @property
    def scores(self) -> retrieval.Scores:
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
        from raysweep.training.dropout import Dropouts

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

        from raysweep.encoders.frozen_prefix import Prefix

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

    def measure(self, evaluation: EvaluationSet, keys: list[PointKey]) -> dict[PointKey, retrieval.Scores]:
        """Scores of points of the weights that :meth:`reset` put into the model."""
        found, _ = operating_points.measure(
            self.model, self.tokens, evaluation, keys, head=self.head, base=self.initial
        )
        return found

    def describe(self, evaluation: EvaluationSet, scores: dict[PointKey, retrieval.Scores]) -> list[dict[str, Any]]:
        """These points as a ledger's event holds them, without the trial and step, which the event has."""
        described = []
        for key, each in scores.items():
            width = operating_points.width(key, self.model, evaluation, self.head)
            point = evaluation.point(each, trial=None, step=None, kind=key[0], value=key[1], width=width)
            described.append(point_values(point))
        return described
