"""Parsing and validation of search spaces."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from raysweep.config import loss_spec, matryoshka
from raysweep.config.adapter import PARAMETERS as ADAPTER_PARAMETERS
from raysweep.config.document import CHOICES, Document, KeyPath, unknown_key
from raysweep.config.losses import ALL_LOSSES, TEACHER, find_loss
from raysweep.config.space import (
    Choices,
    Fixed,
    Parameter,
    Parameters,
    Range,
    Scalar,
    Space,
    branches,
    find,
    names_of,
    values_of,
)
from raysweep.config.strict import explain, shown
from raysweep.config.sweep import HALVING, SweepConfig
from raysweep.config.trial import (
    OFF,
    SHARED_PARAMETERS,
    TrialConfig,
    find_checked_loss,
    trial_config,
)
from raysweep.errors import InputError


def parse(document: Document, config: SweepConfig) -> Space:
    """Parse and validate a sweep's space.

    Raises:
        InputError: If a value is invalid. The message names the file, line, key, value and allowed values.
    """
    parameters = _Reader(document, _own_parameters(document, config.space)).parameters(
        ("space",), config.space
    )
    _check_places(document, ("space",), parameters)
    if "loss" not in parameters:
        raise document.error(("space",), "loss is missing; it is required at the top level")
    _check_losses(document, parameters)
    _check_freezing_with_adapter(document, parameters)
    _check_groups(document, parameters)
    _check_tower(document, config, parameters)
    for values in branches(parameters, ("tower",)):
        if values.get("learning_rate") is None:
            conditions = [f"{name} is {value}" for name, value in values.items()]
            raise document.error(("space",), f"learning_rate is missing if {', '.join(conditions)}")
        try:
            trial_config(values)
        except InputError as error:
            name, _, problem = str(error).partition(" ")
            if name in parameters and problem.startswith("is "):
                raise document.error(("space", name), problem) from None
            raise document.error(("space",), str(error)) from None
    space = Space(parameters)
    if config.sampler == "grid":
        _check_grid(document, ("space",), parameters)
    _check_budgets(document, config, space)
    if has_teacher(space) and config.teacher is None:
        problem = "is missing; trials with targets: teacher require it; allowed: the folder of a run with the softmax loss"
        raise document.error(("teacher",), problem)
    return space


def _check_places(
    document: Document,
    path: KeyPath,
    parameters: Parameters,
    elsewhere: frozenset[str] = frozenset(),
) -> None:
    """Raise if a parameter under a choice is also set outside it, because it would have two values.

    ``elsewhere`` contains the parameters that are set outside of ``parameters``.
    """
    others = elsewhere | parameters.keys()
    for name, parameter in parameters.items():
        if not isinstance(parameter, Choices):
            continue
        for option, children in parameter.options.items():
            place = (*path, name, "choices", str(option))
            for child in sorted(others & children.keys()):
                problem = "is also set outside this choice; allowed: once, or once per choice"
                raise document.error((*place, child), problem)
            _check_places(document, place, children, others)
        others |= frozenset(names_of({name: parameter}))


def _check_grid(document: Document, path: KeyPath, parameters: Parameters) -> None:
    """Raise if a parameter is a range, since a grid requires choices."""
    for name, parameter in parameters.items():
        if isinstance(parameter, Range):
            problem = f"is the range {parameter}; allowed with the sampler grid: a value or choices"
            raise document.error((*path, name), problem)
        if isinstance(parameter, Choices):
            for option, children in parameter.options.items():
                place = (*path, name, "choices", str(option))
                _check_grid(document, place, children)


def _own_parameters(document: Document, space: Mapping[str, Any]) -> dict[str, loss_spec.Parameter]:
    """Return the specifications of loss-specific parameters; those of the space's losses take precedence.

    Raises:
        InputError: If a loss in the space is unknown or invalid.
    """
    value = space.get("loss")
    choices = value.get(CHOICES) if isinstance(value, dict) else [value]
    losses = (
        [loss for loss in choices if isinstance(loss, str)]
        if isinstance(choices, list | dict)
        else []
    )
    parameters: dict[str, loss_spec.Parameter] = {}
    for loss in losses:
        try:
            specification = find_checked_loss(loss)
        except InputError as error:
            raise document.error(("space", "loss"), str(error).removeprefix("loss ")) from None
        parameters = {**specification.parameters, **parameters}
    for specification in ALL_LOSSES.values():
        parameters = {**specification.parameters, **parameters}
    return parameters


@dataclass(frozen=True)
class _Reader:
    """Reader for a space's parameters; ``own`` contains the loss-specific parameters."""

    document: Document
    own: Mapping[str, loss_spec.Parameter]

    def parameters(self, path: KeyPath, values: Mapping[str, Any]) -> Parameters:
        parameters = {}
        for key, value in values.items():
            name = str(key)
            parameters[name] = self._parameter((*path, name), name, value)
        return parameters

    def _parameter(self, path: KeyPath, name: str, value: Any) -> Parameter:
        if name not in SHARED_PARAMETERS and name not in self.own:
            raise self.document.error(path, unknown_key(name, (*SHARED_PARAMETERS, *self.own)))
        if isinstance(value, list):
            problem = f"is a list; allowed: a value, a range {{low, high, log}}, or choices: {{choices: {value}}}"
            raise self.document.error(path, problem)
        if not isinstance(value, dict):
            return Fixed(self._checked(path, name, value))
        if list(value.values()) == [None]:  # caused by a colon after a value, as in `triplet:`
            problem = f"is a mapping with the key {next(iter(value))!r} and no value"
            raise self.document.error(
                path,
                f"{problem}; allowed: a value, a range {{low, high, log}}, or {{choices: ...}}",
            )
        if CHOICES in value:
            _only(self.document, path, value, (CHOICES,))
            return self._choices((*path, CHOICES), name, value[CHOICES])
        return self._range(path, name, value)

    def _range(self, path: KeyPath, name: str, value: dict[str, Any]) -> Range:
        document = self.document
        _only(document, path, value, ("low", "high", "log"))
        low = _end(document, path, value, "low")
        high = _end(document, path, value, "high")
        log = value.get("log", False)
        if not isinstance(log, bool):
            raise document.error((*path, "log"), f"is {log!r}; allowed: true or false")
        if low >= high:
            raise document.error(path, f"is a range from {low} to {high}; allowed: low below high")
        if log and low <= 0:
            raise document.error((*path, "low"), f"is {low}; allowed: above 0 if log is true")
        low = self._checked((*path, "low"), name, low)
        high = self._checked((*path, "high"), name, high)
        if name in self.own:
            specification = self.own[name]
            is_integer = isinstance(specification, loss_spec.Number) and specification.is_integer
        else:
            is_integer = "int" in str(TrialConfig.model_fields[name].annotation)
        has_integer_ends = isinstance(low, int) and isinstance(high, int)
        return Range(low, high, log, is_integer and has_integer_ends)

    def _choices(self, path: KeyPath, name: str, value: Any) -> Choices:
        document = self.document
        if not isinstance(value, dict | list) or not value:
            raise document.error(
                path,
                f"is {value!r}; allowed: a list of values, or a mapping of values to parameters",
            )
        if isinstance(value, list):
            items = [self._checked((*path, index), name, item) for index, item in enumerate(value)]
            if len(set(items)) < len(items):
                raise document.error(path, f"is {value}; required: distinct values")
            return Choices({item: {} for item in items})
        options: dict[Scalar, Parameters] = {}
        for key, below in value.items():
            place = (*path, str(key))
            if not isinstance(below, dict | None):
                raise document.error(
                    place, f"is {below!r}; allowed: the parameters under this choice, or {{}}"
                )
            children = self.parameters(place, below or {})
            option = self._checked(place, name, key)
            options[option] = children
        return Choices(options)

    def _checked(self, path: KeyPath, name: str, value: Any) -> Any:
        """Return the value if it is valid for this parameter; combinations of parameters are checked later."""
        if name in self.own:
            return self._checked_type(path, name, value)
        field = TrialConfig.model_fields[name]
        annotation: Any = field.annotation
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        try:
            value = adapter.validate_python(value, strict=True)
            if name != "loss":
                required = (
                    {"decay": 0.95}
                    if (name, value) == ("schedule", "exponential")
                    else _REQUIRED.get(name, {})
                )
                TrialConfig.model_validate({**_PROBE, **required, name: value})
        except ValidationError as error:
            first = error.errors()[0]
            problem = explain(dict(first), (name,), TrialConfig)
            if name in _TEXTS and first["type"] != "value_error":
                problem = f"is {shown(value)}; allowed: {_TEXTS[name]}"
            raise self.document.error(path, problem) from None
        return value

    def _checked_type(self, path: KeyPath, name: str, value: Any) -> Any:
        """Return a loss-specific value if its type is valid; its range is checked later for each loss."""
        specification = self.own[name]
        if value is None:
            raise self.document.error(path, "is null; allowed: a value")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(specification, loss_spec.Number):
            if is_number and abs(value) <= sys.float_info.max:
                return value if specification.is_integer else float(value)
        elif isinstance(value, Scalar):
            return value
        raise self.document.error(path, f"is {value!r}; allowed: {specification.allowed}")


