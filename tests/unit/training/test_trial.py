"""Trials in-process, without Ray: determinism, freezing, divergence."""

from typing import Any

import numpy as np
import pytest
import torch

from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import TrialDivergedError
from raysweep.metrics.retrieval import Scores
from raysweep.results.types import RungProgress
from raysweep.training import trial as engine
from raysweep.training import workbench
from raysweep.training.trainer import Training
from support.encoders import EVALUATION, trial


def test_equal_seeds_give_bitwise_equal_trials(tiny_bench: workbench.Workbench) -> None:
    first, second, other = (
        list(engine.rungs(trial(), tiny_bench, seed=seed, num_rungs=n))
        for seed, n in ((3, 2), (3, 2), (4, 1))
    )
    assert [rung.loss for rung in first] == [rung.loss for rung in second]
    assert all(
        (a.scores["similarity"] == b.scores["similarity"]).all()
        for a, b in zip(first, second, strict=True)
    )
    assert [rung.loss for rung in first] != [rung.loss for rung in other]
    assert [rung.examples_seen for rung in first] == [20, 40]


def test_training_raises_polarity_on_the_demo(demo_bench: workbench.Workbench) -> None:
    config = trial(learning_rate=5e-4, examples_per_rung=96, batch_size=16, freezing="emb+B0-1")
    last = list(engine.rungs(config, demo_bench, seed=0, num_rungs=1))[-1]
    assert last.polarity > demo_bench.dev.reference_scores["polarity"].mean() + 0.1


def test_only_parameters_that_are_not_frozen_change(tiny_bench: workbench.Workbench) -> None:
    frozen = tiny_bench.structure.frozen_names("emb+B0-1", freeze_output_dense=True)
    list(
        engine.rungs(
            trial(freezing="emb+B0-1", freeze_output_dense=True), tiny_bench, seed=0, num_rungs=1
        )
    )
    changed = {
        name
        for name, value in tiny_bench.model.named_parameters()
        if not torch.equal(value, tiny_bench.trainable.base[name])
    }
    assert changed
    assert not changed & frozen
    assert {
        name
        for name in tiny_bench.structure.names
        if name not in frozen and "pooler" not in name and "key.bias" not in name
    } <= changed


def test_trial_does_not_depend_on_the_previous_one(tiny_bench: workbench.Workbench) -> None:
    alone = [rung.loss for rung in engine.rungs(trial(), tiny_bench, seed=1, num_rungs=1)]
    list(
        engine.rungs(
            trial(loss="contrastive", margin=0.5, freezing="emb", learning_rate=1e-3),
            tiny_bench,
            seed=1,
            num_rungs=1,
        )
    )
    assert [rung.loss for rung in engine.rungs(trial(), tiny_bench, seed=1, num_rungs=1)] == alone


def test_diverged_trial_raises_an_error_with_the_rung(tiny_prepared: Prepared) -> None:
    broken = workbench.Workbench(tiny_prepared, EVALUATION)
    weights = next(
        value
        for name, value in broken.trainable.base.items()
        if name.endswith("3.output.dense.weight")
    )
    weights.fill_(float("nan"))
    with pytest.raises(TrialDivergedError, match="loss.*nan.*rung 1"):
        list(engine.rungs(trial(), broken, seed=0, num_rungs=1))


def test_callback_of_run_trial_can_stop_the_trial(tiny_prepared: Prepared) -> None:
    seen = []
    results = engine.run_trial(
        trial(),
        tiny_prepared,
        num_rungs=3,
        evaluation=EVALUATION,
        on_rung=lambda rung: seen.append(rung.step) or rung.step < 2,
    )
    assert seen == [1, 2]
    assert len(results) == 2


@pytest.mark.parametrize(
    ("values", "message"), [({"seed": -1}, "seed is -1"), ({"num_rungs": 0}, "num_rungs is 0")]
)
def test_run_trial_rejects_invalid_arguments(
    values: dict[str, int], message: str, tiny_prepared: Prepared
) -> None:
    with pytest.raises(InputError, match=f"{message}; allowed: "):
        engine.run_trial(trial(), tiny_prepared, **values)


def test_seed_depends_on_the_sweep_and_the_configuration() -> None:
    seeds = {
        engine.trial_seed(seed, trial(margin=margin)) for seed in (0, 1) for margin in (0.1, 0.2)
    }
    assert len(seeds) == 4
    assert engine.trial_seed(0, trial()) == engine.trial_seed(0, trial())


@pytest.mark.parametrize("freezing", ["none", "emb+B0-1"])
def test_bf16_training_is_close_to_fp32_and_scored_in_fp32(
    freezing: str, tiny_bench: workbench.Workbench
) -> None:
    """A prefix cache is in bf16 too, but scores come from the fp32 weights only."""
    means = {}
    for name in ("fp32", "bf16"):
        config = trial(
            precision=name, freezing=freezing, dropout=0.0, learning_rate=3e-4, examples_per_rung=40
        )
        results = list(engine.rungs(config, tiny_bench, seed=0, num_rungs=3))
        means[name] = np.array([rung.loss for rung in results])
        assert {value.dtype for value in tiny_bench.model.state_dict().values()} == {torch.float32}
        scores = tiny_bench.measure(tiny_bench.dev, [("plain", None)])["plain", None]
        np.testing.assert_array_equal(results[-1].scores["polarity"], scores["polarity"])
        np.testing.assert_allclose(
            results[-1].scores["similarity"], scores["similarity"], atol=1e-6
        )
    assert means["bf16"] == pytest.approx(means["fp32"], rel=0.1)
    assert (means["bf16"] != means["fp32"]).all()


