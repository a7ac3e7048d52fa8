"""Measurement of watched data with a trial's current weights."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from raysweep.config.sides import Tower
from raysweep.config.sweep import EncoderConfig
from raysweep.config.trial import TrialConfig
from raysweep.config.watch import At
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.locate import ModelSource
from raysweep.encoders.traits import EncoderTraits
from raysweep.evaluation.measures import Embedded, embed_documents, measure_embedded, unnormalized
from raysweep.evaluation.watched import MeasuredRelations, WatchedRelations, watched_encoder
from raysweep.results.watched import TensorChange, Watched
from raysweep.terminal import SilentDisplay
from raysweep.training.trainable import Trainable

NUM_TENSORS = 2
"""Number of tensors to report for relative changes, and also for absolute changes."""


@dataclass(frozen=True)
class WatchTask:
    """Watched data, the untuned encoder's measures on it for each tower, and the rungs at which to measure."""

    relations: WatchedRelations
    untuned: Mapping[Tower, MeasuredRelations]
    at: At = "last"


class Watching:
    """Measures watched data with the current weights of ``trainable``.

    If the tower is ``query``, documents are embedded only once, with the base model.
    """

    def __init__(
        self,
        task: WatchTask,
        trainable: Trainable,
        source: ModelSource,
        model: EncoderConfig,
        reference: EncoderConfig,
    ) -> None:
        self.task = task
        self._trainable = trainable
        self._source = source
        self._model, self._reference = model, reference
        self._untuned_documents: Embedded | None = None

    def measure(self, trial: TrialConfig) -> Watched:
        """Return a trial's current measures, their changes from the untuned encoder, and the tensors that changed most."""
        tower = trial.tower
        relations = self.task.relations
        encoder = self._trainable.model
        config = watched_encoder(self._model, self._reference, tower)
        loaded = LoadedEncoder(config, self._source, encoder, EncoderTraits.of(encoder))
        with unnormalized(encoder):
            if tower == "query":
                if self._untuned_documents is None:
                    with self._trainable.interpolated(0.0):
                        self._untuned_documents = embed_documents(
                            loaded, relations.relations, SilentDisplay()
                        )
                documents = self._untuned_documents
            else:
                documents = embed_documents(loaded, relations.relations, SilentDisplay())
            with self._trainable.weight_contexts.query():
                tuned = measure_embedded(
                    loaded,
                    documents,
                    relations.relations,
                    SilentDisplay(),
                    is_symmetric=tower == "both",
                )
        watched = relations.compare(tuned, self.task.untuned[tower])
        tensors = most_changed(self._trainable.changes())
        return replace(watched, learning_rate=trial.peak_learning_rate, tensors=tensors)


def most_changed(changes: Iterable[tuple[str, Tensor, Tensor]]) -> tuple[TensorChange, ...]:
    """Return the NUM_TENSORS tensors with the largest relative changes, then those with the largest absolute changes.

    ``changes`` yields (name, base weights, change).
    """
    measured = []
    for name, base, change in changes:
        norm = float(base.float().norm())
        norm_of_change = float(change.float().norm())
        relative = norm_of_change / norm if norm else None
        maximum = float(change.abs().max())
        measured.append(TensorChange(name, maximum, relative))
    by_relative = sorted(measured, key=lambda tensor: -(tensor.relative or 0.0))
    by_maximum = sorted(measured, key=lambda tensor: -tensor.maximum)
    most = [*by_relative[:NUM_TENSORS], *by_maximum[:NUM_TENSORS]]
    distinct = dict.fromkeys(most)
    return tuple(distinct)
