"""Expected gains compared with quadrature, and searches that maximize the joint front."""

import math
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState
from scipy.stats import kstest, truncnorm

from raysweep.config.space import Choices, Range, Space
from raysweep.config.sweep import Aim
from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import Pair
from raysweep.metrics.staircase import Steps
from raysweep.results.types import TrialStatus
from raysweep.search.acquisition import expected_gains, merge_steps, representative_points
from raysweep.search.conditional_space import infer_space
from raysweep.search.gaussian_process import KernelFitter, Posterior
from raysweep.search.history import FRONTS, History, Row
from raysweep.search.mfgp import MultiFidelitySampler
from raysweep.search.proposer import Proposer

REFERENCE_POINT = (0.5, 0.2)

NODES = np.linspace(-5.5, 5.5, 301)  # of a normal variable; close together, since gains have kinks
NODE_WEIGHTS = np.exp(-0.5 * NODES**2)
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()


def gain_by_quadrature(
    front: np.ndarray, mean: np.ndarray, deviation: np.ndarray, every: int = 1
) -> float:
    """Return the expected gain of points (points, 2) over a front, from their gain at each pair of nodes.

    With ``every``, only one node in ``every`` is used.
    """
    nodes, weights = NODES[::every], NODE_WEIGHTS[::every] / NODE_WEIGHTS[::every].sum()
    scores = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    points = mean + deviation * scores
    fronts = np.broadcast_to(front, (len(points), *front.shape))
    gains = areas(np.concatenate([fronts, points], axis=1)) - areas(front[None])
    return float(gains @ np.outer(weights, weights).ravel())


def areas(points: np.ndarray) -> np.ndarray:
    """Return the hypervolumes of sets of points (sets, points, 2), column by column: (sets,)."""
    above = np.maximum(points - REFERENCE_POINT, 0)
    x, y = np.moveaxis(np.take_along_axis(above, np.argsort(above[:, :, :1], axis=1), axis=1), 2, 0)
    reaches = x[:, None] >= x[:, :, None]  # (sets, columns, points)
    heights = np.where(reaches, y[:, None], 0).max(axis=2, initial=0)
    return (np.diff(x, axis=1, prepend=0) * heights).sum(axis=1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 6), st.integers(1, 3))
def test_expected_gain_equals_quadrature(seed: int, num_steps: int, num_points: int) -> None:
    random = np.random.default_rng(seed)
    front = random.uniform((0.4, 0.1), (0.9, 0.6), (num_steps, 2))
    polarity = np.sort(random.uniform(0.4, 0.9, num_points))
    similarity = -np.sort(-random.uniform(0.1, 0.6, num_points))
    mean = np.stack([polarity, similarity], axis=1)
    # equal, so that the points keep their order
    deviation = np.broadcast_to(random.uniform(0.02, 0.2, 2), mean.shape)
    gains = expected_gains(Steps(REFERENCE_POINT, front), mean[None], deviation[None])
    assert gains == pytest.approx([gain_by_quadrature(front, mean, deviation)], rel=1e-3, abs=1e-5)


def test_expected_gain_without_uncertainty_is_the_actual_gain() -> None:
    front = [(0.6, 0.5), (0.8, 0.3)]
    for point, expected in (
        ((0.7, 0.4), 0.1 * 0.1),
        ((0.9, 0.6), 0.4 * 0.4 - 0.1 * 0.3 - 0.2 * 0.1),
        ((0.7, 0.3), 0.0),
    ):
        gains = expected_gains(
            Steps(REFERENCE_POINT, np.array(front)), np.array([[point]]), np.full((1, 1, 2), 1e-9)
        )
        assert gains == pytest.approx([expected], abs=1e-8)


def test_expected_gain_on_an_empty_front() -> None:
    """It is the product of two expected excesses; at the reference point, each is a deviation over the root of 2 pi."""
    gains = expected_gains(
        Steps(REFERENCE_POINT, np.empty((0, 2))),
        np.array([[REFERENCE_POINT]]),
        np.array([[(0.1, 0.2)]]),
    )
    assert gains == pytest.approx([0.1 * 0.2 / (2 * math.pi)])