def test_trial_reports_progress_within_rungs(tiny_bench: workbench.Workbench) -> None:
    """Each step except a rung's last reports progress, which does not change training."""
    config = trial(examples_per_rung=60)  # a rung's last batch is smaller
    expected = list(engine.rungs(config, tiny_bench, seed=3, num_rungs=2))
    every_step = engine.Intervals(progress_seconds=0.0)
    reports = list(engine.rungs_and_progress(config, tiny_bench, every_step, seed=3, num_rungs=2))
    rungs = [report for report in reports if isinstance(report, workbench.RungResult)]
    assert [rung.loss for rung in rungs] == [rung.loss for rung in expected]
    size = config.batch_size
    updates = [report for report in reports if isinstance(report, RungProgress)]
    assert [(update.step, update.num_seen, update.num_examples) for update in updates] == [
        (step, num_seen, 60) for step in (1, 2) for num_seen in range(size, 60, size)
    ]
    assert all(update.examples_per_second > 0 for update in updates)
    assert updates[0].seconds_left == pytest.approx((60 - size) / updates[0].examples_per_second)


def test_trial_announces_evaluations(tiny_bench: workbench.Workbench) -> None:
    config = trial(examples_per_rung=60)
    events: list[object] = []
    every_step = engine.Intervals(progress_seconds=0.0)
    for result in engine.rungs_and_progress(
        config,
        tiny_bench,
        every_step,
        seed=3,
        num_rungs=2,
        on_evaluate=lambda: events.append("evaluates"),
    ):
        events.append(type(result))
    rung = [*[RungProgress] * (59 // config.batch_size), "evaluates", workbench.RungResult]
    assert events == 2 * rung


def examples_of_rungs(bench: workbench.Workbench, **values: object) -> list[list[tuple[int, ...]]]:
    """Return the examples that each rung of a trial sees."""
    training = Training(trial(**values), bench, seed=0, num_rungs=3)
    rungs = []
    for _ in range(3):
        seen: list[tuple[int, ...]] = []
        take = training.order.take

        def record(count: int, take: Any = take, seen: list[tuple[int, ...]] = seen) -> Any:
            ids, targets = take(count)
            seen += map(tuple, ids.tolist())
            return ids, targets

        training.order.take = record  # type: ignore[method-assign]
        while not training.rung_is_full:
            training.step()
        training.order.take = take  # type: ignore[method-assign]
        training.evaluate()
        rungs.append(seen)
    return rungs


def test_rungs_resample_examples_only_if_configured(tiny_bench: workbench.Workbench) -> None:
    """By default rungs see different examples; rungs that resample see some examples again."""
    num_examples = len(tiny_bench.prepared.examples("triplet")[0])
    size = num_examples * 2 // 5
    shared = examples_of_rungs(tiny_bench, examples_per_rung=size, batch_size=256)
    assert not set(shared[0]) & set(shared[1])
    resampled = examples_of_rungs(
        tiny_bench, examples_per_rung=size, batch_size=256, resample_each_rung=True
    )
    # without replacement within each
    assert all(len(set(rung)) == len(rung) == size for rung in resampled)
    assert resampled[0] == shared[0]
    overlap = len(set(resampled[0]) & set(resampled[1])) / size
    assert overlap == pytest.approx(0.4, abs=0.05)


def test_fresh_optimizer_has_no_state(tiny_bench: workbench.Workbench) -> None:
    """Its step count restarts at each rung."""
    steps = []
    for fresh in (False, True):
        training = Training(trial(fresh_optimizer=fresh), tiny_bench, seed=0, num_rungs=2)
        while not training.rung_is_full:
            training.step()
        training.evaluate()
        training.step()
        (first, *_) = training.optimizer.state.values()
        steps.append(int(first["step"]))
    assert steps == [4, 1]


def test_rung_smaller_than_a_batch_is_one_short_batch(tiny_bench: workbench.Workbench) -> None:
    """Published configurations have as few as 50 examples, with batches of 64."""
    training = Training(trial(examples_per_rung=50, batch_size=64), tiny_bench, seed=0, num_rungs=2)
    training.step()
    assert training.rung_is_full and training.progress.seen == 50
    training.evaluate()
    assert not training.rung_is_full


def test_reprs_of_results_fit_on_a_screen() -> None:
    scores = {f"score {number}": np.zeros(1000) for number in range(9)}
    result = workbench.RungResult(
        1, 4096, 0.5, {("plain", None): Scores(scores)}, seconds=2.0, train_seconds=1.0
    )
    assert "step=1" in repr(result)
    assert len(repr(result)) <= 200


def test_seeds_of_known_configurations() -> None:
    """A seed is a hash of the values that differ from the defaults, so new parameters and defaults keep it."""
    assert (
        engine.trial_seed(7, trial_config({"loss": "triplet", "learning_rate": 3e-5})) == 1995751857
    )
    assert (
        engine.trial_seed(
            7, trial_config({"loss": "triplet", "learning_rate": 3e-5, "margin": 0.2})
        )
        == 2324901706
    )
