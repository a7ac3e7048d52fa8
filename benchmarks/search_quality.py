"""How fast searches reach the front: raysweep's against other libraries, on recordings.

A recording holds the scores of every configuration at every rung, so a search of it needs no training. The cost of a search
is its training budget, rungs of stopped trials included. Its regret is the share of the recording's hypervolume that is
still missing. The figures are the area under the regret curve over the recording's total budget, and the budgets at which
90, 95 and 99% of the hypervolume are reached.

All rows have the same recordings and space, and may propose as many trials as the recording has. A proposal is replaced by
the nearest unused configuration (:class:`raysweep.replay.simulator.FreeTrials`), and its proposer receives the replacement.
:mod:`benchmarks.search_peers` describes the peers and what they receive. ``random`` and ``grid`` name recorded
configurations, so they follow the recording's density; all others sample from the space itself.

Each row runs 50 seeds with 1 and with 8 simulated workers. Peers that take more than 0.2 s per proposal run 10 seeds
with 1 worker. ``ratio`` is the geometric mean, over the recordings that count, of the best peer's mean area divided by
that of raysweep's default, with 1 or with 8 workers, whichever is lower; the best peer is chosen for each recording and
number of workers. A recording counts if at least five configurations come within a tenth of the best one's hypervolume
and none has more than 90% of the recording's alone. If no recording counts, all are used, and the output states it.

``--quick`` uses 48 random configurations of each of the first two recordings, two seeds, no slow peers, and only the
default of raysweep's own rows.
"""

import argparse
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, regret
from benchmarks.recorded import Recorded, located
from benchmarks.regret import SHARES, Areas, Interval, Ratio
from benchmarks.search_cells import Cell, Kept, Played
from benchmarks.search_peers import registry
from raysweep.errors import InputError

WORKERS = (1, 8)
SLOW_WORKERS = (1,)
QUICK_TABLES = 2
QUICK_CONFIGURATIONS = 48
QUICK_SEEDS = 2
RESAMPLING_SEED = 0


def main() -> None:
    arguments = _arguments()
    machine = measure.machine()
    try:
        names = arguments.tables or located()[: QUICK_TABLES if arguments.quick else None]
        tables = [Recorded.of(name) for name in names]
        if arguments.quick:
            tables = [recorded.part(QUICK_CONFIGURATIONS, RESAMPLING_SEED) for recorded in tables]
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    plan = Plan(tables, _chosen(arguments), arguments.seeds, is_quick=arguments.quick)
    kept = Kept(arguments.keep)
    play(plan, kept, arguments.processes)
    figures = report(plan, kept)
    measure.finish("search_quality", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few seeds, peers and tables; under a minute on two cores",
    )
    parser.add_argument(
        "--json", action="store_true", help="print every figure as one JSON object on the last line"
    )
    parser.add_argument(
        "--tables",
        nargs="+",
        metavar="FILE[:column=value]",
        help="recordings, optionally only rows with this value; default: those in benchmarks/ and the published scores",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        help=f"maximum seeds of each random row; default: 50, with --quick {QUICK_SEEDS}",
    )
    parser.add_argument(
        "--rows", nargs="+", metavar="TEXT", help="only rows whose names contain one of these"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="file that stores finished searches"
    )
    parser.add_argument("--processes", type=int, default=1, help="concurrent searches")
    arguments = parser.parse_args()
    if arguments.seeds is None:
        arguments.seeds = QUICK_SEEDS if arguments.quick else registry.MANY_SEEDS
    if arguments.seeds < 1 or arguments.processes < 1:
        parser.error(
            f"--seeds is {arguments.seeds} and --processes {arguments.processes}; allowed: numbers from 1"
        )
    return arguments


def _chosen(arguments: argparse.Namespace) -> list[registry.Entry]:
    """Return the default and ``random``, which all rows are compared with, and the requested rows."""
    entries = registry.entries()
    if arguments.rows is None:
        return entries
    requested = [entry for entry in entries if any(text in entry.name for text in arguments.rows)]
    if not requested:
        raise SystemExit(
            f"error: --rows: no row contains {' or '.join(arguments.rows)}; there are\n"
            + _names(entries)
        )
    return [
        entry for entry in entries if entry in requested or entry in (entries[0], _base(entries))
    ]


def _names(entries: Sequence[registry.Entry]) -> str:
    return "\n".join(f"  {entry.name}" for entry in entries)


