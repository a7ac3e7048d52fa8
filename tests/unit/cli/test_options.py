"""Values that options accept and reject."""

from collections.abc import Callable
from typing import Any

import pytest

from raysweep.cli.options import (
    check_all_of,
    check_not_empty,
    check_one_of,
    check_verbosity,
    parse_positive_integer,
    parse_positive_integers,
    parse_where,
    with_trials,
)
from raysweep.errors import InputError
from raysweep.terminal import Verbosity

FORMATS = ("table", "json")
HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("parsed", "expected"),
    [
        (parse_positive_integer("--k", " 16"), 16),
        (parse_positive_integers("--k", "4,8"), [4, 8]),
        (check_one_of("--format", "json", FORMATS), "json"),
        (check_all_of("--format", "json,table,json", FORMATS), ["json", "table", "json"]),
        (parse_where([]), {}),
        (parse_where(["model=a", "kind=x=y"]), {"model": "a", "kind": "x=y"}),
        (check_verbosity(False, False, None), Verbosity()),
        (check_verbosity(False, True, "info"), Verbosity(is_verbose=True, log_level="info")),
        (check_verbosity(True, False, "error"), Verbosity(is_quiet=True, log_level="error")),
        (with_trials(["--seed", "3"], None), ["--seed", "3"]),
        (with_trials(["--seed", "3"], 40), ["--seed", "3", "--budget.trials", "40"]),
    ],
)
def test_valid_values_are_accepted(parsed: object, expected: object) -> None:
    assert parsed == expected


@pytest.mark.parametrize(
    ("parse", "arguments", "words"),
    [
        *(
            (parse_positive_integer, ("--k", text), ["--k", repr(text)])
            for text in ("0", "²", HUGE, "-3", "1.5")
        ),
        (parse_positive_integers, ("--k", "4,"), ["--k", "''"]),
        (check_not_empty, ("--train", ""), ["--train"]),
        (check_one_of, ("--format", "yaml", FORMATS), ["--format", "'yaml'", "table, json"]),
        (
            check_all_of,
            ("--format", "json, table", FORMATS),
            ["--format", "' table'", "table, json"],
        ),
        (parse_where, (["model"],), ["--where", "'model'", "COLUMN=VALUE"]),
        (parse_where, (["=a"],), ["--where", "'=a'", "COLUMN=VALUE"]),
        (check_verbosity, (True, True, None), ["--quiet", "--verbose"]),
        (
            check_verbosity,
            (False, False, "loud"),
            ["--log-level", "'loud'", "debug, info, warning, error"],
        ),
        (with_trials, (["--budget.trials", "4"], 3), ["--trials", "--budget.trials"]),
        (with_trials, (["--budget.trials=4"], 3), ["--trials", "--budget.trials"]),
    ],
)
def test_invalid_values_are_rejected(
    parse: Callable[..., Any], arguments: tuple[Any, ...], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        parse(*arguments)
    assert [word for word in words if word not in str(caught.value)] == []
