"""How much training a search needs for the front: raysweep's against other libraries, on recorded sweeps.

A recorded sweep holds what every configuration scored at every rung, so a search of it needs no training. Counted is the
training budget spent, rungs of stopped trials included, until the hypervolume of all points seen reaches 95% of the whole
table's: the median over seeds, with 1 and with 8 simulated workers. ``never`` is a search that had stopped too much.

Everybody has the same tables, space and seeds, and may propose as many trials as the table has. A proposal stands for the
nearest recorded configuration that none has stood for yet (:class:`raysweep.replay.table.FreeTrials`), and whoever proposed
it is told which. Peers that take one (P, S) a rung are given the rung's best point under 0.5 P + 0.5 S; what counts are
all points of all rungs, for everyone.

The peers: Optuna with two objectives and no stopping; Ray Tune's OptunaSearch with its ASHAScheduler on 0.5 P + 0.5 S;
Syne Tune's MOASHA on P and S; the recorded configurations run whole, in random order and sorted. Reduction factors in
brackets are the libraries' own defaults, and 2 stands beside them: the best peer is the best row of each table and number
of workers. MOASHA's rows named ``ranks`` mend a slip in how Syne Tune 0.16.0 orders trials. ``random`` and ``grid`` name
recorded configurations, so they follow how densely the table covers the space; all others draw from the space itself.

``--quick`` takes the first two tables, and on a large one leaves out raysweep's other samplers and MOASHA as it comes.
"""

import argparse
import dataclasses
import math
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, search_peers
from raysweep.errors import InputError
from raysweep.replay.simulator import budget_to, replay
from raysweep.replay.table import RecordedSweep
from raysweep.replay.table_io import read

WORKERS = (1, 8)
PUBLISHED = ("minilm-6", "e5-small", "gte-small", "gte-base")  # the models of the published table
QUICK_TABLES = 2
LARGE = 100  # configurations
FILES = ("*.parquet", "*.csv")