def _base(entries: Sequence[registry.Entry]) -> registry.Entry:
    return next(entry for entry in entries if entry.name == "random")


@dataclass(frozen=True)
class Plan:
    """The searches to run. The first entry is raysweep's default."""

    tables: Sequence[Recorded]
    entries: Sequence[registry.Entry]
    num_seeds: int
    is_quick: bool = False

    def played_entries(self) -> list[registry.Entry]:
        return [entry for entry in self.entries if not self.missing(entry)]

    def missing(self, entry: registry.Entry) -> str:
        """Return why a row does not run, or an empty text."""
        if entry.missing:
            return entry.missing
        is_another_of_ours = entry.kind == "own" and entry != self.entries[0]
        return (
            "left out of a quick run"
            if self.is_quick and (entry.is_slow or is_another_of_ours)
            else ""
        )

    def seeds(self, entry: registry.Entry) -> range:
        if not entry.is_seeded:
            return range(1)
        most = registry.FEW_SEEDS if entry.is_slow else registry.MANY_SEEDS
        return range(min(self.num_seeds, most))

    def cells(self) -> Iterator[Cell]:
        """Return the fast rows first, so that an interrupted run has them for all recordings."""
        for entry in sorted(self.played_entries(), key=lambda entry: entry.is_slow):
            for recorded in self.tables:
                for num_workers in workers_of(entry, recorded):
                    yield from self.row(recorded, entry, num_workers)

    def row(self, recorded: Recorded, entry: registry.Entry, num_workers: int) -> list[Cell]:
        return [Cell(recorded, entry, num_workers, seed) for seed in self.seeds(entry)]


def workers_of(entry: registry.Entry, recorded: Recorded) -> tuple[int, ...]:
    """Return the numbers of workers that a row runs with; none if it would repeat another row."""
    if entry.needs_rungs and recorded.sweep.num_rungs == 1:
        return ()
    return SLOW_WORKERS if entry.is_slow else WORKERS


def play(plan: Plan, kept: Kept, num_processes: int) -> None:
    """Run the searches whose results are not stored yet."""
    waiting = [cell for cell in plan.cells() if cell not in kept]
    note = _Progress(len(waiting))
    if num_processes == 1:
        for cell in waiting:
            kept.add(cell, cell.play())
            note.finished(cell)
        return
    with ProcessPoolExecutor(num_processes, mp_context=get_context("fork")) as pool:
        # entries hold functions, which no pickle takes; a forked process has them
        _WAITING[:] = waiting
        for index, played in enumerate(pool.map(_play_waiting, range(len(waiting)))):
            kept.add(waiting[index], played)
            note.finished(waiting[index])


_WAITING: list[Cell] = []


def _play_waiting(index: int) -> Played:
    return _WAITING[index].play()


class _Progress:
    """A line on standard error for each row of each recording, since a full run takes hours."""

    def __init__(self, num_cells: int) -> None:
        self._num_cells, self._num_finished, self._last = num_cells, 0, ("", "")

    def finished(self, cell: Cell) -> None:
        self._num_finished += 1
        row = cell.entry.name, cell.recorded.name
        if row != self._last:
            print(
                f"  {self._num_finished}/{self._num_cells} {row[0]} on {row[1]}",
                file=sys.stderr,
                flush=True,
            )
        self._last = row


def report(plan: Plan, kept: Kept) -> dict[str, Any]:
    """Print the results by recording and overall, and return the figures for JSON."""
    _print_heading(plan)
    tables = [TableResults.of(plan, kept, recorded) for recorded in plan.tables]
    for results in tables:
        results.show()
    return _conclude(plan, kept, tables)


def _print_heading(plan: Plan) -> None:
    print(
        f"area under the regret curve, in % of the recording's budget: means over {plan.num_seeds} seeds, 95% intervals;"
    )
    print(
        "and medians of the budgets at which 90, 95 and 99% of the hypervolume are reached, with their intervals"
    )
    for entry in plan.entries:
        if reason := plan.missing(entry):
            print(f"no row: {entry.name}: {reason}")
    if slow := [entry.name for entry in plan.played_entries() if entry.is_slow]:
        print(
            f"{registry.FEW_SEEDS} seeds at most and 1 worker, since a proposal takes more than 0.2 s: {'; '.join(slow)}"
        )


