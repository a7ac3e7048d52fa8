"""Checkpoints on disk: tensors and plain values, written whole or not at all. No pickles."""

import json
import shutil
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


SCHEMA = 1


def save(folder: Path, number: int, tensors: "Mapping[str, Tensor]", values: Mapping[str, Any]) -> None:
    """Write checkpoint ``number`` (rising) into ``folder``, whole or not at all, and remove the one before."""
    temporary = folder / f".{uuid.uuid4().hex[:8]}"
    temporary.mkdir(parents=True)
    _write(temporary, tensors, values)
    place = folder / f"{number:09d}"
    if place.exists():  # of a process that was killed after this checkpoint and came to the same place again
        shutil.rmtree(temporary)
        return
    temporary.rename(place)
    for other in folder.iterdir():
        if other.name < place.name:  # never a newer one, of a process that took the trial over
            shutil.rmtree(other, ignore_errors=True)


def _write(folder: Path, tensors: "Mapping[str, Tensor]", values: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(plain, folder / "tensors")
    text = json.dumps({"schema": SCHEMA, **values})
    (folder / "values.json").write_text(text, encoding="utf-8")


def load(folder: Path) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
    """The latest checkpoint of ``folder``, or None when there is none of this version that can be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    whole = sorted(path for path in folder.glob("[0-9]*") if (path / "values.json").is_file())
    if not whole:
        return None
    latest = whole[-1]
    try:
        text = (latest / "values.json").read_text(encoding="utf-8")
        values: dict[str, Any] = json.loads(text)
        if values["schema"] != SCHEMA:
            return None
        return load_file(latest / "tensors"), values
    except (OSError, ValueError, SafetensorError) as error:
        warnings.warn(f"{latest}: damaged, so the trial starts anew: {error}", stacklevel=2)
        shutil.rmtree(latest)  # or it would stand in the way of a whole one
        return None