@pytest.mark.parametrize("num_steps", [30, 100])
def test_merged_steps_keep_the_area_of_the_front(num_steps: int) -> None:
    """The expected gain of a point over the merged steps is nearly the same too."""
    angles = np.linspace(0.05, 0.5 * math.pi - 0.05, num_steps)
    points = np.stack([0.5 + 0.4 * np.cos(angles), 0.2 + 0.3 * np.sin(angles)], axis=1)
    front = Steps(REFERENCE_POINT, points)
    ends, heights = merge_steps(front, 48)
    assert len(ends) == min(num_steps, 48)
    assert (np.diff(ends) > 0).all()
    assert (np.diff(heights) < 0).all()
    assert (np.diff(ends, prepend=0.0) * heights).sum() == pytest.approx(areas(points[None])[0])
    assert ends[-1] == front.x[-1]
    mean, deviation = np.array([[0.8, 0.45]]), np.array([[0.05, 0.05]])
    expected = gain_by_quadrature(points, mean, deviation, every=4)
    assert expected_gains(front, mean[None], deviation[None]) == pytest.approx([expected], rel=0.05)


ARC = Space(
    {
        "x": Range(0, 1, False, False),
        "y": Range(0, 1, False, False),
        "kind": Choices({"a": {}, "b": {}}),
    }
)


def on_an_arc(values: Mapping[str, Any]) -> Pair:
    """Return a point that x moves along an arc from the highest P to the highest S, if y is 0.3 and kind is a."""
    angle = 0.5 * math.pi * values["x"]
    radius = 0.4 * (1 - 2 * (values["y"] - 0.3) ** 2) * (1 if values["kind"] == "a" else 0.8)
    return (0.5 + radius * math.cos(angle), 0.2 + radius * math.sin(angle))


def search(aim: Aim, seed: int, sampler: str = "mfgp", num_trials: int = 30) -> list[Pair]:
    """Return the points of a search's trials."""
    proposer = Proposer(ARC, sampler, seed, Objective(0.5, REFERENCE_POINT), aim)
    points = []
    for number in range(num_trials):
        points.append(on_an_arc(proposer.ask(number)))
        proposer.report(number, 1, (points[-1],))
        proposer.tell(number, TrialStatus.COMPLETED)
    return points


def test_search_for_the_front_covers_all_of_it() -> None:
    """The arc has the area of a quarter circle. Maximizing each trial's own area only finds its middle."""
    area_of_arc = math.pi * 0.4**2 / 4
    shares = {
        aim: np.median(
            [hypervolume(search(aim, seed), REFERENCE_POINT) / area_of_arc for seed in range(3)]
        )
        for aim in ("front", "area")
    }
    assert shares["front"] > 0.9
    assert shares["front"] > shares["area"]
    random_shares = [
        hypervolume(search("front", seed, "random"), REFERENCE_POINT) / area_of_arc
        for seed in range(3)
    ]
    assert shares["front"] > np.median(random_shares)


def test_other_samplers_replace_the_front_by_each_trials_own_area() -> None:
    assert search("front", 0, "tpe", 20) == search("area", 0, "tpe", 20)


def test_mfgp_replaces_two_objectives_by_the_front() -> None:
    both, front, area = (search(aim, 0, num_trials=20) for aim in ("both", "front", "area"))
    assert both == front != area


def test_first_trial_is_near_the_middle_of_the_ranges() -> None:
    first = [
        Proposer(ARC, "mfgp", seed, Objective(0.5, REFERENCE_POINT), "front").ask(0)
        for seed in range(4)
    ]
    assert all(abs(values[name] - 0.5) < 0.15 for values in first for name in ("x", "y"))
    assert len({values["x"] for values in first}) == 4


