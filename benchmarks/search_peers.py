"""Searches behind the calls of :class:`raysweep.replay.simulator.Peer`: raysweep's own, and other libraries as they come.

Everybody proposes from the same space and is told scores in the table's own unit. Peers that take one (P, S) a rung are
given the rung's best point under 0.5 P + 0.5 S. Time, for schedulers that count it, is the budget in units of the table's
first: the rung's number where rungs are even. A run is determined by its seed, numpy's global generator included, which
Syne Tune draws from and which has to be seeded before each run.
"""

import datetime
import importlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search.optuna import OptunaSearch

from raysweep.config.space import Choices, Parameters, Range, Scalar
from raysweep.metrics.objective import Pair
from raysweep.replay.simulator import Peer, Search, SearchSettings
from raysweep.replay.table import RecordedSweep

DEFAULT = SearchSettings("mfgp", "growth", "area", reduction_factor=2)
SYNE_TUNE = "syne_tune"
MOASHA = f"{SYNE_TUNE}.optimizer.schedulers.multiobjective.moasha"

Asked = tuple[int, dict[str, Any]] | None
Points = Sequence[Pair]


@dataclass(frozen=True)
class Entry:
    """A row of the benchmark. ``make`` begins a search of a table with a seed; None where its library is not installed."""

    name: str
    make: Callable[[RecordedSweep, int], Peer] | None
    outside: bool = True
    seeded: bool = True
    slow: bool = False  # a quick run leaves it out on large tables


def entries() -> list[Entry]:
    """Every peer; raysweep's default comes first."""
    return [
        _own("raysweep default", DEFAULT),
        *(
            _own("raysweep", SearchSettings(name, "pareto", "area"))
            for name in ("mfgp", "tpe", "gp", "nsga2", "random")
        ),
        *(_own("raysweep", SearchSettings(name, "asha", "combined")) for name in ("mfgp", "tpe")),
        *(_own("raysweep", SearchSettings(name, "growth", "area")) for name in ("tpe", "random")),
        Entry("Optuna TPE, P and S", lambda table, seed: OptunaAlone(table, optuna.samplers.TPESampler(seed=seed))),
        Entry(
            "Optuna NSGA-II, P and S", lambda table, seed: OptunaAlone(table, optuna.samplers.NSGAIISampler(seed=seed))
        ),
        Entry("Ray Tune OptunaSearch, ASHA (4)", lambda table, seed: Tune(table, seed, 4)),
        Entry("Ray Tune OptunaSearch, ASHA 2", lambda table, seed: Tune(table, seed, 2)),
        _moasha("(3)", 3, ranks=False),
        _moasha("2", 2, ranks=False),
        _moasha("(3), ranks", 3, ranks=True),
        _moasha("2, ranks", 2, ranks=True),
        Entry("random", lambda table, seed: Listed(table, _shuffled(table, seed))),
        Entry("grid", lambda table, seed: Listed(table, _in_order(table)), seeded=False),
    ]


def _own(name: str, settings: SearchSettings) -> Entry:
    factor = "" if settings.policy == "growth" else f" {settings.reduction_factor}"
    return Entry(
        f"{name}: {settings.policy}{factor}, {settings.sampler} on {settings.proposals}",
        lambda table, seed: Search(table, settings, seed),
        outside=False,
        slow=settings.sampler not in ("mfgp", "tpe"),
    )


def _moasha(name: str, factor: int, *, ranks: bool) -> Entry:
    try:
        importlib.import_module(MOASHA)
    except ImportError:
        return Entry(f"Syne Tune MOASHA {name}", None)
    # As it comes it sorts for longer than all others take together.
    return Entry(f"Syne Tune MOASHA {name}", lambda table, seed: SyneTune(table, factor, ranks), slow=not ranks)


def seed_globals(seed: int) -> None:
    """Once before every run: what libraries draw from the global generators is part of the run too."""
    np.random.seed(seed)
    random.seed(seed)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.ERROR)


class Listed:
    """The recorded configurations one after the other, each run to its end."""

    def __init__(self, table: RecordedSweep, order: Sequence[int]) -> None:
        self._table, self._order, self._num_asked = table, order, 0

    def ask(self) -> Asked:
        if self._num_asked == len(self._order):
            return None
        number = self._num_asked
        self._num_asked += 1
        return number, dict(self._table.trials[self._order[number]].values)

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        pass

    def on_rung(self, trial: int, budget: float, points: Points, ahead: Sequence[int]) -> bool:
        return False

    def on_rest(self, trial: int, completed: bool) -> None:
        pass


