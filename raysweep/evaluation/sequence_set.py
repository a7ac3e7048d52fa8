"""Data for scoring an encoder on a sequence of data sets, each with its own queries and pool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import EvaluationSet, ScoredSet
from raysweep.metrics import retrieval
from raysweep.results.types import ScoredSplit


@dataclass(frozen=True, kw_only=True)
class SequenceSet(ScoredSet):
    """The evaluation sets of a sequence, keyed by data set name. Sentence ids refer to the whole sequence.

    All sets have the same number of queries, so the mean over queries equals the mean over data sets.
    """

    tasks: Mapping[str, EvaluationSet]

    @classmethod
    def of(cls, prepared: Prepared, split: ScoredSplit, config: EvaluationConfig) -> "SequenceSet":
        """Build the evaluation sets, each with as many queries as the smallest data set has.

        Raises:
            InputError: If k exceeds the size of a pool.
        """
        sentences = prepared.sequence
        num_queries = sentences.queries_per_data_set(split)
        tasks = {}
        for (name, part), start in zip(prepared.parts.items(), sentences.starts, strict=False):
            tasks[name] = EvaluationSet.of(part, split, config, num_queries).shifted(int(start))
        return cls.joined(tasks)

    @classmethod
    def joined(cls, tasks: Mapping[str, EvaluationSet]) -> "SequenceSet":
        """Combine evaluation sets, keyed by data set name."""
        sets = list(tasks.values())
        return cls(
            split=sets[0].split,
            queries=np.concatenate([task.queries for task in sets]),
            pool=np.concatenate([task.pool for task in sets]),
            reference_queries=np.concatenate([task.reference_queries for task in sets]),
            reference_pool=np.concatenate([task.reference_pool for task in sets]),
            tasks=tasks,
        )

    def first(self, count: int) -> "SequenceSet":
        """Return a set with only the first ``count`` data sets."""
        return SequenceSet.joined(dict(list(self.tasks.items())[:count]))

    @cached_property
    def reference_scores(self) -> retrieval.Scores:
        return join_scores([task.reference_scores for task in self.tasks.values()])

    def slices(self) -> Iterator[tuple[EvaluationSet, slice, slice]]:
        """Yield each data set's evaluation set and the slices of its queries and pool in the combined set."""
        first_query = first_pool = 0
        for task in self.tasks.values():
            queries = slice(first_query, first_query + len(task.queries))
            pool = slice(first_pool, first_pool + len(task.pool))
            yield task, queries, pool
            first_query, first_pool = queries.stop, pool.stop

    def split_scores(self, scores: retrieval.Scores) -> list[retrieval.Scores]:
        """Split the scores of all queries by data set."""
        return [
            retrieval.Scores({name: values[queries] for name, values in scores.named.items()})
            for _, queries, _ in self.slices()
        ]


def join_scores(scores: Sequence[retrieval.Scores]) -> retrieval.Scores:
    """Concatenate the per-query scores of several sets, in order."""
    first, *_ = scores
    return retrieval.Scores(
        {name: np.concatenate([part[name] for part in scores]) for name in first.named}
    )
