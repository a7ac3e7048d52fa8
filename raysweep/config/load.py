"""From SPACE and overrides to a sweep's configuration and space; every misuse is an InputError."""

from pathlib import Path
from typing import Any

from raysweep.errors import InputError
from raysweep.search.proposer import _check_sampler


def load(space: str, arguments: list[str]) -> Any:
    """The configuration and space of SPACE under the overrides."""
    from raysweep.config import space_parser

    document, config = _read(find_space(space), arguments)
    parsed = space_parser.parse(document, config)
    _check_sampler(document, config, parsed)
    return config, parsed


def _read(path: Path, arguments: list[str]) -> Any:
    """The document under the overrides, and the configuration that it gives."""
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document

    document = Document.read(path)
    for key, value in _overrides(arguments):
        document.override(key, value)
    return document, configuration.parse(document)


def find_space(name: str) -> Path:
    """The file of this path, or the shipped space of this name. InputError lists the shipped ones."""
    path = Path(name)
    if not path.name:
        raise InputError(f"{name!r} is no file; SPACE is a YAML file or the name of a shipped space")
    if path.is_file() or path.parent != Path():
        return path
    package = Path(__file__).parents[1]
    for folder in (package / "search_spaces", package.parent / "search_spaces"):  # installed, or a checkout
        if (folder / path.with_suffix(".yaml")).is_file():
            return folder / path.with_suffix(".yaml")
        shipped = sorted(file.stem for file in folder.glob("*.yaml"))
        if shipped:
            raise InputError(f"{name}: no such file, and no shipped space of this name; shipped: {', '.join(shipped)}")
    raise InputError(f"{name}: no such file")


def _overrides(arguments: list[str]) -> list[tuple[str, str]]:
    pairs = []
    waiting = list(arguments)
    while waiting:
        flag = waiting.pop(0)
        if not flag.startswith("--"):
            raise InputError(f"unexpected argument {flag!r}; an override is --KEY VALUE, with the dotted path of a key")
        key, equals, value = flag[2:].partition("=")
        if not equals:
            if not waiting:
                raise InputError(f"{flag} needs a value; an override is --KEY VALUE, with the dotted path of a key")
            value = waiting.pop(0)
        pairs.append((key, value))
    return pairs