def main() -> None:
    arguments = _arguments()
    found = measure.machine()
    try:
        names = arguments.tables or _there()[: QUICK_TABLES if arguments.quick else None]
        tables = [Recorded.of(name) for name in names]
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    figures = _run(arguments, tables)
    measure.finish("search_quality", figures, found, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few seeds, peers and tables; under a minute on two cores")
    parser.add_argument("--json", action="store_true", help="print every figure as one JSON object on the last line")
    parser.add_argument(
        "--table",
        action="append",
        dest="tables",
        metavar="FILE[:column=value]",
        help="a recorded sweep, of its rows those with this value; in place of those in benchmarks/ and the published one",
    )
    parser.add_argument("--seeds", type=int, help="of each peer that draws; 50, with --quick 5")
    parser.add_argument("--share", type=float, default=0.95, help="of the table's hypervolume that is to be reached")
    arguments = parser.parse_args()
    if arguments.seeds is None:
        arguments.seeds = 5 if arguments.quick else 50
    if arguments.seeds < 1 or not 0 < arguments.share <= 1:
        parser.error(f"--seeds is {arguments.seeds}, at least 1; --share is {arguments.share}, in (0, 1]")
    return arguments


@dataclass(frozen=True)
class Recorded:
    """A table by name."""

    name: str
    table: RecordedSweep

    @classmethod
    def of(cls, argument: str) -> "Recorded":
        """Of FILE or FILE:column=value."""
        file, _, where = argument.rpartition(":") if "=" in argument.rpartition(":")[2] else (argument, "", "")
        column, _, value = where.partition("=")
        table = read(Path(file), {column: value} if where else None)
        return cls(Path(file).stem + (f" {value}" if where else ""), table)


def _there() -> list[str]:
    """The recorded sweeps that are there, larger ones of ours first; says which are not."""
    folder = Path(__file__).parent
    found = [str(path) for pattern in FILES for path in sorted(folder.glob(pattern))]
    if not found:
        print(f"no recorded sweep in {folder.name}/ ({', '.join(FILES)}): the published tables only")
    given = os.environ.get("RAYSWEEP_DATA_DIR")
    data = Path(given) if given else measure.ROOT.parent / "shared" / "data"
    published = data / "replay" / "sst2_published_epochs.csv"
    if published.is_file():
        found += [f"{published}:model={model}" for model in PUBLISHED]
    else:
        print(f"no published tables: there is no {published}")
    if not found:
        raise InputError("no recorded sweep; give one with --table FILE")
    return found


@dataclass
class Row:
    """A peer's budgets on one table, by number of workers: one for each seed. Without any, ``missing`` says why."""

    peer: search_peers.Entry
    budgets: dict[int, list[float]]
    missing: str = ""

    def median(self, workers: int) -> float:
        return statistics.median(self.budgets[workers])

    def quartiles(self, workers: int) -> tuple[float, float]:
        low, high = np.quantile(self.budgets[workers], [0.25, 0.75], method="inverted_cdf")  # no inf - inf
        return float(low), float(high)


def _run(arguments: argparse.Namespace, tables: Sequence[Recorded]) -> dict[str, Any]:
    peers = search_peers.entries()
    print(
        f"training budget until {arguments.share:.0%} of the table's hypervolume; medians over {arguments.seeds} seeds, "
        "quartiles, and how much more random spends"
    )
    figures: dict[str, Any] = {}
    for recorded in tables:
        table = recorded.table
        num_points = sum(len(rung.points) for trial in table.trials for rung in trial.rungs)
        print(
            f"\n{recorded.name}: {len(table.trials)} configurations of up to {table.num_rungs} rungs, {num_points} points; "
            f"all of it costs {_number(table.whole_budget)}",
            flush=True,
        )
        rows = [_row(table, peer, arguments) for peer in peers]
        print(_shown(rows))
        figures[recorded.name] = _compared(rows) | {"whole_budget": table.whole_budget}
    return _concluded(arguments, figures)


def _row(table: RecordedSweep, peer: search_peers.Entry, arguments: argparse.Namespace) -> Row:
    budgets: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    print(f"  {peer.name}", file=sys.stderr, flush=True)  # the table comes when all have run
    if peer.make is None:
        return Row(peer, budgets, "not installed")
    if peer.slow and arguments.quick and len(table.trials) > LARGE:
        return Row(peer, budgets, "left out")
    for workers in WORKERS:
        for seed in range(arguments.seeds if peer.seeded else 1):
            search_peers.seed_globals(seed)
            steps = replay(table, peer.make(table, seed), workers)
            budgets[workers].append(budget_to(arguments.share, table, steps))
    return Row(peer, budgets)


def _shown(rows: Sequence[Row]) -> str:
    base = next(row for row in rows if row.peer.name == "random")
    header = ["peer"]
    for workers in WORKERS:
        header += [f"{workers} worker{'s' * (workers > 1)}", "quartiles", "random over it"]
    shown = []
    for row in rows:
        cells = [row.peer.name]
        for workers in WORKERS:
            if row.missing:
                cells += [row.missing, "", ""]
                continue
            low, high = row.quartiles(workers)
            cells += [_number(row.median(workers)), f"{_number(low)} to {_number(high)}"]
            cells.append(f"{_over(base.median(workers), row.median(workers)):.2f}")
        shown.append(cells)
    return measure.table(header, shown)


def _compared(rows: Sequence[Row]) -> dict[str, Any]:
    """The default against the best outside peer and against random; prints the ratios."""
    default, base = rows[0], next(row for row in rows if row.peer.name == "random")
    outside = [row for row in rows if row.peer.outside and not row.missing]
    ratios, best = {}, {}
    for workers in WORKERS:
        peer = min(outside, key=lambda row: row.median(workers))
        ratios[workers], best[workers] = _over(peer.median(workers), default.median(workers)), peer.peer.name
        print(
            f"ratio with {workers} worker{'s' * (workers > 1)}: {ratios[workers]:.2f} "
            f"({peer.peer.name}: {_number(peer.median(workers))}, raysweep's default: {_number(default.median(workers))})"
        )
    return {
        "ratio": min(ratios.values()),
        "ratio_by_workers": ratios,
        "best_peer_by_workers": best,
        "worse_than_random_with": [w for w in WORKERS if default.median(w) > base.median(w)],
        "missing": {row.peer.name: row.missing for row in rows if row.missing},
        "rows": {row.peer.name: _figures(row) for row in rows if not row.missing},
    }


def _figures(row: Row) -> dict[str, Any]:
    """A row for JSON, where what is never reached is null."""
    return {
        str(workers): {
            "median": _finite(row.median(workers)),
            "quartiles": [_finite(value) for value in row.quartiles(workers)],
            "budgets": [_finite(value) for value in row.budgets[workers]],
        }
        for workers in WORKERS
    }


def _concluded(arguments: argparse.Namespace, figures: dict[str, Any]) -> dict[str, Any]:
    name, first = next(iter(figures.items()))
    worse = [
        f"{table} with {' and '.join(map(str, compared['worse_than_random_with']))}"
        for table, compared in figures.items()
        if compared["worse_than_random_with"]
    ]
    print(f"\nraysweep's default against random: {'worse on ' + ', '.join(worse) if worse else 'never worse'}")
    if len(figures) > 1:
        each = ", ".join(f"{table} {compared['ratio']:.2f}" for table, compared in figures.items())
        print(f"ratio on each table: {each}")
    print(
        f"ratio: {first['ratio']:.2f} (best peer's budget over raysweep's default's on {name}, the smaller of the two)"
    )
    for compared in figures.values():
        compared["ratio"] = _finite(compared["ratio"])
        compared["ratio_by_workers"] = {str(w): _finite(ratio) for w, ratio in compared["ratio_by_workers"].items()}
        compared["best_peer_by_workers"] = {str(w): peer for w, peer in compared["best_peer_by_workers"].items()}
    return {
        "ratio": first["ratio"],
        "ratio_of": ["best outside peer's budget", "raysweep default's budget"],
        "ratio_on": name,
        "ratio_by_table": {table: compared["ratio"] for table, compared in figures.items()},
        "default": list(dataclasses.astuple(search_peers.DEFAULT)),
        "default_worse_than_random": worse,
        "seeds": arguments.seeds,
        "share": arguments.share,
        "workers": list(WORKERS),
        "tables": figures,
    }


def _over(budget: float, own: float) -> float:
    """``budget / own``; 0 where it is ``own`` that never gets there, 1 where neither does."""
    return 1.0 if budget == own else 0.0 if math.isinf(own) else budget / own


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(budget: float) -> str:
    return "never" if math.isinf(budget) else f"{budget:,.0f}" if budget >= 1000 else f"{budget:g}"


if __name__ == "__main__":
    from benchmarks import search_quality

    search_quality.main()
