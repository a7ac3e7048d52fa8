"""Ray Tune's OptunaSearch with its ASHAScheduler, and that scheduler with other libraries' searches."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal

from optuna.trial import TrialState
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

from benchmarks.search_peers.optuna_peers import multivariate_tpe
from benchmarks.search_peers.shown import Asked, Points, Shown, longest, params_of
from raysweep.replay.recordings import RecordedSweep
from raysweep.replay.simulator import Peer


class Tune:
    """OptunaSearch with multivariate TPE and ASHAScheduler, called as Tune's controller calls them, without a cluster.

    As in Tune, the searcher receives a stopped trial's last result as if it were complete, but not the earlier result at
    which the scheduler stopped it. Trials are requested when a worker is free, as under ``max_concurrent_trials``. The
    searcher has no interface for trials that run with other values than suggested, so its study records the suggestion as
    failed, which its sampler ignores, and receives the values to suggest.
    """

    def __init__(
        self, recording: RecordedSweep, seed: int, factor: int, aim: Literal["area", "sum"]
    ) -> None:
        self._recording, self._shown, self._aim = recording, Shown(recording), aim
        score: Any = {"metric": "score", "mode": "max"}
        self._searcher: Any = OptunaSearch(
            recording.space.draw, **score, sampler=multivariate_tpe(seed)
        )
        self._scheduler: Any = ASHAScheduler(
            "time", **score, max_t=longest(recording), reduction_factor=factor
        )
        self._trials: list[
            Any
        ] = []  # the scheduler reads nothing but their names, and nothing of Tune's controller

    def ask(self) -> Asked:
        number = len(self._trials)
        if number == len(self._recording.trials):
            return None
        values = self._searcher.suggest(str(number))
        trial = SimpleNamespace(trial_id=str(number), last_result={"training_iteration": 0})
        self._trials.append(trial)
        self._scheduler.on_trial_add(None, trial)
        return number, dict(values)

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        params = params_of(self._recording, values)
        suggested = self._searcher._ot_trials[str(trial)]
        if params != suggested.params:
            self._searcher._ot_study.tell(suggested, state=TrialState.FAIL)
            self._searcher._ot_study.enqueue_trial(params)
            del self._searcher._ot_trials[str(trial)]
            self._searcher.suggest(str(trial))

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        run = self._trials[trial]
        self._shown.add(trial, points)
        score = self._shown.area(trial) if self._aim == "area" else self._shown.weighted_sum(trial)
        iteration = run.last_result["training_iteration"] + 1
        run.last_result = {
            "score": score,
            "time": budget / self._recording.first_budget,
            "training_iteration": iteration,
        }
        stops: bool = (
            self._scheduler.on_trial_result(None, run, run.last_result) == TrialScheduler.STOP
        )
        if not stops:
            self._searcher.on_trial_result(run.trial_id, run.last_result)
        return stops

    def on_rest(self, trial: int, completed: bool) -> None:
        run = self._trials[trial]
        self._scheduler.on_trial_complete(None, run, run.last_result)
        self._searcher.on_trial_complete(run.trial_id, run.last_result)


class Halved:
    """A search that stops no trial by itself, with Tune's ASHAScheduler on the trial's area.

    As in Tune, the search receives a stopped trial's points as if the trial were complete.
    """

    def __init__(self, recording: RecordedSweep, peer: Peer, factor: int) -> None:
        self._recording, self._peer, self._shown = recording, peer, Shown(recording)
        self._scheduler: Any = ASHAScheduler(
            "time", metric="score", mode="max", max_t=longest(recording), reduction_factor=factor
        )
        self._trials: dict[int, Any] = {}

    def ask(self) -> tuple[int, Mapping[str, Any]] | None:
        proposal = self._peer.ask()
        if proposal is not None:
            number = proposal[0]
            self._trials[number] = SimpleNamespace(trial_id=str(number), last_result={})
            self._scheduler.on_trial_add(None, self._trials[number])
        return proposal

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        self._peer.on_begin(trial, values)

    def on_rung(self, trial: int, budget: int, points: Points, ahead: Sequence[int]) -> bool:
        self._peer.on_rung(trial, budget, points, ahead)
        self._shown.add(trial, points)
        run = self._trials[trial]
        run.last_result = {
            "score": self._shown.area(trial),
            "time": budget / self._recording.first_budget,
        }
        stops: bool = (
            self._scheduler.on_trial_result(None, run, run.last_result) == TrialScheduler.STOP
        )
        return stops

    def on_rest(self, trial: int, completed: bool) -> None:
        run = self._trials[trial]
        self._scheduler.on_trial_complete(None, run, run.last_result)
        self._peer.on_rest(trial, completed)
