"""What a run's trials cost, by how they ended, and what early stopping saved: for the last line and for the report."""

from dataclasses import dataclass, field

from raysweep.results.types import Cost, Results

KINDS = ("completed", "stopped", "held", "interrupted", "failed", "running", "replicates")


@dataclass
class Entry:
    """Trials of one kind: those of a status, or the replicates, or all of them."""

    kind: str
    num_trials: int = 0
    num_rungs: int = 0
    cost: Cost = field(default_factory=Cost)
    saved_seconds: float = 0.0


@dataclass(frozen=True)
class Account:
    """``entries`` in the order of KINDS, those without a trial left out; ``total`` is their sum."""

    entries: tuple[Entry, ...]
    total: Entry

    @property
    def priced(self) -> bool:
        """Whether trials cost any money."""
        return self.total.cost.money > 0

    def of(self, kind: str) -> Entry:
        """The trials of one kind, perhaps none."""
        return next((entry for entry in self.entries if entry.kind == kind), Entry(kind))


def account_of(results: Results) -> Account:
    """Add up the trials. Early stopping saved what trials that it stopped would have taken to their end.

    That is estimated at the pace of the rungs they did. What failed, was cut off or may go on has saved nothing.
    """
    done: dict[int, int] = {}
    for rung in results.rungs:
        done[rung.trial] = max(rung.step, done.get(rung.trial, 0))
    entries = {kind: Entry(kind) for kind in KINDS}
    total = Entry("all")
    for trial in results.trials:
        kind = trial.status if trial.replicate_of is None else "replicates"
        num_rungs = done.get(trial.trial, 0)
        left = max(0, trial.num_rungs - num_rungs) if num_rungs and kind == "stopped" else 0
        for entry in (entries[kind], total):
            entry.num_trials += 1
            entry.num_rungs += num_rungs
            entry.cost.add(Cost(trial.seconds, trial.cpu_seconds, trial.gpu_seconds, trial.money))
            entry.saved_seconds += trial.seconds / num_rungs * left if left else 0.0
    return Account(tuple(entry for entry in entries.values() if entry.num_trials), total)


def sentence(found: Account, most_replicates: int | None = None) -> str:
    """The account in a line: what all cost, what went into trials that did not complete, what early stopping saved."""
    cost = found.total.cost
    text = f"{cost.seconds:,.0f} trial-seconds, {cost.cpu_seconds / 3600:.2f} CPU-hours"
    text += f", {cost.gpu_seconds / 3600:.2f} GPU-hours" if cost.gpu_seconds else ""
    text += f", {cost.money:{'.2f' if cost.money >= 0.1 else '.2g'}} in money" if found.priced else ""
    incomplete = sum(e.cost.seconds for e in found.entries if e.kind not in ("completed", "replicates"))
    text += f"; {incomplete:,.0f} of them in trials that did not complete"
    if (replicates := found.of("replicates")).num_trials:
        most = "" if most_replicates is None else f" of at most {most_replicates}"
        text += f", {replicates.cost.seconds:,.0f} in {replicates.num_trials}{most} replicates"
    return text + f"; early stopping saved about {found.total.saved_seconds:,.0f}"