@dataclass(frozen=True)
class TableResults:
    """The results on one recording: by number of workers and row, one for each seed."""

    recorded: Recorded
    played: dict[int, dict[str, list[Played]]]
    outside: list[str]
    default: str

    @classmethod
    def of(cls, plan: Plan, kept: Kept, recorded: Recorded) -> "TableResults":
        played: dict[int, dict[str, list[Played]]] = {}
        for num_workers in WORKERS:
            rows = [
                entry
                for entry in plan.played_entries()
                if num_workers in workers_of(entry, recorded)
            ]
            played[num_workers] = {
                entry.name: [kept[cell] for cell in plan.row(recorded, entry, num_workers)]
                for entry in rows
            }
        outside = [entry.name for entry in plan.played_entries() if entry.kind == "outside"]
        return cls(recorded, played, outside, plan.entries[0].name)

    def areas(self, num_workers: int) -> Areas:
        return {
            name: [each.curve.area for each in row]
            for name, row in self.played[num_workers].items()
        }

    def peers(self, num_workers: int) -> list[str]:
        return [name for name in self.outside if name in self.played[num_workers]]

    def best_peer(self, num_workers: int) -> str:
        return regret.best_of(self.areas(num_workers), self.peers(num_workers))

    def ratio(self, num_workers: int) -> Ratio:
        return regret.ratio(
            self.areas(num_workers), self.default, self.peers(num_workers), RESAMPLING_SEED
        )

    def over_random(self, num_workers: int) -> Ratio:
        return regret.ratio(self.areas(num_workers), self.default, ["random"], RESAMPLING_SEED)

    def show(self) -> None:
        sweep = self.recorded.sweep
        rungs = (
            f"{sweep.num_rungs} rungs"
            if sweep.num_rungs > 1
            else "1 rung, so only samplers are compared"
        )
        print(
            f"\n{self.recorded.name}: {len(sweep.trials)} configurations, {rungs}; "
            f"all of it costs {_number(sweep.total_budget)}\n{self.recorded.criterion}",
            flush=True,
        )
        for num_workers in WORKERS:
            workers = f"{num_workers} worker{'s' * (num_workers > 1)}"
            header = [
                workers,
                "area",
                "interval",
                *(f"to {share:.0%}" for share in SHARES),
                "s/proposal",
            ]
            rows = sorted(self.played[num_workers].items(), key=lambda row: _mean_area(row[1]))
            print(measure.table(header, [[name, *_cells(row)] for name, row in rows]))
            if self.peers(num_workers):
                found = self.ratio(num_workers)
                print(
                    f"default over the best peer ({self.best_peer(num_workers)}): {found.value:.2f} {_range(found.interval)}"
                )

    def figures(self) -> dict[str, Any]:
        criterion = self.recorded.criterion
        return {
            "configurations": len(self.recorded.sweep.trials),
            "total_budget": self.recorded.sweep.total_budget,
            "near_best": criterion.num_near_best,
            "greatest_alone": criterion.greatest_alone,
            "counts": criterion.is_met,
            "workers": {str(workers): self._figures(workers) for workers in WORKERS},
        }

    def _figures(self, num_workers: int) -> dict[str, Any]:
        over_random = self.over_random(num_workers)
        found: dict[str, Any] = {
            "default_over_random": over_random.value,
            "default_over_random_interval": over_random.interval,
            "rows": {name: _row_figures(row) for name, row in self.played[num_workers].items()},
        }
        if self.peers(num_workers):
            compared = self.ratio(num_workers)
            found |= {
                "best_peer": self.best_peer(num_workers),
                "default_over_best_peer": compared.value,
                "default_over_best_peer_interval": compared.interval,
            }
        return found


def _mean_area(row: Sequence[Played]) -> float:
    return float(np.mean([each.curve.area for each in row]))


def _cells(row: Sequence[Played]) -> list[str]:
    areas = [each.curve.area for each in row]
    low, high = regret.mean_interval(areas, RESAMPLING_SEED)
    cells = [f"{100 * float(np.mean(areas)):.2f}", f"{100 * low:.2f} to {100 * high:.2f}"]
    for index in range(len(SHARES)):
        budgets = [each.curve.budgets[index] for each in row]
        least, most = regret.median_interval(budgets, RESAMPLING_SEED)
        cells.append(f"{_number(regret.median(budgets))} ({_number(least)} to {_number(most)})")
    seconds = float(np.mean([each.proposal_seconds for each in row]))
    return [*cells, f"{seconds:.3f}"]


