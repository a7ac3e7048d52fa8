"""What a storage is to blame for, and how it is said."""

import errno

import pytest

from raysweep.storage.bucket import StorageError
from raysweep.storage.failure import is_of_storage, storage_problem


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/runs/x/study.journal"),
            "/runs/x/study.journal: No space left on device",
        ),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system"),
        (StorageError(28, "SlowDown", "s3://bucket/x"), "s3://bucket/x: SlowDown"),
        (
            RuntimeError("I/O error:\n No space left on device (os error 28)"),
            "I/O error: No space left on device (os error 28)",
        ),
    ],
)
def test_a_storage_is_to_blame(error: Exception, problem: str) -> None:
    assert is_of_storage(error)
    assert storage_problem(error) == problem


def test_what_lies_behind_an_error_is_found() -> None:
    error = RuntimeError("a callback failed")
    error.__cause__ = OSError(errno.EDQUOT, "Disk quota exceeded", "/runs/x")
    assert not is_of_storage(error)
    assert storage_problem(error) == "/runs/x: Disk quota exceeded"


@pytest.mark.parametrize("error", [ValueError("no"), FileNotFoundError(errno.ENOENT, "No such file", "x"), None])
def test_other_errors_are_nobodys_storage(error: Exception | None) -> None:
    assert storage_problem(error) is None
