"""Sizes and embedding widths of encoders, read from their files without loading the weights."""

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysweep.encoders.locate import ModelSource

FP32_BYTES = 4


@dataclass(frozen=True)
class EncoderSize:
    """The size of an encoder's weights in fp32, its number of layers and its hidden size.

    ``num_layers`` and ``width`` are 0 if unknown.
    """

    weights_bytes: int
    num_layers: int
    width: int

    @property
    def weights_in_layers(self) -> int:
        """Return the approximate number of weights in all layers, or 0 if unknown."""
        return 12 * self.num_layers * self.width**2

    @classmethod
    def of(cls, folder: Path) -> "EncoderSize":
        """Read the size of a model from the files in its folder."""
        weights_bytes = 0
        for path in folder.rglob("*.safetensors"):
            # The file starts with an 8-byte header length and a JSON header, which contains the shapes.
            with path.open("rb") as file:
                (num_bytes,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(num_bytes))
            tensors = (entry for name, entry in header.items() if name != "__metadata__")
            num_values = sum(math.prod(tensor["shape"]) for tensor in tensors)
            weights_bytes += FP32_BYTES * num_values
        sizes = {"num_hidden_layers": 0, "hidden_size": 0}
        # The transformer's configuration may be in a subfolder.
        for path in sorted(folder.rglob("config.json"), key=lambda path: len(path.parts)):
            config = json.loads(path.read_text(encoding="utf-8"))
            found = {key: config.get(key) for key in sizes}
            if all(isinstance(size, int) for size in found.values()):
                sizes = found
                break
        return cls(weights_bytes, int(sizes["num_hidden_layers"]), int(sizes["hidden_size"]))


_SAME_WIDTH = {"Normalize", "Dropout", "LayerNorm"}  # modules that preserve the embedding width


def embedding_width(source: ModelSource) -> int | None:
    """Return the width of an encoder's embeddings, or None if it cannot be determined from the files."""
    width = source.transformer_config.get("hidden_size")
    for folder, name in source.modules[1:]:
        if name in _SAME_WIDTH:
            continue
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            width = _OUTPUT_WIDTHS[name](config)
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return width if isinstance(width, int) else None


def _width_of_pooling(config: dict[str, Any]) -> int:
    """Return the width of the concatenated outputs of all pooling modes."""
    modes = config.get("pooling_mode")
    if modes is None:  # saved by sentence-transformers before version 6
        modes = [mode for name, mode in config.items() if name.startswith("pooling_mode_") and mode]
    num_modes = 1 if isinstance(modes, str) else len(modes)
    width = config.get("embedding_dimension") or config["word_embedding_dimension"]
    return int(width) * num_modes


_OUTPUT_WIDTHS: dict[str, Callable[[dict[str, Any]], int]] = {
    "Pooling": _width_of_pooling,
    "Dense": lambda config: int(config["out_features"]),
}
