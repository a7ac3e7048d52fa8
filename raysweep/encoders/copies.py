"""Copies of encoders that are downloaded from buckets or stored as artifacts for a cluster's nodes."""

import functools
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from raysweep.data.artifacts import Artifact, Store
from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.bucket import NUM_THREADS
from raysweep.storage.cache import MANIFEST, checksum
from raysweep.storage.folder import BucketFolder, LocalFolder, open_folder
from raysweep.storage.private import make_private

KIND = "model"
MARKERS = ("modules.json", "config.json")  # every encoder's folder has at least one of these files
UNUSED_FILES = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite"]


def select_files(names: Iterable[str]) -> list[str]:
    """Return the sorted names of the files that may be needed to load an encoder.

    Empty objects that represent folders in an object store are omitted.
    """
    names = set(names)
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}

    def is_needed(name: str) -> bool:
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        is_unused = any(fnmatchcase(name, pattern) for pattern in UNUSED_FILES)
        return not is_hidden and not is_unused and name != MANIFEST

    return sorted(filter(is_needed, names - folders))


@functools.cache
def download(uri: str) -> Path:
    """Download an encoder from a bucket to a temporary folder and return the folder.

    The folder is named after the encoder and removed when the process exits.

    Raises:
        InputError: If the bucket cannot be read, or the URI is not the folder of an encoder.
    """
    stored = open_folder(uri)
    assert isinstance(stored, BucketFolder)
    folder = BucketFolder(stored.bucket, stored.path / location.base_name(uri))
    try:
        folder.bucket.check()
        if not any(map(folder.exists, MARKERS)):
            raise InputError(
                f"model {uri!r}: no model in this folder (neither {' nor '.join(MARKERS)})"
            )
        names = select_files(folder.files())
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(pool.map(folder.fetch, names))
    except OSError as error:
        raise InputError(f"model {uri!r}: cannot be downloaded: {error.strerror}") from None
    return folder.path


def find_copy(artifacts: str, identity: str) -> Artifact:
    """Return the artifact for the encoder with this identity. The artifact may not exist."""
    return Store(artifacts).artifact(KIND, {"encoder": identity})


def store_copy(store: Store, folder: Path, identity: str, report: Callable[[str], None]) -> None:
    """Store an encoder's files as an artifact.

    ``report`` receives a message if another process is already storing the encoder.
    """
    artifact = find_copy(store.location, identity)
    root = store.root
    with store.turn(artifact, report):
        if artifact.exists:
            return
        names = select_files(LocalFolder(folder).files())
        for name in names:
            stored_name = f"{artifact.name}/{name}"
            if isinstance(root, BucketFolder):
                root.bucket.upload(folder / name, root.object_name(stored_name))
            else:
                place = root.path / stored_name
                make_private(place.parent)
                shutil.copyfile(folder / name, place)
        if isinstance(root, LocalFolder):
            root.store(artifact.name)
        checksums = {name: checksum(folder / name) for name in names}
        store.finish(artifact, {"encoder": identity}, {}, checksums=checksums)
