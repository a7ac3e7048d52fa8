"""The sweep as an Optuna study on disk, for ``optuna-dashboard RUN/study.journal``. The ledger is the truth."""

from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial

from raysweep.metrics.objective import Objective, Pair
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import TrialState

STATES = {
    "completed": optuna.trial.TrialState.COMPLETE,
    "stopped": optuna.trial.TrialState.PRUNED,
    "failed": optuna.trial.TrialState.FAIL,
}


class StudyFile:
    """One trial of the study for each of the sweep's, with the same numbers.

    A trial that was stopped is pruned and none is complete that did not run to its end; one that is held, or cut by a
    budget, is still running. A replicate has its original's parameters and the attribute ``replicate_of``. ``begin`` comes
    for every trial in order.
    """

    def __init__(self, path: Path, name: str, proposals: Proposer) -> None:
        path.unlink(missing_ok=True)
        path.with_suffix(".journal.lock").unlink(missing_ok=True)  # of a driver that was killed
        self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
        self._study = optuna.create_study(
            study_name=name, directions=["maximize" for _ in proposals.names], storage=self._storage
        )
        self._study.set_metric_names(proposals.names)
        self._proposals = proposals

    def begin(self, course: TrialState) -> None:
        original = course.replicate_of
        known = self._proposals.known_trial(course.number if original is None else original)
        attributes = {} if original is None else {"replicate_of": original}
        self._study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=known.params,
                distributions=known.distributions,
                user_attrs=attributes,
            )
        )

    def rung(self, number: int, examples_seen: int, course: TrialState, objective: Objective) -> None:
        trial = self._trial(number)
        if len(self._proposals.names) == 1:
            trial.report(self._proposals.values(course.front)[0], examples_seen)
        best: Pair = objective.best_point(course.front)
        trial.set_user_attr("best point", {"P": round(100 * best[0], 2), "S": round(100 * best[1], 2)})
        trial.set_user_attr("examples seen", examples_seen)

    def end(self, number: int, status: str, reason: str, front: tuple[Pair, ...]) -> None:
        self._trial(number).set_user_attr("reason", reason)
        state = STATES[status]
        values = self._proposals.values(front) if state == optuna.trial.TrialState.COMPLETE else None
        self._study.tell(number, values, state)

    def _trial(self, number: int) -> Trial:
        study_id = self._storage.get_study_id_from_name(self._study.study_name)
        return Trial(self._study, self._storage.get_trial_id_from_study_id_trial_number(study_id, number))
