"""Commands as the lint reads them."""

import pytest

from raysweep.lint.shell import calls, options_of, simple_commands, unpinned_install, variables

START = "ulimit -n 65536; RAY_AUTH_MODE=token ray start --head --port 6379 --num-cpus=0 && echo done"


def test_options_end_with_their_command() -> None:
    assert options_of(START, ("ray", "start")) == {"--head": "", "--port": "6379", "--num-cpus": "0"}
    assert options_of(START, ("ray", "stop")) is None
    assert len(list(calls("ray start --head || ray start --address=x", ("ray", "start")))) == 2


def test_variables_are_those_before_a_program_and_exported_ones() -> None:
    assert variables(START) == {"RAY_AUTH_MODE": "token"}
    assert variables("export A=1; B='x y' run --C=3") == {"A": "1", "B": "x y"}


def test_quotes_have_to_close() -> None:
    assert simple_commands("a 'b; c' | d") == [["a", "b; c"], ["d"]]
    with pytest.raises(ValueError, match="No closing quotation"):
        simple_commands("a 'b")


@pytest.mark.parametrize(
    ("command", "loose"),
    [
        ("pip install --constraint constraints.txt -e '.[gpu]'", None),
        ("python -m pip install -c constraints.txt torch", None),
        ("pip install torch==2.13.0 'ray[data]==2.60.0'", None),
        ("pip install torch==2.13.0 boto3", "boto3"),
        ("cd x && pip install -e .", "."),
        ("pip -q --no-cache-dir install torch", "torch"),
        ("/opt/conda/bin/pip3.11 install torch", "torch"),
        ("uv pip install torch", "torch"),
        ("pip install -cconstraints.txt torch", None),
        ("pip -q uninstall torch", None),
        ("pip list", None),
        ("apt-get install pip", None),
    ],
)
def test_what_pip_installs_in_any_version_is_found(command: str, loose: str | None) -> None:
    assert unpinned_install(command) == loose
