"""Requests to a running sweep and the answers to them, parsed from untrusted files."""

from collections.abc import Mapping
from typing import Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from raysweep.config.strict import StrictModel
from raysweep.errors import InputError
from raysweep.output import escape_line

Action = Literal["pause", "resume", "workers", "stop-trial", "try"]

MAX_BYTES = 16_384  # maximum size of a request or an answer
MAX_MESSAGE_LENGTH = 200  # maximum number of characters in an error message

Plain = bool | int | float | str | None


class Request(StrictModel):
    """A request to a sweep. Fields that belong to other actions are None."""

    action: Action
    workers: int | None = Field(None, ge=1)
    trial: int | None = Field(None, ge=0)
    config: Mapping[str, Plain] | None = None

    @model_validator(mode="after")
    def _check(self) -> "Request":
        needed = {"workers": "workers", "stop-trial": "trial", "try": "config"}.get(self.action)
        for name in ("workers", "trial", "config"):
            is_given = getattr(self, name) is not None
            if is_given != (name == needed):
                raise ValueError(
                    f"{name} is {'missing' if name == needed else 'not allowed'} for the action {self.action}"
                )
        return self


class Answer(StrictModel):
    """The outcome of a request, as one sentence."""

    accepted: bool
    text: str


Message = TypeVar("Message", Request, Answer)

_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


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
