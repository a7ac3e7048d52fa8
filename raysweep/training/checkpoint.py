"""Checkpoints on disk: tensors and plain values, written whole or not at all. No pickles."""

import json
import shutil
import uuid
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


SCHEMA = 1


def save(folder: Path, number: int, tensors: "Mapping[str, Tensor]", values: Mapping[str, Any]) -> None:
    """Write checkpoint ``number`` (rising) into ``folder``, whole or not at all.

    The one before goes only when the new one has been read back and is what was to be written. OSError where it is not.
    """
    temporary = folder / f".{uuid.uuid4().hex[:8]}"
    temporary.mkdir(parents=True)
    try:
        _write(temporary, tensors, values)
        _confirm(temporary)
        place = folder / f"{number:09d}"
        if place.exists():  # of a process that was killed after this checkpoint and came to the same place again
            return
        temporary.rename(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for other in folder.iterdir():
        if other.name < place.name:  # never a newer one, of a process that took the trial over
            shutil.rmtree(other, ignore_errors=True)


def _write(folder: Path, tensors: "Mapping[str, Tensor]", values: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(plain, folder / "tensors")
    text = json.dumps({"schema": SCHEMA, "checksum": _checksum(plain), **values})
    (folder / "values.json").write_text(text, encoding="utf-8")


def _confirm(folder: Path) -> None:
    try:
        _read(folder)
    except ValueError as error:
        raise OSError(f"{folder.parent}: a checkpoint was not stored as it was written: {error}") from None


def load(folder: Path) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
    """The latest checkpoint of ``folder``, or None when there is none of this version.

    Damaged ones are set aside with a warning. OSError where one cannot be read now, which says nothing about the next time.
    """
    for place in _from_the_latest(folder):
        try:
            tensors, values = _read(place)
        except FileNotFoundError:
            if not place.exists():  # a process that had the trial before has just written a newer one
                return load(folder)
            _set_aside(place, "a file is missing")
        except ValueError as error:
            _set_aside(place, str(error))
        else:
            return (tensors, values) if values["schema"] == SCHEMA else None
    return None


def _from_the_latest(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("[0-9]*") if (path / "values.json").is_file()), reverse=True)


def _read(place: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """A checkpoint's tensors and values. ValueError says how it is damaged, OSError why it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    values: dict[str, Any] = json.loads((place / "values.json").read_text(encoding="utf-8"))
    try:
        tensors = load_file(place / "tensors")
    except SafetensorError as error:
        raise ValueError(error) from None
    checksum = values.pop("checksum", None)  # older versions kept none
    if checksum is not None and checksum != _checksum(tensors):
        raise ValueError("its tensors are not those that were written")
    return tensors, values


def _checksum(tensors: "Mapping[str, Tensor]") -> int:
    """The CRC-32 of the names and bytes of tensors in memory."""
    import torch

    checksum = 0
    for name in sorted(tensors):
        checksum = zlib.crc32(name.encode(), checksum)
        flat = tensors[name].reshape(-1)
        if len(flat):  # torch gives no bytes of nothing
            checksum = zlib.crc32(flat.view(torch.uint8).numpy().data, checksum)
    return checksum


def _set_aside(place: Path, problem: str) -> None:
    """Move a damaged checkpoint, or it would stand in the way of a whole one."""
    aside = place.with_name(f"damaged-{place.name}-{uuid.uuid4().hex[:8]}")
    warnings.warn(
        f"{place}: damaged, so the trial goes back to an earlier one, if there is any: {problem}", stacklevel=3
    )
    place.rename(aside)
