"""What a storage is to blame for: a full disk, one that cannot be written for a while, an object store that refuses."""

import errno

from raysweep.storage.bucket import StorageError

_FORBIDDEN = (errno.EACCES, errno.EPERM)
_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT)


def is_of_storage(error: BaseException) -> bool:
    """Whether a disk or a store is to blame, which may pass."""
    if isinstance(error, StorageError):
        return True
    if isinstance(error, OSError):
        return error.errno in _ERRORS
    return "(os error 28)" in str(error)  # a full disk, as safetensors has it


def storage_problem(error: BaseException | None) -> str | None:
    """What a storage refused, in one line, where that is behind an error."""
    while error is not None:
        if is_of_storage(error):
            return _in_a_line(error)
        error = error.__cause__ or error.__context__
    return None


def file_problem(error: OSError) -> str | None:
    """What a file system or store refused, in one line: what its user can mend, of which nothing else has told."""
    if is_of_storage(error) or error.errno in _FORBIDDEN:
        return _in_a_line(error)
    return None


def _in_a_line(error: BaseException) -> str:
    if isinstance(error, StorageError) or not isinstance(error, OSError) or not error.strerror:
        return " ".join(str(error).split())
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
