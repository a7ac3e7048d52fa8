"""Measures of an encoder, and optionally its base encoder, on retrieval data and pair files.

Each measure is computed with the cosine and with the Euclidean distance between unnormalized embeddings.
:mod:`raysweep.metrics.ranking` defines the measures.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from raysweep.config import packages
from raysweep.config.sides import Side
from raysweep.config.sweep import EncoderConfig
from raysweep.data import relation_sources
from raysweep.data.relation_sources import RelationSettings
from raysweep.data.relations import Integers, Relations
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder, locate_evaluated
from raysweep.metrics.arrays import Float32Array, Float64Array
from raysweep.metrics.closeness import GEOMETRIES, Geometry, closeness
from raysweep.metrics.ranking import RANKING_MEASURES, ErrorCounts, Ranking, count_errors
from raysweep.terminal import Display

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class MeasuredEncoder:
    """An encoder to measure. ``query_prompt`` replaces its prompt for queries and for the first sentences of pairs."""

    config: EncoderConfig
    query_prompt: str | None = None

    @property
    def query_config(self) -> EncoderConfig:
        if self.query_prompt is None:
            return self.config
        return self.config.model_copy(update={"prompt": self.query_prompt})


@dataclass(frozen=True)
class Measured:
    """An encoder's measures on one set of relations under one geometry. ``closeness`` has shape (pairs,)."""

    relations: Relations
    closeness: Float64Array

    @cached_property
    def ranking(self) -> Ranking:
        relations = self.relations
        return Ranking.of(
            self.closeness, relations.is_positive, relations.group, relations.num_groups
        )

    @cached_property
    def errors(self) -> ErrorCounts:
        """Return the error counts of each measured group."""
        return count_errors(self.ranking)

    @cached_property
    def by_query(self) -> Mapping[str, Float64Array]:
        """Return the value of each ranking measure for each query, (queries,), keyed by name; empty for pair files."""
        if self.relations.kind != "retrieval":
            return {}
        return {name: measure(self.ranking) for name, measure in RANKING_MEASURES.items()}


@dataclass(frozen=True)
class DataMeasures:
    """The measures of an encoder, and optionally its base encoder, on one set of relations."""

    relations: Relations
    tuned: Mapping[Geometry, Measured]
    base: Mapping[Geometry, Measured] = field(default_factory=dict)

    @property
    def is_retrieval(self) -> bool:
        return self.relations.kind == "retrieval"

    @property
    def ranking(self) -> Ranking:
        return self.tuned["cosine"].ranking

    @property
    def skipped_groups(self) -> list[str]:
        """Return the names of the groups without positives or without negatives."""
        measured = set(self.ranking.groups.tolist())
        return [
            name for number, name in enumerate(self.relations.group_names) if number not in measured
        ]


def measure(
    model: MeasuredEncoder,
    base: MeasuredEncoder | None,
    sources: Sequence[str],
    settings: RelationSettings,
    display: Display,
) -> list[DataMeasures]:
    """Measure an encoder, and optionally its base encoder, on each source.

    Raises:
        InputError: If a source or an encoder cannot be read, or no query or group in a source has both positives and
            negatives.
    """
    needs = [
        *packages.needs_of_encoder("MODEL", model.config),
        *packages.needs_of_sources("--data", sources),
    ]
    if base is not None:
        needs += packages.needs_of_encoder("--base", base.config)
    packages.check(needs)
    encoders = [model] if base is None else [model, base]
    for measured_encoder in encoders:
        locate_evaluated(measured_encoder.config, display)
    all_relations = relation_sources.read_all((source, settings) for source in sources)
    measured = [
        _measure_all(measured_encoder, all_relations, display) for measured_encoder in encoders
    ]
    of_base = measured[1] if base is not None else [{} for _ in all_relations]
    results = [
        DataMeasures(*values) for values in zip(all_relations, measured[0], of_base, strict=True)
    ]
    warn_of_skipped(results, display)
    return results


