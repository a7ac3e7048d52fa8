"""The size of an encoder, read from its files without loading it."""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

FP32_BYTES = 4


@dataclass(frozen=True)
class EncoderSize:
    """Bytes of an encoder's weights in fp32, number of layers, and width of hidden states.

    ``num_layers`` and ``width`` are 0 if the configuration lacks them.
    """

    weights_bytes: int
    num_layers: int
    width: int

    @property
    def weights_in_layers(self) -> int:
        """Return the approximate number of weights applied to each token, 0 if unknown."""
        return 12 * self.num_layers * self.width**2

    @classmethod
    def of(cls, folder: Path) -> "EncoderSize":
        """Return the size of the sentence-transformers model in a folder, summed over all its safetensors files."""
        weights_bytes = sum(FP32_BYTES * _num_values(path) for path in folder.rglob("*.safetensors"))
        config = _config(folder)
        return cls(weights_bytes, int(config.get("num_hidden_layers", 0)), int(config.get("hidden_size", 0)))


def _num_values(path: Path) -> int:
    """Return the number of values in a safetensors file, from the shapes in its header (after 8 bytes of length)."""
    with path.open("rb") as file:
        (num_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(num_bytes))
    tensors = (entry for name, entry in header.items() if name != "__metadata__")
    return sum(math.prod(tensor["shape"]) for tensor in tensors)


def _config(folder: Path) -> dict[str, int]:
    """Return the sizes in the transformer's configuration, which may be in any subfolder."""
    for path in sorted(folder.rglob("config.json"), key=lambda path: len(path.parts)):
        config = json.loads(path.read_text(encoding="utf-8"))
        sizes = {key: config.get(key) for key in ("num_hidden_layers", "hidden_size")}
        if all(isinstance(size, int) for size in sizes.values()):
            return sizes
    return {}
