"""Models of the data sets of a sequence, as dense layers of sentence-transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from raysweep.errors import InputError
from raysweep.export import modules
from raysweep.training.sub_embeddings import SubEmbeddings

TEXTS = ["a good film", "Where is it?", "no"]


def test_dense_layers_equal_the_adapter(tiny_encoder: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 64), (64, 5)]
    layers = [
        (torch.randn(shape, generator=generator), torch.randn(shape[0], generator=generator))
        for shape in shapes
    ]
    base = SentenceTransformer(tiny_encoder, device="cpu")
    modules.build_sub_embedding(base, layers).save(str(tmp_path / "model"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    inputs = np.asarray(base.encode(TEXTS, normalize_embeddings=True))
    (first, first_bias), (last, last_bias) = (
        [value.numpy() for value in layer] for layer in layers
    )
    outputs = inputs + np.maximum(inputs @ first.T + first_bias, 0) @ last.T + last_bias
    expected = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, atol=1e-5)
    adapter = SubEmbeddings([layers])
    embedded = modules.embed_sub_embedding(base, adapter, 0, TEXTS, "")
    np.testing.assert_allclose(embedded, expected, atol=1e-5)


def test_data_sets_are_chosen_by_name() -> None:
    assert modules.find_data_set((), None) is None
    assert modules.find_data_set(("a", "b"), "b") == 1
    for names, name in (((), "a"), (("a", "b"), None), (("a", "b"), "c")):
        with pytest.raises(InputError, match="--data-set is"):
            modules.find_data_set(names, name)
