"""What the options of commands accept, and how a misuse is named."""

from collections.abc import Callable
from typing import Any

import pytest

from raysweep.cli.options import natural, naturals, not_empty, one_of, several_of, where_of, with_trials
from raysweep.errors import InputError

FORMATS = ("table", "json")


@pytest.mark.parametrize(
    ("parsed", "expected"),
    [
        (natural("--k", " 16"), 16),
        (naturals("--k", "4,8"), [4, 8]),
        (not_empty("--model", "demo"), "demo"),
        (one_of("--format", "json", FORMATS), "json"),
        (several_of("--format", "json,table,json", FORMATS), ["json", "table", "json"]),
        (where_of([]), {}),
        (where_of(["model=a", "kind=x=y"]), {"model": "a", "kind": "x=y"}),
        (with_trials(["--seed", "3"], None), ["--seed", "3"]),
        (with_trials(["--seed", "3"], 40), ["--seed", "3", "--budget.trials", "40"]),
    ],
)
def test_what_is_accepted(parsed: object, expected: object) -> None:
    assert parsed == expected


@pytest.mark.parametrize(
    ("parse", "arguments", "message"),
    [
        (natural, ("--k", "0"), "--k: '0' is no whole number above 0"),
        (natural, ("--k", "²"), "--k: '²' is no whole number above 0"),
        (natural, ("--k", "9" * 5000), f"--k: '{'9' * 5000}' is no whole number above 0"),
        (natural, ("--k", "-3"), "--k: '-3' is no whole number above 0"),
        (natural, ("--k", "1.5"), "--k: '1.5' is no whole number above 0"),
        (naturals, ("--k", "4,"), "--k: '' is no whole number above 0"),
        (not_empty, ("--train", ""), "--train is empty"),
        (one_of, ("--format", "yaml", FORMATS), "--format is 'yaml'; allowed: table, json"),
        (several_of, ("--format", "json, table", FORMATS), "--format is ' table'; allowed: table, json"),
        (where_of, (["model"],), "--where is 'model'; it is COLUMN=VALUE"),
        (where_of, (["=a"],), "--where is '=a'; it is COLUMN=VALUE"),
        *(
            (with_trials, (given, 3), "--trials and --budget.trials are the same; allowed: one of them")
            for given in (["--budget.trials", "4"], ["--budget.trials=4"])
        ),
    ],
)
def test_what_is_refused(parse: Callable[..., Any], arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(*arguments)
    assert str(refused.value) == message
