"""Operating points of trials that tune only the encoder of queries, as a model with the library's ``Router``.

``encode_query`` is tuned, and ``encode_document`` is the reference encoder, whose stored embeddings stay valid.
"""

from typing import TYPE_CHECKING

from torch import nn

from raysweep.evaluation.operating_points import QUERY_CONCAT
from raysweep.export import joined_encoder
from raysweep.results.types import PointKey

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def build(key: PointKey, tuned: "SentenceTransformer", reference: "SentenceTransformer") -> "SentenceTransformer":
    """Return a model for a point of one of ``QUERY_KINDS``; its cosines rank sentences as the point's scores do.

    Queries are embedded as e_M for ``query``, and as e_R + g e_M, scaled to unit length, for ``query_concat(g)``.

    Raises:
        InputError: If the encoders cannot be joined for ``query_concat``.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    kind, _ = key
    query_modules: list[nn.Module] = joined_encoder.unit_modules(tuned)
    if kind == QUERY_CONCAT:
        query_modules = joined_encoder.sum_modules(key, tuned, reference)
    router = Router.for_query_document(query_modules, joined_encoder.unit_modules(reference))  # type: ignore[arg-type]
    return SentenceTransformer(modules=[router], similarity_fn_name="cosine", device="cpu")
