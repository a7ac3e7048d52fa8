"""Checkpoints on disk: tensors and plain values, written atomically. No pickles."""

import json
import shutil
import uuid
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.storage.folder import Folder, as_folder, flush

if TYPE_CHECKING:
    from torch import Tensor


SCHEMA = 1


def save(place: str | Path | Folder, number: int, tensors: "Mapping[str, Tensor]", values: Mapping[str, Any]) -> None:
    """Write checkpoint ``number`` atomically into the folder at ``place``; numbers increase.

    The previous checkpoint is deleted once the new one has been read back, verified and stored.

    Raises:
        OSError: If the checkpoint cannot be written or does not match its source.
    """
    folder = as_folder(place)
    temporary = folder.path / f".{uuid.uuid4().hex[:8]}"
    temporary.mkdir(parents=True)
    try:
        _write(temporary, tensors, values)
        flush(temporary)
        _confirm(temporary)
        name = f"{number:09d}"
        if (folder.path / name).exists():  # left by a process that was killed right after this
            return
        temporary.rename(folder.path / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    folder.store(name)
    for other in folder.names():
        is_checkpoint = not other.endswith(".json")  # not a note of the driver
        if is_checkpoint and other < name:  # never delete a newer one of a process that took over the trial
            folder.remove(other)
    folder.let_go(name)


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


def load(place: str | Path | Folder) -> "tuple[dict[str, Tensor], dict[str, Any]] | None":
    """Return the latest checkpoint of the folder at ``place``, or None if it has another schema or does not exist.

    Damaged checkpoints are set aside with a warning.

    Raises:
        OSError: If a checkpoint cannot be read now; a later attempt may succeed.
    """
    folder = as_folder(place)
    try:
        fetched = folder.fetch()
    except FileNotFoundError:  # the trial's previous process has just written a newer one
        return load(folder)
    for path in _from_the_latest(fetched):
        try:
            tensors, values = _read(path)
        except FileNotFoundError:
            if not path.exists():  # the trial's previous process has just written a newer one
                return load(folder)
            _set_aside(folder, path, "a file is missing")
        except ValueError as error:
            _set_aside(folder, path, str(error))
        else:
            folder.let_go("")
            return (tensors, values) if values["schema"] == SCHEMA else None
    return None


def _from_the_latest(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("[0-9]*") if (path / "values.json").is_file()), reverse=True)


def _read(place: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Return a checkpoint's tensors and values.

    Raises:
        ValueError: If the checkpoint is damaged.
        OSError: If it cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        values = json.loads((place / "values.json").read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("values.json is nested too deeply") from None
    if not isinstance(values, dict) or "schema" not in values:
        raise ValueError("values.json holds no values of a checkpoint")
    try:
        tensors = load_file(place / "tensors")
    except SafetensorError as error:
        raise ValueError(error) from None
    if values.pop("checksum", None) != _checksum(tensors):
        raise ValueError("its tensors are not those that were written")
    return tensors, values


def _checksum(tensors: "Mapping[str, Tensor]") -> int:
    """Return the CRC-32 of the names and bytes of tensors in memory."""
    import torch

    checksum = 0
    for name in sorted(tensors):
        checksum = zlib.crc32(name.encode(), checksum)
        flat = tensors[name].reshape(-1)
        if len(flat):  # torch cannot view an empty tensor as bytes
            checksum = zlib.crc32(flat.view(torch.uint8).numpy().data, checksum)
    return checksum


def _set_aside(folder: Folder, place: Path, problem: str) -> None:
    """Rename a damaged checkpoint, which would otherwise hide an intact one."""
    aside = place.with_name(f"damaged-{place.name}-{uuid.uuid4().hex[:8]}")
    warnings.warn(
        f"{folder.location}/{place.name}: damaged, so the trial goes back to an earlier one, if there is any: {problem}",
        stacklevel=3,
    )
    place.rename(aside)
    folder.store(aside.name)
    folder.remove(place.name)
