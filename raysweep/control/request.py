"""Requests to a running sweep and their answers, parsed from untrusted files."""

from collections.abc import Mapping
from typing import Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from raysweep.config.strict import Frozen
from raysweep.errors import InputError

Action = Literal["pause", "resume", "workers", "stop-trial", "try"]

MAX_BYTES = 16_384  # maximum size of a request or an answer
MOST_SHOWN = 200  # maximum length of an error message in characters

Plain = bool | int | float | str | None


class Request(Frozen):
    """A request to a sweep. Fields of other actions are None."""

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
                raise ValueError(f"the action {self.action} {'lacks' if name == needed else 'has no'} {name}")
        return self


class Answer(Frozen):
    """The outcome of a request, in one sentence."""

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


def written(message: Request | Answer) -> bytes:
    """Serialize a request or an answer as JSON."""
    return message.model_dump_json(exclude_none=True).encode()


def _read(adapter: TypeAdapter[Message], content: bytes, kind: str) -> Message:
    if len(content) > MAX_BYTES:
        raise InputError(f"has more than {MAX_BYTES:,} bytes, and is no {kind}")
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        problem = f"{place}: {first['msg']}" if place else first["msg"]
        raise InputError(f"is no {kind}: {plain(problem)[:MOST_SHOWN]}") from None


def plain(text: str) -> str:
    """Return the text with a space in place of each unprintable character, such as newlines and terminal escapes."""
    return "".join(each if each.isprintable() else " " for each in text)
