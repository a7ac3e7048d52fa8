"""Downloads of encoders from buckets."""

import functools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.bucket import NUM_THREADS
from raysweep.storage.folder import BucketFolder, open_folder

MARKERS = ("modules.json", "config.json")  # every encoder's folder has at least one of these files
UNUSED_FILES = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite"]


def select_files(names: Iterable[str]) -> list[str]:
    """Return the files of an encoder that loading it may need, sorted.

    Consoles of object stores represent folders by empty objects, which are omitted.
    """
    names = set(names)
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}

    def is_needed(name: str) -> bool:
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        is_unused = any(fnmatchcase(name, pattern) for pattern in UNUSED_FILES)
        return not is_hidden and not is_unused

    return sorted(filter(is_needed, names - folders))


@functools.cache
def download(uri: str) -> Path:
    """Download an encoder from a bucket, once per process, and return its folder, which is named like the encoder.

    The folder is removed when the process ends.

    Raises:
        InputError: If the bucket cannot be read, or the URI is not the folder of an encoder.
    """
    stored = open_folder(uri)
    assert isinstance(stored, BucketFolder)
    folder = BucketFolder(stored.bucket, stored.path / location.base_name(uri))
    try:
        folder.bucket.check()
        if not any(map(folder.exists, MARKERS)):
            raise InputError(f"model {uri!r}: no model in this folder (neither {' nor '.join(MARKERS)})")
        names = select_files(folder.files())
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(pool.map(folder.fetch, names))
    except OSError as error:
        raise InputError(f"model {uri!r}: cannot be downloaded: {error.strerror}") from None
    return folder.path
