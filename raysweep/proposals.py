"""Configurations proposed by Optuna through ask-and-tell: a conditional space, seeded, told how each trial ended."""

import warnings
from typing import Any

from raysweep.space import Space
from raysweep.trial import TrialConfig


class Proposals:
    """A study of one sweep. Trials are numbered from 0 in the order they were asked for."""

    def __init__(self, space: Space, sampler: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        samplers: dict[str, Any] = {
            # multivariate and grouped: one density over the parameters that exist together under a choice
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
            "grid": lambda: optuna.samplers.RandomSampler(seed=seed),
        }
        self.space = space
        self.limit: int | None = None
        self._study = optuna.create_study(direction="maximize", sampler=samplers[sampler]())
        self._trials: list[Any] = []
        if sampler == "grid":
            combinations = space.grid()
            self.limit = len(combinations)
            for combination in combinations:
                self._study.enqueue_trial(combination)

    def ask(self) -> tuple[int, TrialConfig]:
        """The next trial's number and configuration."""
        trial = self._study.ask()
        self._trials.append(trial)
        return trial.number, self.space.sample(trial)

    def report(self, number: int, step: int, objective: float) -> None:
        """A trial's objective at a rung."""
        self._trials[number].report(objective, step)

    def tell(self, number: int, status: str, objective: float | None) -> None:
        """How a trial ended: completed with its best objective, stopped (pruned where it stood), or else failed."""
        from optuna.trial import TrialState

        if status == "completed":
            self._study.tell(number, objective, state=TrialState.COMPLETE)
        elif status == "stopped":
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, state=TrialState.FAIL)
