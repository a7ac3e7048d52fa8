"""Importance against exact functional ANOVA, on synthetic grids and the recording, with most trials paused early."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from raysweep.report.axes import axes_of
from raysweep.report.importance import Curve, Importance, Share, importances, scores_at_the_end
from raysweep.report.response_surface import main_effects
from raysweep.report.summary import summarize
from raysweep.results.reader import load
from raysweep.uncertainty.interval import Interval
from support.ledgers import INFO, StoredSweep, StoredTrial, random_trials, write_ledger
from support.paths import ROOT

GRID = {
    "loss": ("a", "b", "c", "d"),
    "learning_rate": (1e-6, 3e-6, 1e-5, 3e-5, 1e-4),
    "margin": (0.05, 0.1, 0.2, 0.4),
    "batch_size": (16, 32, 64),
    "freezing": ("none", "emb"),
}
CONFIGS = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
TARGETS = ("polarity", "similarity", "objective")
NUM_RUNGS = 5
GRID_TOLERANCE = 0.1  # of a share, with 70% of the trials paused after their first rung
TABLE_TOLERANCE = 0.25


def exact_shares(scores):
    """Return the shares from functional ANOVA of a full grid, whose marginals are plain means."""
    frame = pd.DataFrame(CONFIGS).assign(score=scores)
    effects = {name: frame.groupby(name)["score"].mean().var(ddof=0) for name in GRID}
    return {name: effect / sum(effects.values()) for name, effect in effects.items()}


def shares(axes, scores):
    effects = main_effects(axes, scores)
    return dict(zip([axis.name for axis in axes], effects / effects.sum(), strict=True))


def max_difference(shares, expected):
    return max(abs(shares[name] - expected[name]) for name in expected)


def random_curves(seed):
    """Return scores (configurations, rungs) of the grid; parameters have different effects on the first and last rung."""
    rng = np.random.default_rng(seed)
    strengths = np.array([0.05, 0.03, 0.02, 0.008, 0.002])

    def effects():
        by_parameter = dict(zip(GRID, rng.permutation(strengths), strict=True))
        terms = {
            name: dict(zip(values, rng.normal(size=len(values)), strict=True))
            for name, values in GRID.items()
        }
        return [
            sum(by_parameter[name] * terms[name][value] for name, value in config.items())
            for config in CONFIGS
        ]

    interactions = {
        pair: rng.normal(0, 0.01) for pair in itertools.product(GRID["loss"], GRID["learning_rate"])
    }
    first, last = 0.6 + np.array(effects()), 0.7 + np.array(effects())
    last += [interactions[config["loss"], config["learning_rate"]] for config in CONFIGS]
    progress = 1 - np.exp(-0.8 * np.arange(NUM_RUNGS))
    scores = first[:, None] + (last - first)[:, None] * progress / progress[-1]
    return scores + rng.normal(0, 0.003, scores.shape)


def curves_of(scores, is_paused):
    """Return the curves of trials with ``scores`` (trials, rungs, targets); paused ones have one rung."""
    curves = []
    for rungs, paused in zip(scores, is_paused, strict=True):
        steps = np.arange(1.0, 2.0 if paused else NUM_RUNGS + 1)
        curves.append(Curve(rungs[: len(steps)], steps, 256 * steps, NUM_RUNGS))
    return curves


def places_of(axes):
    return np.column_stack([axis.places for axis in axes])


@pytest.mark.parametrize("seed", [0, 1])
def test_a_full_grid_at_full_budget_has_its_exact_shares(seed):
    scores = random_curves(seed)[:, -1]
    assert (
        max_difference(shares(axes_of(CONFIGS, list(GRID)), scores), exact_shares(scores)) < 0.005
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shares_hold_with_70_percent_of_trials_paused_after_one_rung(seed):
    curves = random_curves(seed)
    exact = exact_shares(curves[:, -1])
    is_paused = np.random.default_rng(seed).permutation(len(CONFIGS)) < 0.7 * len(CONFIGS)
    axes = axes_of(CONFIGS, list(GRID))
    ends = scores_at_the_end(
        curves_of(np.repeat(curves[:, :, None], 2, axis=2), is_paused), places_of(axes)
    )
    assert max_difference(shares(axes, ends[:, 0]), exact) < GRID_TOLERANCE
    last_known = np.where(is_paused, curves[:, 0], curves[:, -1])
    # scores of unequal budgets do not
    assert max_difference(shares(axes, last_known), exact) > GRID_TOLERANCE


def read_recording():
    """Return the recorded configurations, the best scores of each rung (trials, rungs, targets), and R's scores."""
    frame = pd.read_parquet(ROOT / "benchmarks" / "sst2_polarity_256.parquet").sort_values(
        ["trial", "examples_seen"]
    )
    frame["objective"] = (frame["polarity"] + frame["similarity"]) / 2
    of_trials, reference = frame[frame["kind"] != "reference"], frame[frame["kind"] == "reference"]
    best = of_trials.loc[of_trials.groupby(["trial", "examples_seen"])["objective"].idxmax()]
    scores = best[list(TARGETS)].to_numpy().reshape(-1, NUM_RUNGS, len(TARGETS))
    names = [
        "loss",
        "margin",
        "scale",
        "learning_rate",
        "freezing",
        "batch_size",
        "warmup_fraction",
    ]
    cells = best.drop_duplicates("trial")[names].to_dict("records")
    configs = [
        {name: None if pd.isna(value) else value for name, value in row.items()} for row in cells
    ]
    return configs, scores, reference[list(TARGETS)].to_numpy()[0]


