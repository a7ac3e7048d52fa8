"""Scores of an encoder that no trial trained, such as the body of a SetFit model, on the sweep's queries and pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raysweep.config.sweep import EncoderConfig
from raysweep.data.dataset import Sentences
from raysweep.encoders import encoder
from raysweep.encoders.locate import check_loadable, locate
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.metrics.retrieval import Scores
from raysweep.results.types import ScoredSplit


@dataclass(frozen=True)
class EncoderScores:
    """Per-query scores of retrieval by an encoder's cosine, by split, and the width of its embeddings."""

    by_split: Mapping[ScoredSplit, Scores]
    width: int


def check(config: EncoderConfig) -> None:
    """Raise InputError if the encoder does not exist, or if loading its weights may execute code."""
    check_loadable(config, locate(config))


def score(config: EncoderConfig, sentences: Sentences, evaluations: Sequence[EvaluationSet]) -> EncoderScores:
    """Encode and score the queries and the pool of each evaluation set, in this process, on a GPU if available.

    The encoder is loaded from its modules' safetensors. Other files in its folder are not opened: the head of a SetFit
    model, ``model_head.pkl``, is a pickle, which may execute code.

    Raises:
        InputError: If the encoder cannot be loaded, or an embedding is not finite.
    """
    source = locate(config)
    device = encoder.best_device()
    model = encoder.load(config, device=device, source=source)
    prompt = source.prompt_of(config)
    scores = {}
    for evaluation in evaluations:
        ids = np.concatenate([evaluation.queries, evaluation.pool])
        texts = sentences.texts(ids)
        embeddings = encoder.embed_texts(model, texts, prompt, arithmetic=config.precision)
        embeddings = encoder.finite(embeddings, config)
        num_queries = len(evaluation.queries)
        queries, pool = np.split(embeddings, [num_queries])
        scores[evaluation.split] = evaluation.score(queries, pool)
    return EncoderScores(scores, encoder.embedding_width(model))
