"""Failures caused by storage: full disks, temporary write errors, and requests rejected by an object store."""

import errno

from raysweep.storage.bucket import StorageError

_FORBIDDEN = (errno.EACCES, errno.EPERM)
_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT)


def is_of_storage(error: BaseException) -> bool:
    """Return whether a disk or an object store caused the error. Such errors may be temporary."""
    if isinstance(error, StorageError):
        return True
    if isinstance(error, OSError):
        return error.errno in _ERRORS
    return "(os error 28)" in str(error)  # how safetensors reports a full disk


def storage_problem(error: BaseException | None) -> str | None:
    """Return a one-line description of the storage failure behind an error, or None if there was none."""
    while error is not None:
        if is_of_storage(error):
            return _format_error(error)
        error = error.__cause__ or error.__context__
    return None


def file_problem(error: OSError) -> str | None:
    """Return a one-line description of a storage or permission error, or None for other errors."""
    if is_of_storage(error) or error.errno in _FORBIDDEN:
        return _format_error(error)
    return None


def _format_error(error: BaseException) -> str:
    if isinstance(error, StorageError) or not isinstance(error, OSError) or not error.strerror:
        return " ".join(str(error).split())
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
