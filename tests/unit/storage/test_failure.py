"""Recognition and description of storage failures."""

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
def test_storage_failures_are_recognized(error: Exception, problem: str) -> None:
    assert is_of_storage(error)
    assert storage_problem(error) == problem


def test_cause_of_an_error_is_recognized() -> None:
    error = RuntimeError("a callback failed")
    error.__cause__ = OSError(errno.EDQUOT, "Disk quota exceeded", "/runs/x")
    assert not is_of_storage(error)
    assert storage_problem(error) == "/runs/x: Disk quota exceeded"


@pytest.mark.parametrize(
    "error", [ValueError("no"), FileNotFoundError(errno.ENOENT, "No such file", "x"), None]
)
def test_other_errors_are_not_storage_failures(error: Exception | None) -> None:
    assert storage_problem(error) is None
