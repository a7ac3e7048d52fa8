"""Exported models with different query and document encoders, and models for one data set in a sequence.

Models with different encoders use the library's ``Router``; their ``encode`` method embeds documents. A model for one
data set is the frozen encoder, followed by the adapter's dense layers with the data set's mask.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn

from raysweep.config.sides import Sides
from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import QUERY_CONCAT
from raysweep.export.joined_encoder import linear, sum_modules, unit_modules
from raysweep.metrics.arrays import Float32Array
from raysweep.results.types import PointKey
from raysweep.training.sub_embeddings import Layer, SubEmbeddings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def build_pair(
    models: "Sides[SentenceTransformer]", similarity: Literal["cosine", "dot"]
) -> "SentenceTransformer":
    """Return a model with separate encoders for queries and documents."""
    modules: Sides[list[nn.Module]] = models.map(lambda model: list(model.children()))
    return _route(modules, similarity)


def build_query_encoder(
    key: PointKey, tuned: "SentenceTransformer", reference: "SentenceTransformer"
) -> "SentenceTransformer":
    """Return a model for a point of one of ``QUERY_KINDS``.

    For ``query``, queries are embedded as e_M. For ``query_concat(g)``, they are embedded as e_R + g e_M, scaled to unit
    length. The reference encoder embeds documents.

    Raises:
        InputError: If the encoders cannot be joined for ``query_concat``.
    """
    kind, _ = key
    query_modules: list[nn.Module] = unit_modules(tuned)
    if kind == QUERY_CONCAT:
        query_modules = sum_modules(key, tuned, reference)
    return _route(Sides(query_modules, unit_modules(reference)), "cosine")


def _route(
    modules: Sides[list[nn.Module]], similarity: Literal["cosine", "dot"]
) -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    router = Router.for_query_document(modules.query, modules.document)  # type: ignore[arg-type]
    return SentenceTransformer(modules=[router], similarity_fn_name=similarity, device="cpu")


def find_data_set(names: Sequence[str], data_set: str | None) -> int | None:
    """Return the index of a data set in a run's sequence, or None if the run is not over a sequence.

    Raises:
        InputError: If the name is missing, is unknown, or does not apply to the run.
    """
    if not names:
        if data_set is not None:
            raise InputError(f"--data-set is {data_set}; allowed only for runs over data.sequence")
        return None
    if data_set not in names:
        value = "missing" if data_set is None else data_set
        raise InputError(f"--data-set is {value}; allowed: {', '.join(names)}")
    return names.index(data_set)


def build_sub_embedding(
    base: "SentenceTransformer", layers: Sequence[Layer]
) -> "SentenceTransformer":
    """Return a model that embeds sentences as unit(x + MLP(x)), where x is a sentence's unit embedding under ``base``.

    Dense layers compute the residual connection as x = relu(x) - relu(-x).
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    first, second = layers
    first_weight, first_bias = (tensor.cpu() for tensor in first)
    second_weight, second_bias = (tensor.cpu() for tensor in second)
    width = len(second_bias)
    identity = torch.eye(width)
    hidden_weight = torch.cat([first_weight, identity, -identity])
    hidden_bias = torch.cat([first_bias, torch.zeros(2 * width)])
    hidden = linear(hidden_weight, hidden_bias, nn.ReLU())
    output_weight = torch.cat([second_weight, identity, -identity], dim=1)
    output = linear(output_weight, second_bias, nn.Identity())
    modules = [*unit_modules(base), hidden, output, Normalize()]
    model = SentenceTransformer(modules=modules, similarity_fn_name="cosine", device="cpu")
    model.prompts = base.prompts
    return model


def embed_sub_embedding(
    base: "SentenceTransformer",
    adapter: SubEmbeddings,
    number: int,
    sentences: Sequence[str],
    prompt: str,
) -> Float32Array:
    """Return the sub-embeddings (sentences, width) for a data set as in the run's evaluation."""
    embeddings = torch.from_numpy(encoder.embed_texts(base, sentences, prompt))
    embedded: Float32Array = adapter.embed(embeddings, number).numpy()
    return embedded
