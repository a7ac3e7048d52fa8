"""Keys and tokens that stand in a file as plain text. No message repeats one."""

import re
from collections.abc import Iterator
from typing import Any

from raysweep.config.document import KeyPath
from raysweep.lint.problem import Problem

PATTERNS = {
    "an AWS access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "an AWS secret key": re.compile(r"(?i)aws_secret_access_key\W{1,4}[A-Za-z0-9/+]{40}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "a token of the hub": re.compile(r"\bhf_[A-Za-z0-9]{20,}"),
    "a token of GitHub": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}"),
    "an authentication token of Ray": re.compile(r"RAY_AUTH_TOKEN=['\"]?[A-Za-z0-9]"),
    "a key of Weights & Biases": re.compile(r"WANDB_API_KEY=['\"]?[A-Za-z0-9]"),
}
KEYS = {
    "aws_credentials",
    "gcp_credentials",
    "RAY_AUTH_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "HF_TOKEN",
    "WANDB_API_KEY",
    "aws_secret_access_key",
    "aws_session_token",
}


def secrets(values: Any, path: KeyPath = ()) -> Iterator[Problem]:
    """A problem for each secret below ``path``."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _in_key((*path, str(key)), value)
        yield from _in_variable(values, path)
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from secrets(value, (*path, index))
    elif isinstance(values, str):
        yield from (Problem(path, _message(kind)) for kind, pattern in PATTERNS.items() if pattern.search(values))


def _in_key(path: KeyPath, value: Any) -> Iterator[Problem]:
    if path[-1] in KEYS and value:
        yield Problem(path, _message("a secret"))
    else:
        yield from secrets(value, path)


def _in_variable(values: dict[Any, Any], path: KeyPath) -> Iterator[Problem]:
    """An environment variable as Kubernetes writes it: its name and value in keys of their own."""
    if str(values.get("name")) in KEYS and values.get("value"):
        yield Problem((*path, "value"), _message("a secret"))


def _message(kind: str) -> str:
    return f"holds {kind} as plain text: keep it out of the file, in a role of the nodes, a mounted file or a secret"
