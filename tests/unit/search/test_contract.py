"""What every sampler and every stopper must do, played on an invented landscape with a simulated clock."""

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
def whole(sampler: str, policy: str, aim: Aim, workers: int) -> Player:
    """A search that was played to its end, for tests to look at."""
    return Player(make(sampler, policy, aim), workers, (2, 5)).play()


CONTRACT = pytest.mark.parametrize("workers", [1, 8])
every = [
    *((sampler, "pareto", "area") for sampler in ANY_SAMPLER),
    *((sampler, "pareto", "both") for sampler in ("mfgp", "tpe", "gp", "nsga2", "random")),
    *((sampler, policy, aim) for sampler in ("mfgp", "tpe") for policy in POLICIES for aim in AIMS),
]
combinations = pytest.mark.parametrize(("sampler", "policy", "aim"), list(dict.fromkeys(every)))


@CONTRACT
@combinations
def test_the_same_seed_and_events_give_the_same_search(sampler: str, policy: str, aim: Aim, workers: int) -> None:
    first, second = whole(sampler, policy, aim, workers), Player(make(sampler, policy, aim), workers, (2, 5)).play()
    assert first.events == second.events
    if sampler != "grid":
        other = Player(make(sampler, policy, aim, seed=4), workers, (2, 5)).play(stop_after=12)
        assert first.events[:12] != other.events[:12]


@CONTRACT
@combinations
def test_every_trial_is_proposed_once_within_the_space_and_comes_to_rest(
    sampler: str, policy: str, aim: Aim, workers: int
) -> None:
    player = whole(sampler, policy, aim, workers)
    scheduler = player.scheduler
    size = 18 if sampler == "grid" else 20
    assert list(scheduler.trials) == list(range(size))
    for number, trial in scheduler.trials.items():
        scheduler.proposer.space.suggest_fixed(trial.values)  # ValueError if outside
        assert (
            set(trial.values) - {"loss", "learning_rate"}
            == {"a": {"margin"}, "b": {"scale"}, "c": set()}[trial.values["loss"]]
        )
        steps = [e for e in player.events if e[:2] == ("rung", number)]
        assert len(steps) == len({str(e) for e in steps}) <= NUM_RUNGS
        assert trial.status in ("completed", "paused", "failed")
        assert (trial.status == "completed") == (len(steps) == NUM_RUNGS)
        assert (trial.status == "failed") == (number in (2, 5) and len(steps) == 1 and trial.status != "paused")
    if policy == "none":
        assert all(trial.status != "paused" for trial in scheduler.trials.values())


@CONTRACT
@combinations
def test_restored_in_the_middle_it_goes_on_the_same(sampler: str, policy: str, aim: Aim, workers: int) -> None:
    """What a search has been told is all there is to its state."""
    expected = whole(sampler, policy, aim, workers).events
    for stop_after in (5, 17, 40):
        part = Player(make(sampler, policy, aim), workers, (2, 5)).play(stop_after)
        restored = make(sampler, policy, aim)
        steps: dict[int, int] = {}
        for kind, number, what in part.events:
            if kind == "ask":
                trial = restored.ask()
                assert trial is not None
                assert (trial.number, dict(trial.values)) == (number, what)
            elif kind == "rung":
                step = steps[number] = steps.get(number, 0) + 1
                restored.rung(number, 10 * step, what, AHEAD[step:])
            elif kind == "pause":
                restored.pause(number)
            else:
                restored.end(number, TrialStatus.COMPLETED if kind == "end" else TrialStatus.FAILED)
        part.scheduler = restored
        assert part.play().events == expected


@pytest.mark.parametrize("aim", AIMS)
def test_what_optuna_is_told(aim: Aim) -> None:
    """Paused trials are pruned, with the values at their rungs; none is complete that was not; failed ones failed."""
    scheduler = Player(make("tpe", "pareto", aim), 1, (2, 5)).play().scheduler
    for view in scheduler.proposer.views:
        told = {trial.number: trial for trial in view.study.get_trials()}
        assert len(told) == len(view.numbers) - sum(
            trial.status == "failed" and number not in view.numbers for number, trial in scheduler.trials.items()
        )
        for number, trial in scheduler.trials.items():
            if number not in view.numbers:
                continue
            in_study = told[view.numbers[number]]
            expected = {"completed": "COMPLETE", "paused": "PRUNED", "failed": "FAIL"}[trial.status]
            assert in_study.state.name == expected
            if expected == "COMPLETE" and aim == "area":
                assert in_study.value == scheduler.objective.area(trial.front)
            if expected == "PRUNED" and aim != "both":
                assert in_study.intermediate_values


@pytest.mark.parametrize(
    "name", ["nothing", "optuna.samplers:Nothing", "no_such_package:Sampler", "math:pi", ":", "a:b:c"]
)
def test_invalid_sampler_is_rejected(name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}'.*(allowed|import)"):
        make_sampler(name, 0, RANGES)


class Refusing(optuna.samplers.RandomSampler):
    """Finds out late that it cannot work."""

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        if trial.number == 10:
            raise KeyError("no such thing")
        return {}


class Unmade(optuna.samplers.RandomSampler):
    def __init__(self) -> None:
        raise KeyError("not today")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{__name__}:Refusing", "cannot search this space: KeyError: 'no such thing'"),
        (f"{__name__}:Unmade", "cannot be created: KeyError: 'not today'"),
        (
            "optuna.samplers:CmaEsSampler",
            "cannot search this space: ModuleNotFoundError: No module named 'cmaes': pip install cmaes",
        ),
        ("optuna.samplers:BruteForceSampler", "cannot search this space: ValueError: "),
        ("../x:Y", "cannot be imported: TypeError: "),
        ("antigravity_of_nobody:X", "cannot be imported: ModuleNotFoundError: "),
    ],
)
def test_a_sampler_is_tried_out_before_a_sweep(name: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"{name!r} {message}")):
        try_out(name, RANGES, "area")


def test_samplers_that_can_search_pass() -> None:
    for aim in AIMS:
        try_out("optuna.samplers:QMCSampler", RANGES, aim)
        try_out("tpe", RANGES, aim)