def warn_of_skipped(results: Sequence[DataMeasures], display: Display) -> None:
    """Print a warning for each source with queries or groups that cannot be measured."""
    for result in results:
        if skipped := result.skipped_groups:
            unit = "queries" if result.is_retrieval else "groups"
            display.warn(
                f"{result.relations.name}: {len(skipped)} of {result.relations.num_groups} {unit} lack positives or "
                f"negatives and are not measured (for example {skipped[0]!r})"
            )


@dataclass(frozen=True)
class Embedded:
    """Unnormalized embeddings of distinct sentences, (sentences, width), and the row of each sentence."""

    embeddings: Float32Array
    rows: Mapping[str, int]

    @classmethod
    def of(
        cls, loaded: LoadedEncoder, sentences: Iterable[str], side: Side, display: Display
    ) -> "Embedded":
        rows = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
        name = loaded.config.name if side == "document" else f"{loaded.config.name}: queries"
        with display.stage(f"measure: {name}") as advance:
            embeddings = loaded.embed_texts(list(rows), side=side, unit=False, advance=advance)
        return cls(embeddings, rows)

    def take(self, relations: Relations, ids: Integers) -> Integers:
        """Return the embedding rows (len(ids),) of the sentences with these ``ids`` in ``relations``."""
        rows = np.array([self.rows.get(sentence, -1) for sentence in relations.sentences])
        taken: Integers = rows[ids]
        return taken


def _measure_all(
    measured_encoder: MeasuredEncoder, all_relations: Sequence[Relations], display: Display
) -> list[dict[Geometry, Measured]]:
    loaded = LoadedEncoder.load(measured_encoder.config, device=encoder.best_device())
    asked = replace(loaded, config=measured_encoder.query_config)
    with unnormalized(loaded.model):
        documents = embed_documents(loaded, all_relations, display)
        return measure_embedded(
            asked, documents, all_relations, display, is_symmetric=asked.config == loaded.config
        )


def embed_documents(
    loaded: LoadedEncoder, all_relations: Sequence[Relations], display: Display
) -> Embedded:
    """Embed each distinct sentence of all relations as a document."""
    sentences = itertools.chain.from_iterable(relations.sentences for relations in all_relations)
    return Embedded.of(loaded, sentences, "document", display)


def measure_embedded(
    asked: LoadedEncoder,
    documents: Embedded,
    all_relations: Sequence[Relations],
    display: Display,
    *,
    is_symmetric: bool = True,
) -> list[dict[Geometry, Measured]]:
    """Measure an encoder on all relations, given the document embeddings of all sentences.

    ``asked`` embeds the queries and the first sentences of pairs. If it embeds queries and documents the same way and
    ``is_symmetric`` is True, the document embeddings are reused.
    """
    queries = documents
    if not (is_symmetric and asked.is_symmetric):
        first_sentences = []
        for relations in all_relations:
            first_sentences += [
                relations.sentences[number] for number in np.unique(relations.first)
            ]
        queries = Embedded.of(asked, first_sentences, "query", display)
    results = []
    for relations in all_relations:
        pairs = (
            queries.take(relations, relations.first),
            documents.take(relations, relations.second),
        )
        by_geometry = {}
        for geometry in GEOMETRIES:
            values = closeness(geometry, queries.embeddings, documents.embeddings, pairs)
            by_geometry[geometry] = Measured(relations, values)
        results.append(by_geometry)
    return results


@contextmanager
def unnormalized(model: "SentenceTransformer") -> Iterator[None]:
    """Remove the model's final normalization modules, including those in a Router, within the context."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Router

    routes: list[Any] = [model]
    if isinstance(model[0], Router):
        routes += model[0].sub_modules.values()
    removed = []
    for route in routes:
        while isinstance(route[-1], Normalize):
            name = list(route.named_children())[-1][0]
            removed.append((route, name, route[-1]))
            delattr(route, name)
    try:
        yield
    finally:
        for route, name, module in reversed(removed):
            route.add_module(name, module)
