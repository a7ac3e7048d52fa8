"""Settings of sweeps over a sequence of data sets: which are fixed, and which are not allowed."""

from collections.abc import Iterator
from typing import Any

from raysweep.config.document import Document, KeyPath
from raysweep.config.losses import SEQUENCE_LOSSES, find_loss
from raysweep.config.space import Space, names_of
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import SEQUENCE_PARAMETERS


def adapt_to_sequence(document: Document, config: SweepConfig, space: Space) -> SweepConfig:
    """Return the settings of a sweep over ``data.sequence``: one rung per data set, and no early stopping.

    Other settings are unchanged.

    Raises:
        InputError: If a setting does not suit the sequence, or if a loss needs a sequence that is missing.
    """
    if not config.data.sequence:
        for loss in space.values("loss"):
            if loss in SEQUENCE_LOSSES:
                raise document.error(
                    ("space", "loss"), f"is {loss}; allowed without data.sequence: other losses"
                )
        return config
    for path, value, allowed in (
        *_find_unsuitable(config),
        *_find_unsuitable_rungs(config),
        *_find_unsuitable_in_space(space),
    ):
        raise document.error(path, f"is {value}; allowed with data.sequence: {allowed}")
    early_stopping = config.early_stopping.model_copy(update={"policy": "none"})
    budget = config.budget.model_copy(update={"rungs": len(config.data.sequence)})
    return config.model_copy(update={"early_stopping": early_stopping, "budget": budget})


def _find_unsuitable_rungs(config: SweepConfig) -> Iterator[tuple[KeyPath, object, str]]:
    """Yield settings that contradict one rung for each data set without early stopping."""
    policy = config.early_stopping.policy
    if policy != "none" and "policy" in config.early_stopping.model_fields_set:
        yield ("early_stopping", "policy"), policy, "none"
    num_tasks = len(config.data.sequence)
    rungs = config.budget.rungs
    if rungs != num_tasks and "rungs" in config.budget.model_fields_set:
        yield ("budget", "rungs"), rungs, f"{num_tasks}, one for each data set"
    if config.budget.examples_per_trial is not None:
        yield ("budget", "examples_per_trial"), config.budget.examples_per_trial, "null"


def _find_unsuitable(config: SweepConfig) -> Iterator[tuple[KeyPath, object, str]]:
    """Yield settings that do not suit a sequence, with their values and what is allowed."""
    if config.data.kind not in (None, "labeled"):
        yield ("data", "kind"), config.data.kind, "labeled"
    if config.resources.gpus_per_trial == "measured":
        yield ("resources", "gpus_per_trial"), "measured", "a number"
    if config.guards:
        yield ("guards",), ", ".join(config.guards), "{}"
    for path in (
        ("reference",),
        ("teacher",),
        ("watch",),
        ("baselines", "setfit"),
        ("baselines", "published"),
    ):
        value: Any = config
        for name in path:
            value = getattr(value, name)
        if value is not None:
            yield path, "given", "null"
    for name in ("interpolate", "truncate", "labeled"):
        values = getattr(config.evaluation.points, name)
        if values:
            yield ("evaluation", "points", name), values, "[]"


def _find_unsuitable_in_space(space: Space) -> Iterator[tuple[KeyPath, object, str]]:
    for loss in space.values("loss"):
        if loss not in SEQUENCE_LOSSES:
            yield ("space", "loss"), loss, ", ".join(SEQUENCE_LOSSES)
        own = ("loss", *find_loss(loss).parameters, *SEQUENCE_PARAMETERS)
        for name in names_of(space.parameters):
            if name not in own:
                yield ("space", name), "given", f"only {', '.join(own)}"
