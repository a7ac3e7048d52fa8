"""State shared by the trials of a process, and the result of a rung."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from raysweep.config.sides import Sides
from raysweep.config.sweep import EncoderConfig, EvaluationConfig
from raysweep.config.trial import TrialConfig
from raysweep.data.artifacts import Artifact
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.encoder import BatchContext, no_context
from raysweep.encoders.locate import locate_same
from raysweep.encoders.side_encoders import Encoders, StoredEncoder, TokenEncoder
from raysweep.encoders.tokens import Tokens, excluded_prompt_length
from raysweep.evaluation import operating_points
from raysweep.evaluation.calibration import calibration_of
from raysweep.evaluation.evaluation_set import EvaluationSet, ScoredSet
from raysweep.evaluation.operating_points import Encoded, Head, TunedEncoder
from raysweep.evaluation.pair_measures import PairSet
from raysweep.evaluation.relation_set import scored_set
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float32Array
from raysweep.results.types import Calibration, Measure, PointKey, ScoredSplit, point_values
from raysweep.results.watched import Watched
from raysweep.training.trainable import Trainable, TrainedWeights
from raysweep.training.watching import Watching, WatchTask

if TYPE_CHECKING:
    from raysweep.encoders.frozen_prefix import Prefix


# A trial uses the prefix cache if it reads at least 1 / MAX_SENTENCES_PER_READ of all sentences. It does not need to
# read all of them, because later trials in the process can reuse the cache.
MAX_SENTENCES_PER_READ = 4

NO_CONTEXTS: Sides[BatchContext] = Sides.same(no_context)


@dataclass(frozen=True)
class RungResult:
    """The results of one rung.

    Attributes:
        step: Number of the rung.
        examples_seen: Number of training examples since the trial began.
        loss: Mean loss over the rung's batches.
        points: Per-query scores of each operating point. The first point is the tuned encoder itself.
        seconds: Seconds since the trial began, excluding interruptions.
        train_seconds: Seconds spent in optimizer steps.
        stop: Reason why the stopping rule ended the trial, or None.
        calibration: Calibration of the softmax head on dev, or None without a head.
        labeled: Scores of the points that use the pool's labels.
        measures: Pair measures on dev, if the sweep has experts.
        watched: Measures on watched data, if taken at this rung.
        tasks: Scores on each data set learned so far in a sequence. Only the last rung of a sequence has ``points``.
    """

    step: int
    examples_seen: int
    loss: float
    points: dict[PointKey, retrieval.Scores] = field(repr=False)
    seconds: float
    train_seconds: float
    stop: str | None = None
    calibration: Calibration | None = None
    labeled: dict[PointKey, retrieval.Scores] = field(default_factory=dict, repr=False)
    measures: tuple[Measure, ...] = field(default=(), repr=False)
    watched: Watched | None = field(default=None, repr=False)
    tasks: dict[PointKey, retrieval.Scores] = field(default_factory=dict, repr=False)

    @property
    def scores(self) -> retrieval.Scores:
        """Return the scores of the tuned encoder itself, which is the first point."""
        return next(iter(self.points.values()))

    @property
    def polarity(self) -> float:
        """Return the tuned encoder's P, in [0, 1]."""
        return self.scores.mean("polarity")

    @property
    def similarity(self) -> float:
        """Return the tuned encoder's S."""
        return self.scores.mean("similarity")


