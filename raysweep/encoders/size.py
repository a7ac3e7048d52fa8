"""How large an encoder is, read from its files without loading it."""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

FP32_BYTES = 4


@dataclass(frozen=True)
class EncoderSize:
    """The bytes that an encoder's weights take in fp32, its layers, and the width of their hidden states.

    ``num_layers`` and ``width`` are 0 where its configuration does not say.
    """

    weights_bytes: int
    num_layers: int
    width: int

    @property
    def weights_in_layers(self) -> int:
        """About how many weights work on each token; 0 where the configuration does not say."""
        return 12 * self.num_layers * self.width**2

    @classmethod
    def of(cls, folder: Path) -> "EncoderSize":
        """The size of the sentence-transformers model in a folder: that of all its safetensors together."""
        weights_bytes = sum(FP32_BYTES * _num_values(path) for path in folder.rglob("*.safetensors"))
        config = _config(folder)
        return cls(weights_bytes, int(config.get("num_hidden_layers", 0)), int(config.get("hidden_size", 0)))


def _num_values(path: Path) -> int:
    """How many numbers a file of safetensors holds: its header, which follows its length in 8 bytes, has their shapes."""
    with path.open("rb") as file:
        (num_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(num_bytes))
    tensors = (entry for name, entry in header.items() if name != "__metadata__")
    return sum(math.prod(tensor["shape"]) for tensor in tensors)


def _config(folder: Path) -> dict[str, int]:
    """What the transformer's configuration says, wherever in the folder it lies."""
    for path in sorted(folder.rglob("config.json"), key=lambda path: len(path.parts)):
        found = json.loads(path.read_text(encoding="utf-8"))
        sizes = {key: found[key] for key in ("num_hidden_layers", "hidden_size") if isinstance(found.get(key), int)}
        if len(sizes) == 2:
            return sizes
    return {}
