"""The exception line of a traceback."""

import traceback

import pytest

from raysweep.errors import exception_line


def raised(message: str) -> str:
    try:
        raise ValueError(message)
    except ValueError:
        return traceback.format_exc()


def raised_from_another(message: str) -> str:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise RuntimeError(message) from None
    except RuntimeError:
        return traceback.format_exc()


ADVICE = "CUDA error: an illegal memory access was encountered\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (raised("wrong"), "ValueError: wrong"),
        (raised(ADVICE), "ValueError: CUDA error: an illegal memory access was encountered"),
        (
            raised_from_another(ADVICE),
            "RuntimeError: CUDA error: an illegal memory access was encountered",
        ),
        (
            f"ray::ImplicitFunc.train() (pid=1)\n{raised(ADVICE)[35:]}",
            "ValueError: CUDA error: an illegal memory access was encountered",
        ),
        (raised("\nIt needs a library"), "ValueError: It needs a library"),
        ("The actor died.\nIts node went away.", "Its node went away."),
        ("\tclass_name: A\n\tactor_id: 1", "actor_id: 1"),
        ("one line", "one line"),
        ("", ""),
    ],
)
def test_exception_line_of_a_traceback(text: str, line: str) -> None:
    assert exception_line(text) == line