def _row_figures(row: Sequence[Played]) -> dict[str, Any]:
    areas = [each.curve.area for each in row]
    figures: dict[str, Any] = {
        "seeds": len(row),
        "area": float(np.mean(areas)),
        "area_interval": regret.mean_interval(areas, RESAMPLING_SEED),
        "proposal_seconds": float(np.mean([each.proposal_seconds for each in row])),
    }
    for index, share in enumerate(SHARES):
        budgets = [each.curve.budgets[index] for each in row]
        ends = regret.median_interval(budgets, RESAMPLING_SEED)
        figures[f"budget_to_{share:.0%}"] = _finite(regret.median(budgets))
        figures[f"budget_to_{share:.0%}_interval"] = [_finite(end) for end in ends]
    return figures


def _conclude(plan: Plan, kept: Kept, tables: Sequence[TableResults]) -> dict[str, Any]:
    counted = [results for results in tables if results.recorded.criterion.is_met]
    if not counted:
        print("\nno recording counts; the following figures use all of them and support no claim")
    taken = counted or tables
    _print_slow_ones(plan, kept)
    worse = []
    for results, workers in itertools.product(tables, WORKERS):
        over_random = results.over_random(workers)
        if over_random.value > 1:
            name = f"{results.recorded.name} with {workers}"
            worse.append(f"{name}: {over_random.value:.2f} {_range(over_random.interval)}")
    print(
        f"\nraysweep's default over random: {'more on ' + ', '.join(worse) if worse else 'nowhere more'}"
    )
    figures: dict[str, Any] = {
        "default": plan.entries[0].name,
        "seeds": plan.num_seeds,
        "workers": list(WORKERS),
        "tables_counted": [results.recorded.name for results in counted],
        "default_worse_than_random": worse,
        "missing": {
            entry.name: plan.missing(entry) for entry in plan.entries if plan.missing(entry)
        },
        "tables": {results.recorded.name: results.figures() for results in tables},
    }
    return _overall(taken) | figures


def _overall(taken: Sequence[TableResults]) -> dict[str, Any]:
    """Print the geometric means over recordings and return them for JSON."""
    default = taken[0].default
    by_workers = {}
    for workers in WORKERS:
        compared = [results for results in taken if results.peers(workers)]
        if not compared:
            continue
        peers = list(dict.fromkeys(name for results in compared for name in results.peers(workers)))
        areas = [results.areas(workers) for results in compared]
        found = regret.geometric_mean_ratio(areas, default, peers, RESAMPLING_SEED)
        by_workers[workers] = found
        print(
            f"{workers} worker{'s' * (workers > 1)}: default over the best peer, geometric mean over {len(compared)} "
            f"recording{'s' * (len(compared) > 1)}: {found.value:.3f} {_range(found.interval)}"
        )
    if not by_workers:
        print("ratio: none, because no row of another library ran")
        return {"ratio": None}
    worst = max(by_workers.values(), key=lambda each: each.value)
    ratio = 1 / worst.value
    print(
        f"ratio: {ratio:.2f} (best peer's area under the regret curve over raysweep's default's; the smaller of the two)"
    )
    return {
        "ratio": ratio,
        "ratio_interval": [1 / worst.interval[1], 1 / worst.interval[0]],
        "ratio_of": ["best outside peer's area under the regret curve", "raysweep default's"],
        "default_over_best_peer": {
            str(workers): found.value for workers, found in by_workers.items()
        },
        "default_over_best_peer_interval": {
            str(workers): found.interval for workers, found in by_workers.items()
        },
    }


def _print_slow_ones(plan: Plan, kept: Kept) -> None:
    """Print the rows that are slower than rows with many seeds may be."""
    for entry in plan.played_entries():
        cells = [cell for cell in plan.cells() if cell.entry == entry]
        seconds = float(np.mean([kept[cell].proposal_seconds for cell in cells])) if cells else 0.0
        if seconds > registry.SLOW_SECONDS and not entry.is_slow:
            print(
                f"\n{entry.name} took {seconds:.2f} s per proposal here, but is not marked as slow"
            )


def _range(interval: Interval) -> str:
    return f"({interval[0]:.2f} to {interval[1]:.2f})"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(budget: float) -> str:
    return "never" if math.isinf(budget) else f"{budget:,.0f}" if budget >= 1000 else f"{budget:g}"


if __name__ == "__main__":
    from benchmarks import search_quality

    search_quality.main()
