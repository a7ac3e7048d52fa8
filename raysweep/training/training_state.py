"""Contents of a checkpoint: the complete state of training, from which a trial resumes as if never interrupted."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raysweep.errors import InputError
from raysweep.evaluation.operating_points import LABELED, Head
from raysweep.metrics.retrieval import Scores
from raysweep.results.types import Calibration, PointKey
from raysweep.storage.folder import Folder, as_folder
from raysweep.training import checkpoint
from raysweep.training.progress import Progress
from raysweep.training.trainer import Training
from raysweep.training.validation import IdleRule
from raysweep.training.workbench import RungResult

_RESULT_VALUES = ("step", "examples_seen", "loss", "seconds", "train_seconds", "stop")


def save(training: Training, folder: str | Path | Folder, last: RungResult | None) -> None:
    """Write a checkpoint, including the last rung's result, which its reader may not have received yet."""
    weights, averages = _weights(training)
    tensors = {
        **{f"weight.{name}": value for name, value in weights.items()},
        **{f"average.{name}": value for name, value in averages.items()},
        **_optimizer_tensors(training.optimizer),
        "rng.cpu": torch.get_rng_state(),
        "total": training.loss_sum,
        "left": torch.from_numpy(training.order.remaining),
    }
    if training.device.type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state(training.device)
    values: dict[str, Any] = {
        **asdict(training.progress),
        **_identity(training),
        "precision": training.precision,
        "spent_before": training.seconds,
        "order": training.order.rng.bit_generator.state,
        "dropout": training.bench.dropouts.state(),
        "idle": None if training.idle is None else asdict(training.idle),
    }
    if training.average is not None:
        values["averaged_steps"] = training.average.num_steps
    if last is not None:
        values["last"] = _result_values(last)
        tensors |= _result_tensors(last)
    checkpoint.save(folder, training.progress.seen, tensors, values)


def restore(training: Training, folder: str | Path | Folder) -> RungResult | None:
    """Load the latest checkpoint of ``folder`` into a new training and return the last rung's result, if any.

    Without a checkpoint, nothing changes.

    Raises:
        InputError: If the checkpoint has another configuration, seed or number of rungs.
    """
    found = checkpoint.load(folder)
    if found is None:
        return None
    tensors, values = found
    differs = any(values[name] != value for name, value in _identity(training).items())
    if differs:
        raise InputError(
            f"{as_folder(folder).location}: the checkpoint there is of another configuration, seed or number of rungs; give "
            "a new folder"
        )
    with torch.no_grad():
        for name, parameter in training.parameters.items():
            parameter.copy_(tensors[f"weight.{name}"])
            if training.average is not None:
                training.average.tensors[name].copy_(tensors[f"average.{name}"])
        training.loss_sum.copy_(tensors["total"])
    _restore_optimizer(training.optimizer, tensors)
    _restore_random_streams(training, tensors, values)
    progress = {field.name: values[field.name] for field in fields(Progress)}
    training.progress = Progress(**progress)
    training.began -= values["spent_before"]
    training.set_precision(values["precision"])
    if training.idle is not None:
        training.idle = IdleRule(**values["idle"])
    if training.average is not None:
        training.average.num_steps = values["averaged_steps"]
        training.show_average(shown=training.progress.seen_in_rung == 0)
    if "last" not in values:
        return None
    last = _last_result(values["last"], tensors)
    training.bench.head = _head_of(last, training.head())
    return last


def _weights(training: Training) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """Return the weights in training and their averages (empty without an average), whichever the model shows."""
    if training.average is None:
        return training.parameters, {}
    if training.average.is_shown:
        return training.average.tensors, training.parameters
    return training.parameters, training.average.tensors


def _head_of(last: RungResult, head: Head | None) -> Head | None:
    """Return the head that gave the last rung's result: the checkpoint's weights, at the temperature of the result."""
    if head is None or last.calibration is None:
        return head
    return head.at_temperature(last.calibration.temperature)


def _identity(training: Training) -> dict[str, Any]:
    """Return the values that a checkpoint and the trial that resumes from it must share."""
    return {
        "config": training.config.identity,
        "seed": training.seed,
        "num_rungs": training.num_rungs,
    }


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter and slot, such as ``optimizer.0.exp_avg``."""
    tensors: dict[str, Tensor] = {}
    for index, slots in optimizer.state_dict()["state"].items():
        for slot, value in slots.items():
            if value is not None:  # such as the buffer of sgd without momentum
                tensors[f"optimizer.{index}.{slot}"] = value
    return tensors


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, slot = name.split(".")
            state.setdefault(int(index), {})[slot] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _restore_random_streams(training: Training, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Restore torch's random streams, the order of examples and the dropout masks."""
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors and training.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["rng.cuda"], training.device)
    training.order.remaining = tensors["left"].numpy()
    training.order.rng.bit_generator.state = values["order"]
    training.bench.dropouts.restore(values["dropout"])


def _result_values(result: RungResult) -> dict[str, Any]:
    values = {name: getattr(result, name) for name in _RESULT_VALUES}
    values["keys"] = [*result.points, *result.labeled]
    if result.calibration is not None:
        values["calibration"] = asdict(result.calibration)
    return values


def _result_tensors(result: RungResult) -> dict[str, Tensor]:
    """Return the per-query scores of each point, in the order of the result's keys.

    Each is (3, queries), or (2, queries) without accuracy.
    """
    tensors = {}
    for index, scores in enumerate([*result.points.values(), *result.labeled.values()]):
        known = [scores.polarity, scores.similarity]
        if scores.accuracy is not None:
            known.append(scores.accuracy)
        stacked = np.stack(known)
        tensors[f"last.{index}"] = torch.from_numpy(stacked)
    return tensors


def _last_result(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> RungResult:
    points: dict[PointKey, Scores] = {}
    labeled: dict[PointKey, Scores] = {}
    for index, (kind, value) in enumerate(values["keys"]):
        scores = labeled if kind == LABELED else points
        scores[kind, value] = Scores(*tensors[f"last.{index}"].numpy())
    plain = {name: values[name] for name in _RESULT_VALUES}
    calibration = values.get("calibration")
    return RungResult(
        **plain,
        points=points,
        labeled=labeled,
        calibration=None if calibration is None else Calibration(**calibration),
    )
