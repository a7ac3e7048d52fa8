"""Name on the Hub and license of a base model, as stated in its files. Nothing is guessed."""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders.locate import locate

UNKNOWN = "unknown"  # the Hub's word for an unstated license
OTHER = "other"  # the Hub's word for a license outside its list, or several

DEMO = "sentence-transformers/all-MiniLM-L6-v2"  # the model in the package of the demo's encoder

_FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_MOST_CHARACTERS = 200  # maximum of a license text in a card


@dataclass(frozen=True)
class License:
    """The Hub's identifier of a license, or ``unknown``; ``detail`` is the name of an ``other`` license."""

    identifier: str = UNKNOWN
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.identifier} ({self.detail})" if self.detail else self.identifier

    @classmethod
    def of(cls, folder: Path) -> "License":
        """Return the license in a model card's metadata, or else the value of ``license`` in its ``config.json``."""
        card = _card_metadata(folder / "README.md")
        stated = card.get("license") or _json_object(folder / "config.json").get("license")
        identifiers = _words(stated)
        if not identifiers:
            return cls()
        (first, *others) = identifiers
        named = [text for key in ("license_name", "license_link") for text in _words(card.get(key))]
        if others:
            return cls(OTHER, ", ".join(identifiers))
        if not _IDENTIFIER.fullmatch(first):
            return cls(OTHER, first)
        return cls(first.lower(), ", ".join(named) if first.lower() == OTHER else "")


@dataclass(frozen=True)
class BaseModel:
    """An encoder that another model is built from. ``hub_name`` and ``revision`` are None for a folder."""

    shown: str
    hub_name: str | None
    revision: str | None
    license: License

    @classmethod
    def of(cls, config: EncoderConfig) -> "BaseModel":
        """Return the name and license of an encoder.

        Raises:
            InputError: If the encoder cannot be found.
        """
        source = locate(config)
        model_license = License.of(source.folder)
        if config.name == "demo":
            return cls(DEMO, DEMO, None, model_license)
        if source.commit is not None:
            name, _, revision = source.commit.partition(":")[2].rpartition("@")
            return cls(name, name, revision, model_license)
        return cls(source.folder.name, None, None, model_license)  # without the parent folders, which are private


def joint_license(models: Mapping[str, BaseModel]) -> License:
    """Return the license of a model built from these, keyed by role: unknown if one of theirs is."""
    licenses = {name: model.license for name, model in models.items()}
    distinct = set(licenses.values())
    if len(distinct) == 1:
        return distinct.pop()
    detail = ", ".join(f"{name}: {model_license}" for name, model_license in licenses.items())
    is_unknown = any(model_license.identifier == UNKNOWN for model_license in distinct)
    return License(UNKNOWN if is_unknown else OTHER, detail)


def _card_metadata(path: Path) -> dict[str, Any]:
    """Return the YAML header of a card; empty if it is missing or unreadable."""
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        found = _FRONT_MATTER.match(path.read_text(encoding="utf-8-sig"))
        values = yaml.safe_load(found[1]) if found else None
        if isinstance(values, dict):
            return values
    return {}


def _json_object(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        values = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(values, dict):
            return values
    return {}


def _words(value: Any) -> list[str]:
    """Return the texts in a value that is a string or a list, each on one line."""
    given = value if isinstance(value, list) else [value]
    return [" ".join(text.split())[:_MOST_CHARACTERS] for text in given if isinstance(text, str) and text.strip()]
