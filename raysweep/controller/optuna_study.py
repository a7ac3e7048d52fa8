"""The sweep as an Optuna study on disk, for ``optuna-dashboard RUN/study.journal``. The ledger is the truth."""

from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial

from raysweep.metrics.objective import Objective, Pair
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import TrialState
from raysweep.trial_status import TrialStatus

OPTUNA_STATES = {
    TrialStatus.COMPLETED: optuna.trial.TrialState.COMPLETE,
    TrialStatus.STOPPED: optuna.trial.TrialState.PRUNED,
    TrialStatus.FAILED: optuna.trial.TrialState.FAIL,
}
"""Optuna's names for how a trial may end. A trial that may still go on is running there."""


class StudyFile:
    """One trial of the study for each of the sweep's, with the same numbers.

    A trial that was stopped is pruned, and only one that ran to its end is complete; one that is held or was interrupted is
    still running. A replicate has its original's parameters and the attribute ``replicate_of``. ``begin`` comes for every
    trial in order.
    """

    def __init__(self, path: Path, name: str, proposer: Proposer) -> None:
        path.unlink(missing_ok=True)
        path.with_suffix(".journal.lock").unlink(missing_ok=True)  # of a driver that was killed
        self._proposer = proposer
        self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
        self._study = optuna.create_study(
            study_name=name, directions=["maximize" for _ in proposer.names], storage=self._storage
        )
        self._study.set_metric_names(proposer.names)

    def begin(self, trial: TrialState) -> None:
        """A trial starts."""
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
        """A trial was evaluated; ``trial`` has its front so far."""
        stored = self._trial(number)
        if len(self._proposer.names) == 1:
            stored.report(self._proposer.values(trial.front)[0], examples_seen)
        polarity, similarity = objective.best_point(trial.front)
        stored.set_user_attr("best point", {"P": round(100 * polarity, 2), "S": round(100 * similarity, 2)})
        stored.set_user_attr("examples seen", examples_seen)
        if missed := shortfalls(objective, (polarity, similarity)):
            self._set_constraints(number, missed)

    def end(self, number: int, status: TrialStatus, reason: str, front: tuple[Pair, ...]) -> None:
        """A trial will not go on."""
        self._trial(number).set_user_attr("reason", reason)
        is_complete = status == TrialStatus.COMPLETED
        values = self._proposer.values(front) if is_complete else None
        self._study.tell(number, values, OPTUNA_STATES[status])

    def _set_constraints(self, number: int, missed: dict[str, float]) -> None:
        """Store by how much a trial's best point misses each constraint, in place of what was stored before.

        As the list that Optuna stored before it named constraints: it reads that too, and optuna-dashboard only that.
        """
        self._storage.set_trial_system_attr(self._trial_id(number), "constraints", list(missed.values()))
        self._trial(number).set_user_attr("constraints on", list(missed))

    def _trial(self, number: int) -> Trial:
        return Trial(self._study, self._trial_id(number))

    def _trial_id(self, number: int) -> int:
        study_id = self._storage.get_study_id_from_name(self._study.study_name)
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, number)


def shortfalls(objective: Objective, point: Pair) -> dict[str, float]:
    """The constraints of a sweep as Optuna has them: by how much a point misses each, 0 or less where it meets it."""
    polarity, similarity = point
    found = {}
    if objective.min_polarity:
        found["P"] = objective.min_polarity - polarity
    if objective.min_similarity:  # that a constraint on retention comes to
        found["S"] = objective.min_similarity - similarity
    return found
