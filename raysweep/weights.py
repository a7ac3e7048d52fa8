"""The weights and per-query scores of a rung, kept while its point may be on the front."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raysweep.metrics import Scores

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer


def save_point(folder: Path, model: "SentenceTransformer", scores: Scores) -> None:
    """Write the trained weights (frozen ones are the base model's) and dev scores, whole or not at all."""
    from safetensors.torch import save_file

    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    temporary.mkdir(parents=True)
    trained = {name: value.detach().contiguous() for name, value in model.named_parameters() if value.requires_grad}
    save_file(trained, temporary / "trained.safetensors")
    save_scores(temporary, "dev", scores)
    temporary.rename(folder)


def save_scores(folder: Path, split: str, scores: Scores) -> None:
    """Write per-query scores as ``SPLIT.npz``: arrays ``polarity`` and ``similarity``, each (queries,)."""
    np.savez(folder / f"{split}.npz", polarity=scores.polarity, similarity=scores.similarity)


def read_point(folder: Path) -> "dict[str, torch.Tensor]":
    """The trained weights by parameter name."""
    from safetensors.torch import load_file

    weights: dict[str, torch.Tensor] = load_file(folder / "trained.safetensors")
    return weights
