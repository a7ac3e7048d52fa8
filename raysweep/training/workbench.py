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


# A trial uses the prefix cache if it reads at least 1 / MAX_SENTENCES_PER_READ of all sentences. A process runs several
# trials, so the cache pays off before one trial has read everything.
MAX_SENTENCES_PER_READ = 4

NO_CONTEXTS: Sides[BatchContext] = Sides.same(no_context)


@dataclass(frozen=True)
class RungResult:
    """One evaluation of a trial.

    ``loss`` is the mean over the rung's batches; ``seconds`` is the time since the trial began, excluding pauses.
    ``points`` holds per-query scores of every operating point, the tuned encoder's own point first. ``stop`` is the
    reason the stopping rule ended the trial, or None. ``calibration`` describes the softmax head on dev; None
    without a head. ``labeled`` holds the scores of points that use the pool's labels. ``measures`` holds the pair
    measures on dev, if the sweep has experts. ``watched`` holds the measures on watched data, if taken at this rung.
    In a sequence, ``tasks`` holds the scores on the data sets learned so far, and only the last rung has ``points``.
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
        """Return the scores of the first point, which is the tuned encoder itself."""
        return next(iter(self.points.values()))

    @property
    def polarity(self) -> float:
        """Return the first point's P, in [0, 1]."""
        return self.scores.mean("polarity")

    @property
    def similarity(self) -> float:
        """Return the first point's S."""
        return self.scores.mean("similarity")


@dataclass
class Workbench:
    """State shared by a process's trials on the same artifacts: base encoder, initial weights and data.

    With ``checkpoints_blocks``, training recomputes the activations of the encoder's blocks in the backward pass.
    """

    prepared: Prepared
    evaluation: EvaluationConfig
    device: str = "cpu"
    cache_bytes: int = 2 << 30
    checkpoints_blocks: bool = False
    watch: WatchTask | None = None
    # the head of the trial whose weights are loaded
    head: Head | None = field(default=None, init=False)
    # whether this trial tunes only the query encoder
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
        self._prefixes: Sides[Prefix] | None = None  # the caches of the last trial that used any
        self._watching: Watching | None = None
        if self.watch is not None:
            reference = EncoderConfig(**self.prepared.reference)
            self._watching = Watching(self.watch, self.trainable, source, config, reference)

    @cached_property
    def dev(self) -> ScoredSet:
        """Return dev, the split on which the search selects points."""
        return scored_set(self.prepared, "dev", self.evaluation)

    @property
    def labeled_dev(self) -> EvaluationSet:
        """Return dev, which must have labels."""
        assert isinstance(self.dev, EvaluationSet)
        return self.dev

    @cached_property
    def test(self) -> ScoredSet:
        """Return test, the split on which the front is reported."""
        return scored_set(self.prepared, "test", self.evaluation)

    @property
    def shown_split(self) -> ScoredSplit:
        """Return the split whose readings a report shows: test, or dev for runs without a test split."""
        return "test" if len(self.prepared.sentences.ids("test")) else "dev"

    def reset(
        self,
        weights: TrainedWeights | None = None,
        head: Head | None = None,
        *,
        keeps_documents: bool = False,
    ) -> None:
        """Restore the base weights, then load a trial's ``weights`` and ``head``, if given.

        If ``keeps_documents``, documents have the reference encoder's stored embeddings.
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

        Return None if nothing can be cached, or if the trial reads too few sentences (``num_reads``, counting repeats)
        to justify computing entire groups of them.
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
        self._prefixes = None  # free its memory before allocating more
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
        """Return the reference encoder's document embeddings, which trials with the ``query`` tower do not change."""
        return StoredEncoder(self.prepared.reference_embeddings.document)

    def tuned(self, batch_contexts: Sides[BatchContext] = NO_CONTEXTS) -> TunedEncoder:
        """Return the encoder with its current weights and head, for measuring its operating points."""
        return TunedEncoder(self.encoders(batch_contexts), self.head, self.trainable.interpolated)

    def trained(self) -> TrainedWeights:
        """Return the current weights of the trainable part, without copying."""
        return self.trainable.trained()

    def encode(self, evaluation: ScoredSet) -> Encoded:
        """Encode the queries and the pool with the weights loaded by :meth:`reset`."""
        return operating_points.encode(self.tuned(), evaluation)

    def measure(
        self, evaluation: ScoredSet, keys: list[PointKey], encoded: Encoded | None = None
    ) -> dict[PointKey, retrieval.Scores]:
        """Return the points' scores under the weights loaded by :meth:`reset`, reusing ``encoded`` if given."""
        return operating_points.measure(self.tuned(), evaluation, keys, encoded)

    @property
    def watches_each_rung(self) -> bool:
        """Return whether watched data is measured at every rung, so that the first point has a ``watched`` score."""
        return self.watch is not None and self.watch.at == "rung"

    def measure_watched(self, config: TrialConfig, *, is_last: bool) -> Watched | None:
        """Return the current trial's measures on watched data, or None without watched data or measures at this rung."""
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
        """Return the measures of the split's sentence pairs under the current weights; empty without experts.

        ``encoded`` is the result of :meth:`encode` for the same weights.
        """
        if not (self.prepared.scores_artifacts and isinstance(evaluation, EvaluationSet)):
            return ()
        split = evaluation.split
        if split not in self._pairs_by_split:  # the pairs are the same for all trials
            self._pairs_by_split[split] = PairSet.of(self.prepared, evaluation)
        pairs = self._pairs_by_split[split]
        before = self._untuned_cosines(evaluation, pairs)
        embeddings = self.both_sides(evaluation, encoded)
        return tuple(pairs.measure(embeddings, before, with_intervals=with_intervals))

    def both_sides(self, evaluation: ScoredSet, encoded: Encoded) -> Sides[Float32Array]:
        """Return the unit embeddings (queries, width) of the split's sentences, embedded as queries and as documents."""
        return operating_points.embed_on_both_sides(self.tuned(), evaluation, encoded.queries)

    def _untuned_cosines(self, evaluation: EvaluationSet, pairs: PairSet) -> Float32Array:
        """Return the cosines of the random pairs before tuning, which depend only on the split and the tower."""
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
        """Return the scores on each data set in a sequence; empty without a sequence."""
        return {}

    def describe_tasks(
        self, evaluation: ScoredSet, scores: dict[PointKey, retrieval.Scores]
    ) -> list[dict[str, Any]]:
        """Return the points of a sequence's individual data sets in ledger form; empty without a sequence."""
        return []

    def describe(
        self, evaluation: ScoredSet, scores: dict[PointKey, retrieval.Scores]
    ) -> list[dict[str, Any]]:
        """Return the points in ledger form, without the trial and step, which the ledger event already contains."""
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
