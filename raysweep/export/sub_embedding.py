"""The model of a data set of a sequence: the frozen encoder, and the adapter's dense layers under the data set's mask."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.export.joined_encoder import linear, unit_modules
from raysweep.metrics.arrays import Float32Array
from raysweep.training.sub_embeddings import Layer, SubEmbeddings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def find_data_set(names: Sequence[str], data_set: str | None) -> int | None:
    """Return the number of a data set among those of a run, or None if the run is not over a sequence.

    Raises:
        InputError: If the name is missing, is unknown, or does not apply to the run.
    """
    if not names:
        if data_set is not None:
            raise InputError(f"--data-set is {data_set}; allowed: only for runs over data.sequence")
        return None
    if data_set not in names:
        value = "missing" if data_set is None else data_set
        raise InputError(f"--data-set is {value}; allowed: {', '.join(names)}")
    return names.index(data_set)


def build(base: "SentenceTransformer", layers: Sequence[Layer]) -> "SentenceTransformer":
    """Return a model that embeds sentences as unit(x + MLP(x)), x being their unit embeddings under ``base``.

    The library's own dense layers compute the residual connection, since x = relu(x) - relu(-x).
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


def embed(
    base: "SentenceTransformer",
    adapter: SubEmbeddings,
    number: int,
    sentences: Sequence[str],
    prompt: str,
) -> Float32Array:
    """Return the sub-embeddings (sentences, width) of a data set, as a run scores them."""
    embeddings = torch.from_numpy(encoder.embed_texts(base, sentences, prompt))
    embedded: Float32Array = adapter.embed(embeddings, number).numpy()
    return embedded