def test_startup_trials_are_normally_distributed_around_the_middle() -> None:
    proposed = []
    for seed in range(60):
        proposer = Proposer(ARC, "mfgp", seed, Objective(0.5, REFERENCE_POINT), "front")
        proposed += [proposer.ask(number) for number in range(4)][1:]
    deviation = 0.25
    expected = truncnorm(-0.5 / deviation, 0.5 / deviation, loc=0.5, scale=deviation)
    for name in ("x", "y"):
        assert kstest([values[name] for values in proposed], expected.cdf).pvalue > 0.01
    assert 0.4 < np.mean([values["kind"] == "a" for values in proposed]) < 0.6


def test_search_approaches_the_reference_point_first() -> None:
    """The larger x is, the less the points miss the constraint on S."""
    objective = Objective(0.5, REFERENCE_POINT, min_similarity=0.6)
    proposer = Proposer(ARC, "mfgp", 0, objective, "front")
    for number in range(12):
        values = {"x": number / 20, "y": 0.3, "kind": "a"}
        proposer.adopt(number, values)
        proposer.report(number, 1, (on_an_arc(values),))
        proposer.tell(number, TrialStatus.COMPLETED)
    proposed = [proposer.ask(number)["x"] for number in range(12, 17)]
    assert np.median(proposed) > 0.55


def front_trial(number: int, points: list[Pair] | None) -> optuna.trial.FrozenTrial:
    values = {"x": number / 11, "y": 0.3}
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(0, 1) for name in values
    }
    return optuna.trial.create_trial(
        state=TrialState.PRUNED,
        params=values,
        distributions=distributions,
        intermediate_values={1: 1.0},
        user_attrs={} if points is None else {FRONTS: {1: points}},
    )


@pytest.mark.parametrize("storage", ["memory", "database"])
def test_points_are_read_from_user_attributes_of_any_study(storage: str) -> None:
    """Trials with a large x dominate the others. A database converts the steps to text."""
    study = optuna.create_study(
        direction="maximize",
        sampler=MultiFidelitySampler(seed=0, reference_point=REFERENCE_POINT),
        storage="sqlite:///:memory:" if storage == "database" else None,
    )
    for number in range(12):
        study.add_trial(front_trial(number, [(0.5 + number / 30, 0.2 + number / 40)]))
    proposed = [study.ask() for _ in range(5)]
    for trial in proposed:
        trial.suggest_float("x", 0, 1)
        trial.suggest_float("y", 0, 1)
    assert min(trial.params["x"] for trial in proposed) > 0.6


@pytest.mark.parametrize("points", [None, [], [(0.9, math.nan)], [(math.inf, 0.9)]], ids=str)
def test_trial_without_finite_points_counts_as_poor(points: list[Pair] | None) -> None:
    """Trials with a large x would be good, but none of them reports finite points."""
    study = optuna.create_study(
        direction="maximize", sampler=MultiFidelitySampler(seed=0, reference_point=REFERENCE_POINT)
    )
    for number in range(12):
        study.add_trial(
            front_trial(number, [(0.5 + number / 30, 0.2 + number / 40)] if number < 8 else points)
        )
    for _ in range(5):
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        trial.suggest_float("y", 0, 1)
        study.tell(trial, state=TrialState.FAIL)
    assert np.median([trial.params["x"] for trial in study.get_trials()[12:]]) < 0.75


def test_concurrent_proposals_are_spread_out() -> None:
    """Although one configuration is the best, eight proposals at once differ."""
    proposer = Proposer(ARC, "mfgp", 0, Objective(0.5, REFERENCE_POINT), "front")
    for number in range(10):
        point = on_an_arc(proposer.ask(number))
        proposer.report(number, 1, (point,))
        proposer.tell(number, TrialStatus.COMPLETED)
    proposed = [proposer.ask(number)["x"] for number in range(10, 18)]
    assert np.ptp(proposed) > 0.4


def test_trial_is_represented_by_its_farthest_points() -> None:
    """On an arc, each direction selects the point where it meets the arc, in any units of the scores."""
    angles = np.linspace(0, 0.5 * math.pi, 91)
    front = np.stack([np.cos(angles), 50 * np.sin(angles)], axis=1)
    rows = [Row(0, 1, 1.0, front), Row(1, 1, 0.0, front[:1]), Row(2, 1, None, None)]
    points = representative_points(rows)
    weights = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    directions = np.arctan2(1 - weights, weights)
    expected = np.stack([np.cos(directions), np.sin(directions)], axis=1)
    assert points[0] / (1, 50) == pytest.approx(expected, abs=0.02)
    assert points[1] == pytest.approx(np.repeat(front[:1], 5, axis=0))
    assert points[2] == pytest.approx(np.quantile(points[:2], 0.1, axis=0))


