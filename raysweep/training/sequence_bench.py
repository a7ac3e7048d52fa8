"""Workbench for trials on a sequence of data sets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raysweep.config.sides import Sides
from raysweep.encoders.encoder import BatchContext
from raysweep.encoders.side_encoders import Encoders
from raysweep.evaluation.evaluation_set import ScoredSet
from raysweep.evaluation.operating_points import Encoded, Head, TunedEncoder
from raysweep.evaluation.sequence_set import SequenceSet
from raysweep.metrics import retrieval
from raysweep.results.types import MASK, PointKey
from raysweep.training.sub_embeddings import SubEmbeddings, SubEncoder
from raysweep.training.trainable import TrainedWeights
from raysweep.training.workbench import NO_CONTEXTS, Workbench


@dataclass
class SequenceBench(Workbench):
    """A workbench for trials that train an adapter on stored embeddings, without loading the encoder.

    ``sub_embeddings`` holds the current trial's adapter layers. ``on_step`` is called at each optimizer step.
    """

    sub_embeddings: SubEmbeddings = field(default_factory=lambda: SubEmbeddings([]), init=False)
    on_step: Callable[[], None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.on_step = lambda: None

    @property
    def sequence_dev(self) -> SequenceSet:
        """Return the dev split of a sequence."""
        assert isinstance(self.dev, SequenceSet)
        return self.dev

    def reset(
        self,
        weights: TrainedWeights | None = None,
        head: Head | None = None,
        *,
        keeps_documents: bool = False,
    ) -> None:
        """Load a trial's stored adapter layers."""
        assert weights is not None
        self.sub_embeddings = SubEmbeddings.from_weights(weights)

    def trained(self) -> TrainedWeights:
        """Return the adapter's weights with each data set's mask applied."""
        return self.sub_embeddings.weights

    def encoders(self, batch_contexts: Sides[BatchContext] = NO_CONTEXTS) -> Encoders:
        """Return encoders that apply the mask of each sentence's data set."""
        sentences, adapters = self.prepared.sequence, self.sub_embeddings
        return self.prepared.reference_embeddings.map(
            lambda embeddings: SubEncoder(embeddings, sentences, adapters, self.device)
        )

    def tuned(self, batch_contexts: Sides[BatchContext] = NO_CONTEXTS) -> TunedEncoder:
        """Return the encoder with the current adapter."""
        return TunedEncoder(self.encoders())

    def task_scores(
        self, evaluation: ScoredSet, encoded: Encoded
    ) -> dict[PointKey, retrieval.Scores]:
        """Return the scores of each data set's ``mask`` point on that data set's queries and pool."""
        assert isinstance(evaluation, SequenceSet)
        plain = self.measure(evaluation, [("plain", None)], encoded)["plain", None]
        of_tasks = evaluation.split_scores(plain)
        return {(MASK, float(number)): scores for number, scores in enumerate(of_tasks, 1)}

    def describe_tasks(
        self, evaluation: ScoredSet, scores: dict[PointKey, retrieval.Scores]
    ) -> list[dict[str, Any]]:
        """Return each data set's points as ledger entries, like :meth:`describe`."""
        assert isinstance(evaluation, SequenceSet)
        described = []
        for (key, of_task), task in zip(scores.items(), evaluation.tasks.values(), strict=False):
            described += self.describe(task, {key: of_task})
        return described
