"""Points that do not come from trials: the reference and the oracle, which bound the front, and the baselines.

- ``probe``: the reference encoder with ``class_concat(g)``, using class probabilities from a logistic regression on
  its embeddings
- ``setfit``: the body of a model trained with the setfit package
- ``published``: scores from a table that ships with raysweep
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from raysweep.config.sweep import BaselinesConfig, EncoderConfig
from raysweep.data.dataset import Sentences
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.locate import check_loadable, locate
from raysweep.encoders.traits import check_files
from raysweep.evaluation import probe
from raysweep.evaluation.evaluation_set import EvaluationSet, ScoredSet
from raysweep.evaluation.sequence_set import SequenceSet
from raysweep.evaluation.sequence_set import join_scores as join_task_scores
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.oracle import DEFAULT_BONUSES, oracle_scores
from raysweep.metrics.scores import GOALS, Goals
from raysweep.paper.published_scores import TABLES
from raysweep.results.query_scores import (
    PackedScores,
    PointName,
    baselines_file,
    join_scores,
    name_of_point,
)
from raysweep.results.types import Point, ScoredSplit
from raysweep.storage.folder import Folder

NO_TRIAL: dict[str, Any] = {"trial": None, "step": None}

OnScores = Callable[[Point, retrieval.Scores], None]
"""Receives the per-query scores of a reference, oracle or probe point."""


MAX_DIFFERENCE = 0.02
"""Maximum difference between the S of the reference encoder on this data and in a published table.

A different pool of the same size changes S by less than this. A different encoder or pool size changes it by more.
"""


def limit_points(evaluation: ScoredSet, on_scores: OnScores) -> Iterator[Point]:
    """Yield the reference point of this split and, for labeled sentences, one oracle point per bonus."""
    width = evaluation.reference_queries.shape[1]
    reference_scores = evaluation.reference_scores
    reference = evaluation.point(
        reference_scores, kind="reference", value=None, width=width, **NO_TRIAL
    )
    on_scores(reference, reference_scores)
    yield reference
    if isinstance(evaluation, EvaluationSet):
        all_oracle_scores = _oracle_scores(evaluation)
    elif isinstance(evaluation, SequenceSet):
        of_tasks = [_oracle_scores(task) for task in evaluation.tasks.values()]
        all_oracle_scores = np.concatenate(of_tasks, axis=2)
    else:
        return
    for bonus, (polarity, similarity) in zip(DEFAULT_BONUSES, all_oracle_scores, strict=True):
        # The oracle is not an encoder, so the point only needs means.
        scores = {"polarity": polarity, "similarity": similarity}
        means = retrieval.Scores(
            {name: values.mean(keepdims=True) for name, values in scores.items()}
        )
        point = evaluation.point(means, kind="oracle", value=bonus, width=None, **NO_TRIAL)
        on_scores(point, retrieval.Scores(scores))
        yield point


def reference_of_tasks(evaluation: ScoredSet) -> Iterator[Point]:
    """Yield the reference point of each data set of a sequence. Its value is the data set's number, starting at 1."""
    if isinstance(evaluation, SequenceSet):
        width = evaluation.reference_queries.shape[1]
        for number, task in enumerate(evaluation.tasks.values(), 1):
            yield task.point(
                task.reference_scores,
                kind="reference",
                value=float(number),
                width=width,
                **NO_TRIAL,
            )


def _oracle_scores(evaluation: EvaluationSet) -> Float64Array:
    """Return the oracle's P and S per query, (bonuses, 2, queries)."""
    num_queries = len(evaluation.queries)
    all_scores = np.empty((len(DEFAULT_BONUSES), 2, num_queries))
    for start in range(0, num_queries, retrieval.QUERIES_PER_BLOCK):
        block = slice(start, start + retrieval.QUERIES_PER_BLOCK)
        queries = evaluation.reference_queries[block]
        labels = evaluation.query_labels[block]
        cosines = queries @ evaluation.reference_pool.T
        same_label = labels[:, None] == evaluation.pool_labels
        scores = oracle_scores(cosines, same_label, evaluation.weights)
        all_scores[:, :, block] = scores.transpose(0, 2, 1)
    return all_scores