def _end(document: Document, path: KeyPath, value: dict[str, Any], name: str) -> int | float:
    end = value.get(name)
    if (
        isinstance(end, int | float)
        and not isinstance(end, bool)
        and abs(end) <= sys.float_info.max
    ):
        return end  # not NaN, infinity or an integer beyond the float range
    raise document.error(path, f"is a range with {name} {end!r}; allowed: a finite number")


def _only(
    document: Document, path: KeyPath, value: Mapping[str, Any], allowed: tuple[str, ...]
) -> None:
    for key in value:
        if key not in allowed:
            # caused by a decimal comma, as in 0,5
            is_fraction = key.isdecimal() and value[key] is None
            hint = "; write decimals with a point, as in 0.5" if is_fraction else ""
            raise document.error((*path, key), unknown_key(key, allowed) + hint)


_TEXTS = {
    "loss": f"{', '.join(ALL_LOSSES)}, or an import path, package.module:Class",
    "matryoshka": f"{' or '.join(matryoshka.FORMS)}, as text; on the command line, write one width as \"'192'\"",
}
"""Descriptions of the allowed values of string parameters."""


# a valid trial to which any parameter can be added
_PROBE = {
    "loss": "margin_mse",
    "learning_rate": 1e-5,
}


_REQUIRED: dict[str, dict[str, Any]] = {
    "decay": {"schedule": "exponential"},
    "momentum": {"optimizer": "sgd"},
    **{name: {"adapter": "lora"} for name in ADAPTER_PARAMETERS},
}
"""Values of other parameters that a parameter requires."""


