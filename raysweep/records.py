"""Records of JSON values: dataclasses whose fields are checked by type as they are read."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError


def checked(kind: Any, values: Mapping[str, Any]) -> Any:
    """A ``kind``, a dataclass, of the values that it has fields for. ValueError when one is of another type or missing."""
    fields = {each.name: values[each.name] for each in dataclasses.fields(kind) if each.name in values}
    return _adapter(kind).validate_python(fields)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def said(error: Exception) -> str:
    """What is wrong with a record, of the error that reading it raised."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))} is {first['input']!r}: {first['msg'].lower()}"
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)