@dataclass(frozen=True)
class Baselines:
    """The configured baselines, which the driver scores on ``evaluations``.

    Points in ``stored`` are already in the run and are not scored again. ``on_scores`` receives the per-query scores of
    the probe's points. If ``calibrate`` is set, the probe's class probabilities are calibrated on dev, like those of the
    trials' heads.
    """

    config: BaselinesConfig
    prepared: Prepared
    evaluations: Sequence[ScoredSet]
    seed: int
    warn: Callable[[str], None]
    stored: Collection[Point] = ()
    on_scores: OnScores = field(default=lambda point, scores: None, repr=False)
    calibrate: bool = True

    @classmethod
    def check(cls, config: BaselinesConfig, stored: Collection[Point] = ()) -> None:
        """Raise InputError if the SetFit model or a package that it needs is missing, unless its points are ``stored``."""
        if config.setfit is not None and not _has_setfit(stored, config.setfit):
            check_other_encoder(config.setfit)

    @property
    def _labeled(self) -> list[EvaluationSet]:
        return [
            evaluation for evaluation in self.evaluations if isinstance(evaluation, EvaluationSet)
        ]

    def points(self) -> Iterator[Point]:
        """Score and yield the points that are not stored.

        Raises:
            InputError: If the body of the SetFit model is not an encoder.
        """
        yield from self._probe()
        yield from self._setfit()
        yield from self._published()

    def score_again(self, points: Collection[Point]) -> None:
        """Recompute the per-query scores of reference, oracle and probe points and pass them to ``on_scores``."""
        splits = {point.split for point in points if point.kind != "probe"}
        for evaluation in self.evaluations:
            if evaluation.split in splits:
                for _ in limit_points(evaluation, self.on_scores):
                    pass
        values = {
            point.value for point in points if point.kind == "probe" and point.value is not None
        }
        changes = {"probe": sorted(values), "setfit": None, "published": None}
        probe_config = self.config.model_copy(update=changes)
        probe_baselines = replace(self, config=probe_config, stored=())
        for _ in probe_baselines.points():
            pass

    def _probe(self) -> Iterator[Point]:
        stored = {point.value for point in self.stored if point.kind == "probe"}
        values = [value for value in self.config.probe if value not in stored]
        if values and self.prepared.tasks:
            yield from self._probe_of_sequence(values)
        if not (values and self._labeled):
            return
        num_classes = len(self.prepared.sentences.label_names)
        if num_classes > probe.MAX_CLASSES:
            self.warn(
                f"baselines.probe: not scored; there are {num_classes:,} classes; allowed: at most {probe.MAX_CLASSES:,}"
            )
            return
        dev = next((evaluation for evaluation in self._labeled if evaluation.split == "dev"), None)
        head = probe.fit_prepared(self.prepared, self.seed, dev if self.calibrate else None)
        if head is None:
            self.warn("baselines.probe: not scored; every training sentence has the same label")
            return
        _, dimension = self.prepared.reference_embeddings.document.shape
        width = dimension + len(head.bias)
        for evaluation in self._labeled:
            scores_by_value = probe.score(head, evaluation, values)
            for value, scores in scores_by_value.items():
                point = evaluation.point(scores, kind="probe", value=value, width=width, **NO_TRIAL)
                self.on_scores(point, scores)
                yield point

    def _probe_of_sequence(self, values: Sequence[float]) -> Iterator[Point]:
        """Yield the probe's points for a sequence, with one probe per data set."""
        sequences = [
            evaluation for evaluation in self.evaluations if isinstance(evaluation, SequenceSet)
        ]
        of_tasks: defaultdict[tuple[ScoredSplit, float | None], list[retrieval.Scores]] = (
            defaultdict(list)
        )

        def collect(point: Point, scores: retrieval.Scores) -> None:
            of_tasks[point.split, point.value].append(scores)

        for name, part in self.prepared.parts.items():
            sets = [evaluation.tasks[name] for evaluation in sequences]
            for _ in replace(self, prepared=part, evaluations=sets, on_scores=collect)._probe():
                pass
        _, width = self.prepared.reference_embeddings.document.shape
        width += max(self.prepared.sequence.num_classes)
        for evaluation in sequences:
            for value in values:
                parts = of_tasks[evaluation.split, value]
                # A probe that could not be fitted has already been reported.
                if len(parts) == len(self.prepared.tasks):
                    scores = join_task_scores(parts)
                    point = evaluation.point(
                        scores, kind="probe", value=value, width=width, **NO_TRIAL
                    )
                    self.on_scores(point, scores)
                    yield point

    def _setfit(self) -> Iterator[Point]:
        config = self.config.setfit
        if config is None or _has_setfit(self.stored, config):
            return
        label = Path(config.name).name
        encoder_scores = score_other_encoder(config, self.prepared.sentences, self._labeled)
        width = encoder_scores.width
        for evaluation in self._labeled:
            scores = encoder_scores.by_split[evaluation.split]
            yield evaluation.point(
                scores, kind="setfit", value=None, width=width, label=label, **NO_TRIAL
            )

    def _published(self) -> Iterator[Point]:
        name = self.config.published
        if name is None or any(point.kind == "published" for point in self.stored):
            return
        table = TABLES[name]
        same_queries = []
        for evaluation in self._labeled:
            # Compare the counts first to avoid reading the texts.
            if len(evaluation.queries) == table.num_queries:
                texts = self.prepared.sentences.texts(evaluation.queries)
                if table.measured_on(texts):
                    same_queries.append(evaluation)
        if not same_queries:
            self.warn(
                f"baselines.published: not shown; the {table.num_queries} sentences that {name} was measured on "
                "are not the dev or test split"
            )
        for evaluation in same_queries:
            similarity = evaluation.reference_scores.mean("similarity")
            if abs(similarity - table.untuned_similarity) <= MAX_DIFFERENCE:
                yield from table.points(evaluation.split)
                continue
            self.warn(
                f"baselines.published: not shown; S of R on {evaluation.split} is {100 * similarity:.1f}, but "
                f"{100 * table.untuned_similarity:.1f} for the untuned {table.model} in {name}; the reference encoder "
                "or the pool size differs"
            )


