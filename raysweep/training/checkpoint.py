"""Checkpoints of the complete training state of a trial.

A checkpoint is a folder with a safetensors file and a JSON file. It is written atomically.
"""

import json
import shutil
import uuid
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from raysweep.config.trial import TrialConfig
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import LABELED
from raysweep.metrics.retrieval import Scores
from raysweep.results.types import MASK, Calibration, PointKey, measure_of, measure_values
from raysweep.results.watched import Watched
from raysweep.storage.folder import Folder, as_folder, flush
from raysweep.training.progress import Progress
from raysweep.training.trainer import Training
from raysweep.training.validation import IdleRule
from raysweep.training.workbench import RungResult

SCHEMA = 1
_RESULT_VALUES = ("step", "examples_seen", "loss", "seconds", "train_seconds", "stop")


def save(training: Training, folder: str | Path | Folder, last: RungResult | None) -> None:
    """Write a checkpoint, including the last rung's result, in case the driver has not received it yet."""
    weights, averages = _separate_averages(training)
    tensors = {
        **{f"weight.{name}": weight for name, weight in weights.items()},
        **{f"average.{name}": average for name, average in averages.items()},
        "rng.cpu": torch.get_rng_state(),
        "total": training.loss_sum,
        "left": torch.from_numpy(training.order.remaining),
        **optimizer_tensors(training.optimizer),
    }
    if training.device.type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state(training.device)
    values: dict[str, Any] = {
        "precision": training.precision,
        "spent_before": training.seconds,
        "order": training.order.rng.bit_generator.state,
        "dropout": training.bench.dropouts.state(),
        "idle": None if training.idle is None else asdict(training.idle),
    }
    if training.average is not None:
        values["averaged_steps"] = training.average.num_steps
    save_state(training, folder, tensors, values, last)


class SavedTrial(Protocol):
    """The attributes of a trial's training that every checkpoint stores."""

    config: TrialConfig
    seed: int
    num_rungs: int
    progress: Progress


def save_state(
    training: SavedTrial,
    folder: str | Path | Folder,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Any],
    last: RungResult | None,
) -> None:
    """Write a checkpoint with this state, the trial's identity and progress, and the last rung's result."""
    tensors = dict(tensors)
    values = {**asdict(training.progress), **_identity(training), **values}
    if last is not None:
        result_values, result_tensors = _pack_result(last)
        values["last"] = result_values
        tensors |= result_tensors
    write(folder, training.progress.seen, tensors, values)


def restore(training: Training, folder: str | Path | Folder) -> RungResult | None:
    """Load the latest checkpoint in ``folder`` into a new ``training`` and return the last rung's result, if any.

    Without a checkpoint, do nothing and return None.

    Raises:
        InputError: If the checkpoint has a different configuration, seed or number of rungs.
    """
    state = read_state(training, folder)
    if state is None:
        return None
    tensors, values = state
    with torch.no_grad():
        for name, parameter in training.parameters.items():
            parameter.copy_(tensors[f"weight.{name}"])
            if training.average is not None:
                training.average.tensors[name].copy_(tensors[f"average.{name}"])
        training.loss_sum.copy_(tensors["total"])
    restore_optimizer(training.optimizer, tensors)
    _restore_random_streams(training, tensors, values)
    training.progress = progress_of(values)
    training.began -= values["spent_before"]
    training.set_precision(values["precision"])
    if training.idle is not None:
        training.idle = IdleRule(**values["idle"])
    if training.average is not None:
        training.average.num_steps = values["averaged_steps"]
        training.show_average(shown=training.progress.seen_in_rung == 0)
    last = last_result(tensors, values)
    if last is None:
        return None
    head = training.head()
    if head is not None and last.calibration is not None:
        head = head.at_temperature(last.calibration.temperature)
    training.bench.head = head
    return last


class SavedTraining(Training):
    """A :class:`Training` with ``save`` and ``restore`` methods."""

    def save(self, folder: str | Path | Folder, last: RungResult | None) -> None:
        """Write a checkpoint, like :func:`save`."""
        save(self, folder, last)

    def restore(self, folder: str | Path | Folder) -> RungResult | None:
        """Load the latest checkpoint, like :func:`restore`."""
        return restore(self, folder)