def _check_losses(document: Document, parameters: Parameters) -> None:
    """Raise if a loss has another loss's parameter or an out-of-range value.

    Another loss's parameter is allowed if its value has no effect.
    """
    losses = parameters["loss"]
    for loss in values_of(parameters, "loss"):
        children = losses.options[loss] if isinstance(losses, Choices) else {}
        for name, parameter in {**parameters, **children}.items():
            if name in SHARED_PARAMETERS:
                continue
            place = ("space", "loss", CHOICES, loss) if name in children else ("space",)
            values = values_of({name: parameter}, name)
            _check_loss_parameter(document, (*place, name), loss, values)


def _check_freezing_with_adapter(document: Document, parameters: Parameters) -> None:
    """Raise if a trial can have both a LoRA adapter, which freezes all weights, and a freezing level."""
    for branch in branches(parameters):
        if branch.get("adapter") != "lora":
            continue
        for name, off in (("freezing", "none"), ("freeze_output_dense", False)):
            values = values_of(parameters, name) if name in branch else []
            for value in values:
                if value != off:
                    problem = f"is {value}, but the adapter lora freezes all weights; allowed: {off}, or {name} under"
                    raise document.error(("space", name), f"{problem} space.adapter.choices.none")


def _check_groups(document: Document, parameters: Parameters) -> None:
    """Raise if ``examples_per_class`` can exceed half the batch size, since a batch could then have a single class."""
    for branch in branches(parameters, ("batch_size", "examples_per_class")):
        loss = branch["loss"]
        specification = find_loss(loss).parameters.get("examples_per_class")
        if specification is None:
            continue
        group: Any = branch.get("examples_per_class", specification.default)
        batch: Any = branch.get("batch_size", TrialConfig.model_fields["batch_size"].default)
        if 2 * group <= batch:
            continue
        why = f"so that every batch of the loss {loss} has several classes"
        if "examples_per_class" not in branch or document.is_overridden(("space", "batch_size")):
            problem = f"is {batch}; allowed: at least twice examples_per_class ({group}), {why}"
            raise document.error(("space", "batch_size"), problem)
        place = (
            ("space",) if "examples_per_class" in parameters else ("space", "loss", CHOICES, loss)
        )
        problem = f"is {group}; allowed: at most half of batch_size ({batch}), {why}"
        raise document.error((*place, "examples_per_class"), problem)


