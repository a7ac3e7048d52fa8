"""A YAML document whose every key knows its line, so that an error can name file, line and key."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from raysweep.errors import InputError

KeyPath = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where 1e-5 (no dot) is a string; every other tool our users know reads a number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def parse_value(text: str) -> Any:
    """Read one YAML value, as given for a key on the command line."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
        raise InputError(f"{text!r} is not a YAML value: {problem or error}") from None


@dataclass
class Document:
    """Nested plain values, the file they came from and the line of every key path."""

    source: str
    values: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overridden: set[KeyPath] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> "Document":
        """Read a YAML file whose top level is a mapping; InputError names file and line of what is wrong."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 (byte {error.start})") from None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        document = cls(str(path), {})
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise InputError(f"{path}: the file is empty")
            if not isinstance(node, yaml.MappingNode):
                raise InputError(f"{path}: the top level must be a mapping of keys to values")
            document._walk(loader, node, ())
            document.values = loader.construct_document(node)
        except RecursionError:
            raise InputError(f"{path}: an alias refers to what it is a part of") from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise InputError(f"{path}: line {line}: {error.problem}") from None
        finally:
            loader.dispose()
        return document

    def _walk(self, loader: _Loader, node: yaml.Node, path: KeyPath) -> None:
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                key = loader.construct_object(key_node, deep=True)
                line = key_node.start_mark.line + 1
                if not isinstance(key, str | int | float | bool):
                    raise InputError(f"{self.source}: line {line}: a key must be plain text, not {key!r}")
                child = (*path, str(key))
                if child in self.lines:
                    raise InputError(
                        f"{self.source}: line {line}: {dotted(child)} stands twice (first in line {self.lines[child]})"
                    )
                self.lines[child] = line
                self._walk(loader, value_node, child)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines[(*path, index)] = item.start_mark.line + 1
                self._walk(loader, item, (*path, index))

    def override(self, path: str, text: str) -> None:
        """Set the key at a dotted ``path`` to the YAML value ``text``; missing mappings on the way are made."""
        keys = tuple(path.split("."))
        target = self.values
        for key in keys[:-1]:
            value = target.get(key)
            if value is None:
                value = target[key] = {}
            if not isinstance(value, dict):
                raise InputError(f"--{path}: {key} is {value!r}, not a mapping, so it has no keys")
            target = value
        try:
            target[keys[-1]] = parse_value(text)
        except InputError as error:
            raise InputError(f"--{path}: {error}") from None
        self.overridden.add(keys)

    def error(self, path: Sequence[str | int], message: str) -> InputError:
        """An InputError that says where ``path`` was given: file and line, or the command line."""
        keys = tuple(path)
        given = [keys[:length] for length in range(len(keys), 0, -1)]
        under = [override for override in self.overridden if override[: len(keys)] == keys and keys not in self.lines]
        if under or any(path in self.overridden for path in given):
            return InputError(f"--{dotted(keys)}: {message}")
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.lines:
                return InputError(f"{self.source}: line {self.lines[keys[:length]]}: {dotted(keys)}: {message}")
        return InputError(f"{self.source}: {dotted(keys)}: {message}" if keys else f"{self.source}: {message}")


def dotted(path: Iterable[str | int]) -> str:
    """``("space", "loss", 0)`` as ``space.loss[0]``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """The sentence for a key that does not exist, with the nearest one that does."""
    names = sorted(allowed)
    close = difflib.get_close_matches(key, names, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown key{hint}; allowed: {', '.join(names)}"
