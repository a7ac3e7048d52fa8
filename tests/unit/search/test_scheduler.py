"""Requested configurations under every sampler."""

import statistics
from typing import Any

import pytest

from raysweep.config.preset import preset_of
from raysweep.controller import warm_start
from raysweep.controller.warm_start import Observation, WarmStart
from raysweep.results.types import TrialStatus
from raysweep.search.scheduler import RequestedConfigs, Scheduler
from support.landscape import ANY_SAMPLER, CHOICES, RANGES, Player, make

FIRST: tuple[dict[str, Any], ...] = (
    {"loss": "b", "scale": 20, "learning_rate": 1e-4},
    {"loss": "a"},
    {},
)
TRIED: tuple[dict[str, Any], ...] = (
    {"loss": "c", "learning_rate": 1e-5},
    {"loss": "a", "margin": 0.5},
)


def with_requested(sampler: str, num_trials: int = 12) -> Scheduler:
    scheduler = make(sampler, "growth", num_trials=num_trials)
    space = CHOICES if sampler == "grid" else RANGES
    scheduler.requested = RequestedConfigs.of(preset_of(space, values) for values in FIRST)
    return scheduler


@pytest.mark.parametrize("sampler", ANY_SAMPLER)
def test_requested_configurations_run_in_order_within_the_budget(
    sampler: str,
) -> None:
    scheduler = with_requested(sampler)
    player = Player(scheduler, 2).play(stop_after=9)
    for name, values in zip("xy", TRIED, strict=True):
        scheduler.try_next(name, values)
    num_started = len(scheduler.trials)
    player.play()
    assert len(scheduler.trials) == 12
    expected = [*enumerate(FIRST), *enumerate(TRIED, num_started)]
    for number, values in expected:
        trial = scheduler.trials[number]
        assert values.items() <= trial.values.items()
        scheduler.proposer.space.suggest_fixed(trial.values)
    origins = {number: trial.origin for number, trial in scheduler.trials.items() if trial.origin}
    assert origins == {
        0: "first[0]",
        1: "first[1]",
        2: "first[2]",
        num_started: "x",
        num_started + 1: "y",
    }
    if sampler == "grid":
        assert len({str(trial.values) for trial in scheduler.trials.values()}) == 12, (
            "each combination once"
        )
    # The sampler learns from them.
    assert all(scheduler.proposer.known_trial(number).fronts for number, _ in expected)


@pytest.mark.parametrize("sampler", ANY_SAMPLER)
def test_restored_search_with_requests_continues_identically(sampler: str) -> None:
    def play(stop_after: int) -> tuple[list[Any], Scheduler]:
        scheduler = with_requested(sampler)
        player = Player(scheduler, 1).play(stop_after=6)
        scheduler.try_next("x", TRIED[0])
        player.play(stop_after)
        return player.events, scheduler

    events, original = play(30)
    restored = with_requested(sampler)
    for index, (kind, number, details) in enumerate(events):
        if index == 6:
            restored.try_next("x", TRIED[0])
        if kind == "ask":
            trial = restored.trials.get(number)
            trial = restored.propose() if trial is None else restored.resume(number)
            assert (trial.number, dict(trial.values)) == (number, details)
        elif kind == "rung":
            step = sum(event[:2] == ("rung", number) for event in events[: index + 1])
            restored.rung(number, 10 * step, details, [10 * later for later in range(step + 1, 5)])
        elif kind == "pause":
            restored.pause(number)
        else:
            restored.end(number, "completed")  # type: ignore[arg-type]
    assert {number: trial.origin for number, trial in restored.trials.items()} == {
        number: trial.origin for number, trial in original.trials.items()
    }


def test_requested_configuration_that_already_ran_is_skipped() -> None:
    scheduler = with_requested("tpe")
    scheduler.try_next("x", FIRST[0])
    assert scheduler.propose().origin == "x"
    assert scheduler.propose().origin == "first[1]", "first[0] equals x"


def test_adopted_trials_consume_their_requests() -> None:
    scheduler = with_requested("tpe")
    scheduler.try_next("x", TRIED[0])
    scheduler.adopt(TRIED[0], "x")
    scheduler.adopt({"loss": "a", "margin": 0.3, "learning_rate": 1e-5}, "first[1]")
    scheduler.adopt({"loss": "c", "learning_rate": 1e-6})
    assert [scheduler.propose().origin for _ in range(3)] == ["first[0]", "first[2]", None]


def test_warm_start_configurations_complete_partial_requests_and_run_after_them() -> None:
    scheduler = with_requested("mfgp")
    proposer = scheduler.proposer
    older = {"loss": "a", "margin": 0.7, "learning_rate": 2e-5}
    proposer.adopt(-1, older)
    proposer.report(-1, 10, ((0.7, 0.4),))
    proposer.adopt(-2, FIRST[0])
    proposer.try_first(-1)
    proposer.try_first(-2)
    trials = [scheduler.propose() for _ in range(4)]
    assert [trial.origin for trial in trials] == ["first[0]", "first[1]", "first[2]", None]
    assert trials[1].values == older, "the older run completes the partial request"
    assert FIRST[0] not in [trial.values for trial in trials[1:]]


def test_grid_skips_adopted_trials() -> None:
    scheduler = make("grid", "none", num_trials=99)
    scheduler.adopt({"loss": "b", "scale": 20, "learning_rate": 1e-4})
    scheduler.adopt({"loss": "c", "learning_rate": 1e-3})
    while scheduler.can_start:
        scheduler.propose()
    assert (
        len(scheduler.trials)
        == len({str(trial.values) for trial in scheduler.trials.values()})
        == 18
    )


def test_grid_runs_requested_combinations_once() -> None:
    """Three combinations have the loss c."""
    scheduler = make("grid", "none", num_trials=99)
    for name in "vwxyz":
        scheduler.try_next(name, {"loss": "c"})
    while scheduler.can_start:
        scheduler.propose()
    assert [trial.origin for trial in scheduler.trials.values() if trial.values["loss"] == "c"] == [
        "v",
        "w",
        "x",
    ]
    assert (
        len(scheduler.trials)
        == len({str(trial.values) for trial in scheduler.trials.values()})
        == 18
    )


def test_grid_starts_with_warm_start_configurations() -> None:
    scheduler = make("grid", "none", num_trials=99)
    older: list[dict[str, Any]] = [
        {"loss": "c", "learning_rate": 1e-3},
        {"loss": "b", "scale": 5, "learning_rate": 1e-5},
    ]
    observations = [
        Observation(values, {10: ((0.7, 0.4),)}, TrialStatus.COMPLETED) for values in older
    ]
    warm_start.apply(scheduler.proposer, WarmStart(observations, first=[1, 0], num_left_out=0))
    while scheduler.can_start:
        scheduler.propose()
    proposed = [trial.values for trial in scheduler.trials.values()]
    assert proposed[:2] == older[::-1]
    assert len(proposed) == len(set(map(str, proposed))) == 18


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mfgp_completes_partial_requests_with_its_model(seed: int) -> None:
    """The proposed learning rate is near the optimum. A single proposal may explore, so the median of five counts."""
    scheduler = make("mfgp", "none", num_trials=30, seed=seed)
    Player(scheduler, 1).play()
    preset = preset_of(RANGES, {"loss": "a"})
    rates = [scheduler.proposer.ask(number, preset)["learning_rate"] for number in range(30, 35)]
    assert 3e-5 < statistics.median(rates) < 3e-4, "the landscape peaks at 1e-4"