def _shuffled(table: RecordedSweep, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(len(table.trials)).tolist()
    return order


def _in_order(table: RecordedSweep) -> list[int]:
    """The trials by their values, the table's first column changing most slowly; where one has no value it comes first."""
    names = list(dict.fromkeys(name for trial in table.trials for name in trial.values))

    def place(value: Scalar | None) -> tuple[int, Any]:
        if value is None:
            return 0, 0
        return (2 if isinstance(value, str) else 1), value

    def places(index: int) -> list[tuple[int, Any]]:
        values = table.trials[index].values
        return [place(values.get(name)) for name in names]

    return sorted(range(len(table.trials)), key=places)


class OptunaAlone:
    """Optuna's ask-and-tell with two objectives and no stopping; a trial is worth its best point of all rungs."""

    def __init__(self, table: RecordedSweep, sampler: optuna.samplers.BaseSampler) -> None:
        self._table, self._objective = table, table.objective()
        self._study = optuna.create_study(directions=["maximize", "maximize"], sampler=sampler)
        self._asked: list[optuna.Trial] = []
        self._points: dict[int, list[Pair]] = {}

    def ask(self) -> Asked:
        if len(self._asked) == len(self._table.trials):
            return None
        self._asked.append(self._study.ask())
        return len(self._asked) - 1, self._table.space.draw(self._asked[-1])

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        params = self._table.space.suggest_fixed(values).params
        if params != self._asked[trial].params:
            self._study.tell(self._asked[trial], state=TrialState.FAIL)
            self._study.enqueue_trial(params)
            self._asked[trial] = self._study.ask()
            self._table.space.draw(self._asked[trial])

    def on_rung(self, trial: int, budget: float, points: Points, ahead: Sequence[int]) -> bool:
        self._points.setdefault(trial, []).extend(points)
        return False

    def on_rest(self, trial: int, completed: bool) -> None:
        self._study.tell(self._asked[trial], self._objective.best_point(self._points.pop(trial)))


class Tune:
    """Ray Tune's OptunaSearch and ASHAScheduler, called as Tune's controller calls them, without a cluster.

    The searcher is told a stopped trial's last result as if it were complete, and is not told the result at which the
    scheduler stopped it before that: both as in Tune. Trials are asked for when a worker is free, as under
    ``max_concurrent_trials``. It has no way of saying that a trial runs with other values than suggested, so its study is
    told that the suggestion failed, which its sampler passes over, and is given the values to suggest.
    """

    def __init__(self, table: RecordedSweep, seed: int, factor: int) -> None:
        self._table, self._objective = table, table.objective()
        score: Any = {"metric": "score", "mode": "max"}
        self._searcher: Any = OptunaSearch(table.space.draw, **score, seed=seed)
        self._scheduler: Any = ASHAScheduler("time", **score, max_t=_longest(table), reduction_factor=factor)
        self._trials: list[Any] = []  # the scheduler reads nothing but their names, and nothing of Tune's controller

    def ask(self) -> Asked:
        number = len(self._trials)
        if number == len(self._table.trials):
            return None
        values = self._searcher.suggest(str(number))
        trial = SimpleNamespace(trial_id=str(number), last_result={"training_iteration": 0})
        self._trials.append(trial)
        self._scheduler.on_trial_add(None, trial)
        return number, dict(values)

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        params = self._table.space.suggest_fixed(values).params
        suggested = self._searcher._ot_trials[str(trial)]
        if params != suggested.params:
            self._searcher._ot_study.tell(suggested, state=TrialState.FAIL)
            self._searcher._ot_study.enqueue_trial(params)
            del self._searcher._ot_trials[str(trial)]
            self._searcher.suggest(str(trial))

    def on_rung(self, trial: int, budget: float, points: Points, ahead: Sequence[int]) -> bool:
        run = self._trials[trial]
        score = self._objective.weighted_sum(self._objective.best_point(points))
        iteration = run.last_result["training_iteration"] + 1
        run.last_result = {
            "score": score,
            "time": budget / self._table.first_budget,
            "training_iteration": iteration,
        }
        stops: bool = self._scheduler.on_trial_result(None, run, run.last_result) == TrialScheduler.STOP
        if not stops:
            self._searcher.on_trial_result(run.trial_id, run.last_result)
        return stops

    def on_rest(self, trial: int, completed: bool) -> None:
        run = self._trials[trial]
        self._scheduler.on_trial_complete(None, run, run.last_result)
        self._searcher.on_trial_complete(run.trial_id, run.last_result)


class SyneTune:
    """Syne Tune's MOASHA on P and S, called as its Tuner calls it. Its configurations are random.

    In 0.16.0 its default priority hands out the order of the sorted trials where ranks are meant. That is how it comes;
    with ``ranks`` the order is turned into ranks.
    """

    def __init__(self, table: RecordedSweep, factor: int, ranks: bool) -> None:
        moasha = importlib.import_module(MOASHA)  # typed nowhere, and not everywhere installed
        order = moasha.NonDominatedPriority()
        self._table, self._objective = table, table.objective()
        self._scheduler = moasha.MOASHA(
            _domains(table.space.parameters, ""),
            metrics=["P", "S"],
            do_minimize=False,
            time_attr="time",
            max_t=_longest(table),
            reduction_factor=factor,
            multiobjective_priority=(lambda scores: np.argsort(order(scores))) if ranks else order,
            random_seed=0,  # only noted; it draws from numpy's global generator
        )
        self._trials: list[Any] = []
        self._results: dict[int, dict[str, float]] = {}
        self._stopped: set[int] = set()

    def ask(self) -> Asked:
        number = len(self._trials)
        if number == len(self._table.trials):
            return None
        drawn = self._scheduler.suggest().config
        trial = importlib.import_module(f"{SYNE_TUNE}.backend.trial_status").Trial
        self._trials.append(trial(number, drawn, datetime.datetime.min))
        self._scheduler.on_trial_add(self._trials[-1])
        return number, self._table.space.draw(_Drawn(drawn))

    def on_begin(self, trial: int, values: Mapping[str, Any]) -> None:
        """Its proposals do not depend on what was tried."""

    def on_rung(self, trial: int, budget: float, points: Points, ahead: Sequence[int]) -> bool:
        polarity, similarity = self._objective.best_point(points)
        self._results[trial] = {"P": polarity, "S": similarity, "time": budget / self._table.first_budget}
        stops: bool = self._scheduler.on_trial_result(self._trials[trial], self._results[trial]) == "STOP"
        if stops:
            self._scheduler.on_trial_remove(self._trials[trial])
            self._stopped.add(trial)
        return stops

    def on_rest(self, trial: int, completed: bool) -> None:
        if trial not in self._stopped:
            self._scheduler.on_trial_complete(self._trials[trial], self._results[trial])


def _longest(table: RecordedSweep) -> int:
    """The greatest budget of a trial in units of the table's first, rounded up."""
    return int(np.ceil(max(trial.rungs[-1].budget for trial in table.trials) / table.first_budget))


def _domains(parameters: Parameters, prefix: str) -> dict[str, Any]:
    """A space in Syne Tune's terms: every parameter that may occur by its sampler's name, choices by their index."""
    space = importlib.import_module(f"{SYNE_TUNE}.config_space")
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if isinstance(parameter, Choices):
            # Syne Tune asks for choices of one type; indices always are.
            found[prefix + name] = space.choice(list(range(len(parameter.options))))
            for option, children in parameter.options.items():
                found |= _domains(children, f"{prefix}{name}={option}.")
        elif isinstance(parameter, Range):
            found[prefix + name] = _domain(parameter)
    return found


def _domain(parameter: Range) -> Any:
    space = importlib.import_module(f"{SYNE_TUNE}.config_space")
    if parameter.integer:
        kind = space.lograndint if parameter.log else space.randint
        return kind(int(parameter.low), int(parameter.high))
    kind = space.loguniform if parameter.log else space.uniform
    return kind(parameter.low, parameter.high)


@dataclass(frozen=True)
class _Drawn:
    """A suggester that gives what was drawn from :func:`_domains`."""

    values: Mapping[str, Any]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return float(self.values[name])

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        return int(self.values[name])

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return choices[self.values[name]]