def _check_tower(document: Document, config: SweepConfig, parameters: Parameters) -> None:
    """Raise if trials can have the tower ``query`` but the reference differs from the model."""
    if "query" not in values_of(parameters, "tower"):
        return
    ignored = {"prompt", "precision"}
    reference, model = (
        encoder.model_dump(exclude=ignored) for encoder in (config.reference_encoder, config.model)
    )
    if reference != model:
        allowed = "allowed with space.tower query: the model itself, possibly with another prompt"
        raise document.error(("reference",), f"is {reference['name']!r}; {allowed}")


def _check_loss_parameter(document: Document, path: KeyPath, loss: str, values: list[Any]) -> None:
    name = str(path[-1])
    parameters = find_loss(loss).parameters
    if name not in parameters:
        if name in OFF and all(value == OFF[name] for value in values):
            return
        losses = ", ".join(other for other in ALL_LOSSES if name in ALL_LOSSES[other].parameters)
        raise document.error(
            path, f"the loss {loss} has no {name}; losses with this parameter: {losses}"
        )
    for value in values:
        try:
            parameters[name].check(name, value)
        except InputError as error:
            raise document.error(path, f"{error} for the loss {loss}") from None


def _check_budgets(document: Document, config: SweepConfig, space: Space) -> None:
    """Check that all trials are evaluated after the same numbers of examples."""
    path = ("space", "examples_per_rung")
    parameters = find(space.parameters, "examples_per_rung")
    if any(isinstance(parameter, Range) for parameter in parameters):
        problem = "is a range; allowed: a value or choices, so that trials can be compared at equal budgets"
        raise document.error(path, problem)
    total = config.budget.examples_per_trial
    first = config.early_stopping.first_examples
    for size in possible_values(space, "examples_per_rung"):
        allowed = f"allowed: a multiple of examples_per_rung ({size}), so that trials are compared at equal budgets"
        if total is not None and total % size:
            raise document.error(("budget", "examples_per_trial"), f"is {total}; {allowed}")
        if config.early_stopping.policy in HALVING and first % size:
            raise document.error(("early_stopping", "first_examples"), f"is {first}; {allowed}")


def possible_values(space: Space, name: str) -> list[Any]:
    """Return the values that a parameter may have, including the default unless all branches set the parameter."""
    values = space.values(name)
    if not all(name in branch for branch in branches(space.parameters)):
        values.append(TrialConfig.model_fields[name].default)
    return values


def has_teacher(space: Space) -> bool:
    """Return whether trials may learn from a teacher."""
    return "softmax" in space.values("loss") and TEACHER in space.values("targets")