@dataclass(frozen=True)
class EncoderScores:
    """An encoder's per-query retrieval scores, keyed by split, and the width of its embeddings."""

    by_split: Mapping[ScoredSplit, retrieval.Scores]
    width: int


def check_other_encoder(config: EncoderConfig) -> None:
    """Raise InputError if the encoder does not exist or is not dense, or if loading its weights may execute code."""
    source = locate(config)
    check_files(config, "evaluated", source)
    check_loadable(config, source)


def score_other_encoder(
    config: EncoderConfig, sentences: Sentences, evaluations: Sequence[EvaluationSet]
) -> EncoderScores:
    """Score an encoder that was not trained by a trial on each evaluation set, using a GPU if available.

    Weights are loaded only from safetensors files. The head of a SetFit model, ``model_head.pkl``, is not loaded, because
    a pickle may execute code.

    Raises:
        InputError: If the encoder cannot be loaded, or an embedding is not finite.
    """
    loaded = LoadedEncoder.load(config, device=encoder.best_device())
    scores = {}
    for evaluation in evaluations:
        query_texts = sentences.texts(evaluation.queries)
        pool_texts = sentences.texts(evaluation.pool)
        embeddings = loaded.embed_retrieval(query_texts, pool_texts)
        num_queries = len(evaluation.queries)
        queries, pool = np.split(embeddings, [num_queries])
        scores[evaluation.split] = evaluation.score(queries, pool)
    return EncoderScores(scores, encoder.embedding_width(loaded.model))


def _has_setfit(points: Collection[Point], config: EncoderConfig) -> bool:
    label = Path(config.name).name
    return any(point.kind == "setfit" and point.label == label for point in points)


class BaselineScores:
    """Per-query scores of a run's reference, oracle and probe points, stored in one file per split.

    A file contains only scores that all of its points have, so points that lack one of the ``goals`` are left out.
    """

    def __init__(self, run: Folder, goals: Goals = GOALS) -> None:
        self._run = run
        self._goals = goals
        self._new: dict[ScoredSplit, dict[PointName, retrieval.Scores]] = defaultdict(dict)

    def add(self, point: Point, scores: retrieval.Scores) -> None:
        if point.has(self._goals):
            self._new[point.split][name_of_point(point)] = scores

    def find_missing(self, points: Collection[Point]) -> list[Point]:
        """Return the points whose stored scores are missing or unreadable."""
        stored_names: dict[ScoredSplit, tuple[PointName, ...]] = {}
        for split in {point.split for point in points}:
            stored = self._read(split)
            stored_names[split] = () if stored is None else stored.names
        scored = [point for point in points if point.has(self._goals)]
        return [point for point in scored if name_of_point(point) not in stored_names[point.split]]

    def store(self) -> None:
        """Store the added scores, replacing stored scores of the same points."""
        for split, scores_by_name in self._new.items():
            packed = PackedScores.pack_points(
                {name: scores.named for name, scores in scores_by_name.items()}
            )
            stored = self._read(split)
            if stored is not None and stored.num_queries == packed.num_queries:
                packed = join_scores([stored, packed])
            self._run.keep(baselines_file(split), packed.content())

    def _read(self, split: ScoredSplit) -> PackedScores | None:
        """Return the stored scores of a split, or None if the file is missing or damaged.

        The next :meth:`store` overwrites a damaged file.
        """
        try:
            (content,) = self._run.read([baselines_file(split)])
            return PackedScores.read(content)
        except (FileNotFoundError, ValueError):
            return None
