"""Saving and loading of a rung's trained weights, softmax head and retrieval results."""

import json
import shutil
import uuid
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from raysweep.config.adapter import Lora
from raysweep.evaluation.operating_points import Head
from raysweep.results.readings import Reading, reading_file
from raysweep.storage.folder import flush
from raysweep.training.trainable import TrainedWeights


def save_point(
    folder: Path, weights: TrainedWeights, head: Head | None, reading: Reading | None = None
) -> None:
    """Save the trained weights, the head and the retrieval results atomically.

    Frozen weights are not saved. ``reading`` contains the retrieval results on dev, which are saved only in runs without
    a test split.
    """
    from safetensors.torch import save_file

    if folder.is_dir():  # already saved before the trial was resumed
        return
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    temporary.mkdir(parents=True)
    try:
        tensors = {name: value.contiguous() for name, value in weights.tensors.items()}
        adapter = {} if weights.lora is None else {"lora": json.dumps(asdict(weights.lora))}
        save_file(tensors, temporary / "trained.safetensors", adapter)
        if head is not None:
            np.savez(
                temporary / "head.npz",
                weight=head.weight,
                bias=head.bias,
                temperature=head.temperature,
            )
        if reading is not None:
            (temporary / reading_file("dev")).write_bytes(reading.content())
        flush(temporary)
        temporary.rename(folder)
    finally:
        # exists only if writing failed
        shutil.rmtree(temporary, ignore_errors=True)


def read_point(folder: Path) -> tuple[TrainedWeights, Head | None]:
    """Return the trained weights and the softmax head, if any, without unpickling.

    Raises:
        ValueError: If a file is damaged.
        OSError: If a file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    file = folder / "trained.safetensors"
    try:
        with safe_open(file, "pt") as archive:
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118 (not a mapping)
            adapter = (archive.metadata() or {}).get("lora")
        lora = None if adapter is None else TypeAdapter(Lora).validate_json(adapter)
    except ValidationError as error:
        raise ValueError(
            f"{file.name}: its adapter is damaged: {error.errors()[0]['msg']}"
        ) from None
    except SafetensorError as error:
        raise ValueError(f"{file.name}: {error}") from None
    return TrainedWeights(tensors, lora), _read_head(folder / "head.npz")


def _read_head(file: Path) -> Head | None:
    if not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as arrays:
            weight, bias, temperature = arrays["weight"], arrays["bias"], arrays["temperature"]
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        MemoryError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(f"{file.name}: {error}") from None
    kinds = {array.dtype.kind for array in (weight, bias, temperature)}
    has_shapes = weight.ndim == 2 and bias.shape == weight.shape[:1] and temperature.ndim == 0
    if kinds != {"f"} or not has_shapes:
        raise ValueError(
            f"{file.name}: the arrays have the wrong types or shapes; allowed: floating-point weights (classes, width), "
            "biases (classes,) and a temperature"
        )
    return Head(weight, bias, float(temperature))