def test_joint_front_excludes_hidden_trials() -> None:
    """A storage may hide trials that were reported again later."""
    study = optuna.create_study(direction="maximize")
    points = [(0.6 + number / 100, 0.5 - number / 100) for number in range(4)]
    for number, point in enumerate([*points, (0.55, 0.6)]):
        study.add_trial(front_trial(number, [point]))
    trials = study.get_trials()
    history = History(infer_space(trials), has_points=True)
    for shown, expected in ((trials[:4], points), (trials[1:4], points[1:]), (trials[:4], points)):
        history.read(shown, 1, current=-1)
        assert sorted(map(tuple, history.joint_front.points)) == expected
        assert sorted(history.joint_front.owners) == [trial.number for trial in shown]
    history.read(trials[1:], 1, current=-1)
    assert (0.55, 0.6) in map(tuple, history.joint_front.points)


def test_points_of_a_running_trial_may_change_at_the_same_step() -> None:
    study = optuna.create_study(direction="maximize")
    study.add_trial(front_trial(0, [(0.7, 0.4)]))
    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    trial.suggest_float("y", 0, 1)
    trial.report(1.0, 1)
    history = History(infer_space(study.get_trials()[:1]), has_points=True)
    for point in ((0.6, 0.3), (0.9, 0.9)):
        trial.set_user_attr(FRONTS, {1: [point]})
        history.read(study.get_trials(), 1, current=-1)
    assert history.joint_front.points.tolist() == [[0.9, 0.9]]


def test_pickled_front_sampler_continues_identically() -> None:
    def objective(trial: optuna.Trial) -> float:
        values = {
            "x": trial.suggest_float("x", 0, 1),
            "y": trial.suggest_float("y", 0, 1),
            "kind": "a",
        }
        trial.report(1.0, 1)
        trial.set_user_attr(FRONTS, {1: [on_an_arc(values)]})
        return 1.0

    sampler = MultiFidelitySampler(seed=0, reference_point=REFERENCE_POINT)
    study = optuna.create_study(direction="maximize", study_name="shared", sampler=sampler)
    study.optimize(objective, n_trials=40)
    copied_sampler = pickle.loads(pickle.dumps(sampler))
    copied_study = optuna.create_study(
        direction="maximize", study_name="shared", sampler=copied_sampler
    )
    copied_study.add_trials(study.trials)
    study.optimize(objective, n_trials=4)
    copied_study.optimize(objective, n_trials=4)
    assert [trial.params for trial in study.trials] == [
        trial.params for trial in copied_study.trials
    ]


def test_kernels_are_fitted_in_turn_with_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 65 to 96 rows, both are fitted at first, and then each once in three proposals."""
    fitted: list[int] = []
    fit = KernelFitter.fit

    def counted(fitter: KernelFitter, *arguments: Any) -> list[Posterior]:
        fitted.append(id(fitter))
        return fit(fitter, *arguments)

    monkeypatch.setattr(KernelFitter, "fit", counted)
    proposer = Proposer(ARC, "mfgp", 0, Objective(0.5, REFERENCE_POINT), "front")
    random = np.random.default_rng(0)
    for number in range(70):
        values = {"x": random.random(), "y": random.random(), "kind": "a"}
        proposer.adopt(number, values)
        proposer.report(number, 1, (on_an_arc(values),))
        proposer.tell(number, TrialStatus.COMPLETED)
    counts = []
    for number in range(70, 77):
        proposer.ask(number)
        counts.append(len(fitted))
    p, s = dict.fromkeys(fitted)
    assert counts == [2, 3, 3, 4, 5, 5, 6]
    assert fitted == [p, s, s, p, s, p]
