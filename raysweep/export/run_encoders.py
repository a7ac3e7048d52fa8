"""The encoders of a run, and the names and licenses of their models."""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from raysweep.config.sides import Sides
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders.locate import locate
from raysweep.errors import InputError
from raysweep.storage.folder import Folder

UNKNOWN = "unknown"  # Hub identifier for an unknown license
OTHER = "other"  # Hub identifier for an unlisted license; also used for several licenses

DEMO = "sentence-transformers/all-MiniLM-L6-v2"  # the model in the demo encoder's package

_FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_MAX_CHARACTERS = 200  # maximum length of a license text in a card


@dataclass(frozen=True)
class RunEncoders:
    """The encoders of a run, with their prompts and identities at the time of the run.

    ``data`` is the name of the run's sentence artifact, a hash of the data sources.
    """

    model: EncoderConfig
    model_identity: str
    reference: EncoderConfig
    reference_identity: str
    data: str

    @property
    def prompts(self) -> Sides[str]:
        return _prompts_of(self.model)

    @property
    def reference_prompts(self) -> Sides[str]:
        return _prompts_of(self.reference)

    @classmethod
    def of(cls, run: Folder) -> "RunEncoders":
        """Read the encoders from a run's folder.

        Raises:
            InputError: If ``prepared.json`` is missing or damaged.
        """
        try:
            prepared = json.loads(run.fetch("prepared.json").read_text(encoding="utf-8"))
            return cls(
                EncoderConfig(**prepared["model"]),
                prepared["model_identity"],
                EncoderConfig(**prepared["reference"]),
                prepared["reference_identity"],
                prepared["sentences"],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{run.location}/prepared.json: missing or damaged") from None


def _prompts_of(config: EncoderConfig) -> Sides[str]:
    return Sides.merge(config.prompt_on("query") or "", config.prompt_on("document") or "")


@dataclass(frozen=True)
class License:
    """A license's identifier on the Hub, with details if it is ``other`` or ``unknown``."""

    identifier: str = UNKNOWN
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.identifier} ({self.detail})" if self.detail else self.identifier

    @classmethod
    def of(cls, folder: Path) -> "License":
        """Read a model's license from its card or, if it has none there, from ``config.json``."""
        card = _read_values(folder / "README.md")
        config = _read_values(folder / "config.json")
        identifiers = _words(card.get("license") or config.get("license"))
        if not identifiers:
            return cls()
        if len(identifiers) > 1 or not _IDENTIFIER.fullmatch(identifiers[0]):
            return cls(OTHER, ", ".join(identifiers))
        identifier = identifiers[0].lower()
        if identifier != OTHER:
            return cls(identifier)
        details = _words(card.get("license_name")) + _words(card.get("license_link"))
        return cls(OTHER, ", ".join(details))


@dataclass(frozen=True)
class BaseModel:
    """An encoder that an exported model is built from. ``hub_name`` and ``revision`` are None for a local folder."""

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
        if source.known_identity is not None:
            _, _, place = source.known_identity.partition(":")
            name, _, revision = place.rpartition("@")
            return cls(name, name, revision, model_license)
        # leave out the parent folders, which are private
        return cls(source.folder.name, None, None, model_license)


def joint_license(models: Mapping[str, BaseModel]) -> License:
    """Return the license of a model built from ``models``, which are keyed by role.

    The license is unknown if any model's license is unknown.
    """
    licenses = {name: model.license for name, model in models.items()}
    distinct = set(licenses.values())
    if len(distinct) == 1:
        return distinct.pop()
    detail = ", ".join(f"{name}: {model_license}" for name, model_license in licenses.items())
    is_unknown = any(model_license.identifier == UNKNOWN for model_license in distinct)
    return License(UNKNOWN if is_unknown else OTHER, detail)


def _read_values(path: Path) -> dict[str, Any]:
    """Return the YAML header of a card, or the object in a JSON file; empty if it is missing or unreadable."""
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        if path.suffix == ".json":
            values = json.loads(path.read_text(encoding="utf-8"))
        else:
            header = _FRONT_MATTER.match(path.read_text(encoding="utf-8-sig"))
            values = yaml.safe_load(header[1]) if header else None
        if isinstance(values, dict):
            return values
    return {}


def _words(value: Any) -> list[str]:
    """Return the strings in a value that is a string or a list, each on one line."""
    items = value if isinstance(value, list) else [value]
    texts = [" ".join(item.split()) for item in items if isinstance(item, str)]
    return [text[:_MAX_CHARACTERS] for text in texts if text]
