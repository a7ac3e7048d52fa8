"""The contract of samplers and early stopping policies, tested on an invented landscape with a simulated clock."""

import functools
import re
from typing import Any

import optuna
import pytest

from raysweep.errors import InputError
from raysweep.results.types import TrialStatus
from raysweep.search.proposer import Aim, make_sampler, try_out
from support.landscape import AHEAD, AIMS, ANY_SAMPLER, NUM_RUNGS, POLICIES, RANGES, Player, make


@functools.cache
def finished_search(sampler: str, policy: str, aim: Aim, workers: int) -> Player:
    """Return a search that was played to its end."""
    return Player(make(sampler, policy, aim), workers, (2, 5)).play()


CONTRACT = pytest.mark.parametrize("workers", [1, 8])
every = [
    *((sampler, "pareto", "area") for sampler in ANY_SAMPLER),
    *((sampler, "pareto", "both") for sampler in ("mfgp", "tpe", "gp", "nsga2", "random")),
    *((sampler, "pareto", aim) for sampler in ("mfgp", "tpe") for aim in AIMS),
    *((sampler, policy, "area") for sampler in ("mfgp", "tpe") for policy in POLICIES),
    *(("mfgp", policy, "front") for policy in POLICIES),
]
combinations = pytest.mark.parametrize(("sampler", "policy", "aim"), list(dict.fromkeys(every)))


@CONTRACT
@combinations
def test_equal_seeds_and_events_give_equal_searches(
    sampler: str, policy: str, aim: Aim, workers: int
) -> None:
    first = finished_search(sampler, policy, aim, workers)
    second = Player(make(sampler, policy, aim), workers, (2, 5)).play()
    assert first.events == second.events
    if sampler != "grid":
        other = Player(make(sampler, policy, aim, seed=4), workers, (2, 5)).play(stop_after=12)
        assert first.events[:12] != other.events[:12]


@CONTRACT
@combinations
def test_every_trial_is_within_the_space_and_comes_to_rest(
    sampler: str, policy: str, aim: Aim, workers: int
) -> None:
    player = finished_search(sampler, policy, aim, workers)
    scheduler = player.scheduler
    size = 18 if sampler == "grid" else 20
    assert list(scheduler.trials) == list(range(size))
    for number, trial in scheduler.trials.items():
        scheduler.proposer.space.suggest_fixed(trial.values)  # ValueError if outside
        assert (
            set(trial.values) - {"loss", "learning_rate"}
            == {"a": {"margin"}, "b": {"scale"}, "c": set()}[trial.values["loss"]]
        )
        steps = [event for event in player.events if event[:2] == ("rung", number)]
        assert len(steps) == len(set(map(str, steps))) <= NUM_RUNGS
        assert trial.status in ("completed", "paused", "failed")
        assert (trial.status == "completed") == (len(steps) == NUM_RUNGS)
        assert (trial.status == "failed") == (
            number in (2, 5) and len(steps) == 1 and trial.status != "paused"
        )
    if policy == "none":
        assert all(trial.status != "paused" for trial in scheduler.trials.values())


@CONTRACT
@combinations
def test_restored_search_continues_identically(
    sampler: str, policy: str, aim: Aim, workers: int
) -> None:
    """The state of a search depends on its events only."""
    expected = finished_search(sampler, policy, aim, workers).events
    for stop_after in (5, 17, 40):
        part = Player(make(sampler, policy, aim), workers, (2, 5)).play(stop_after)
        restored = make(sampler, policy, aim)
        steps: dict[int, int] = {}
        for kind, number, details in part.events:
            if kind == "ask":
                trial = restored.ask()
                assert trial is not None
                assert (trial.number, dict(trial.values)) == (number, details)
            elif kind == "rung":
                step = steps[number] = steps.get(number, 0) + 1
                restored.rung(number, 10 * step, details, AHEAD[step:])
            elif kind == "pause":
                restored.pause(number)
            else:
                restored.end(number, TrialStatus.COMPLETED if kind == "end" else TrialStatus.FAILED)
        part.scheduler = restored
        assert part.play().events == expected


@pytest.mark.parametrize("aim", AIMS)
def test_states_and_values_in_the_optuna_study(aim: Aim) -> None:
    """Paused trials are pruned and have the values at their rungs; completed and failed trials keep their states."""
    scheduler = Player(make("tpe", "pareto", aim), 1, (2, 5)).play().scheduler
    for view in scheduler.proposer.views:
        trials_in_study = {trial.number: trial for trial in view.study.get_trials()}
        assert len(trials_in_study) == len(view.numbers) - sum(
            trial.status == "failed" and number not in view.numbers
            for number, trial in scheduler.trials.items()
        )
        for number, trial in scheduler.trials.items():
            if number not in view.numbers:
                continue
            in_study = trials_in_study[view.numbers[number]]
            expected = {"completed": "COMPLETE", "paused": "PRUNED", "failed": "FAIL"}[trial.status]
            assert in_study.state.name == expected
            if expected == "COMPLETE" and aim == "area":
                assert in_study.value == scheduler.objective.area(trial.front)
            if expected == "PRUNED" and aim != "both":
                assert in_study.intermediate_values


@pytest.mark.parametrize(
    "name",
    ["nothing", "optuna.samplers:Nothing", "no_such_package:Sampler", "math:pi", ":", "a:b:c"],
)
def test_invalid_sampler_is_rejected(name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}'.*(allowed|import)"):
        make_sampler(name, 0, RANGES)


class FailingSampler(optuna.samplers.RandomSampler):
    """A sampler that fails after ten trials."""

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        if trial.number == 10:
            raise KeyError("no such thing")
        return {}


class UnbuildableSampler(optuna.samplers.RandomSampler):
    def __init__(self) -> None:
        raise KeyError("not today")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{__name__}:FailingSampler", "cannot search this space: KeyError: 'no such thing'"),
        (f"{__name__}:UnbuildableSampler", "cannot be created: KeyError: 'not today'"),
        (
            "optuna.samplers:CmaEsSampler",
            "cannot search this space: ModuleNotFoundError: No module named 'cmaes': pip install cmaes",
        ),
        ("optuna.samplers:BruteForceSampler", "cannot search this space: ValueError: "),
        ("../x:Y", "cannot be imported: TypeError: "),
        ("antigravity_of_nobody:X", "cannot be imported: ModuleNotFoundError: "),
    ],
)
def test_sampler_that_cannot_search_is_rejected(name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"{name!r} {message}")):
        try_out(name, RANGES, "area")


def test_samplers_that_can_search_are_accepted() -> None:
    for aim in AIMS:
        try_out("optuna.samplers:QMCSampler", RANGES, aim)
        try_out("tpe", RANGES, aim)