def read_state(
    training: SavedTrial, folder: str | Path | Folder
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the tensors and values of the latest checkpoint in ``folder``, or None if no checkpoint exists.

    Raises:
        InputError: If the checkpoint has a different configuration, seed or number of rungs.
    """
    checkpoint = read(folder)
    if checkpoint is None:
        return None
    _, values = checkpoint
    differences = [name for name, value in _identity(training).items() if values[name] != value]
    if differences:
        raise InputError(
            f"{as_folder(folder).location}: the checkpoint has a different {' and '.join(differences)}; allowed: a "
            "folder without checkpoints, or with checkpoints of the same trial"
        )
    return checkpoint


def progress_of(values: Mapping[str, Any]) -> Progress:
    """Return the progress stored in a checkpoint's values."""
    return Progress(**{field.name: values[field.name] for field in fields(Progress)})


def last_result(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> RungResult | None:
    """Return the last rung's result stored in a checkpoint, if any."""
    if "last" not in values:
        return None
    last = values["last"]
    points: dict[PointKey, Scores] = {}
    labeled: dict[PointKey, Scores] = {}
    tasks: dict[PointKey, Scores] = {}
    separate = {LABELED: labeled, MASK: tasks}
    for index, (kind, value) in enumerate(last["keys"]):
        scores = separate.get(kind, points)
        rows = tensors[f"last.{index}"].numpy()
        named = dict(zip(last["scores"], rows, strict=True))
        scores[kind, value] = Scores(named)
    plain_values = {name: last[name] for name in _RESULT_VALUES}
    calibration = None
    if "calibration" in last:
        calibration = Calibration(**last["calibration"])
    measures = tuple(measure_of(measure, None, None) for measure in last.get("measures", ()))
    watched = Watched.from_json(last["watched"]) if "watched" in last else None
    return RungResult(
        **plain_values,
        points=points,
        labeled=labeled,
        tasks=tasks,
        calibration=calibration,
        measures=measures,
        watched=watched,
    )


def _separate_averages(training: Training) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """Return the weights being trained and their averages, which are empty without averaging."""
    if training.average is None:
        return training.parameters, {}
    if training.average.is_shown:
        return training.average.tensors, training.parameters
    return training.parameters, training.average.tensors


def _identity(training: SavedTrial) -> dict[str, Any]:
    """Return the values that must be the same in a checkpoint and in the trial that resumes from it."""
    return {
        "config": training.config.identity,
        "seed": training.seed,
        "num_rungs": training.num_rungs,
    }


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer as named tensors."""
    tensors = {}
    for index, slots in optimizer.state_dict()["state"].items():
        for slot, value in slots.items():
            if value is not None:  # SGD's buffer is None without momentum
                tensors[f"optimizer.{index}.{slot}"] = value
    return tensors


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state that :func:`optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, slot = name.split(".")
            state.setdefault(int(index), {})[slot] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _restore_random_streams(
    training: Training, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors and training.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["rng.cuda"], training.device)
    training.order.remaining = tensors["left"].numpy()
    training.order.rng.bit_generator.state = values["order"]
    training.bench.dropouts.restore(values["dropout"])


def _pack_result(result: RungResult) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a result's plain values, and its per-query scores as one tensor (scores, queries) per point.

    Points are ordered like ``keys``, and the rows of each tensor like ``scores``.
    """
    scores_by_key = {**result.points, **result.labeled, **result.tasks}
    first_scores = next(iter(scores_by_key.values()))
    values = {name: getattr(result, name) for name in _RESULT_VALUES}
    values["keys"] = list(scores_by_key)
    values["scores"] = list(first_scores.named)
    if result.calibration is not None:
        values["calibration"] = asdict(result.calibration)
    if result.measures:
        values["measures"] = [measure_values(measure) for measure in result.measures]
    if result.watched is not None:
        values["watched"] = result.watched.to_json()
    tensors = {}
    for index, scores in enumerate(scores_by_key.values()):
        rows = [scores[name] for name in values["scores"]]
        tensors[f"last.{index}"] = torch.from_numpy(np.stack(rows))
    return values, tensors


def write(
    place: str | Path | Folder,
    number: int,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Any],
) -> None:
    """Write checkpoint ``number`` atomically to the folder ``place``; numbers must increase.

    Earlier checkpoints are deleted after the new one has been verified and stored.

    Raises:
        OSError: If the checkpoint cannot be written or is damaged when read back.
    """
    from safetensors.torch import save_file

    folder = as_folder(place)
    name = f"{number:09d}"
    temporary = folder.path / f".{uuid.uuid4().hex[:8]}"
    temporary.mkdir(parents=True)
    try:
        plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(plain, temporary / "tensors")
        text = json.dumps({"schema": SCHEMA, "checksum": _checksum(plain), **values})
        (temporary / "values.json").write_text(text, encoding="utf-8")
        flush(temporary)
        try:
            _read_files(temporary)
        except ValueError as error:
            raise OSError(
                f"{folder.location}: checkpoint {name} is damaged after writing: {error}"
            ) from None
        if (
            folder.path / name
        ).exists():  # left by a process that was killed right after the rename below
            return
        temporary.rename(folder.path / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    folder.store(name)
    for other in folder.names():
        if other < name:  # a process that took over the trial may have written a newer one
            folder.remove(other)
    folder.let_go(name)


def read(place: str | Path | Folder) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return the latest checkpoint in the folder ``place``, or None if it is missing or has a different schema.

    Damaged checkpoints are renamed, with a warning.

    Raises:
        OSError: If a checkpoint cannot be read. A later attempt may succeed.
    """
    folder = as_folder(place)
    try:
        fetched = folder.fetch()
    except FileNotFoundError:  # the trial's previous process has just written a newer one
        return read(folder)
    complete = [path for path in fetched.glob("[0-9]*") if (path / "values.json").is_file()]
    for path in sorted(complete, reverse=True):
        try:
            tensors, values = _read_files(path)
        except FileNotFoundError:
            if not path.exists():  # the trial's previous process has just written a newer one
                return read(folder)
            _set_aside(folder, path, "a file is missing")
        except ValueError as error:
            _set_aside(folder, path, str(error))
        else:
            folder.let_go("")
            return (tensors, values) if values["schema"] == SCHEMA else None
    return None


def _read_files(place: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a checkpoint's tensors and values.

    Raises:
        ValueError: If the checkpoint is damaged.
        OSError: If it cannot be read.
    """
    from safetensors.torch import load_file

    try:
        values = json.loads((place / "values.json").read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("values.json is nested too deeply") from None
    if not isinstance(values, dict) or "schema" not in values:
        raise ValueError("values.json does not contain the values of a checkpoint")
    try:
        tensors = load_file(place / "tensors")
    except SafetensorError as error:
        raise ValueError(error) from None
    if values.pop("checksum", None) != _checksum(tensors):
        raise ValueError("the checksum of its tensors does not match")
    return tensors, values


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """Return the CRC-32 of the names and bytes of CPU tensors."""
    checksum = 0
    for name in sorted(tensors):
        checksum = zlib.crc32(name.encode(), checksum)
        flat = tensors[name].reshape(-1)
        if len(flat):  # torch cannot view an empty tensor as bytes
            checksum = zlib.crc32(flat.view(torch.uint8).numpy().data, checksum)
    return checksum


def _set_aside(folder: Folder, place: Path, problem: str) -> None:
    """Rename a damaged checkpoint and warn about it."""
    aside = place.with_name(f"damaged-{place.name}-{uuid.uuid4().hex[:8]}")
    warnings.warn(
        f"{folder.location}/{place.name}: damaged checkpoint ({problem}); the trial resumes from an earlier one, if any",
        stacklevel=3,
    )
    place.rename(aside)
    folder.store(aside.name)
    folder.remove(place.name)
