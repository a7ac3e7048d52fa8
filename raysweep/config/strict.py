"""Strict, frozen configuration models, and what is wrong with a value in plain words."""

from typing import Any, get_origin

from pydantic import BaseModel, ConfigDict

from raysweep.config.document import KeyPath, unknown_key


class Frozen(BaseModel):
    """Strict and immutable: no unknown keys, no silent conversions beyond int to float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def explain(error: dict[str, Any], path: KeyPath, model: type[BaseModel]) -> str:
    """What is wrong, in one of pydantic's errors of reading a ``model``, as a reader of the file would say it."""
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
    """The keys that are allowed at a path within a model."""
    found: list[type[BaseModel]] = [model]
    is_name = False
    for key in path:
        if isinstance(key, int) or is_name:  # a list has the models of its items, and so has a mapping of names
            is_name = False
            continue
        annotations = [_annotation(each, key) for each in found]
        is_name = any(get_origin(each) is dict for each in annotations)
        found = [inner for each in annotations for inner in _models(each)]
    return [name for each in found for name in each.model_fields]


def _annotation(model: type[BaseModel], key: str) -> Any:
    """Return the type of a model's field, None if the model has no such field."""
    field = model.model_fields.get(key)
    return field and field.annotation


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that a type holds, itself included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]
