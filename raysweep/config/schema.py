"""The JSON schema for sweep files, for completion and validation in editors.

The schema is generated from the pydantic models. It does not enforce rules that involve several keys, such as which
parameters belong to which loss.
"""

import re
from typing import Any

from raysweep.config.freezing import FIXED_LEVELS
from raysweep.config.loss_spec import Choice
from raysweep.config.losses import ALL_LOSSES, LOSS_PARAMETERS
from raysweep.config.sweep import EncoderConfig, SweepConfig
from raysweep.config.trackers import TRACKERS, TrackersConfig
from raysweep.config.trial import SCHEDULES, TrialConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_IMPORT_PATH = "^[^:]+:[^:]+$"  # user-defined losses

_NUMBERS = ("number", "integer")

_NULL: Schema = {"type": "null"}

_PARAMETERS: Schema = {"$ref": "#/$defs/Parameters"}


def sweep_schema() -> Schema:
    """Return the JSON schema (draft 2020-12) for sweep files."""
    schema = _without_titles(SweepConfig.model_json_schema())
    definitions = schema.pop("$defs")
    encoder = definitions[EncoderConfig.__name__]
    by_name = {**encoder["properties"]["name"], "minLength": 1}
    definitions[EncoderConfig.__name__] = {
        "description": encoder["description"],
        "anyOf": [by_name, encoder],
    }
    trackers = definitions[TrackersConfig.__name__]
    definitions[TrackersConfig.__name__] = {
        "description": trackers["description"],
        "anyOf": [{"type": "array", "items": {"enum": list(TRACKERS)}}, trackers],
    }
    fields = _without_titles(trial_schema())["properties"]
    parameters = {name: _parameter(name, field) for name, field in fields.items()}
    definitions["Parameters"] = {
        "description": "Parameters of a trial, each a plain value, a range or choices.",
        "type": "object",
        "properties": parameters,
        "additionalProperties": False,
    }
    space = schema["properties"]["space"]
    schema["properties"]["space"] = {
        "description": space["description"],
        **_PARAMETERS,
        "required": ["loss"],
    }
    values = {}
    for name, parameter in parameters.items():
        plain = [value for value in parameter["anyOf"] if value.get("type") != "object"]
        values[name] = {"description": parameter["description"], "anyOf": plain}
    schema["properties"]["first"]["items"] = {
        "description": "Values for a trial's parameters; the sampler proposes omitted ones.",
        "type": "object",
        "properties": values,
        "additionalProperties": False,
    }
    return {
        "$schema": DIALECT,
        "title": "raysweep sweep",
        **schema,
        "$defs": definitions,
    }


def trial_schema() -> Schema:
    """Return the JSON schema for a trial's parameters, including the parameters of all losses."""
    schema = TrialConfig.model_json_schema()
    loss_schema = schema["properties"].pop("loss")
    del schema["properties"]["loss_parameters"]
    own = {}
    for name in LOSS_PARAMETERS:
        losses = [loss for loss in ALL_LOSSES if name in ALL_LOSSES[loss].parameters]
        # Bounds and defaults differ between losses, so the schema has no bounds and a default of null.
        specification = ALL_LOSSES[losses[0]].parameters[name]
        value: Schema = {"type": "number"}
        if isinstance(specification, Choice):
            value = {"enum": list(specification.options)}
        elif specification.is_integer:
            value = {"type": "integer"}
        description = f"{specification.description}; for {', '.join(losses)}"
        own[name] = {**value, "description": description, "default": None}
    return {**schema, "properties": {"loss": loss_schema, **own, **schema["properties"]}}


def _without_titles(schema: Any) -> Any:
    """Return the schema without titles and without defaults for entire sections.

    Titles repeat the keys, and the keys in a section have their own defaults.
    """
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    omitted = set()
    if "$ref" in schema:
        omitted.add("default")
    if isinstance(schema.get("title"), str):
        omitted.add("title")
    return {key: _without_titles(value) for key, value in schema.items() if key not in omitted}


def _parameter(name: str, field: Schema) -> Schema:
    """Return the schema for a parameter: a plain value, choices or, for numbers, a range."""
    about: Schema = {key: field.pop(key) for key in ("description", "default") if key in field}
    if name in LOSS_PARAMETERS:
        del about["default"]  # each loss has its own default
    alternatives = field.get("anyOf", [field])
    # The model's schema lacks these constraints because validators check them.
    constraints: Schema = {}
    if name == "loss":
        constraints = {"anyOf": [{"enum": list(ALL_LOSSES)}, {"pattern": _IMPORT_PATH}]}
    elif name == "schedule":
        constraints = {"enum": list(SCHEDULES)}
    elif name == "freezing":
        levels = "|".join(re.escape(level) for level in FIXED_LEVELS)
        constraints = {"pattern": f"^({levels}|emb\\+B0-[1-9][0-9]*)$"}
    value = next(schema for schema in alternatives if schema != _NULL) | constraints
    is_nullable = _NULL in alternatives and name not in LOSS_PARAMETERS
    plain = [value, _NULL] if is_nullable else [value]
    is_number = value.get("type") in _NUMBERS
    ranges = [_range(value)] if is_number else []
    choices = _choices(value, plain, is_loss=name == "loss")
    return {**about, "anyOf": [*plain, *ranges, choices]}


def _range(end: Schema) -> Schema:
    log = {
        "type": "boolean",
        "default": False,
        "description": "draw uniformly on a logarithmic scale; low must be positive",
    }
    return {
        "description": "A range: any value from low to high, inclusive.",
        "type": "object",
        "properties": {
            "low": {**end, "description": "lowest value"},
            "high": {**end, "description": "highest value"},
            "log": log,
        },
        "required": ["low", "high"],
        "additionalProperties": False,
    }


def _choices(value: Schema, plain: list[Schema], *, is_loss: bool) -> Schema:
    listed = {"type": "array", "items": {"anyOf": plain}, "minItems": 1, "uniqueItems": True}
    conditional: Schema = {
        "description": "A mapping from each choice to the parameters that exist only under it.",
        "type": "object",
        "additionalProperties": {"anyOf": [_PARAMETERS, _NULL]},
        "minProperties": 1,
    }
    if value.get("type") == "string":
        conditional["propertyNames"] = value
    if is_loss:
        # The parameters of user-defined losses are unknown.
        conditional["patternProperties"] = {_IMPORT_PATH: {"type": ["object", "null"]}}
    return {
        "description": "Choices: a list of values, or a mapping from values to parameters.",
        "type": "object",
        "properties": {"choices": {"anyOf": [listed, conditional]}},
        "required": ["choices"],
        "additionalProperties": False,
    }
