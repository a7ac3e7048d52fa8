"""The command ``replay``: compare searches on a recorded table by the hypervolume they reach for a given budget."""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table as Grid

from raysweep.config.sweep import SAMPLERS, Aim, Policy
from raysweep.errors import InputError
from raysweep.replay import table_io
from raysweep.replay.simulator import Search, SearchSettings, Step, budget_to, replay, share_at
from raysweep.replay.table import RecordedSweep
from raysweep.results.reader import load
from raysweep.search.proposer import try_out
from raysweep.storage.folder import Folder
from raysweep.terminal import Display

FRACTIONS = (0.05, 0.1, 0.2, 0.5, 1.0)  # of the whole table's budget

SHARES = (0.9, 0.95, 0.99)  # of the whole table's hypervolume


@dataclass(frozen=True)
class CompareSettings:
    """The searches to compare: every sampler with every policy, ``num_seeds`` times each."""

    samplers: Sequence[str]
    policies: Sequence[Policy]
    proposals: Aim
    reduction_factor: int
    num_workers: int
    num_seeds: int

    def searches(self) -> Iterator[SearchSettings]:
        for sampler, policy in itertools.product(self.samplers, self.policies):
            yield SearchSettings(sampler, policy, self.proposals, self.reduction_factor)


@dataclass(frozen=True)
class Comparison:
    """The result, for people (``title`` and ``table``) and for programs (``figures``, JSON-compatible)."""

    title: str
    table: Grid
    figures: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Medians over the seeds of one search.

    ``shares`` are the shares of the table's hypervolume reached after FRACTIONS of its budget. ``budgets`` are the
    budgets spent on reaching SHARES of the hypervolume, infinity if a share was never reached.
    """

    search: SearchSettings
    shares: tuple[float, ...]
    budgets: tuple[float, ...]

    def cells(self) -> list[str]:
        sampler = self.search.sampler.rpartition(":")[2]
        shares = [f"{100 * share:.1f}" for share in self.shares]
        budgets = [f"{budget:,.0f}" if budget < float("inf") else "never" for budget in self.budgets]
        return [sampler, self.search.policy, *shares, *budgets]

    def figures(self) -> dict[str, Any]:
        budgets = [budget if budget < float("inf") else None for budget in self.budgets]
        return {
            "sampler": self.search.sampler,
            "policy": self.search.policy,
            "hypervolume_share_by_budget_fraction": dict(zip(_percentages(FRACTIONS), self.shares, strict=True)),
            "budget_to_share": dict(zip(_percentages(SHARES), budgets, strict=True)),
        }


def read(source: Path | Folder, where: Mapping[str, str]) -> RecordedSweep:
    """Return the table in a file, or of the run in a folder."""
    if isinstance(source, Path) and not source.is_dir():
        return table_io.read(source, where)
    results = load(source)
    return table_io.from_frame(table_io.frame_of(results), results.folder, where)


def compare_searches(
    source: Path | Folder, where: Mapping[str, str], settings: CompareSettings, display: Display
) -> Comparison:
    """Replay searches on those rows of a table whose columns have the values in ``where``.

    Raises:
        InputError: If the table cannot be read, or a sampler cannot search it.
    """
    table = read(source, where)
    _warn_of_short_trials(table, source, display)
    _warn_of_missing_rungs(table, source, display)
    _warn_of_several_encoders(table, source, display)
    for sampler in settings.samplers:
        _check_sampler(sampler, table, settings.proposals)
    searches = list(settings.searches())
    num_replays = len(searches) * settings.num_seeds
    outcomes = []
    with display.stage("replay") as advance:
        for index, search in enumerate(searches):
            runs = []
            for seed in range(settings.num_seeds):
                runs.append(_replay(table, search, seed, settings.num_workers))
                num_done = index * settings.num_seeds + seed + 1
                advance(num_done, num_replays, "searches")
            outcomes.append(_outcome(table, search, runs))
    figures = {
        "budget": table.whole_budget,
        "trials": len(table.trials),
        "hypervolume": table.area,
        "searches": [outcome.figures() for outcome in outcomes],
    }
    return Comparison(_title(table, settings), _grid(outcomes), figures)


def _warn_of_short_trials(table: RecordedSweep, source: Path | Folder, display: Display) -> None:
    num_short = sum(len(trial.rungs) < table.num_rungs for trial in table.trials)
    if num_short:
        display.warn(
            f"{_name(source)}: {num_short} of {len(table.trials)} recorded trials have fewer than {table.num_rungs} "
            "rungs; a search that would have trained them longer cannot"
        )


def _warn_of_missing_rungs(table: RecordedSweep, source: Path | Folder, display: Display) -> None:
    if table.num_rungs == 1:
        display.warn(
            f"{_name(source)}: every trial has one rung, so this compares samplers and not policies of stopping"
        )


def _warn_of_several_encoders(table: RecordedSweep, source: Path | Folder, display: Display) -> None:
    """Warn if the table mixes base models or datasets.

    Their scores have different scales, and no sweep searches over them.
    """
    for column in ("model", "dataset"):
        values = sorted({str(trial.values[column]) for trial in table.trials if trial.values.get(column) is not None})
        if len(values) > 1:
            display.warn(
                f"{_name(source)}: {column} has {len(values)} values, which are searched as a parameter's; --where "
                f"{column}=VALUE takes one of {', '.join(values)}"
            )


def _name(source: Path | Folder) -> str:
    return str(source) if isinstance(source, Path) else source.location


def _check_sampler(sampler: str, table: RecordedSweep, proposals: Aim) -> None:
    allowed = [name for name in SAMPLERS if name != "grid"]
    if sampler not in allowed and ":" not in sampler:
        problem = "a recorded table has no grid" if sampler == "grid" else f"{sampler!r} is no sampler"
        raise InputError(f"--sampler: {problem}; allowed: {', '.join(allowed)}, package:Class")
    try:
        try_out(sampler, table.space, proposals)
    except InputError as error:
        raise InputError(f"--sampler: {error}") from None


def _replay(table: RecordedSweep, search: SearchSettings, seed: int, num_workers: int) -> list[Step]:
    peer = Search(table, search, seed)
    try:
        return list(replay(table, peer, num_workers))
    except Exception as error:
        if search.sampler in SAMPLERS:
            raise
        # The user's own sampler failed, so its message helps more than raysweep's traceback.
        raise InputError(f"--sampler: {search.sampler!r} failed: {type(error).__name__}: {error}") from None


def _outcome(table: RecordedSweep, search: SearchSettings, runs: Sequence[Sequence[Step]]) -> Outcome:
    shares = []
    for fraction in FRACTIONS:
        budget = fraction * table.whole_budget
        shares.append(statistics.median(share_at(run, budget, table) for run in runs))
    budgets = [statistics.median(budget_to(share, table, run) for run in runs) for share in SHARES]
    return Outcome(search, tuple(shares), tuple(budgets))


def _grid(outcomes: Iterable[Outcome]) -> Grid:
    grid = Grid("sampler", "policy", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    goals = [f"to {percentage}" for percentage in _percentages(SHARES)]
    for column in (*_percentages(FRACTIONS), *goals):
        grid.add_column(column, justify="right", no_wrap=True)
    for outcome in outcomes:
        grid.add_row(*outcome.cells())
    return grid


def _title(table: RecordedSweep, settings: CompareSettings) -> str:
    workers = _counted(settings.num_workers, "worker")
    seeds = _counted(settings.num_seeds, "seed")
    return (
        f"{len(table.trials)} recorded trials, up to {table.num_rungs} rungs; {workers}, medians over {seeds}.\n"
        f"Hypervolume in % of the whole table's once so much of its budget ({table.whole_budget:,}) is spent, "
        "and the budget spent when it first reaches so much:"
    )


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _percentages(fractions: Iterable[float]) -> list[str]:
    return [f"{100 * fraction:g}%" for fraction in fractions]
