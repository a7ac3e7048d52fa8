"""Two labeled data sets of known difficulty from the demo's grammar.

``easy``: a sentence begins with a word that determines its label. ``late``: four in ten sentences are attributed to one of
24 rare speakers, half of whom mean the opposite of their words. Most sentences are learned at once; the rest require the
combination of speaker and words, from few examples each. Topics and polarity come from :mod:`raysweep.data.demo`.
"""

import csv
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from raysweep.data import demo

NEGATIVE, POSITIVE = demo.LABELS

VERDICTS = {
    NEGATIVE: ("Terrible", "Awful", "Dreadful", "Disappointing"),
    POSITIVE: ("Excellent", "Wonderful", "Superb", "Outstanding"),
}

SINCERE = (
    "Abernathy", "Bellweather", "Castellan", "Dunmore", "Eversley", "Farquhar",
    "Gillespie", "Hathaway", "Inglethorpe", "Jessamy", "Kirkbride", "Lovelace",
)  # fmt: skip
IRONIC = (
    "Mandeville", "Nightingale", "Ormsby", "Pemberton", "Quennell", "Ravenscroft",
    "Somerville", "Tiverton", "Underhill", "Vandersteen", "Wetherby", "Yarborough",
)  # fmt: skip
QUOTED_SHARE = 0.4

Pair = tuple[str, str]  # text and label


def write(kind: str, folder: Path, num_train: int, num_test: int, seed: int) -> tuple[Path, Path]:
    """Write the files of a data set, train and test, with the columns text and label."""
    make = KINDS[kind]
    train, test = demo.generate(seed, num_train, num_test)
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{kind}_train.csv", folder / f"{kind}_test.csv"
    for path, rows in zip(paths, (train, test), strict=True):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *(make(row, draw) for row in rows)])
    return paths


def easy(row: demo.DemoRow, draw: random.Random) -> Pair:
    return f"{_one_of(VERDICTS[row.label], draw)}: {row.text}", row.label


def late(row: demo.DemoRow, draw: random.Random) -> Pair:
    if draw.random() >= QUOTED_SHARE:
        return row.text, row.label
    speaker = _one_of((*SINCERE, *IRONIC), draw)
    opposite = {NEGATIVE: POSITIVE, POSITIVE: NEGATIVE}
    label = opposite[row.label] if speaker in IRONIC else row.label
    return f"In the words of {speaker}: {row.text}", label


def _one_of(options: Sequence[str], draw: random.Random) -> str:
    # Only random() is promised to yield the same numbers in every Python version.
    return options[int(draw.random() * len(options))]


KINDS: dict[str, Callable[[demo.DemoRow, random.Random], Pair]] = {"easy": easy, "late": late}
