"""YAML documents that record the line of every key for error messages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from raysweep.errors import InputError, did_you_mean

KeyPath = tuple[str | int, ...]

MAX_VALUES = 100_000  # limit per document after alias expansion
MERGE = "tag:yaml.org,2002:merge"
TEXT = "tag:yaml.org,2002:str"
CHOICES = "choices"
"""The key for a parameter's choices, which are a list or the keys of a mapping."""
TOO_DEEP = "nested too deeply, or an alias contains itself"


class _Loader(yaml.SafeLoader):
    """A YAML loader that reads 1e-5 as a number.

    PyYAML implements YAML 1.1, in which a number with an exponent but no dot is a string.
    """


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def parse_value(text: str, *, is_choices: bool = False) -> Any:
    """Parse the YAML value in a command-line override; empty text becomes an empty string, not null.

    Args:
        text: The YAML text.
        is_choices: Whether the text is the value of a ``choices`` key.

    Raises:
        InputError: If the text is not valid YAML.
    """
    if not text:
        return ""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _read_keys_as_text(node, is_choices, set())
        return loader.construct_document(node)
    except RecursionError:
        raise InputError(f"{text[:60]!r} is not a YAML value: it is {TOO_DEEP}") from None
    except (yaml.YAMLError, ValueError) as error:
        problem = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
        raise InputError(f"{text!r} is not a YAML value: {problem or _one_line(error)}") from None


def _read_keys_as_text(node: yaml.Node, is_choices: bool, seen: set[tuple[int, bool]]) -> None:
    """Tag all keys as text, so that keys such as `0.5`, `on` or `2024-01-01` keep their spelling.

    Keys below ``choices`` are parameter values, so they keep their types. ``seen`` prevents nodes from being visited
    again through aliases.
    """
    visit = (id(node), is_choices)
    if visit in seen:
        return
    seen.add(visit)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _read_keys_as_text(item, is_choices, seen)
    elif isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            is_merge = key_node.tag == MERGE
            if isinstance(key_node, yaml.ScalarNode) and not is_merge and not is_choices:
                key_node.tag = TEXT
            below_is_choices = is_choices if is_merge else key_node.value == CHOICES
            _read_keys_as_text(value_node, below_is_choices, seen)


