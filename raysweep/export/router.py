"""Operating points whose queries and documents have different encoders, as models with the library's ``Router``.

``encode_query`` and ``encode_document`` are the two encoders; ``encode`` embeds documents.
"""

from typing import TYPE_CHECKING, Literal

from torch import nn

from raysweep.config.sides import Sides
from raysweep.evaluation.operating_points import QUERY_CONCAT
from raysweep.export import joined_encoder
from raysweep.results.types import PointKey

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def build(
    models: "Sides[SentenceTransformer]", similarity: Literal["cosine", "dot"]
) -> "SentenceTransformer":
    """Return a model with the modules of the query and document encoders."""
    modules: Sides[list[nn.Module]] = models.map(lambda model: list(model.children()))
    return _route(modules, similarity)


def build_query_encoder(
    key: PointKey, tuned: "SentenceTransformer", reference: "SentenceTransformer"
) -> "SentenceTransformer":
    """Return a model for a point of one of ``QUERY_KINDS``; its cosines rank sentences as the point's scores do.

    Queries are embedded as e_M for ``query``, and as e_R + g e_M, scaled to unit length, for ``query_concat(g)``.
    Documents are embedded by the reference encoder, whose stored embeddings stay valid.

    Raises:
        InputError: If the encoders cannot be joined for ``query_concat``.
    """
    kind, _ = key
    query_modules: list[nn.Module] = joined_encoder.unit_modules(tuned)
    if kind == QUERY_CONCAT:
        query_modules = joined_encoder.sum_modules(key, tuned, reference)
    return _route(Sides(query_modules, joined_encoder.unit_modules(reference)), "cosine")


def _route(
    modules: Sides[list[nn.Module]], similarity: Literal["cosine", "dot"]
) -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    router = Router.for_query_document(modules.query, modules.document)  # type: ignore[arg-type]
    return SentenceTransformer(modules=[router], similarity_fn_name=similarity, device="cpu")