def test_shares_of_the_recorded_table_hold_with_70_percent_of_trials_paused():
    """The two most important parameters keep their ranks, and the third usually does.

    Extrapolated scores of paused trials shrink to the mean, so the shares themselves change.
    """
    configs, scores, untrained = read_recording()
    axes = axes_of(configs, list(configs[0]))
    at_full_budget = [shares(axes, scores[:, -1, target]) for target in range(len(TARGETS))]
    thirds = []
    for seed in (100, 101, 102):
        is_paused = np.random.default_rng(seed).permutation(len(configs)) < 0.7 * len(configs)
        ends = scores_at_the_end(curves_of(scores, is_paused), places_of(axes), untrained)
        for target, expected in enumerate(at_full_budget):
            importance = shares(axes, ends[:, target])
            first, second, third = first_three(importance)
            assert [first, second] == first_three(expected)[:2] == ["learning_rate", "loss"]
            assert max_difference(importance, expected) < TABLE_TOLERANCE
            thirds.append(third == first_three(expected)[2])
    assert sum(thirds) >= 7


def test_untrained_scores_reduce_the_bias_from_selected_trials():
    """Of the recording only the best quarter after the first rung goes on; what the first rung brought helps the rest."""
    configs, scores, untrained = read_recording()
    axes = axes_of(configs, list(configs[0]))
    objective = TARGETS.index("objective")
    after_first_rung = scores[:, 0, objective]
    curves = curves_of(scores, after_first_rung < np.quantile(after_first_rung, 0.75))
    exact = shares(axes, scores[:, -1, objective])
    without, with_first = (
        shares(axes, scores_at_the_end(curves, places_of(axes), start)[:, objective])
        for start in (None, untrained)
    )
    assert max_difference(with_first, exact) < 0.5 * max_difference(without, exact)


def first_three(by_parameter):
    return sorted(by_parameter, key=lambda name: -by_parameter[name])[:3]


def test_main_effects_equal_those_of_optunas_evaluator():
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = np.random.default_rng(0)
    values = rng.uniform(size=(150, 3))
    scores = 0.6 * values[:, 0] + 0.3 * values[:, 1] ** 2 + 0.05 * values[:, 2]
    names = ("a", "b", "c")
    configs = [dict(zip(names, map(float, row), strict=True)) for row in values]
    distributions = dict.fromkeys(names, optuna.distributions.FloatDistribution(0, 1))
    study = optuna.create_study()
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=config, distributions=distributions, value=float(score)
            )
            for config, score in zip(configs, scores, strict=True)
        ]
    )
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=16, seed=0)
    expected = optuna.importance.get_param_importances(study, evaluator=evaluator)
    assert max_difference(shares(axes_of(configs, names), scores), expected) < 0.05


def test_trials_are_extrapolated_to_the_same_share_of_their_rungs():
    """A resume extended some trials to ten rungs; other trials have five rungs of twice the length."""
    short = [np.arange(1.0, last + 1) for last in (5, 4, 1)]
    long = [np.arange(1.0, last + 1) for last in (4, 1)]
    curves = [
        Curve(0.1 * np.stack([steps, steps], 1), steps, 100 * steps, 5 + 5 * (len(steps) == 5))
        for steps in short
    ]
    curves += [Curve(0.1 * np.stack([steps, steps], 1), steps, 200 * steps, 5) for steps in long]
    ends = scores_at_the_end(curves, np.zeros((5, 1)))
    # each rung adds 0.1; the longest completed 4 of 5
    assert ends[:, 0] == pytest.approx([0.8, 0.8, 0.8, 0.4, 0.4])


def summary_of(folder, trials):
    write_ledger(folder, trials)
    return summarize(load(folder))


def random_scores(seed):
    """Return P and S (configurations, rungs, 2) of the grid; S falls as P rises."""
    polarity = random_curves(seed)
    similarity = 0.9 - 0.6 * random_curves(seed + 1)
    return np.stack([polarity, similarity], axis=2)


