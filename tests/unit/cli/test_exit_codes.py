import pytest

from raysweep.cli import commands
from raysweep.errors import InputError, TemporaryError


def exit_code(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit code of a command that raises an error."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(commands, "app", fail)
    with pytest.raises(SystemExit) as ended:
        commands.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("variable", "expected"), [(None, 2), ("0", 0), ("17", 17), ("256", 2), ("no", 2), ("", 2)]
)
def test_exit_code_of_invalid_input(
    variable: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv(commands.CODE_VARIABLE, variable)
    assert exit_code(InputError("space.loss is 3"), monkeypatch) == expected


def test_temporary_failures_have_their_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(commands.CODE_VARIABLE, "0")
    assert exit_code(TemporaryError("the disk is full"), monkeypatch) == 75
