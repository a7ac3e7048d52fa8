"""Operating points: the retrievable encoders that one rung holds, measured together.

With e_R a sentence's unit embedding under the reference encoder, e_M under the tuned one, and p its class probabilities:

``plain``            retrieval by cos_M, width d_M
``concat(g)``        by cos_R + g cos_M, the inner product of [e_R ; sqrt(g) e_M], width d_R + d_M
``class_concat(g)``  by cos_R + g p·p', the inner product of [e_R ; sqrt(g) p], width d_R + classes
``interpolate(a)``   by the cosine under the weights (1 - a) base + a tuned, width d_M

The first three cost no encoding beyond that of the plain point; each ``interpolate`` encodes queries and pool again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raysweep.config.sweep import PointsConfig
from raysweep.encoders.encoder import Replay, embed, nothing_replayed
from raysweep.encoders.tokens import Tokens
from raysweep.evaluation.evaluation_set import EvaluationSet, TrialDivergedError
from raysweep.metrics import retrieval
from raysweep.metrics.arrays import Float32Array
from raysweep.results.types import PointKey

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Head:
    """A softmax head over unit embeddings: ``weight`` (classes, width), ``bias`` (classes,)."""

    weight: Float32Array
    bias: Float32Array

    def probabilities(self, embeddings: Float32Array) -> Float32Array:
        """Class probabilities (n, classes) of unit embeddings (n, width): see :func:`raysweep.training.losses.logits`."""
        logits = embeddings @ (self.weight.T * np.float32(self.weight.shape[1] ** 0.5)) + self.bias
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        result: Float32Array = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
        return result


@dataclass(frozen=True)
class Encoded:
    """What queries and pool become under one encoder: unit embeddings, and class probabilities where it has a head."""

    queries: Float32Array
    pool: Float32Array
    query_classes: Float32Array | None = None
    pool_classes: Float32Array | None = None


def wanted(grid: PointsConfig, *, has_head: bool) -> list[PointKey]:
    """The plain point and those of the grid that an encoder with or without a softmax head can give."""
    keys: list[PointKey] = [("plain", None)]
    keys += [("concat", value) for value in grid.concat]
    keys += [("class_concat", value) for value in grid.class_concat if has_head]
    return keys + [("interpolate", value) for value in grid.interpolate]


def width(key: PointKey, model: "SentenceTransformer", evaluation: EvaluationSet, head: Head | None) -> int:
    """The dimension of the embeddings of an operating point."""
    own = int(model.get_embedding_dimension() or 0)
    of_reference = int(evaluation.reference_queries.shape[1])
    if key[0] == "concat":
        return of_reference + own
    if key[0] == "class_concat":
        assert head is not None
        return of_reference + len(head.bias)
    return own


def measure(
    model: "SentenceTransformer",
    tokens: Tokens,
    evaluation: EvaluationSet,
    keys: Sequence[PointKey],
    *,
    head: Head | None = None,
    base: "Mapping[str, torch.Tensor] | None" = None,
    replay: Replay = nothing_replayed,
) -> tuple[dict[PointKey, retrieval.Scores], Encoded | None]:
    """Per-query scores of each point of the encoder as it stands, in fp32, and its encodings unless all are interpolated.

    ``base`` holds the base model's weights, which ``interpolate`` needs; the model leaves with the weights it came with.
    Raises TrialDivergedError when the weights have become useless.
    """
    scores: dict[PointKey, retrieval.Scores] = {}
    encoded = None
    if direct := [key for key in keys if key[0] != "interpolate"]:
        encoded = _encode(model, tokens, evaluation, head, replay)
        scores = _score(evaluation, encoded, direct)
    for key in keys:
        if key[0] == "interpolate":
            assert base is not None and key[1] is not None
            with _Interpolated(model, base, key[1]):
                between = _encode(model, tokens, evaluation, None, replay)
            scores |= {key: _score(evaluation, between, [("plain", None)])["plain", None]}
    return {key: scores[key] for key in keys}, encoded


def _encode(
    model: "SentenceTransformer", tokens: Tokens, evaluation: EvaluationSet, head: Head | None, replay: Replay
) -> Encoded:
    queries = embed(model, tokens, evaluation.queries, replay=replay)
    pool = embed(model, tokens, evaluation.pool, replay=replay)
    if not (np.isfinite(queries).all() and np.isfinite(pool).all()):
        raise TrialDivergedError("the embeddings are no longer finite numbers")
    if head is None:
        return Encoded(queries, pool)
    return Encoded(queries, pool, head.probabilities(queries), head.probabilities(pool))


def _score(evaluation: EvaluationSet, encoded: Encoded, keys: Sequence[PointKey]) -> dict[PointKey, retrieval.Scores]:
    found = {key: np.empty((len(encoded.queries), evaluation.k), np.int64) for key in keys}
    for start in range(0, len(encoded.queries), retrieval.QUERIES_PER_BLOCK):
        block = slice(start, start + retrieval.QUERIES_PER_BLOCK)
        tuned = encoded.queries[block] @ encoded.pool.T
        reference = evaluation.reference_queries[block] @ evaluation.reference_pool.T
        classes = None
        if encoded.query_classes is not None and encoded.pool_classes is not None:
            classes = encoded.query_classes[block] @ encoded.pool_classes.T
        for kind, value in keys:
            if kind == "plain":
                sums = tuned
            else:
                added = tuned if kind == "concat" else classes
                assert added is not None and value is not None
                sums = reference + np.float32(value) * added
            found[kind, value][block] = retrieval.top_k(sums, evaluation.k)
    return {key: evaluation.score_found(rows) for key, rows in found.items()}


class _Interpolated:
    """Within, the model's weights lie between the base model's and its own."""

    def __init__(self, model: "SentenceTransformer", base: "Mapping[str, torch.Tensor]", alpha: float) -> None:
        self._model, self._base, self._alpha = model, base, alpha
        self._own: dict[str, torch.Tensor] = {}

    def __enter__(self) -> None:
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad:
                self._own[name] = parameter.data
                parameter.data = self._base[name].lerp(parameter.data, self._alpha)

    def __exit__(self, *error: object) -> None:
        for name, parameter in self._model.named_parameters():
            if name in self._own:
                parameter.data = self._own[name]
