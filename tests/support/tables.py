"""Runs and recorded sweeps for tests of tables, and readers of the written formats."""

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raysweep.metrics.scores import Pair
from raysweep.results.types import Point
from support.ledgers import INFO, StoredSweep, StoredTrial, write_ledger

GRID: Mapping[tuple[str, float | None], list[Pair]] = {
    ("triplet", 0.1): [(0.70, 0.44), (0.81, 0.36)],
    ("triplet", 1.0): [(0.72, 0.42), (0.83, 0.30)],
    ("contrastive", 0.5): [(0.66, 0.43), (0.75, 0.34)],
    ("multiple_negatives", None): [(0.68, 0.45), (0.69, 0.43)],
}
"""(P, S) of each rung by loss and margin."""


def trial(
    loss: str,
    margin: float | None,
    scores: Iterable[Pair],
    status: str = "completed",
    **others: Any,
) -> StoredTrial:
    config = {
        "loss": loss,
        "margin": margin,
        "scale": None if margin else 20.0,
        "examples_per_rung": 2048,
        **others,
    }
    return StoredTrial(config, status, "", list(scores))


def grid(**others: Any) -> list[StoredTrial]:
    """Return a trial for each entry of GRID."""
    return [trial(loss, margin, scores, **others) for (loss, margin), scores in GRID.items()]


def write_run(
    folder: Path,
    trials: Iterable[StoredTrial],
    *,
    test_of: Iterable[Point] = (),
    config: str = "",
    **info: Any,
) -> Path:
    """Write a run and return its folder; ``config`` is the content of config.yaml, ``info`` overrides INFO."""
    folder.mkdir(parents=True)
    settings = {"settings": config.encode()} if config else {}
    sweep = StoredSweep(info=dataclasses.replace(INFO, **info), test_of=tuple(test_of), **settings)
    write_ledger(folder, trials, sweep)
    return folder


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def markdown_rows(text: str) -> list[list[str]]:
    """Return the cells of a table's header and rows, with the marks of the best."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [cells[0], *cells[2:]]


def latex_rows(text: str) -> list[list[str]]:
    """Return the cells of a LaTeX table, after checking that it would compile."""
    check_latex(text)
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0].replace(r"\midrule", "")
    lines = [line.strip().removesuffix(r"\\") for line in body.splitlines() if line.strip()]
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", line)] for line in lines]


def check_latex(text: str) -> None:
    """Check that braces and environments are balanced, special characters are escaped, and rows have all columns."""
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("%"))
    bare = re.sub(r"\\[\\{}&%$#_]", "", body)  # without escaped characters
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0, body
    assert depth == 0, body
    assert not re.search(r"[%$#_~^]", bare.replace(r"\label", "")), body
    assert body.isascii() or not re.search("[–±]", body)  # noqa: RUF001 (characters that pdflatex lacks)
    begun = re.findall(r"\\begin\{(\w+)\}", body)
    assert begun == list(reversed(re.findall(r"\\end\{(\w+)\}", body))) == ["table", "tabular"]
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", body)
    for line in body.splitlines():
        if line.endswith(r" \\"):
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1, line
            assert not line.lstrip().startswith(("[", "*")), (
                "what follows the end of a row would be its option"
            )
