"""The ``evaluate`` command, which scores an encoder on two files of labeled sentences without training or Ray."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from raysweep.config import packages
from raysweep.config.sweep import EncoderConfig
from raysweep.data import sources
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder, locate_evaluated
from raysweep.errors import InputError
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float32Array
from raysweep.terminal import Display

SHORTEST = 1e-12  # ``eps`` of PyTorch's ``normalize``


@dataclass(frozen=True)
class LabeledFiles:
    """Sources of labeled sentences. The queries are the rows of ``test``, and the pool is sampled from ``train``."""

    train: str
    test: str
    text_column: str = "text"
    label_column: str = "label"

    def check(self) -> None:
        """Raise InputError if a source or one of its columns does not exist."""
        for source, split in ((self.train, "train"), (self.test, "test")):
            sources.check(source, self.text_column, self.label_column, split=split)


@dataclass(frozen=True)
class RetrievalSettings:
    """Settings for retrieval and scoring. By default, the pool has min(train, 5 * queries) rows."""

    ks: Sequence[int]
    rank_weights: Sequence[retrieval.RankWeights]
    num_pool: int | None = None
    pool_seed: int = 42

    def check(self) -> None:
        """Raise InputError if a kind of rank weights is unknown."""
        for kind in self.rank_weights:
            retrieval.rank_weights(kind, 1)


class FileScores(TypedDict):
    """Means and standard deviations over queries, x100, for one k and one kind of rank weights."""

    k: int
    rank_weights: retrieval.RankWeights
    polarity_mean: float
    polarity_std: float
    similarity_mean: float
    similarity_std: float
    accuracy: float


@dataclass(frozen=True)
class _Labeled:
    """Rows of a source. ``spellings`` contains (label, spelling) pairs."""

    texts: list[str]
    labels: list[str]
    spellings: set[tuple[str, str]] = field(default_factory=set)

    def take(self, rows: npt.NDArray[np.integer]) -> "_Labeled":
        return _Labeled([self.texts[row] for row in rows], [self.labels[row] for row in rows])


def score_files(
    model: EncoderConfig,
    reference: EncoderConfig | None,
    files: LabeledFiles,
    settings: RetrievalSettings,
    display: Display,
) -> list[FileScores]:
    """Score retrieval with ``model`` for each k and each kind of rank weights.

    Sentences are ranked by cosine, or by inner product if the model's similarity function is ``dot``. Similarity is
    computed under ``reference``, which defaults to ``model``. Duplicates and rows with conflicting labels are kept to
    reproduce published values.

    Raises:
        InputError: If an input is invalid. Inputs are checked before any sentence is embedded.
    """
    packages.check(
        [
            *packages.needs_of_encoder("--model", model),
            *packages.needs_of_encoder("--reference", reference),
            *packages.needs_of_sources("--train", [files.train]),
            *packages.needs_of_sources("--test", [files.test]),
        ]
    )
    files.check()
    settings.check()
    model_name = locate_evaluated(model, display).folder.name
    if reference is not None and reference != model:
        locate_evaluated(reference, display)
    train = _read(files.train, "train", files)
    queries = _read(files.test, "test", files)
    _check_labels(files, train, queries, display)
    num_queries = len(queries.texts)
    pool = _sample_pool(files, train, num_queries, settings, display)

    tuned = _embed(model, model_name, queries.texts, pool.texts, display)
    if reference in (None, model):
        lengths = np.linalg.norm(tuned, axis=1, keepdims=True)
        frozen = tuned / np.maximum(lengths, SHORTEST)
    else:
        frozen = _embed(
            reference or model, "reference", queries.texts, pool.texts, display, unit=True
        )
    return _score(tuned, frozen, queries.labels, pool.labels, settings)


def _score(
    tuned: Float32Array,
    frozen: Float32Array,
    query_labels: list[str],
    pool_labels: list[str],
    settings: RetrievalSettings,
) -> list[FileScores]:
    """Return the scores for each k and each kind of rank weights.

    ``tuned`` and ``frozen`` contain the model's and the reference's embeddings of the queries, followed by the pool.
    """
    after_queries = [len(query_labels)]
    tuned_queries, tuned_pool = np.split(tuned, after_queries)
    reference_queries, reference_pool = np.split(frozen, after_queries)
    labels = query_labels + pool_labels
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    classes = np.array([numbers[label] for label in labels])
    query_classes, pool_classes = np.split(classes, after_queries)
    retrieved = retrieval.retrieve(tuned_queries, tuned_pool, max(settings.ks))
    cosines = retrieval.cosines_of_retrieved(retrieved, reference_queries, reference_pool)
    results: list[FileScores] = []
    for kind in settings.rank_weights:
        for k in settings.ks:
            weights = retrieval.rank_weights(kind, k)
            top = retrieved[:, :k]
            top_cosines = cosines[:, :k]
            scores = retrieval.score(top, top_cosines, query_classes, pool_classes, weights)
            results.append(
                {
                    "k": k,
                    "rank_weights": kind,
                    "polarity_mean": 100 * scores.mean("polarity"),
                    "polarity_std": 100 * float(scores["polarity"].std()),
                    "similarity_mean": 100 * scores.mean("similarity"),
                    "similarity_std": 100 * float(scores["similarity"].std()),
                    "accuracy": 100 * scores.mean("accuracy"),
                }
            )
    return results


def _read(source: str, split: str, files: LabeledFiles) -> _Labeled:
    rows = _Labeled([], [])
    for batch in sources.read(source, files.text_column, files.label_column, split=split):
        rows.texts.extend(batch.texts)
        rows.labels.extend(batch.labels)
        rows.spellings.update(zip(batch.labels, batch.spellings, strict=True))
    return rows


def _sample_pool(
    files: LabeledFiles,
    train: _Labeled,
    num_queries: int,
    settings: RetrievalSettings,
    display: Display,
) -> _Labeled:
    """Sample the pool, or raise InputError if a k exceeds its size."""
    num_train = len(train.texts)
    if settings.num_pool is not None and settings.num_pool > num_train:
        display.warn(
            f"--num-pool is {settings.num_pool}; using all {num_train} rows of {files.train}"
        )
    rows = retrieval.sample_pool(
        num_train, num_queries, size=settings.num_pool, seed=settings.pool_seed
    )
    for k in settings.ks:
        retrieval.check_k(k, len(rows))
    return train.take(rows)


def _check_labels(
    files: LabeledFiles, train: _Labeled, queries: _Labeled, display: Display
) -> None:
    """Warn about suspicious labels, and raise InputError if polarity cannot be computed."""
    train_labels = sorted(set(train.labels))
    if len(train_labels) == 1:
        only_label = train_labels[0]
        raise InputError(
            f"{files.train}: every row has the label {only_label!r}; polarity needs at least two classes"
        )
    spellings = sorted(train.spellings | queries.spellings)
    if merged := sources.describe_merged_labels(spellings):
        display.warn(merged)
    first_labels: dict[str, str] = {}  # keyed by text
    conflicting_texts = set()
    for text, label in zip(train.texts, train.labels, strict=True):
        if first_labels.setdefault(text, label) != label:
            conflicting_texts.add(text)
    if conflicting_texts:
        num_texts = len(conflicting_texts)
        display.warn(
            f"{files.train}: texts with conflicting labels: {num_texts}; all rows are kept"
        )
    _check_query_labels(files, queries, train_labels, display)


def _check_query_labels(
    files: LabeledFiles, queries: _Labeled, train_labels: list[str], display: Display
) -> None:
    """Warn if some queries have labels that are not in train; raise InputError if all do."""
    known = set(train_labels)
    unknown_rows = [row for row, label in enumerate(queries.labels) if label not in known]
    if not unknown_rows:
        return
    first = unknown_rows[0]
    listed = ", ".join(map(repr, train_labels[:10]))
    if len(train_labels) > 10:
        listed += ", ..."
    example = f"row {first + 1}: label is {queries.labels[first]!r}; labels in train: {listed}"
    num_unknown = len(unknown_rows)
    num_queries = len(queries.labels)
    if num_unknown == num_queries:
        raise InputError(f"{files.test}: no row has a label that occurs in train: {example}")
    display.warn(
        f"{files.test}: {num_unknown} of {num_queries} rows have labels that are not in train: {example}"
    )


def _embed(
    config: EncoderConfig,
    name: str,
    queries: list[str],
    pool: list[str],
    display: Display,
    *,
    unit: bool = False,
) -> Float32Array:
    """Embed queries and pool; normalize unless ``unit`` is False and the similarity is ``dot``."""
    with display.stage(f"evaluate: {name}") as advance:
        loaded = LoadedEncoder.load(config, device=encoder.best_device())
        is_normalized = unit or loaded.traits.similarity != "dot"
        embeddings = loaded.embed_retrieval(queries, pool, unit=is_normalized, advance=advance)
    source = loaded.source
    own_prompts = dict.fromkeys([source.own_prompt("query"), source.own_prompt("document")])
    if config.prompt is None and any(own_prompts):
        shown = ", ".join(map(repr, own_prompts))
        display.line(f"evaluate: {name}: prompt {shown} (the model's default)")
    return embeddings
