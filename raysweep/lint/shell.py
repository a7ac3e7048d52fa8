"""Commands in a cluster's file: the `ray start` in them, the variables they set, and how packages are installed."""

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence

SEPARATORS = (";", "&", "|", "(", ")")
PINS = ("-c", "--constraint", "-r", "--requirement")  # the file may follow, or be joined to them
TAKE_VALUES = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target"}
_PIP = re.compile(r"(.*/)?pip[\d.]*")
VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def simple_commands(command: str) -> list[list[str]]:
    """The words of each simple command, split at `;`, `&&` and the like. ValueError where quotes do not close."""
    lexer = shlex.shlex(command.replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    for word in lexer:
        if word.startswith(SEPARATORS):
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def variables(command: str) -> dict[str, str]:
    """The variables that a command sets, before a program or by `export`."""
    words = [word for part in simple_commands(command) for word in part]
    return {found[1]: found[2] for found in map(VARIABLE.fullmatch, words) if found}


def options_of(command: str, program: Sequence[str]) -> dict[str, str] | None:
    """The options that a program such as `ray start` is given where it first stands, None where it is not there."""
    return next(calls(command, program), None)


def calls(command: str, program: Sequence[str]) -> Iterator[dict[str, str]]:
    """The options of each place in a command where a program such as `ray start` stands."""
    for words in simple_commands(command):
        for start in range(len(words)):
            end = start + len(program)
            if words[start:end] == list(program):
                yield dict(_options(words[end:]))


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word.startswith("-"):
            following = words[index + 1] if index + 1 < len(words) else ""
            yield name, value if equals else ("" if following.startswith("-") else following)


def unpinned_install(command: str) -> str | None:
    """What a `pip install` installs without a version, None where constraints or `==` pin everything."""
    for words in simple_commands(command):
        for start, word in enumerate(words, 1):
            if _PIP.fullmatch(word):
                loose = list(_unpinned(_what_is_installed(words[start:])))
                if loose:
                    return loose[0]
    return None


def _what_is_installed(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments of `pip` behind its `install`, before which it has options at most."""
    num_options = sum(1 for _ in itertools.takewhile(lambda word: word.startswith("-"), arguments))
    return arguments[num_options + 1 :] if arguments[num_options : num_options + 1] == ["install"] else []


def _unpinned(arguments: Sequence[str]) -> Iterator[str]:
    """The packages among the arguments of `pip install` that may come in any version."""
    if any(argument.startswith(PINS) for argument in arguments):
        return
    for before, argument in itertools.pairwise(["", *arguments]):
        if not argument.startswith("-") and before not in TAKE_VALUES and "==" not in argument:
            yield argument
