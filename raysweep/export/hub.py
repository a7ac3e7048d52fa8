"""Upload an exported model to the Hub."""

import logging
import shlex
from pathlib import Path

from raysweep.data.hub import reachable
from raysweep.encoders import provenance
from raysweep.errors import InputError

KEPT_HERE = (provenance.FILE,)  # not uploaded, because it contains local paths


def check_name(name: str) -> None:
    """Raise InputError unless a name is a valid repository name on the Hub, ``OWNER/NAME``."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(f"--push {name}: {_one_line(error)}") from None
    if name.count("/") != 1:
        raise InputError(f"--push {name}: allowed: OWNER/NAME, such as my-organization/my-model")


def push(folder: Path, name: str, *, private: bool) -> str:
    """Upload an exported model to the repository ``name``, creating it if necessary, and return its URL.

    Raises:
        InputError: If the Hub is unreachable or rejects the upload. The folder is kept.
    """
    upload = f"run: hf upload {shlex.quote(name)} {shlex.quote(str(folder))} . --exclude {' '.join(KEPT_HERE)}"
    written = f"{folder} was written but not pushed to {name}"
    if not reachable():
        raise InputError(f"{written}: the Hub is unreachable; to upload it later, {upload}")
    from huggingface_hub import HfApi, get_token
    from huggingface_hub.utils.tqdm import disable_progress_bars

    token = get_token()
    if token is None:
        raise InputError(
            f"{written}: no Hub token found; set HF_TOKEN or run hf auth login, then {upload}"
        )
    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    api = HfApi(token=token)
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        is_public = not api.model_info(name).private
        if private and is_public:
            raise InputError(
                f"{written}: the repository already exists and is public; push without --private, or to another name"
            )
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            commit_message="Add model",
            ignore_patterns=list(KEPT_HERE),
        )
    except InputError:
        raise
    except Exception as error:  # the client may raise any exception
        reason = _one_line(error).replace(token, "(token)")
        raise InputError(f"{written}: {reason}; to upload it later, {upload}") from None
    return f"{api.endpoint}/{name}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
