"""Scores of an encoder that no trial trained, such as the body of a SetFit model, on the sweep's queries and pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.config.sweep import EncoderConfig
from raysweep.data.dataset import Sentences
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.locate import check_loadable, locate
from raysweep.encoders.traits import check_files
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.metrics.retrieval import Scores
from raysweep.results.types import ScoredSplit


@dataclass(frozen=True)
class EncoderScores:
    """Per-query scores of retrieval by an encoder's cosine, by split, and the width of its embeddings."""

    by_split: Mapping[ScoredSplit, Scores]
    width: int


def check(config: EncoderConfig) -> None:
    """Raise InputError if the encoder does not exist, is not dense, or if loading its weights may execute code."""
    source = locate(config)
    check_files(config, "evaluated", source)
    check_loadable(config, source)


def score(
    config: EncoderConfig, sentences: Sentences, evaluations: Sequence[EvaluationSet]
) -> EncoderScores:
    """Encode and score the queries and the pool of each evaluation set, in this process, on a GPU if available.

    The encoder is loaded from its modules' safetensors. Other files in its folder are not opened: the head of a SetFit
    model, ``model_head.pkl``, is a pickle, which may execute code.

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
