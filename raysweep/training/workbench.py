"""What trials in one process share, and the result of a rung."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from raysweep.config import freezing
from raysweep.config.sweep import EncoderConfig, EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.encoder import BatchContext, no_context
from raysweep.encoders.locate import locate_same
from raysweep.encoders.tokens import Tokens
from raysweep.evaluation import operating_points
from raysweep.evaluation.calibration import calibration_of
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import Encoded, Head, TunedEncoder
from raysweep.metrics import retrieval
from raysweep.results.types import Calibration, PointKey, ScoredSplit, point_values

if TYPE_CHECKING:
    import torch

    from raysweep.encoders.frozen_prefix import Prefix


# A trial uses the cache of its frozen part when it reads at least one of so many sentences. A process runs several trials,
# so the cache pays for itself before one of them has read everything.
SENTENCES_PER_DRAW = 4


@dataclass(frozen=True)
class RungResult:
    """One evaluation. ``loss`` is the mean over the rung's batches; ``seconds`` since the trial began, pauses excluded.

    ``points`` holds per-query scores of every operating point, the plain one first. ``stop`` is the reason why the trial
    ends here by a rule of its own, or None. ``calibration`` is that of the softmax head on dev, under that loss, and
    ``labelled`` holds the scores of the points that are told the pool's labels.
    """

    step: int
    examples_seen: int
    loss: float
    points: dict[PointKey, retrieval.Scores]
    seconds: float
    train_seconds: float
    stop: str | None = None
    calibration: Calibration | None = None
    labelled: dict[PointKey, retrieval.Scores] = field(default_factory=dict)

    @property
    def scores(self) -> retrieval.Scores:
        """Scores of the plain point, the tuned encoder as it is."""
        return self.points["plain", None]

    @property
    def polarity(self) -> float:
        """The plain point's P, in [0, 1]."""
        return float(self.scores.polarity.mean())

    @property
    def similarity(self) -> float:
        """The plain point's S."""
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

        config = EncoderConfig(**self.prepared.model)
        source = locate_same(config, self.prepared.model_identity)
        self.model = encoder.load(config, device=self.device, source=source)
        encoder.check_no_adapter(self.model, config)
        self.dropouts = Dropouts(self.model, self.model.device.type)
        self.initial = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.tokens = Tokens.open(self.prepared.tokens_artifact.folder)
        self.parameter_names = [name for name, _ in self.model.named_parameters()]
        self._prefix: Prefix | None = None  # of the last trial that had one

    @cached_property
    def dev(self) -> EvaluationSet:
        """The split that the search selects on."""
        return EvaluationSet.of(self.prepared, "dev", self.evaluation)

    @cached_property
    def test(self) -> EvaluationSet:
        """The split that the front is reported on."""
        return EvaluationSet.of(self.prepared, "test", self.evaluation)

    @property
    def shown_split(self) -> ScoredSplit:
        """The split whose readings a report shows: test, or dev where there is no test."""
        return "test" if len(self.prepared.sentences.ids("test")) else "dev"

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
        """Freeze what the trial's freezing level says, and set its dropout."""
        level = config.freezing
        frozen = freezing.frozen_names(self.parameter_names, level, freeze_output_dense=config.freeze_output_dense)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name not in frozen)
        resting = freezing.frozen_modules(self.parameter_names, self.dropouts.names, level)
        self.dropouts.set(config.dropout, () if config.frozen_dropout else resting)

    def prefix(self, config: TrialConfig, arithmetic: str, num_draws: int) -> "Prefix | None":
        """The cache of what the trial's frozen blocks give; the last trial's where the same blocks were frozen.

        None where nothing can be kept, or where the trial reads so few sentences, ``num_draws`` with repetition, that
        computing whole groups of them would not pay.
        """
        import torch

        from raysweep.encoders.frozen_prefix import Prefix

        reads_enough = SENTENCES_PER_DRAW * num_draws >= len(self.tokens)
        if config.frozen_dropout or not self.cache_bytes or not reads_enough:
            return None
        modules = [name for name, _ in self.model.named_modules()]
        names = freezing.prefix_names(self.parameter_names, modules, config.freezing)
        if names is None:
            return None
        dtype = torch.bfloat16 if arithmetic == "bf16" else torch.float32
        if self._prefix is not None and self._prefix.is_of(names, dtype):
            return self._prefix
        self._prefix = None  # frees the memory before more is taken
        self._prefix = Prefix(self.model, names, self.tokens, self.cache_bytes, dtype)
        return self._prefix

    def tuned(self, batch_context: BatchContext = no_context) -> TunedEncoder:
        """The encoder with the weights and the head that it has now, for measuring its operating points."""
        return TunedEncoder(self.model, self.tokens, self.head, self.initial, batch_context)

    def encode(self, evaluation: EvaluationSet) -> Encoded:
        """Queries and pool under the weights that :meth:`reset` put into the model."""
        return operating_points.encode(self.tuned(), evaluation)

    def measure(
        self, evaluation: EvaluationSet, keys: list[PointKey], encoded: Encoded | None = None
    ) -> dict[PointKey, retrieval.Scores]:
        """Scores of points of the weights that :meth:`reset` put into the model, which may have ``encoded`` the set."""
        return operating_points.measure(self.tuned(), evaluation, keys, encoded)

    def calibration(self, evaluation: EvaluationSet, encoded: Encoded) -> Calibration | None:
        """How well the head that there is fits the labels of what the encoder has encoded; None without one."""
        if self.head is None:
            return None
        return calibration_of(self.head, encoded.queries, evaluation.query_labels, evaluation.split)

    def describe(self, evaluation: EvaluationSet, scores: dict[PointKey, retrieval.Scores]) -> list[dict[str, Any]]:
        """These points as a ledger's event holds them, without the trial and step, which the event has."""
        tuned = self.tuned()
        described = []
        for key, each in scores.items():
            kind, value = key
            width = operating_points.width(key, tuned, evaluation)
            point = evaluation.point(
                each,
                trial=None,
                step=None,
                kind=kind,
                value=value,
                width=width,
            )
            described.append(point_values(point))
        return described
