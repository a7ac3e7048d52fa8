"""A trial's state on disk: everything that going on exactly as if nothing had happened needs. No pickles."""

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
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{uuid.uuid4().hex[:8]}"
    temporary.mkdir()
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary / "tensors")
    (temporary / "values.json").write_text(json.dumps({"schema": SCHEMA, **values}), encoding="utf-8")
    place = folder / f"{number:09d}"
    if place.exists():  # of a process that was killed after this checkpoint and came to the same place again
        shutil.rmtree(temporary)
        return
    temporary.rename(place)
    for other in folder.iterdir():
        if other.name < place.name:  # never a newer one, of a process that took the trial over
            shutil.rmtree(other, ignore_errors=True)


def load(folder: Path) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
    """The latest checkpoint of ``folder``, or None when there is none of this version that can be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    whole = sorted(path for path in folder.glob("[0-9]*") if (path / "values.json").is_file())
    if not whole:
        return None
    try:
        values: dict[str, Any] = json.loads((whole[-1] / "values.json").read_text(encoding="utf-8"))
        return (load_file(whole[-1] / "tensors"), values) if values["schema"] == SCHEMA else None
    except (OSError, ValueError, SafetensorError) as error:
        warnings.warn(f"{whole[-1]}: damaged, so the trial starts anew: {error}", stacklevel=2)
        shutil.rmtree(whole[-1])  # or it would stand in the way of a whole one
        return None
