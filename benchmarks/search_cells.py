"""One search of one recording with one seed, as a cell of the benchmark, and a file that stores finished cells."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.recorded import Recorded
from benchmarks.regret import Curve, curve
from benchmarks.search_peers import registry
from raysweep.metrics.scores import Pair
from raysweep.replay.simulator import Peer, replay

# recording's name and digest, row and its code's digest, workers, seed
Key = tuple[str, str, str, str, int, int]


@dataclass(frozen=True)
class Cell:
    """A search to run."""

    recorded: Recorded
    entry: registry.Entry
    num_workers: int
    seed: int

    @property
    def key(self) -> Key:
        """Identify the result by everything it depends on: recording, library version, code, workers and seed."""
        return (
            self.recorded.name,
            self.recorded.digest,
            self.entry.name,
            self.entry.code,
            self.num_workers,
            self.seed,
        )

    def play(self) -> "Played":
        assert self.entry.make is not None
        registry.seed_globals(self.seed)
        sweep = self.recorded.sweep
        timed = _Timed(self.entry.make(sweep, self.seed))
        regret = curve(sweep, replay(sweep, timed, self.num_workers))
        return Played(regret, timed.seconds / len(sweep.trials))


@dataclass(frozen=True)
class Played:
    """The result of a search. ``proposal_seconds`` is the peer's own CPU time per configuration, including its updates."""

    curve: Curve
    proposal_seconds: float


class _Timed:
    """A peer whose own CPU time is counted, which other load on the machine does not affect."""

    def __init__(self, peer: Peer) -> None:
        self._peer, self.seconds = peer, 0.0

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        begun = time.process_time()
        proposal = self._peer.ask()
        self.seconds += time.process_time() - begun
        return proposal

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        begun = time.process_time()
        self._peer.on_begin(trial, values)
        self.seconds += time.process_time() - begun

    def on_rung(
        self, trial: int, budget: int, points: Sequence[Pair], ahead: Sequence[int]
    ) -> bool:
        begun = time.process_time()
        stops = self._peer.on_rung(trial, budget, points, ahead)
        self.seconds += time.process_time() - begun
        return stops

    def on_rest(self, trial: int, completed: bool) -> None:
        begun = time.process_time()
        self._peer.on_rest(trial, completed)
        self.seconds += time.process_time() - begun


class Kept:
    """Results of finished cells, in a file of JSON lines or only in memory.

    A line is written as soon as its cell is finished; an incomplete last line is skipped.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._played: dict[Key, Played] = (
            dict(_read(path)) if path is not None and path.exists() else {}
        )
        if path is not None and path.exists():
            _end_last_line(path)

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self._played

    def __getitem__(self, cell: Cell) -> Played:
        return self._played[cell.key]

    def add(self, cell: Cell, played: Played) -> None:
        self._played[cell.key] = played
        if self._path is None:
            return
        budgets = [budget if budget < float("inf") else None for budget in played.curve.budgets]
        line = {
            "key": list(cell.key),
            "area": played.curve.area,
            "budgets": budgets,
            "proposal_seconds": played.proposal_seconds,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _read(path: Path) -> Iterator[tuple[Key, Played]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            cell = json.loads(line)
        except json.JSONDecodeError:
            continue
        name, digest, row, code, num_workers, seed = cell["key"]
        budgets = tuple(float("inf") if budget is None else budget for budget in cell["budgets"])
        played = Played(Curve(cell["area"], budgets), cell["proposal_seconds"])
        yield (name, digest, row, code, num_workers, seed), played


def _end_last_line(path: Path) -> None:
    """End an incomplete last line, so that appended lines start on their own."""
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
