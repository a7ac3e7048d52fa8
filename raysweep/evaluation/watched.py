"""Measures of tuned and untuned encoders on watched data, which is not used for tuning."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raysweep.config.sides import Tower
from raysweep.config.sweep import EncoderConfig, Prompts
from raysweep.config.watch import WatchConfig, WatchedSource
from raysweep.data import relation_sources
from raysweep.data.relation_sources import RelationSettings
from raysweep.data.relations import Relations
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.errors import InputError
from raysweep.evaluation import measure_tables
from raysweep.evaluation.measures import (
    DataMeasures,
    Embedded,
    Measured,
    embed_documents,
    measure_embedded,
    unnormalized,
    warn_of_skipped,
)
from raysweep.metrics.closeness import GEOMETRIES, Geometry
from raysweep.results.watched import Watched, WatchedSet, watched_score
from raysweep.terminal import Display

MeasuredRelations = Sequence[Mapping[Geometry, Measured]]
"""An encoder's measures on each set of relations, keyed by geometry."""


@dataclass(frozen=True)
class WatchedRelations:
    """Sets of relations to watch. The first is the target if ``has_target``. ``seed`` seeds the bootstrap."""

    relations: Sequence[Relations]
    has_target: bool
    seed: int

    @classmethod
    def read(
        cls,
        target: tuple[str, RelationSettings] | None,
        sources: Sequence[tuple[str, RelationSettings]],
        seed: int,
    ) -> "WatchedRelations":
        """Read the target and the watched sources.

        Raises:
            InputError: If a source cannot be read or is repeated, or if the target has several sets of relations.
        """
        of_target = [] if target is None else [target]
        names = [source for source, _ in (*of_target, *sources)]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise InputError(f"{repeated[0]}: is given twice; required: different sources")
        num_of_target = len(relation_sources.read_all(of_target))
        if num_of_target > 1:
            raise InputError(
                f"{names[0]}: has {num_of_target} negative labels; allowed for the target: one"
            )
        relations = relation_sources.read_all([*of_target, *sources])
        return cls(relations, target is not None, seed)

    @classmethod
    def of(cls, config: WatchConfig, seed: int) -> "WatchedRelations":
        """Read the watched data in a sweep's configuration; see :meth:`read`."""

        def with_settings(source: WatchedSource) -> tuple[str, RelationSettings]:
            settings = RelationSettings.of(source)
            return source.source, replace(settings, seed=seed, max_queries=source.max_queries)

        target = None if config.target is None else with_settings(config.target)
        return cls.read(target, list(map(with_settings, config.sources)), seed)

    def with_target(self, target: Relations) -> "WatchedRelations":
        """Return a copy with another target."""
        sets = self.relations[1:] if self.has_target else self.relations
        return replace(self, relations=[target, *sets], has_target=True)

    def score(self, values: MeasuredRelations) -> float:
        """Return the ``watched`` score of an encoder, given its measures."""
        of_sets = values[1:] if self.has_target else values
        by_cosine = [value["cosine"] for value in of_sets]
        return watched_score(
            value.errors.mean_over_groups
            if value.relations.kind == "retrieval"
            else value.errors.over_pairs
            for value in by_cosine
        )

    @property
    def digest(self) -> str:
        """Return a hash of all sentences and pairs."""
        hashed = hashlib.sha256()
        for relations in self.relations:
            texts = [relations.name, relations.kind, *relations.sentences, *relations.group_names]
            hashed.update("\0".join(texts).encode(errors="surrogatepass"))
            for array in (
                relations.first,
                relations.second,
                relations.is_positive,
                relations.group,
            ):
                hashed.update(array.tobytes())
        return hashed.hexdigest()

    def compare(self, tuned: MeasuredRelations, base: MeasuredRelations) -> Watched:
        """Return the tuned encoder's measures and their changes from the base encoder's measures."""
        all_measures = [
            DataMeasures(*values) for values in zip(self.relations, tuned, base, strict=True)
        ]
        sets = []
        for measures in all_measures:
            relations, errors = measures.relations, measures.tuned["cosine"].errors
            values = measure_tables.rows_of(measures, self.seed)
            whole = [
                measure_tables.whole_row(measures, values, geometry, self.seed)
                for geometry in GEOMETRIES
            ]
            watched_set = WatchedSet(
                name=relations.name,
                kind=relations.kind,
                groups=len(errors.pairs),
                skipped=len(measures.skipped_groups),
                left_out=relations.num_left_out,
                pairs=errors.num_pairs,
                values=tuple(values),
                whole=tuple(whole),
            )
            sets.append(watched_set)
        if not self.has_target:
            return Watched(tuple(sets))
        target, *others = sets
        return Watched(tuple(others), target)


def watched_encoder(model: EncoderConfig, reference: EncoderConfig, tower: Tower) -> EncoderConfig:
    """Return the configuration for embedding watched data with a trial's encoder, in fp32.

    With the ``query`` tower, documents get the reference encoder's prompt.
    """
    document = reference if tower == "query" else model
    prompts = Prompts(query=model.prompt_on("query"), document=document.prompt_on("document"))
    return model.model_copy(update={"prompt": prompts, "precision": "fp32"})


def measure_untuned(
    loaded: LoadedEncoder, relations: Sequence[Relations], display: Display
) -> tuple[Embedded, MeasuredRelations]:
    """Return an encoder's document embeddings of all sentences and its measures on all relations."""
    with unnormalized(loaded.model):
        documents = embed_documents(loaded, relations, display)
        return documents, measure_embedded(loaded, documents, relations, display)


def warn_of_untested(
    relations: WatchedRelations, values: MeasuredRelations, display: Display
) -> None:
    """Warn about groups that cannot be measured and sets that are too small for a significance test."""
    measures = [DataMeasures(*both) for both in zip(relations.relations, values, strict=True)]
    warn_of_skipped(measures, display)
    for measure in measures:
        if not measure_tables.is_tested(measure):
            display.warn(f"{measure.relations.name}: too small for a significance test")
