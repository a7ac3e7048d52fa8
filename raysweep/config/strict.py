"""A strict base model for configurations and readable messages for validation errors."""

import json
from typing import Any, get_origin

from pydantic import BaseModel, ConfigDict

from raysweep.config.document import KeyPath, unknown_key

_BOUNDS = {
    "ge": "greater than or equal to",
    "gt": "greater than",
    "le": "less than or equal to",
    "lt": "less than",
}


class StrictModel(BaseModel):
    """A strict, immutable base model that rejects unknown keys and makes no implicit conversions except int to float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def explain(error: dict[str, Any], path: KeyPath, model: type[BaseModel]) -> str:
    """Return a readable message for one of pydantic's validation errors on ``model``."""
    value = error["input"]
    match error["type"]:
        case "extra_forbidden":
            *section, key = path
            known = _fields(tuple(section), model)
            inner = []
            for name in known:
                inner += [f"{name}.{field}" for field in _fields((*section, name), model)]
            return unknown_key(str(key), known, inner)
        case "missing":
            return "is missing"
        case "model_type" | "model_attributes_type":
            keys = ", ".join(_fields(path, model))
            return f"is {shown(value)}; allowed: a mapping of {keys}"
        case "list_type":
            return f"is {shown(value)}; allowed: a list, such as [{shown(value)}]"
        case "too_short":
            return f"is {shown(value)}; required: a list of length {error['ctx']['min_length']} or more"
        case "value_error":
            return str(error["ctx"]["error"])
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            # pydantic's message names only the violated bound
            bounds = _bounds(path, model)
            return f"is {shown(value)}; allowed: {bounds or allowed_values(error['msg'])}"
    return f"is {shown(value)}; allowed: {allowed_values(error['msg'])}"


def shown(value: Any) -> str:
    """Return a value as text, with null, true and false written as in YAML."""
    return json.dumps(value) if value is None or isinstance(value, bool) else repr(value)


def allowed_values(message: str) -> str:
    """Return the allowed values in a pydantic message, such as "greater than 0"."""
    _, _, allowed = message.replace("dictionary", "mapping").partition(" should ")
    return allowed.removeprefix("be ").removeprefix("have ") or message


def _bounds(path: KeyPath, model: type[BaseModel]) -> str:
    """Return all bounds of the number at a path as text, or an empty string for list items."""
    *section, key = path
    constraints: list[Any] = []
    for owner in _models_at(tuple(section), model):
        if key in owner.model_fields:
            constraints += owner.model_fields[str(key)].metadata
    bounds = []
    for name, words in _BOUNDS.items():
        bounds += [
            f"{words} {getattr(limit, name)}" for limit in constraints if hasattr(limit, name)
        ]
    return ", ".join(bounds)


def _fields(path: KeyPath, model: type[BaseModel]) -> list[str]:
    """Return the keys that are allowed at a path in a model."""
    return [name for inner in _models_at(path, model) for name in inner.model_fields]


def _models_at(path: KeyPath, model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models whose keys are allowed at a path in a model."""
    models: list[type[BaseModel]] = [model]
    is_name = False
    for key in path:
        # List indices and names in mappings do not change the models.
        if isinstance(key, int) or is_name:
            is_name = False
            continue
        fields = [model.model_fields[key] for model in models if key in model.model_fields]
        annotations = [field.annotation for field in fields]
        is_name = any(get_origin(annotation) is dict for annotation in annotations)
        models = []
        for annotation in annotations:
            models += _models(annotation)
    return models


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models contained in a type, including the type itself."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]