@dataclass
class Workbench:
    """State shared by a process's trials on the same artifacts, including the base encoder.

    If ``checkpoints_blocks`` is True, training uses activation checkpointing for the encoder's blocks.
    """

    prepared: Prepared
    evaluation: EvaluationConfig
    device: str = "cpu"
    cache_bytes: int = 2 << 30
    checkpoints_blocks: bool = False
    watch: WatchTask | None = None
    # the head of the trial whose weights are loaded
    head: Head | None = field(default=None, init=False)
    # whether the current trial tunes only the query encoder
    keeps_documents: bool = field(default=False, init=False)
    _pairs_by_split: dict[ScoredSplit, PairSet] = field(default_factory=dict, init=False)
    _untuned: dict[tuple[ScoredSplit, bool], Float32Array] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        from raysweep.training.dropout import Dropouts

        config = EncoderConfig(**self.prepared.model)
        source = locate_same(
            config, self.prepared.model_identity, self.prepared.sentences_artifact.location
        )
        model = encoder.load(config, role="tuned", device=self.device, source=source)
        self.model = model
        self.dropouts = Dropouts(model, model.device.type)
        self.trainable = Trainable(model)
        self.structure = self.trainable.structure

        def open_tokens(artifact_and_prompt: tuple[Artifact, str]) -> Tokens:
            artifact, prompt = artifact_and_prompt
            return Tokens.open(artifact.folder, excluded_prompt_length(model, prompt))

        artifacts = self.prepared.tokens_artifacts
        self.tokens = artifacts.zip(source.prompts_of(config)).map(open_tokens)
        self._prefixes: Sides[Prefix] | None = None  # from the last trial that used prefix caches
        self._watching: Watching | None = None
        if self.watch is not None:
            reference = EncoderConfig(**self.prepared.reference)
            self._watching = Watching(self.watch, self.trainable, source, config, reference)

    @cached_property
    def dev(self) -> ScoredSet:
        """Return the dev split, on which the search selects points."""
        return scored_set(self.prepared, "dev", self.evaluation)

    @property
    def labeled_dev(self) -> EvaluationSet:
        """Return the dev split, which must have labels."""
        assert isinstance(self.dev, EvaluationSet)
        return self.dev

    @cached_property
    def test(self) -> ScoredSet:
        """Return the test split, on which the front is reported."""
        return scored_set(self.prepared, "test", self.evaluation)

    @property
    def shown_split(self) -> ScoredSplit:
        """Return the split that reports use: test, or dev for runs without a test split."""
        return "test" if len(self.prepared.sentences.ids("test")) else "dev"

    def reset(
        self,
        weights: TrainedWeights | None = None,
        head: Head | None = None,
        *,
        keeps_documents: bool = False,
    ) -> None:
        """Restore the base weights, then load a trial's ``weights`` and ``head``, if given.

        If ``keeps_documents`` is True, documents use the reference encoder's stored embeddings.
        """
        if weights is None:
            self.trainable.reset()
        else:
            self.trainable.load(weights)
        self.head, self.keeps_documents = head, keeps_documents

    def start(self, config: TrialConfig) -> None:
        """Restore the base weights, unfreeze the part that the trial trains, and set the dropout rates."""
        self.trainable.start(config)
        self.head, self.keeps_documents = None, config.tower == "query"
        frozen_modules = self.structure.frozen_modules(self.dropouts.names, config.freezing)
        self.dropouts.set(config.dropout, off=() if config.frozen_dropout else frozen_modules)

    def prefixes(
        self, config: TrialConfig, arithmetic: str, num_reads: int
    ) -> "Sides[Prefix] | None":
        """Return the caches of the frozen blocks' outputs, reusing the last trial's if they cover the same blocks.

        Return None if nothing can be cached or if the trial reads too few sentences for caching to pay off. ``num_reads``
        includes repeated reads of a sentence.
        """
        import torch

        from raysweep.encoders.frozen_prefix import Prefix

        num_sentences = sum(map(len, self.tokens.distinct))
        reads_enough = MAX_SENTENCES_PER_READ * num_reads >= num_sentences
        if config.frozen_dropout or not self.cache_bytes or not reads_enough:
            return None
        modules = [name for name, _ in self.model.named_modules()]
        names = self.structure.prefix_names(modules, config.freezing)
        if names is None:
            return None
        dtype = torch.bfloat16 if arithmetic == "bf16" else torch.float32
        if self._prefixes is not None and self._prefixes.document.is_of(names, dtype):
            return self._prefixes
        self._prefixes = None  # free the memory of the old caches first
        max_bytes = self.cache_bytes // len(self.tokens.distinct)
        self._prefixes = self.tokens.map(
            lambda tokens: Prefix(self.model, names, tokens, max_bytes, dtype)
        )
        return self._prefixes

    def encoders(self, batch_contexts: Sides[BatchContext] = NO_CONTEXTS) -> Encoders:
        """Return the query and document encoders with the model's current weights."""
        sources = self.tokens.zip(batch_contexts).zip(self.trainable.weight_contexts)
        tuned = sources.map(lambda source: TokenEncoder(self.model, *source[0], source[1]))
        return Sides(tuned.query, self.stored_documents) if self.keeps_documents else tuned

    @cached_property
    def stored_documents(self) -> StoredEncoder:
        """Return an encoder that reads the reference encoder's stored document embeddings."""
        return StoredEncoder(self.prepared.reference_embeddings.document)

    def tuned(self, batch_contexts: Sides[BatchContext] = NO_CONTEXTS) -> TunedEncoder:
        """Return the encoder with its current weights and head."""
        return TunedEncoder(self.encoders(batch_contexts), self.head, self.trainable.interpolated)

    def trained(self) -> TrainedWeights:
        """Return the current weights of the trainable part, without copying."""
        return self.trainable.trained()

    def encode(self, evaluation: ScoredSet) -> Encoded:
        """Encode the queries and the pool with the current weights."""
        return operating_points.encode(self.tuned(), evaluation)

    def measure(
        self, evaluation: ScoredSet, keys: list[PointKey], encoded: Encoded | None = None
    ) -> dict[PointKey, retrieval.Scores]:
        """Score the points with the current weights, reusing ``encoded`` if given."""
        return operating_points.measure(self.tuned(), evaluation, keys, encoded)

    @property
    def watches_each_rung(self) -> bool:
        """Return whether watched data is measured at every rung."""
        return self.watch is not None and self.watch.at == "rung"

    def measure_watched(self, config: TrialConfig, *, is_last: bool) -> Watched | None:
        """Measure watched data with the current weights, or return None if this is not due at this rung."""
        if self._watching is None or not (is_last or self.watches_each_rung):
            return None
        return self._watching.measure(config)

    def calibration(self, evaluation: ScoredSet, encoded: Encoded) -> Calibration | None:
        """Return how well the current head fits the labels of the encoded queries, or None without a head."""
        if self.head is None:
            return None
        assert isinstance(evaluation, EvaluationSet)
        return calibration_of(self.head, encoded.queries, evaluation.query_labels, evaluation.split)

    def pair_measures(
        self, evaluation: ScoredSet, encoded: Encoded, *, with_intervals: bool = False
    ) -> tuple[Measure, ...]:
        """Return the pair measures on a split with the current weights, or an empty tuple without experts.

        ``encoded`` must be the result of :meth:`encode` with the same weights.
        """
        if not (self.prepared.scores_artifacts and isinstance(evaluation, EvaluationSet)):
            return ()
        split = evaluation.split
        if split not in self._pairs_by_split:
            self._pairs_by_split[split] = PairSet.of(self.prepared, evaluation)
        pairs = self._pairs_by_split[split]
        before = self._untuned_cosines(evaluation, pairs)
        embeddings = self.both_sides(evaluation, encoded)
        return tuple(pairs.measure(embeddings, before, with_intervals=with_intervals))

    def both_sides(self, evaluation: ScoredSet, encoded: Encoded) -> Sides[Float32Array]:
        """Return the unit embeddings (queries, width) of the split's sentences, both as queries and as documents."""
        return operating_points.embed_on_both_sides(self.tuned(), evaluation, encoded.queries)

    def _untuned_cosines(self, evaluation: EvaluationSet, pairs: PairSet) -> Float32Array:
        """Return the cosines of the random pairs before tuning, cached by split and tower."""
        key = evaluation.split, self.keeps_documents
        if key not in self._untuned:
            with self.trainable.interpolated(0.0):
                tuned = self.tuned()
                queries = tuned.encoders.query.embed(evaluation.queries)
                embeddings = operating_points.embed_on_both_sides(tuned, evaluation, queries)
            self._untuned[key] = pairs.random_cosines(embeddings)
        return self._untuned[key]

    def task_scores(
        self, evaluation: ScoredSet, encoded: Encoded
    ) -> dict[PointKey, retrieval.Scores]:
        """Return the scores on each data set of a sequence, or an empty dict without a sequence."""
        return {}

    def describe_tasks(
        self, evaluation: ScoredSet, scores: dict[PointKey, retrieval.Scores]
    ) -> list[dict[str, Any]]:
        """Return the points of a sequence's data sets as ledger entries, or an empty list without a sequence."""
        return []

    def describe(
        self, evaluation: ScoredSet, scores: dict[PointKey, retrieval.Scores]
    ) -> list[dict[str, Any]]:
        """Return the points as ledger entries, without the trial and step that the ledger event already contains."""
        tuned = self.tuned()
        described = []
        for key, scores_of_point in scores.items():
            kind, value = key
            width = operating_points.width(key, tuned, evaluation)
            point = evaluation.point(
                scores_of_point, trial=None, step=None, kind=kind, value=value, width=width
            )
            described.append(point_values(point))
        return described
