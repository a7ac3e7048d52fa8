"""Sentence-transformers models for operating points that join two encoders.

The models consist only of the library's own modules, because others require ``trust_remote_code=True``. The first
encoder stores its embedding in ``features["cls_token_embeddings"]``. In the second encoder, ``HierarchicalTokenPooling``
reduces the token embeddings to their normalized mean. ``Pooling`` then concatenates the two vectors. Both encoders
receive the same tokens.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from raysweep.encoders import encoder
from raysweep.encoders.traits import EncoderTraits
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import LABELED, Head
from raysweep.results.types import PointKey, key_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


KINDS = ("concat", "class_concat", LABELED)  # points that join two encoders

# kinds whose embeddings have different norms and are compared by inner product
BY_PRODUCT = (
    "class_concat",
    LABELED,
)

_FIRST = "cls_token_embeddings"  # key of the first encoder's vector


def build(
    key: PointKey, tuned: "SentenceTransformer", reference: "SentenceTransformer", head: Head | None
) -> "SentenceTransformer":
    """Return a model for a point of one of ``KINDS`` that ranks sentences as in the point's evaluation.

    For ``concat(g)``, embeddings are [sqrt(g) e_M; e_R], scaled to unit length. For ``class_concat(g)``, they are
    [sqrt(g) p; e_R], and the similarity function is ``dot``. For ``labeled(g)``, the ``class_concat(g)`` model embeds
    queries.

    Raises:
        InputError: If the encoders tokenize sentences differently, or the reference does not use mean pooling.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    kind, value = key
    assert value is not None
    reference_width = encoder.embedding_width(reference)
    if kind == "concat":
        own_width = encoder.embedding_width(tuned)
        modules = _joined_modules(key, tuned, _unchanged(own_width), reference)
        modules += [_weighting(value, own_width, reference_width), Normalize()]
        return SentenceTransformer(modules=modules, similarity_fn_name="cosine", device="cpu")
    assert head is not None
    modules = _joined_modules(key, tuned, _classifier(head), reference)
    modules.append(_weighting(value, len(head.bias), reference_width))
    return SentenceTransformer(modules=modules, similarity_fn_name="dot", device="cpu")


def unit_modules(model: "SentenceTransformer") -> list[nn.Module]:
    """Return a model's modules, followed by ``Normalize`` if it is not the last one already."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    modules: list[nn.Module] = list(model.children())
    return modules if isinstance(modules[-1], Normalize) else [*modules, Normalize()]


def sum_modules(
    key: PointKey, tuned: "SentenceTransformer", reference: "SentenceTransformer"
) -> list[nn.Module]:
    """Return modules that embed sentences as e_R + value * e_M, scaled to unit length.

    Raises:
        InputError: If the encoders tokenize sentences differently, or the reference does not use mean pooling.
    """
    from sentence_transformers.sentence_transformer.modules import Normalize

    _, value = key
    assert value is not None
    width = encoder.embedding_width(reference)
    weights = torch.cat([value * torch.eye(width), torch.eye(width)], dim=1)
    addition = linear(weights, torch.zeros(width), nn.Identity())
    return [*_joined_modules(key, tuned, _unchanged(width), reference), addition, Normalize()]


def _joined_modules(
    key: PointKey, tuned: "SentenceTransformer", first: nn.Module, reference: "SentenceTransformer"
) -> list[nn.Module]:
    """Return modules that apply ``first`` to tuned unit embeddings and append the reference embeddings."""
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    if not EncoderTraits.of(reference).embeds_tokens:
        raise InputError(
            f"{key_name(key)} cannot be exported: the reference encoder is not a transformer with mean pooling"
        )
    own_tokenizer, reference_tokenizer = (
        model.tokenizer.backend_tokenizer.to_str() for model in (tuned, reference)
    )
    if own_tokenizer != reference_tokenizer:
        raise InputError(
            f"{key_name(key)} cannot be exported: the reference encoder and the tuned encoder use different tokenizers"
        )
    if tuned.max_seq_length != reference.max_seq_length:
        raise InputError(
            f"{key_name(key)} cannot be exported: the reference encoder truncates sentences at a different length"
        )
    transformer, pooling, *last_modules = reference.children()
    has_mean_pooling = isinstance(pooling, Pooling) and pooling.pooling_mode == "mean"
    if not has_mean_pooling or not all(isinstance(module, Normalize) for module in last_modules):
        raise InputError(
            f"{key_name(key)} cannot be exported: the reference encoder is not a transformer with mean pooling"
        )
    # reduces the reference encoder's token embeddings to their normalized mean
    one_token = HierarchicalTokenPooling(1e9, num_protected_tokens=0, tasks=["query", "document"])
    concatenation = Pooling(encoder.embedding_width(reference), pooling_mode=("cls", "mean"))
    return [*unit_modules(tuned), first, transformer, one_token, concatenation]


def _unchanged(width: int) -> nn.Module:
    """Return a module that stores the first encoder's embeddings unchanged."""
    return linear(torch.eye(width), torch.zeros(width), nn.Identity(), output=_FIRST)


def _classifier(head: Head) -> nn.Module:
    """Return a module that maps unit embeddings to class probabilities."""
    weight = torch.from_numpy(head.weight.astype(np.float64)) * head.weight.shape[1] ** 0.5
    bias = torch.from_numpy(head.bias.astype(np.float64))
    # a softmax over two classes is a sigmoid of the difference, which needs no implicit dim
    if len(bias) == 2:
        weight, bias = weight - weight.flip(0), bias - bias.flip(0)
        return linear(weight.float(), bias.float(), nn.Sigmoid(), output=_FIRST)
    return linear(weight.float(), bias.float(), nn.Softmax(), output=_FIRST)


def _weighting(value: float, first_width: int, reference_width: int) -> nn.Module:
    """Return a module that multiplies the first vector by sqrt(value)."""
    first_weights = torch.full((first_width,), value**0.5)
    weights = torch.cat([first_weights, torch.ones(reference_width)])
    return linear(weights.diag(), torch.zeros(len(weights)), nn.Identity())


def linear(
    weight: torch.Tensor,
    bias: torch.Tensor,
    activation: nn.Module,
    output: str = "sentence_embedding",
) -> nn.Module:
    """Return a dense layer with these weights (outputs, inputs) and biases (outputs,)."""
    from sentence_transformers.sentence_transformer.modules import Dense

    layer: nn.Module = Dense(
        weight.shape[1],
        weight.shape[0],
        activation_function=activation,
        init_weight=weight,
        init_bias=bias,
        module_output_name=output,
    )
    return layer
