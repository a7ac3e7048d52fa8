"""Warn about stilted English in the prose of Markdown and Python files. It never fails a commit.

Usage: ``python tools/prose.py FILE...``. Docstrings, comments and string literals count as prose, code does not.
The patterns follow the word list in CONTRIBUTING.md, and they match some good sentences too.
"""

import ast
import contextlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

PATTERNS = {
    "what-clause": r"\b(what|whatever|whoever|whom)\b(?! is| are| do| does|\?)",
    "fronted Of/Where/As": r"(?:^|[.;:] )(Of|Where|As|Within|Beside|Those) [a-z]",
    "go on": r"\b(go|goes|going|went|gone) on\b",
    "say/tell of things": r"\b(tells?|told|says?|said)\b",
    "stand/lie": r"\b(stands?|stood|lies?|lay|lying)\b",
    "is none": r"\b(is|are|can be) (none|no [a-z]+)\b|\bthat (there )?(is|are) (not|there)\b",
    "so many": r"\bso (many|much|often|few)\b",
    "word list": r"\b(by chance|beside|mend(s|ed)?|at hand|refus(e|es|ed|al)|hears? of|surer|held|revives?d?)\b",
}


def read_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code blocks, with their numbers and without code spans."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if not is_code and not is_fence:
            yield number, re.sub(r"`[^`]*`", "X", line)


def read_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, other literals of five words or more, and comments, with their line numbers."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.count(" ") > 3
        ):
            yield node.lineno, re.sub(r"`[^`]*`", "X", " ".join(node.value.split()))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def find(path: str) -> Iterator[str]:
    """Yield a warning for each suspicious sentence of a file; files that cannot be parsed have none."""
    read = read_python if path.endswith(".py") else read_markdown
    with contextlib.suppress(SyntaxError, ValueError):
        for line, sentence in read(Path(path).read_text(encoding="utf-8")):
            if names := [
                name for name, pattern in PATTERNS.items() if re.search(pattern, sentence)
            ]:
                yield f"{path}:{line}: {', '.join(names)}: {sentence.strip()[:120]}"


if __name__ == "__main__":
    for warning in chain.from_iterable(map(find, sys.argv[1:])):
        print(warning)
