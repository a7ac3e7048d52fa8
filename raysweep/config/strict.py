"""Strict, frozen base model for configuration, and readable messages for validation errors."""

from typing import Any, get_origin

from pydantic import BaseModel, ConfigDict

from raysweep.config.document import KeyPath, unknown_key


class Frozen(BaseModel):
    """Strict and immutable base model: no unknown keys, no silent conversions except int to float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def explain(error: dict[str, Any], path: KeyPath, model: type[BaseModel]) -> str:
    """Return a readable message for one of pydantic's validation errors of ``model``."""
    value = error["input"]
    match error["type"]:
        case "extra_forbidden":
            *section, key = path
            known = _fields(tuple(section), model)
            inner = [f"{name}.{each}" for name in known for each in _fields((*section, name), model)]
            return unknown_key(str(key), known, inner)
        case "missing":
            return "this key is required"
        case "model_type" | "model_attributes_type":
            keys = ", ".join(_fields(path, model))
            return f"must be a mapping of {keys}, not {value!r}"
        case "value_error":
            return str(error["ctx"]["error"])
    message = error["msg"].replace("Input should", "should")
    message = message.replace("dictionary", "mapping")
    return f"{message[0].lower()}{message[1:]}, not {value!r}"


def _fields(path: KeyPath, model: type[BaseModel]) -> list[str]:
    """Return the keys that are allowed at a path within a model."""
    found: list[type[BaseModel]] = [model]
    is_name = False
    for key in path:
        if isinstance(key, int) or is_name:  # list indices and names in a mapping keep the item's models
            is_name = False
            continue
        annotations = [_annotation(each, key) for each in found]
        is_name = any(get_origin(each) is dict for each in annotations)
        found = [inner for each in annotations for inner in _models(each)]
    return [name for each in found for name in each.model_fields]


def _annotation(model: type[BaseModel], key: str) -> Any:
    """Return the type of a model's field, or None if the model has no such field."""
    field = model.model_fields.get(key)
    return field and field.annotation


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models contained in a type, including the type itself."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]
