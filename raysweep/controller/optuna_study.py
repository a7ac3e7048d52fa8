"""An on-disk copy of the sweep as an Optuna study, for ``optuna-dashboard RUN/study.journal``.

The ledger remains the source of truth.
"""

from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial

from raysweep.metrics.objective import Objective
from raysweep.metrics.scores import Pair
from raysweep.results.types import TrialStatus
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import TrialState

OPTUNA_STATES = {
    TrialStatus.COMPLETED: optuna.trial.TrialState.COMPLETE,
    TrialStatus.STOPPED: optuna.trial.TrialState.PRUNED,
    TrialStatus.FAILED: optuna.trial.TrialState.FAIL,
}
"""Optuna's states, keyed by final status. Trials that may still be resumed are RUNNING in Optuna."""


class StudyFile:
    """The study's file, with one Optuna trial for each of the sweep's trials, under the same number.

    Stopped trials are PRUNED, completed trials COMPLETE, and paused or interrupted trials RUNNING. A replicate has its
    original's parameters and the attribute ``replicate_of``. ``begin`` must be called for every trial, in order.
    """

    def __init__(self, path: Path, name: str, proposer: Proposer) -> None:
        path.unlink(missing_ok=True)
        lock = path.with_suffix(".journal.lock")
        lock.unlink(missing_ok=True)  # left behind by a killed driver
        self._proposer = proposer
        backend = JournalFileBackend(str(path))
        self._storage = optuna.storages.JournalStorage(backend)
        self._study = optuna.create_study(
            study_name=name, directions=["maximize" for _ in proposer.names], storage=self._storage
        )
        self._study.set_metric_names(proposer.names)

    def begin(self, trial: TrialState) -> None:
        """Add a trial."""
        original = trial.replicate_of
        known = self._proposer.known_trial(trial.number if original is None else original)
        begun = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            params=known.params,
            distributions=known.distributions,
            user_attrs={} if original is None else {"replicate_of": original},
        )
        self._study.add_trial(begun)

    def rung(self, number: int, examples_seen: int, trial: TrialState, objective: Objective) -> None:
        """Record a rung. ``trial.front`` is the trial's front up to this rung."""
        stored = self._trial(number)
        if len(self._proposer.names) == 1:
            (value,) = self._proposer.values(trial.front)
            stored.report(value, examples_seen)
        best_point = objective.best_point(trial.front)
        percentages = [round(100 * score, 2) for score in best_point]
        stored.set_user_attr("best point", dict(zip(objective.goals.headings, percentages, strict=True)))
        stored.set_user_attr("examples seen", examples_seen)
        missed_by = shortfalls(objective, best_point)
        if missed_by:
            # Optuna used lists before constraints had names; optuna-dashboard reads no other format.
            trial_id = self._trial_id(number)
            amounts = list(missed_by.values())
            self._storage.set_trial_system_attr(trial_id, "constraints", amounts)
            stored.set_user_attr("constraints on", list(missed_by))

    def end(self, number: int, status: TrialStatus, reason: str, front: tuple[Pair, ...]) -> None:
        """Set the final state of a trial."""
        self._trial(number).set_user_attr("reason", reason)
        is_complete = status == TrialStatus.COMPLETED
        values = self._proposer.values(front) if is_complete else None
        self._study.tell(number, values, OPTUNA_STATES[status])

    def _trial(self, number: int) -> Trial:
        return Trial(self._study, self._trial_id(number))

    def _trial_id(self, number: int) -> int:
        study_id = self._storage.get_study_id_from_name(self._study.study_name)
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, number)


def shortfalls(objective: Objective, point: Pair) -> dict[str, float]:
    """Return how far a point falls short of each constraint; as in Optuna, the value is at most 0 if it is met."""
    polarity, similarity = point
    p, s = objective.goals.headings
    missed_by = {}
    if objective.min_polarity:
        missed_by[p] = objective.min_polarity - polarity
    if objective.min_similarity:  # this includes constraints on retention
        missed_by[s] = objective.min_similarity - similarity
    return missed_by
