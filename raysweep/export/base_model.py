"""What the files of a base model say of it: its name on the hub, and its licence. Nothing is guessed."""

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

UNKNOWN = "unknown"  # the hub's own word for a licence that nobody stated
OTHER = "other"  # the hub's word for one that is not in its list, and for several

DEMO = "sentence-transformers/all-MiniLM-L6-v2"  # what the package of the demo's encoder holds

_FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_MOST_CHARACTERS = 200  # of what a card says of a licence of its own


@dataclass(frozen=True)
class Licence:
    """The hub's identifier of a licence, ``unknown`` where there is none; ``detail`` names one that is ``other``."""

    identifier: str = UNKNOWN
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.identifier} ({self.detail})" if self.detail else self.identifier

    @classmethod
    def of(cls, folder: Path) -> "Licence":
        """What a model's card says in its metadata, or else its ``config.json`` under the key ``license``."""
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
    """An encoder that another model is made of. ``hub_name`` is None, and with it ``revision``, where it is a folder."""

    shown: str
    hub_name: str | None
    revision: str | None
    licence: Licence

    @classmethod
    def of(cls, config: EncoderConfig) -> "BaseModel":
        """What there is to say of an encoder. InputError where it cannot be found."""
        source = locate(config)
        licence = Licence.of(source.folder)
        if config.name == "demo":
            return cls(DEMO, DEMO, None, licence)
        if source.commit is not None:
            name, _, revision = source.commit.partition(":")[2].rpartition("@")
            return cls(name, name, revision, licence)
        return cls(source.folder.name, None, None, licence)  # without the folders above, which are nobody's business


def joint_licence(models: Mapping[str, BaseModel]) -> Licence:
    """The licence of a model that is made of these, by what each is to it: unknown where one of theirs is."""
    licences = {name: model.licence for name, model in models.items()}
    distinct = set(licences.values())
    if len(distinct) == 1:
        return distinct.pop()
    detail = ", ".join(f"{name}: {licence}" for name, licence in licences.items())
    is_unknown = any(licence.identifier == UNKNOWN for licence in distinct)
    return Licence(UNKNOWN if is_unknown else OTHER, detail)


def _card_metadata(path: Path) -> dict[str, Any]:
    """The YAML at the head of a card; empty where there is none, or none that can be read."""
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
    """The texts of a value that is one or a list of them, each on one line."""
    given = value if isinstance(value, list) else [value]
    return [" ".join(text.split())[:_MOST_CHARACTERS] for text in given if isinstance(text, str) and text.strip()]
