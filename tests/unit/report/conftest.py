"""Fast figures and a completed run for the tests of reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from raysweep.report import figures
from support.ledgers import StoredSweep, StoredTrial, dev_front, random_trials, write_ledger
from support.pictures import blank_png


@pytest.fixture(autouse=True)
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the drawing functions, which take most of the time; tests of figures import the real ones."""
    monkeypatch.setattr(figures, "front_figure", lambda _: blank_png(2))
    monkeypatch.setattr(figures, "progress_figure", lambda _: blank_png(3))


@dataclass(frozen=True)
class Run:
    folder: Path
    trials: Sequence[StoredTrial]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a completed sweep of 14 trials whose front is scored on test."""
    trials = random_trials(14)
    write_ledger(tmp_path, trials, StoredSweep(test_of=dev_front(trials)))
    return Run(tmp_path, trials)
