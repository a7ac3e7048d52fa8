"""Reading the space of a sweep's file: every value checked against what a trial may be told, before anything runs."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raysweep.config.document import Document, KeyPath, unknown_key
from raysweep.config.losses import LOSSES
from raysweep.config.space import Choices, Fixed, Parameter, Parameters, Range, Scalar, Space, branches, find, values_of
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import LOSS_PARAMETERS, TrialConfig, trial_config
from raysweep.errors import InputError


def parse(document: Document, config: SweepConfig) -> Space:
    """Read and check the space of a sweep.

    Every value of every parameter is checked against what a trial may be told, and every loss against the parameters it
    has. InputError names file, line, key, value and what is allowed.
    """
    parameters = _parameters(document, ("space",), config.space)
    if "loss" not in parameters:
        raise document.error(("space",), "loss is required, on the top level")
    for loss in values_of(parameters, "loss"):
        if loss not in LOSSES:
            raise document.error(("space", "loss"), f"{loss!r} is no loss; allowed: {', '.join(LOSSES)}")
    _check_losses(document, parameters)
    for values in branches(parameters):
        if values.get("learning_rate") is None:
            raise document.error(("space",), f"learning_rate is required, also where {values}")
        try:
            trial_config(values)
        except InputError as error:
            raise document.error(("space",), str(error)) from None
    space = Space(parameters)
    if config.sampler == "grid":
        space.grid()
    _check_budgets(document, config, space)
    return space


def _parameters(document: Document, path: KeyPath, values: Mapping[str, Any]) -> Parameters:
    return {str(name): _parameter(document, (*path, str(name)), str(name), value) for name, value in values.items()}


def _parameter(document: Document, path: KeyPath, name: str, value: Any) -> Parameter:
    if name not in TrialConfig.model_fields:
        raise document.error(path, unknown_key(name, TrialConfig.model_fields))
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise document.error(path, f"a list of choices is written {{choices: {value}}}")
        return Fixed(_checked(document, path, name, value))
    if "choices" in value:
        _only(document, path, value, ("choices",))
        return _choices(document, (*path, "choices"), name, value["choices"])
    _only(document, path, value, ("low", "high", "log"))
    for end in ("low", "high"):
        if not isinstance(value.get(end), int | float) or isinstance(value[end], bool):
            raise document.error(path, f"a range needs a number {end}, not {value.get(end)!r}")
    low, high, log = value["low"], value["high"], value.get("log", False)
    if not isinstance(log, bool):
        raise document.error((*path, "log"), f"must be true or false, not {log!r}")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise document.error(path, f"low must be below high, not low {low} and high {high}")
    if log and low <= 0:
        raise document.error((*path, "low"), f"a log range must begin above 0, not at {low}")
    for end in ("low", "high"):
        _checked(document, (*path, end), name, value[end])
    integer = isinstance(low, int) and isinstance(high, int) and "int" in str(TrialConfig.model_fields[name].annotation)
    return Range(low, high, log, integer)


def _choices(document: Document, path: KeyPath, name: str, value: Any) -> Choices:
    if not isinstance(value, dict | list) or not value:
        raise document.error(path, f"must be a list of values or a mapping of values to parameters, not {value!r}")
    if isinstance(value, list):
        options = [_checked(document, (*path, index), name, option) for index, option in enumerate(value)]
        if len(set(options)) < len(options):
            raise document.error(path, f"a choice stands twice in {value}")
        return Choices({option: {} for option in options})
    children: dict[Scalar, Parameters] = {}
    for option, below in value.items():
        if below is not None and not isinstance(below, dict):
            raise document.error((*path, option), f"must hold the parameters under this choice, or {{}}, not {below!r}")
        children[_checked(document, (*path, option), name, option)] = _parameters(
            document, (*path, option), below or {}
        )
    return Choices(children)


def _only(document: Document, path: KeyPath, value: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in value:
        if key not in allowed:
            raise document.error((*path, key), unknown_key(key, allowed))


def _checked(document: Document, path: KeyPath, name: str, value: Any) -> Any:
    """The value, if a trial may have it under this name on its own; how parameters fit together is checked later."""
    field = TrialConfig.model_fields[name]
    annotation: Any = field.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    if value is None and name in LOSS_PARAMETERS:
        raise document.error(path, "must be a number, not null")
    try:
        value = adapter.validate_python(value, strict=True)
        probe: dict[str, Any] = {"loss": "triplet", "margin": 0.1, "learning_rate": 1e-5}
        if name not in LOSS_PARAMETERS and name != "loss":
            TrialConfig.model_validate({**probe, **_beside(name, value), name: value})
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ").replace("Input should", "should")
        shown = "" if first["type"] == "value_error" else f", not {value!r}"  # our own messages name the value
        raise document.error(path, f"{message[0].lower()}{message[1:]}{shown}") from None
    return value


def _beside(name: str, value: Any) -> dict[str, Any]:
    """What must stand beside a parameter that goes with others only."""
    if name == "decay":
        return {"schedule": "exponential"}
    if name == "momentum":
        return {"optimizer": "sgd"}
    return {"decay": 0.95} if (name, value) == ("schedule", "exponential") else {}


def _check_losses(document: Document, parameters: Parameters) -> None:
    """A loss's parameter exists only under that loss; and lies in that loss's range."""
    loss = parameters["loss"]
    branches: Mapping[Scalar, Parameters] = (
        loss.options
        if isinstance(loss, Choices)
        else {loss.value: {}}
        if isinstance(loss, Fixed) and loss.value
        else {}
    )
    for name, children in branches.items():
        allowed = LOSSES[str(name)].parameters
        shared = {key: parameter for key, parameter in parameters.items() if key in LOSS_PARAMETERS}
        for key in {**shared, **children}:
            inside = key in children
            path: KeyPath = ("space", "loss", "choices", str(name), key) if inside else ("space", key)
            if key in LOSS_PARAMETERS and key not in allowed:
                takers = ", ".join(other for other, entry in LOSSES.items() if key in entry.parameters)
                raise document.error(path, f"the loss {name} has no {key}; losses that have one: {takers}")
            for value in values_of(children if inside else parameters, key) if key in allowed else []:
                try:
                    allowed[key].check(key, value)
                except InputError as error:
                    raise document.error(path, f"{error} under the loss {name}") from None


def _check_budgets(document: Document, config: SweepConfig, space: Space) -> None:
    """Trials are compared at equal numbers of examples seen, so every trial must be evaluated exactly there."""

    def values(name: str) -> list[Any]:
        """What a trial may have: also the default, unless every branch gives a value."""
        default = [] if name in space.parameters else [TrialConfig.model_fields[name].default]
        return [*space.values(name), *default]

    sizes, batch = values("examples_per_rung"), max(values("batch_size"))
    first, total = config.early_stopping.first_examples, config.budget.examples_per_trial
    if any(isinstance(parameter, Range) for parameter in find(space.parameters, "examples_per_rung")):
        raise document.error(("space", "examples_per_rung"), "must be a value or choices: a range meets no milestone")
    for size in sizes:
        if total is not None and total % size:
            raise document.error(
                ("budget", "examples_per_trial"),
                f"{total} is no multiple of examples_per_rung {size}, so trials would differ",
            )
        if size < batch:
            raise document.error(("space", "examples_per_rung"), f"{size} is less than one batch of {batch}")
        if config.early_stopping.policy in ("asha", "pareto") and first % size:
            raise document.error(
                ("early_stopping", "first_examples"),
                f"{first} is no multiple of examples_per_rung {size}, so trials could not be compared at equal budgets",
            )
