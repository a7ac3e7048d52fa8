"""Compare the hypervolumes that searches reach on a recording, for the ``replay`` command."""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysweep.config.sweep import SAMPLERS, Aim, Policy
from raysweep.errors import InputError
from raysweep.output import TextTable, counted
from raysweep.replay import recording_files
from raysweep.replay.recordings import RecordedSweep
from raysweep.replay.simulator import Search, SearchSettings, Step, budget_to, replay, share_at
from raysweep.results.reader import load
from raysweep.search.proposer import try_out
from raysweep.storage.folder import Folder
from raysweep.terminal import Display

FRACTIONS = (0.05, 0.1, 0.2, 0.5, 1.0)  # fractions of the recording's budget

SHARES = (0.9, 0.95, 0.99)  # shares of the recording's hypervolume


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
    """The result of a comparison as text and as JSON-compatible ``figures``."""

    title: str
    table: TextTable
    figures: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Medians of a search's results over the seeds.

    ``shares`` are the shares of the recording's hypervolume reached after FRACTIONS of its budget. ``budgets`` are the
    budgets needed to reach SHARES of that hypervolume, or infinity for shares that were not reached.
    """

    search: SearchSettings
    shares: tuple[float, ...]
    budgets: tuple[float, ...]

    def cells(self) -> list[str]:
        sampler = self.search.sampler.rpartition(":")[2]
        shares = [f"{100 * share:.1f}" for share in self.shares]
        budgets = [
            f"{budget:,.0f}" if budget < float("inf") else "never" for budget in self.budgets
        ]
        return [sampler, self.search.policy, *shares, *budgets]

    def figures(self) -> dict[str, Any]:
        budgets = [budget if budget < float("inf") else None for budget in self.budgets]
        return {
            "sampler": self.search.sampler,
            "policy": self.search.policy,
            "hypervolume_share_by_budget_fraction": dict(
                zip(_percentages(FRACTIONS), self.shares, strict=True)
            ),
            "budget_to_share": dict(zip(_percentages(SHARES), budgets, strict=True)),
        }


def read(source: Path | Folder, where: Mapping[str, str]) -> RecordedSweep:
    """Read a recording from a file or from a run's folder."""
    if isinstance(source, Path) and not source.is_dir():
        return recording_files.read(source, where)
    results = load(source)
    return recording_files.from_frame(recording_files.to_frame(results), results.folder, where)


def compare_searches(
    source: Path | Folder, where: Mapping[str, str], settings: CompareSettings, display: Display
) -> Comparison:
    """Compare searches on the recording's rows that match ``where``.

    Raises:
        InputError: If the recording cannot be read or a sampler cannot search it.
    """
    recording = read(source, where)
    name = str(source) if isinstance(source, Path) else source.location
    num_short = sum(len(trial.rungs) < recording.num_rungs for trial in recording.trials)
    if num_short:
        display.warn(
            f"{name}: {num_short} of {len(recording.trials)} recorded trials have fewer than {recording.num_rungs} "
            "rungs; searches cannot train them longer"
        )
    if recording.num_rungs == 1:
        display.warn(
            f"{name}: every trial has one rung, so the comparison covers samplers but not early stopping"
        )
    for sampler in settings.samplers:
        _check_sampler(sampler, recording, settings.proposals)
    searches = list(settings.searches())
    num_replays = len(searches) * settings.num_seeds
    outcomes = []
    with display.stage("replay") as advance:
        for index, search in enumerate(searches):
            runs = []
            for seed in range(settings.num_seeds):
                steps = _replay(recording, search, seed, settings.num_workers)
                runs.append(steps)
                num_done = index * settings.num_seeds + seed + 1
                advance(num_done, num_replays, "searches")
            outcome = _outcome(recording, search, runs)
            outcomes.append(outcome)
    figures = {
        "budget": recording.total_budget,
        "trials": len(recording.trials),
        "hypervolume": recording.area,
        "searches": [outcome.figures() for outcome in outcomes],
    }
    goals = [f"to {percentage}" for percentage in _percentages(SHARES)]
    columns = ("sampler", "policy", *_percentages(FRACTIONS), *goals)
    rows = tuple(tuple(outcome.cells()) for outcome in outcomes)
    table = TextTable(columns, rows, frozenset({"sampler", "policy"}))
    return Comparison(_title(recording, settings), table, figures)


def _check_sampler(sampler: str, recording: RecordedSweep, proposals: Aim) -> None:
    allowed = [name for name in SAMPLERS if name != "grid"]
    if sampler not in allowed and ":" not in sampler:
        raise InputError(f"--sampler is {sampler!r}; allowed: {', '.join(allowed)}, package:Class")
    try:
        try_out(sampler, recording.space, proposals)
    except InputError as error:
        raise InputError(f"--sampler: {error}") from None


def _replay(
    recording: RecordedSweep, search: SearchSettings, seed: int, num_workers: int
) -> list[Step]:
    peer = Search(recording, search, seed)
    try:
        return list(replay(recording, peer, num_workers))
    except Exception as error:
        if search.sampler in SAMPLERS:
            raise
        # The sampler is the user's own code, so raysweep's traceback would not help.
        raise InputError(
            f"--sampler: {search.sampler!r} failed: {type(error).__name__}: {error}"
        ) from None


def _outcome(
    recording: RecordedSweep, search: SearchSettings, runs: Sequence[Sequence[Step]]
) -> Outcome:
    shares = []
    for fraction in FRACTIONS:
        budget = fraction * recording.total_budget
        shares.append(statistics.median(share_at(run, budget, recording) for run in runs))
    budgets = [
        statistics.median(budget_to(share, recording, run) for run in runs) for share in SHARES
    ]
    return Outcome(search, tuple(shares), tuple(budgets))


def _title(recording: RecordedSweep, settings: CompareSettings) -> str:
    trials = counted(len(recording.trials), "recorded trial")
    rungs = counted(recording.num_rungs, "rung")
    workers = counted(settings.num_workers, "worker")
    seeds = counted(settings.num_seeds, "seed")
    return (
        f"{trials} with up to {rungs} each; {workers}; medians over {seeds}.\n"
        "Share of the recording's hypervolume reached after spending a percentage of its budget "
        f"({recording.total_budget:,}), and the budget needed to reach a percentage of the hypervolume:"
    )


def _percentages(fractions: Iterable[float]) -> list[str]:
    return [f"{100 * fraction:g}%" for fraction in fractions]
