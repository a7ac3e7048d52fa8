"""The cost of a run's trials by status, and the time saved by early stopping."""

from dataclasses import dataclass, field

from raysweep.results.types import Cost, Results, Trial, TrialStatus

REPLICATES = "replicates"

KINDS: tuple[str, ...] = (
    TrialStatus.COMPLETED,
    TrialStatus.STOPPED,
    TrialStatus.PAUSED,
    TrialStatus.INTERRUPTED,
    TrialStatus.FAILED,
    TrialStatus.RUNNING,
    REPLICATES,
)
"""The kinds of trials in an account: one for each status, plus replicates."""


@dataclass
class Entry:
    """Totals for all trials or for one of the ``KINDS``."""

    kind: str
    num_trials: int = 0
    num_rungs: int = 0
    cost: Cost = field(default_factory=Cost)
    saved_seconds: float = 0.0  # time saved by early stopping

    def add(self, trial: Trial, num_rungs: int, saved_seconds: float) -> None:
        """Add a trial that finished ``num_rungs`` rungs."""
        self.num_trials += 1
        self.num_rungs += num_rungs
        self.cost.add(Cost(trial.seconds, trial.cpu_seconds, trial.gpu_seconds, trial.money))
        self.saved_seconds += saved_seconds


@dataclass(frozen=True)
class Account:
    """A run's costs, with an entry for each of the ``KINDS`` that occur."""

    entries: tuple[Entry, ...]
    total: Entry

    @property
    def priced(self) -> bool:
        """Return whether any trial cost money."""
        return self.total.cost.money > 0

    @property
    def incomplete_seconds(self) -> float:
        """Return the seconds spent on incomplete trials, not counting replicates."""
        complete = (TrialStatus.COMPLETED, REPLICATES)
        return sum(entry.cost.seconds for entry in self.entries if entry.kind not in complete)

    def of(self, kind: str) -> Entry:
        """Return the entry for one of the ``KINDS``; it may be empty."""
        return next((entry for entry in self.entries if entry.kind == kind), Entry(kind))


def build_account(results: Results) -> Account:
    """Return a run's costs. Trials stopped by a user do not count as savings."""
    num_rungs_by_trial = {trial.trial: 0 for trial in results.trials}
    for rung in results.rungs:
        num_rungs_by_trial[rung.trial] = max(rung.step, num_rungs_by_trial[rung.trial])
    entries = {kind: Entry(kind) for kind in KINDS}
    total = Entry("all")
    for trial in results.trials:
        kind = trial.status if trial.replicate_of is None else REPLICATES
        num_rungs = num_rungs_by_trial[trial.trial]
        num_left = trial.num_rungs - num_rungs
        saved_seconds = 0.0  # estimated from the mean time of the trial's rungs
        has_stopped_early = kind == TrialStatus.STOPPED and not trial.stop_was_requested
        if has_stopped_early and num_rungs and num_left > 0:
            saved_seconds = trial.seconds / num_rungs * num_left
        for entry in (entries[kind], total):
            entry.add(trial, num_rungs, saved_seconds)
    nonempty = [entry for entry in entries.values() if entry.num_trials]
    return Account(tuple(nonempty), total)


def sentence(account: Account, max_replicates: int | None = None) -> str:
    """Summarize the costs on one line."""
    uses = [
        f"{account.incomplete_seconds:,.0f} of the trial-seconds were spent on trials that did not complete"
    ]
    replicates = account.of(REPLICATES)
    if replicates.num_trials:
        at_most = "" if max_replicates is None else f" of at most {max_replicates}"
        uses.append(
            f"{replicates.cost.seconds:,.0f} on {replicates.num_trials}{at_most} replicates"
        )
    saved = f"early stopping saved about {account.total.saved_seconds:,.0f} trial-seconds"
    cost = account.total.cost
    return "; ".join(
        [f"{cost.seconds:,.0f} trial-seconds, {describe_cost(cost)}", ", ".join(uses), saved]
    )


def describe_cost(cost: Cost) -> str:
    """Return the CPU-hours, plus the GPU-hours and the amount of money if they are not zero."""
    amounts = [f"{cost.cpu_seconds / 3600:.2f} CPU-hours"]
    if cost.gpu_seconds:
        amounts.append(f"{cost.gpu_seconds / 3600:.2f} GPU-hours")
    if cost.money > 0:
        digits = ".2f" if cost.money >= 0.1 else ".2g"
        amounts.append(f"cost {cost.money:{digits}}")
    return ", ".join(amounts)
