"""The command ``replay``: searches side by side on a recorded table, and what they reached for which budget."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table as Grid

from raysweep.config.sweep import SAMPLERS
from raysweep.errors import InputError
from raysweep.replay import table_io
from raysweep.replay.simulator import Search, budget_to, replay, share_at
from raysweep.replay.table import RecordedSweep
from raysweep.replay.table_io import frame_of
from raysweep.results.reader import load
from raysweep.search.proposer import try_out
from raysweep.terminal import Display

FRACTIONS = (0.05, 0.1, 0.2, 0.5, 1.0)  # of the budget that the whole table cost


SHARES = (0.9, 0.95, 0.99)  # of the whole table's hypervolume


@dataclass(frozen=True)
class Comparison:
    title: str
    table: Grid
    figures: dict[str, Any]


def read(source: Path, where: Mapping[str, str]) -> RecordedSweep:
    """The table in a file, or of the run in a folder."""
    if source.is_dir():
        return table_io.from_frame(frame_of(load(source)), str(source), where)
    return table_io.read(source, where)


def compare_files(
    source: Path,
    where: Mapping[str, str],
    *,
    samplers: Sequence[str],
    policies: Sequence[str],
    proposals: Any,
    factor: int,
    num_workers: int,
    num_seeds: int,
    display: Display,
) -> Comparison:
    """Replay every sampler with every policy."""
    table = read(source, where)
    if short := sum(len(trial.rungs) < table.num_rungs for trial in table.trials):
        display.warn(
            f"{source}: {short} of {len(table.trials)} recorded trials have fewer than {table.num_rungs} rungs; "
            "a search that would have trained them longer cannot"
        )
    for sampler in samplers:
        if sampler == "grid":
            allowed = ", ".join(name for name in SAMPLERS if name != "grid")
            raise InputError(f"--sampler: a recorded table has no grid; allowed: {allowed}, package:Class")
        try:
            try_out(sampler, table.space, proposals)
        except InputError as error:
            raise InputError(f"--sampler: {error}") from None
    whole = sum(trial.rungs[-1].budget for trial in table.trials)
    names = [(sampler, policy) for sampler in samplers for policy in policies]
    columns = [f"{100 * fraction:g}%" for fraction in FRACTIONS]
    grid = Grid("sampler", "policy", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in [*columns, *(f"to {100 * share:g}%" for share in SHARES)]:
        grid.add_column(name, justify="right", no_wrap=True)
    figures: dict[str, Any] = {"budget": whole, "trials": len(table.trials), "hypervolume": table.area, "searches": []}
    with display.stage("replay") as advance:
        for index, (sampler, policy) in enumerate(names):
            runs = []
            for seed in range(num_seeds):
                peer = Search(table, sampler=sampler, policy=policy, proposals=proposals, seed=seed, factor=factor)  # type: ignore[arg-type]
                try:
                    runs.append(list(replay(table, peer, num_workers)))
                except Exception as error:
                    if sampler in SAMPLERS:
                        raise
                    raise InputError(f"--sampler: {sampler!r} failed: {type(error).__name__}: {error}") from None
                advance(index * num_seeds + seed + 1, len(names) * num_seeds, "searches")
            shares = [statistics.median(share_at(run, f * whole, table) for run in runs) for f in FRACTIONS]
            budgets = [statistics.median(budget_to(share, table, run) for run in runs) for share in SHARES]
            cells = [f"{100 * share:.1f}" for share in shares] + [_number(one) for one in budgets]
            grid.add_row(sampler.rpartition(":")[2], policy, *cells)
            figures["searches"].append(
                {
                    "sampler": sampler,
                    "policy": policy,
                    "hypervolume_share_by_budget_fraction": dict(zip(columns, shares, strict=True)),
                    "budget_to_share": {
                        f"{100 * s:g}%": b if b < float("inf") else None for s, b in zip(SHARES, budgets, strict=True)
                    },
                }
            )
    workers, seeds = (f"{n} {name}{'s' * (n > 1)}" for n, name in ((num_workers, "worker"), (num_seeds, "seed")))
    title = (
        f"{len(table.trials)} recorded trials, up to {table.num_rungs} rungs; {workers}, medians over {seeds}.\n"
        f"Hypervolume in % of the whole table's after so much of its budget ({whole:,}), and what it takes to reach so much:"
    )
    return Comparison(title, grid, figures)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value < float("inf") else "never"
