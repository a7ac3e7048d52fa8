"""Conditional search spaces: which values each parameter of a trial may take.

A parameter is a plain value (fixed), a range ``{low, high, log}``, or ``{choices: ...}``. Choices are a list, or a mapping
from each choice to further parameters that exist only under it::

    loss:
      choices:
        triplet: {margin: {low: 0.01, high: 1.0, log: true}}
        multiple_negatives: {scale: {choices: [10, 20, 40]}}
    learning_rate: {low: 1.0e-6, high: 2.0e-4, log: true}

Under a choice, parameters are called ``choice.parameter`` towards the sampler (``triplet.margin``), so that every name has
one distribution, as Optuna asks.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from raysweep.config import LOSS_PARAMETERS, SweepConfig, TrialConfig, trial_config
from raysweep.document import Document, KeyPath, unknown_key
from raysweep.errors import InputError
from raysweep.losses import LOSSES

Scalar = bool | int | float | str


class Suggester(Protocol):
    """The part of ``optuna.Trial`` that a space needs."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...
    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int: ...
    def suggest_categorical(self, name: str, choices: Any) -> Any: ...


@dataclass(frozen=True)
class Fixed:
    value: Scalar | None


@dataclass(frozen=True)
class Range:
    low: float
    high: float
    log: bool
    integer: bool


@dataclass(frozen=True)
class Choices:
    options: Mapping[Scalar, "Parameters"]  # each choice with the parameters that exist only under it


Parameter = Fixed | Range | Choices
Parameters = Mapping[str, Parameter]


@dataclass(frozen=True)
class Space:
    """A parsed, checked space."""

    parameters: Parameters

    def sample(self, suggest: Suggester) -> TrialConfig:
        """Draw one configuration; ``suggest`` is an ``optuna.Trial`` or anything with its three methods."""
        return trial_config(dict(_draw(self.parameters, suggest, "")))

    def grid(self) -> list[dict[str, Scalar]]:
        """Every combination, as sampler parameters to enqueue. InputError names the first range: a grid has none."""
        return list(_combinations(self.parameters, ""))

    def describe(self) -> list[str]:
        """One line a parameter, for people; indented where it exists only under a choice."""
        return list(_describe(self.parameters, ""))

    def values(self, name: str) -> list[Any]:
        """Every value that a parameter may take; the two ends of a range."""
        return _values(self.parameters, name)


def _describe(parameters: Parameters, indent: str) -> Iterator[str]:
    for name, parameter in parameters.items():
        if isinstance(parameter, Fixed):
            yield f"{indent}{name}: {parameter.value}"
        elif isinstance(parameter, Range):
            yield f"{indent}{name}: {parameter.low:g} to {parameter.high:g}{' (log)' if parameter.log else ''}"
        elif not any(parameter.options.values()):
            yield f"{indent}{name}: {', '.join(str(option) for option in parameter.options)}"
        else:
            yield f"{indent}{name}:"
            for option, children in parameter.options.items():
                yield f"{indent}  {option}"
                yield from _describe(children, indent + "    ")


def _draw(parameters: Parameters, suggest: Suggester, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, parameter in parameters.items():
        if isinstance(parameter, Fixed):
            yield name, parameter.value
        elif isinstance(parameter, Choices):
            value = suggest.suggest_categorical(prefix + name, list(parameter.options))
            yield name, value
            yield from _draw(parameter.options[value], suggest, f"{value}.")
        elif parameter.integer:
            yield name, suggest.suggest_int(prefix + name, int(parameter.low), int(parameter.high), log=parameter.log)
        else:
            yield name, suggest.suggest_float(prefix + name, parameter.low, parameter.high, log=parameter.log)


def _combinations(parameters: Parameters, prefix: str) -> Iterator[dict[str, Scalar]]:
    axes: list[list[dict[str, Scalar]]] = []
    for name, parameter in parameters.items():
        if isinstance(parameter, Range):
            raise InputError(f"space: {prefix}{name} is a range; the grid sampler needs choices")
        if isinstance(parameter, Choices):
            axes.append(
                [
                    {prefix + name: value, **below}
                    for value, children in parameter.options.items()
                    for below in _combinations(children, f"{value}.")
                ]
            )
    for combination in itertools.product(*axes):
        yield {name: value for part in combination for name, value in part.items()}


def _values(parameters: Parameters, name: str) -> list[Any]:
    found: list[Any] = []
    for key, parameter in parameters.items():
        if key == name:
            if isinstance(parameter, Fixed):
                found.append(parameter.value)
            elif isinstance(parameter, Range):
                found += [parameter.low, parameter.high]
            else:
                found += list(parameter.options)
        if isinstance(parameter, Choices):
            for children in parameter.options.values():
                found += _values(children, name)
    return list(dict.fromkeys(found))


def parse(document: Document, config: SweepConfig) -> Space:
    """Read and check the space of a sweep.

    Every value of every parameter is checked against what a trial may be told, and every loss against the parameters it
    has. InputError names file, line, key, value and what is allowed.
    """
    parameters = _parameters(document, ("space",), config.space)
    for required in ("loss", "learning_rate"):
        if required not in config.space and not _values(parameters, required):
            raise document.error(("space",), f"{required} is required")
    for loss in _values(parameters, "loss"):
        if loss not in LOSSES:
            raise document.error(("space", "loss"), f"{loss!r} is no loss; allowed: {', '.join(LOSSES)}")
    _check_losses(document, parameters, config.space)
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
    try:
        value = adapter.validate_python(value, strict=True)
        probe: dict[str, Any] = {"loss": "triplet", "margin": 0.1, "learning_rate": 1e-5}
        if name not in LOSS_PARAMETERS and name != "loss":
            TrialConfig.model_validate({**probe, name: value})
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ").replace("Input should", "should")
        raise document.error(path, f"{message[0].lower()}{message[1:]}, not {value!r}") from None
    return value


def _check_losses(document: Document, parameters: Parameters, raw: Mapping[str, Any]) -> None:
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
            for value in _values(children if inside else parameters, key) if key in allowed else []:
                try:
                    allowed[key].check(key, value)
                except InputError as error:
                    raise document.error(path, f"{error} under the loss {name}") from None


def _check_budgets(document: Document, config: SweepConfig, space: Space) -> None:
    """Trials are compared at equal numbers of examples seen, so every trial must be evaluated exactly there."""
    sizes = space.values("examples_per_rung") or [TrialConfig.model_fields["examples_per_rung"].default]
    batch = max(space.values("batch_size") or [TrialConfig.model_fields["batch_size"].default])
    first = config.early_stopping.first_examples
    for size in sizes:
        if size < batch:
            raise document.error(("space", "examples_per_rung"), f"{size} is less than one batch of {batch}")
        if config.early_stopping.policy == "asha" and first % size:
            raise document.error(
                ("early_stopping", "first_examples"),
                f"{first} is no multiple of examples_per_rung {size}, so trials could not be compared at equal budgets",
            )
