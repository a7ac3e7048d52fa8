"""Export of a sweep to an Optuna journal file, for ``optuna-dashboard RUN/study.journal``.

The ledger remains the source of truth.
"""

from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import Trial

from raysweep.metrics.objective import Objective
from raysweep.metrics.scores import Pair
from raysweep.results.types import TrialStatus
from raysweep.search.proposer import Proposer
from raysweep.search.scheduler import TrialState

PAIR_STUDY = "P and S"


class StudyFile:
    """The journal file with a sweep's Optuna study. Trials have the same numbers as in the sweep.

    If the sampler maximizes a single value, a second study stores P and S of each trial's best point. Its name ends with
    ``PAIR_STUDY``. Failed trials are FAIL, trials that end without a rung are PRUNED, and all others are COMPLETE. Paused
    and interrupted trials are RUNNING until the sweep ends and then COMPLETE, because optuna-dashboard omits pruned
    trials from most plots. The ``status`` attribute has the actual status. ``begin`` must be called for every trial, in
    order.
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
        self._pair_study: Study | None = None
        if len(proposer.names) == 1:
            self._pair_study = optuna.create_study(
                study_name=f"{name}: {PAIR_STUDY}",
                directions=["maximize", "maximize"],
                storage=self._storage,
            )
            self._pair_study.set_metric_names(list(proposer.objective.goals.headings))
        self._running: dict[int, TrialState] = {}

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
        for study in self._studies:
            study.add_trial(begun)
        self._running[trial.number] = trial

    @property
    def _studies(self) -> list[Study]:
        return [self._study] if self._pair_study is None else [self._study, self._pair_study]

    def rung(
        self, number: int, examples_seen: int, trial: TrialState, objective: Objective
    ) -> None:
        """Record a rung. ``trial.front`` is the trial's front up to this rung."""
        trial_id = self._trial_id(number, self._study)
        stored = Trial(self._study, trial_id)
        if len(self._proposer.names) == 1:
            (value,) = self._proposer.values(trial.front)
            stored.report(value, examples_seen)
        best_point = objective.best_point(trial.front)
        percentages = [round(100 * score, 2) for score in best_point]
        stored.set_user_attr(
            "best point", dict(zip(objective.goals.headings, percentages, strict=True))
        )
        stored.set_user_attr("examples seen", examples_seen)
        missed_by = shortfalls(objective, best_point)
        if missed_by:
            # optuna-dashboard supports only Optuna's older format, in which constraints have no names
            amounts = list(missed_by.values())
            self._storage.set_trial_system_attr(trial_id, "constraints", amounts)
            stored.set_user_attr("constraints on", list(missed_by))

    def end(self, number: int, status: TrialStatus, reason: str, front: tuple[Pair, ...]) -> None:
        """Set the final state of a trial."""
        del self._running[number]
        for study in self._studies:
            trial = Trial(study, self._trial_id(number, study))
            trial.set_user_attr("status", str(status))
            trial.set_user_attr("reason", reason)
            if status == TrialStatus.FAILED:
                study.tell(number, state=optuna.trial.TrialState.FAIL)
            elif not front:
                study.tell(number, state=optuna.trial.TrialState.PRUNED)
            elif study is self._study:
                study.tell(number, self._proposer.values(front))
            else:
                study.tell(number, list(self._proposer.objective.best_point(front)))

    def close(self) -> None:
        """Set the final state of unfinished trials when the sweep ends. A resumed sweep rewrites the file."""
        for number, trial in list(self._running.items()):
            is_paused = trial.status == TrialStatus.PAUSED
            self.end(
                number,
                TrialStatus.PAUSED if is_paused else TrialStatus.INTERRUPTED,
                trial.reason,
                trial.front,
            )

    def _trial_id(self, number: int, study: Study) -> int:
        study_id = self._storage.get_study_id_from_name(study.study_name)
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, number)


def shortfalls(objective: Objective, point: Pair) -> dict[str, float]:
    """Return the amount by which a point misses each constraint, which is at most 0 if the constraint holds."""
    polarity, similarity = point
    p, s = objective.goals.headings
    missed_by = {}
    if objective.min_polarity:
        missed_by[p] = objective.min_polarity - polarity
    if objective.min_similarity:  # includes constraints on retention
        missed_by[s] = objective.min_similarity - similarity
    return missed_by