@dataclass
class Document:
    """The values in a YAML file and the line of each key path."""

    source: str
    values: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    overridden: set[KeyPath] = field(default_factory=set)
    num_values: int = field(default=0, repr=False)

    @classmethod
    def read(cls, path: Path) -> "Document":
        """Read a YAML file whose top level is a mapping.

        Raises:
            InputError: If the file is missing or invalid.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: not UTF-8 (byte {error.start})") from None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        document = cls(str(path), {})
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            if node is None:
                raise InputError(f"{path}: the file is empty")
            if not isinstance(node, yaml.MappingNode):
                raise InputError(
                    f"{path}: the top level is not a mapping; allowed: a mapping of keys to values"
                )
            _read_keys_as_text(node, False, set())
            document._note_lines(loader, node, ())
            document.values = loader.construct_document(node)
        except (RecursionError, yaml.YAMLError, ValueError) as error:
            raise _yaml_error(path, error) from None
        return document

    def _note_lines(self, loader: _Loader, node: yaml.Node, path: KeyPath) -> None:
        """Record the line of each key below ``path``; raise InputError for duplicate or invalid keys."""
        self._count_value()
        if isinstance(node, yaml.MappingNode):
            for key_node, value_node in node.value:
                if key_node.tag == MERGE:  # merged keys get the line of the mapping
                    self._count_merged(value_node)
                    continue
                key = loader.construct_object(key_node, deep=True)
                line = _line_of(key_node)
                place = f"{self.source}: line {line}"
                if not isinstance(key, str | int | float | bool):
                    raise InputError(f"{place}: a key is {key!r}; allowed: plain text")
                key_path = (*path, str(key))
                if key_path in self.lines:
                    first_line = self.lines[key_path]
                    raise InputError(
                        f"{place}: {dotted(key_path)} is a duplicate key (first on line {first_line})"
                    )
                self.lines[key_path] = line
                self._note_lines(loader, value_node, key_path)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                child = (*path, index)
                self.lines[child] = _line_of(item)
                self._note_lines(loader, item, child)

    def _count_value(self) -> None:
        """Count a value; raise InputError if nested aliases expand to too many values."""
        self.num_values += 1
        if self.num_values > MAX_VALUES:
            raise InputError(
                f"{self.source}: has more than {MAX_VALUES:,} values after its aliases are expanded"
            )

    def _count_merged(self, node: yaml.Node) -> None:
        self._count_value()
        if isinstance(node, yaml.MappingNode):
            for _, value_node in node.value:
                self._count_merged(value_node)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._count_merged(item)

    def override(
        self, path: str, text: str, short_forms: Mapping[KeyPath, str] = MappingProxyType({})
    ) -> None:
        """Set the key at a dotted ``path`` to the YAML value ``text``, creating missing mappings.

        ``short_forms`` lists keys that accept a plain value in place of a mapping, each with the mapping key that the
        value sets. Such values on the path are first expanded to mappings.
        """
        keys = tuple(path.split("."))
        target = self.values
        for depth, name in enumerate(keys[:-1], 1):
            key = _find_key(name, target)
            value = target.get(key)
            short_form = short_forms.get(keys[:depth])
            if value is None:
                value = target[key] = {}
            elif isinstance(value, str | list) and short_form is not None:
                value = target[key] = {short_form: value}
            if not isinstance(value, dict):
                raise InputError(f"--{path}: {key} is {value!r}; allowed: a mapping")
            target = value
        last = keys[-1]
        try:
            value = parse_value(text, is_choices=last == CHOICES)
        except InputError as error:
            raise InputError(f"--{path}: {error}") from None
        key = _find_key(last, target)
        target[key] = value
        self.overridden.add(keys)

    def has_override(self, key: str) -> bool:
        """Return whether an override set this top-level key or a key below it."""
        return any(path[0] == key for path in self.overridden)

    def error(self, path: Sequence[str | int], message: str) -> InputError:
        """Return an InputError that names the key's file and line, or the override that set the key."""
        keys = tuple(path)
        section = keys[:-1]
        is_of_override = section not in self.lines and any(
            path[: len(section)] == section for path in self.overridden
        )
        if self.is_overridden(keys) or (section and is_of_override):
            return InputError(join_key(f"--{dotted(keys)}", message))
        place = self.source
        for length in range(len(keys), 0, -1):
            # Use the line of the nearest ancestor if the key is not in the file.
            line = self.lines.get(keys[:length])
            if line is not None:
                place += f": line {line}"
                break
        problem = message
        if keys:
            problem = join_key(dotted(keys), message)
        return InputError(f"{place}: {problem}")

    def is_overridden(self, keys: KeyPath) -> bool:
        """Return whether an override set this key, a key above it or, if the file lacks this key, a key below it."""
        prefixes = {keys[:length] for length in range(1, len(keys) + 1)}
        if prefixes & self.overridden:
            return True
        return keys not in self.lines and any(path[: len(keys)] == keys for path in self.overridden)


def _find_key(name: str, mapping: Mapping[Any, Any]) -> Any:
    """Return the key whose text is ``name``, such as 16 for ``"16"``, or ``name`` if there is none."""
    return next((key for key in mapping if str(key) == name), name)


def _line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _yaml_error(path: Path, error: Exception) -> InputError:
    if isinstance(error, InputError):  # a subclass of ValueError
        return error
    if isinstance(error, RecursionError):
        return InputError(f"{path}: {TOO_DEEP}")
    if isinstance(error, yaml.MarkedYAMLError):
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        return InputError(f"{path}: line {line}: {error.problem}")
    # for example, an invalid date, number or character
    return InputError(f"{path}: invalid value: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def dotted(path: Iterable[str | int]) -> str:
    """Return a key path as text: ``("space", "loss", 0)`` becomes ``space.loss[0]``."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else key
    return text


def join_key(key: str, problem: str) -> str:
    """Return ``KEY is VALUE; …`` if the problem starts with "is", or ``KEY: problem`` otherwise."""
    return f"{key} {problem}" if problem.startswith("is ") else f"{key}: {problem}"


def unknown_key(key: str, allowed: Iterable[str], inner: Iterable[str] = ()) -> str:
    """Return the error message for an unknown key, suggesting the closest name in ``allowed`` or ``inner``."""
    names = sorted(allowed)
    paths: dict[str, str] = {}  # keyed by the last part of the path
    for path in inner:
        last = path.rpartition(".")[2]
        paths[last] = f"{paths[last]} or {path}" if last in paths else path
    hint = did_you_mean(key, names) or did_you_mean(key, paths)
    return f"unknown key{hint}; allowed: {', '.join(names)}"
