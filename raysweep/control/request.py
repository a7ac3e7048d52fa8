"""Requests to a running sweep and their answers, which are parsed from untrusted files."""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from raysweep.config.document import join_key
from raysweep.config.strict import StrictModel, explain
from raysweep.errors import InputError
from raysweep.output import escape_line

Action = Literal["pause", "resume", "workers", "stop-trial", "try"]

VALUE_FIELDS: Mapping[str, str] = {"workers": "workers", "stop-trial": "trial", "try": "config"}
"""Maps each action that takes a value to the request field with the value."""

MAX_BYTES = 16_384  # maximum size of a request or answer
MAX_MESSAGE_LENGTH = 200  # maximum length of an error message, in characters

Plain = bool | int | float | str | None


class Request(StrictModel):
    """A request to a sweep. Fields that belong to other actions are None."""

    action: Action
    workers: int | None = Field(None, ge=1)
    trial: int | None = Field(None, ge=0)
    config: Mapping[str, Plain] | None = None

    @model_validator(mode="after")
    def _check(self) -> "Request":
        needed = VALUE_FIELDS.get(self.action)
        for name in VALUE_FIELDS.values():
            is_given = getattr(self, name) is not None
            if is_given != (name == needed):
                raise ValueError(
                    f"{name} is {'missing' if name == needed else 'not allowed'} for the action {self.action}"
                )
        return self


class Answer(StrictModel):
    """The answer to a request."""

    accepted: bool
    text: str


Message = TypeVar("Message", Request, Answer)

_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


def make_request(action: str, value: Any = None) -> Request:
    """Create a request. Depending on the action, ``value`` is a number, a configuration or None.

    Raises:
        InputError: If the action is unknown or the value is invalid.
    """
    actions = get_args(Action)
    if action not in actions:
        raise InputError(f"action is {action!r}; allowed: {', '.join(actions)}")
    field = VALUE_FIELDS.get(action)
    if action == "try":
        if not isinstance(value, Mapping):
            raise InputError(
                f"--try is {value!r}; allowed: a mapping, such as '{{loss: triplet, margin: 0.1}}'"
            )
        for name, setting in value.items():
            is_plain = isinstance(setting, str | int | float | None)
            is_finite = not isinstance(setting, float) or math.isfinite(setting)
            if not is_plain or not is_finite:
                raise InputError(
                    f"--try: {name} is {setting!r}; allowed: a string, a finite number, a boolean or null"
                )
    elif (value is None) != (field is None):
        needed = "takes no value" if field is None else "needs a number"
        raise InputError(f"{action} {needed}; given: {value!r}")
    try:
        return Request.model_validate(
            {"action": action} if field is None else {"action": action, field: value}
        )
    except ValidationError as error:
        problem = explain(dict(error.errors()[0]), (str(field),), Request)
        raise InputError(join_key(action, problem)) from None


def read_request(content: bytes) -> Request:
    """Parse a request. Raise ``InputError`` if it is invalid."""
    return _read(_REQUEST, content, "request")


def read_answer(content: bytes) -> Answer:
    """Parse an answer. Raise ``InputError`` if it is invalid."""
    return _read(_ANSWER, content, "answer")


def to_json(message: Request | Answer) -> bytes:
    """Serialize a request or an answer as JSON."""
    return message.model_dump_json(exclude_none=True).encode()


def _read(adapter: TypeAdapter[Message], content: bytes, kind: str) -> Message:
    if len(content) > MAX_BYTES:
        raise InputError(f"has more than {MAX_BYTES:,} bytes, so it is not a valid {kind}")
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        first_error = error.errors()[0]
        message = first_error["msg"]
        if first_error["loc"]:
            place = ".".join(map(str, first_error["loc"]))
            message = f"{place}: {message}"
        problem = escape_line(message)[:MAX_MESSAGE_LENGTH]
        raise InputError(f"is not a valid {kind}: {problem}") from None
