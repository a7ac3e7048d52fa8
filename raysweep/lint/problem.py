"""A problem of a cluster's file, and those that a strict schema finds."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from raysweep.config.document import KeyPath
from raysweep.config.strict import explain


class Problem(NamedTuple):
    """Something wrong in a file: at which key, and what is allowed there."""

    path: KeyPath
    message: str


def schema_problems(values: Any, model: type[BaseModel], at: KeyPath = ()) -> list[Problem]:
    """What a strict model refuses in the values that stand at a key of the file.

    A misspelt key is also a missing one, and the misspelling is the cause: where a key is unknown, none is missing.
    """
    try:
        model.model_validate(values)
    except ValidationError as error:
        found = error.errors()
        misspelt_at = {each["loc"][:-1] for each in found if each["type"] == "extra_forbidden"}
        caused = [each for each in found if each["type"] != "missing" or each["loc"][:-1] not in misspelt_at]
        return [_problem(dict(each), model, at) for each in caused]
    return []


def _problem(error: dict[str, Any], model: type[BaseModel], at: KeyPath) -> Problem:
    path: KeyPath = tuple(error["loc"])
    return Problem((*at, *path), explain(error, path, model))


def required(values: Mapping[str, Any], keys: Mapping[str, str], at: KeyPath = ()) -> list[Problem]:
    """A problem for each key that is not there, with the reason why it has to be."""
    missing = [key for key in keys if values.get(key) is None]
    return [Problem((*at, key), f"this key is required: {keys[key]}") for key in missing]