def test_shares_from_a_ledger_hold_with_70_percent_of_trials_paused(tmp_path):
    scores = random_scores(3)
    is_paused = np.random.default_rng(3).permutation(len(CONFIGS)) < 0.7 * len(CONFIGS)
    trials = [
        StoredTrial(
            config,
            "paused" if paused else "completed",
            "",
            rungs[: 1 if paused else NUM_RUNGS].tolist(),
        )
        for config, rungs, paused in zip(CONFIGS, scores, is_paused, strict=True)
    ]
    importance = importances(summary_of(tmp_path, trials))
    ends = np.column_stack([scores[:, -1], scores[:, -1].mean(axis=1)])
    for target, at_the_end in zip(TARGETS, ends.T, strict=True):
        shares = importance.shares[target]
        assert max_difference(values(shares), exact_shares(at_the_end)) < GRID_TOLERANCE
        assert all(share.interval.contains(share.value) for share in shares.values())


def values(shares):
    return {name: share.value for name, share in shares.items()}


def test_scores_of_r_are_the_untrained_scores_only_if_r_is_tuned(tmp_path):
    """R's scores change the extrapolation of trials without a second rung."""
    sweeps = {
        "of R": StoredSweep(),
        "of another": StoredSweep(info=dataclasses.replace(INFO, model="another")),
        "R was not scored": StoredSweep(reference=False),
    }
    importance = {}
    for name, sweep in sweeps.items():
        folder = tmp_path / name
        folder.mkdir()
        write_ledger(folder, random_trials(40), sweep)
        importance[name] = importances(summarize(load(folder)))
    assert importance["of another"] == importance["R was not scored"] != importance["of R"]


def test_shares_sum_to_one_in_descending_order(tmp_path):
    importance = importances(summary_of(tmp_path, random_trials(40)))
    assert tuple(importance.shares) == TARGETS
    for shares in importance.shares.values():
        by_parameter = values(shares)
        assert set(by_parameter) == {"loss", "learning_rate", "margin"}
        assert sum(by_parameter.values()) == pytest.approx(1)
        assert list(by_parameter.values()) == sorted(by_parameter.values(), reverse=True)


TWO_RUNGS = [(0.7, 0.4), (0.8, 0.3)]


@pytest.mark.parametrize(
    ("trials", "num_missing"),
    [
        ([], 20),
        ([StoredTrial({"loss": "triplet"}, "failed", "it broke", [])] * 30, 20),
        ([StoredTrial({"loss": loss}, "paused", "", TWO_RUNGS[:1]) for loss in "ab" * 20], 20),
        ([StoredTrial({"loss": loss}, "paused", "", TWO_RUNGS) for loss in "ab" * 9], 2),
        ([StoredTrial({"loss": "triplet", "margin": None}, "completed", "", TWO_RUNGS)] * 20, 0),
        ([StoredTrial({"loss": loss}, "paused", "", TWO_RUNGS) for loss in "ab" * 10], 0),
    ],
    ids=["none", "failed", "one rung", "18", "constant", "equal scores"],
)
def test_insufficient_trials_have_no_importance(tmp_path, trials, num_missing):
    assert importances(summary_of(tmp_path, trials)) == Importance(
        {target: {} for target in TARGETS}, num_missing
    )


def test_trials_planned_with_one_rung_have_importance(tmp_path):
    trials = [
        StoredTrial({"loss": loss}, "paused", "", [(0.7 if loss == "a" else 0.8, 0.4)])
        for loss in "ab" * 10
    ]
    summary = summary_of(tmp_path, trials)
    planned = [
        dataclasses.replace(each, trial=dataclasses.replace(each.trial, num_rungs=1))
        for each in summary.trials
    ]
    importance = importances(dataclasses.replace(summary, trials=tuple(planned)))
    everything = {"loss": Share(1.0, Interval(1.0, 1.0))}
    assert importance.shares == {"polarity": everything, "similarity": {}, "objective": everything}


@pytest.mark.parametrize("has_effect", [False, True])
def test_intervals_tell_effects_from_chance(tmp_path, has_effect):
    """Half of 24 trials have another loss, which adds 0.1 to P or nothing; P has a deviation of 0.01."""
    rng = np.random.default_rng(0)
    trials = []
    for number in range(24):
        polarity = 0.7 + 0.1 * has_effect * (number % 2) + rng.normal(0, 0.01)
        config = {
            "loss": "ab"[number % 2],
            "learning_rate": 10 ** rng.uniform(-6, -4),
            "margin": rng.uniform(0.1, 1),
        }
        trials.append(StoredTrial(config, "completed", "", [(polarity, 0.4)] * NUM_RUNGS))
    shares = importances(summary_of(tmp_path, trials)).shares["polarity"]
    if has_effect:
        assert next(iter(shares)) == "loss" and shares["loss"].interval.low > 0.8
    else:
        assert all(share.interval.low < 0.2 for share in shares.values())
        assert max(share.interval.high - share.interval.low for share in shares.values()) > 0.5
