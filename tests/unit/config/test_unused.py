"""Warnings about settings without effect, with their place."""

from pathlib import Path

import pytest

from raysweep.config.load import load
from support.paths import SPACES
from support.sweep_files import MINIMAL

SHIPPED = sorted(SPACES.glob("*.yaml"))
WITHOUT_SEQUENCE = [path for path in SHIPPED if path.stem != "hypermask"]


@pytest.mark.parametrize("space", SHIPPED, ids=lambda path: path.stem)
def test_shipped_spaces_have_no_unused_settings(space: Path) -> None:
    assert [line for line in load(space).warnings if "has no effect" in line] == []


@pytest.mark.parametrize(
    "overrides",
    [
        {"data.dev": "dev.csv"},
        {"early_stopping.policy": "growth"},
        {"early_stopping.policy": "median"},
    ],
    ids=str,
)
@pytest.mark.parametrize("space", WITHOUT_SEQUENCE, ids=lambda path: path.stem)
def test_overrides_of_shipped_spaces_are_used(space: Path, overrides: dict[str, str]) -> None:
    assert [
        line for line in load(space, overrides.items()).warnings if "has no effect" in line
    ] == []


def test_settings_superseded_by_an_override_are_not_warned_about(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"{MINIMAL.rstrip()}\nbudget: {{rungs: 3}}\nearly_stopping: {{policy: asha, reduction_factor: 3}}\n"
    )
    assert (
        load(
            file, [("budget.examples_per_trial", "4096"), ("early_stopping.policy", "none")]
        ).warnings
        == ()
    )


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (
            {"early_stopping.reduction_factor": "3"},
            "--early_stopping.reduction_factor: has no effect, since early_stopping.policy is growth",
        ),
        (
            {"early_stopping.policy": "median", "early_stopping.reduction_factor": "3"},
            "--early_stopping.reduction_factor: has no effect, since early_stopping.policy is median",
        ),
        (
            {"budget.rungs": "3", "budget.examples_per_trial": "4096"},
            "--budget.rungs: has no effect, since budget.examples_per_trial is given",
        ),
        (
            {"data.dev": "dev.csv", "data.max_dev": "50"},
            "--data.max_dev: has no effect, since data.dev is given",
        ),
        (
            {"evaluation.points": "{labeled: [0.5], class_concat: []}"},
            "--evaluation.points.labeled: has no effect, since no loss in the space is softmax",
        ),
        (
            {"examples.same_class_cosine": "0.9", "space.loss": "{choices: [triplet, softmax]}"},
            "--examples.same_class_cosine: has no effect, since no loss in the space trains on scored pairs",
        ),
        (
            {
                "space": "{loss: softmax, learning_rate: {choices: [1e-5, 1e-4]}}",
                "budget.trials": "5",
            },
            "--space: has 2 configurations, fewer than budget.trials (5), so some are repeated, with the same scores; "
            "sampler: grid tries each once",
        ),
        (
            {"examples.relative_margin": "0.1", "space.loss": "contrastive"},
            "--examples.relative_margin: has no effect, since no loss in the space trains on triplets",
        ),
        (
            {"examples.max_similarity": "0.9", "space.loss": "gist"},
            "--examples.max_similarity: has no effect, since no loss in the space mines sentences of other classes",
        ),
        (
            {"examples.k": "8", "space.loss": "softmax"},
            "--examples.k: has no effect, since softmax does not mine examples",
        ),
        (
            {"space.warmup_fraction": "{choices: [0.1, 0.2]}", "space.warmup_steps": "10"},
            "--space.warmup_fraction: has no effect, since warmup_steps is given",
        ),
        (
            {"space.base_batch_size": "32"},
            "--space.base_batch_size: has no effect, since learning_rate_rule is none",
        ),
        (
            {"space.frozen_dropout": "true", "space.freezing": "none"},
            "--space.frozen_dropout: has no effect, since freezing is none",
        ),
        (
            {"space.batch_size": "{choices: [32, 4096]}"},
            "--space.batch_size is 4096, more than examples_per_rung (2048), so each rung is a single batch",
        ),
    ],
)
def test_settings_without_effect_are_warned_about(
    overrides: dict[str, str], warning: str, tmp_path: Path
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(MINIMAL)
    assert load(file, overrides.items()).warnings == (warning,)


@pytest.mark.parametrize(
    "overrides",
    [
        {"early_stopping.policy": "pareto", "early_stopping.reduction_factor": "3"},
        {"early_stopping.policy": "median", "early_stopping.first_examples": "4096"},
        {"budget.rungs": "3"},
        {"data.max_dev": "50"},
        {"examples.same_class_cosine": "0.9"},
        {"space": "{loss: softmax, learning_rate: {choices: [1e-5, 1e-4]}}", "budget.trials": "2"},
        {"space": "{loss: softmax, learning_rate: 1e-5}", "budget.trials": "5", "sampler": "grid"},
        {"examples.k": "8", "space.loss": "{choices: [triplet, softmax]}"},
        {
            "space.warmup_fraction": "{choices: [0.1, 0.2]}",
            "space.warmup_steps": "{choices: [null, 10]}",
        },
        {"space.warmup_fraction": "0.1", "space.warmup_steps": "10"},
        {"space.base_batch_size": "32", "space.learning_rate_rule": "{choices: [none, linear]}"},
        {"space.frozen_dropout": "true", "space.freezing": "{choices: [none, emb]}"},
        {"evaluation.points.labeled": "[0.5]", "space.loss": "softmax"},
        {"evaluation.points.labeled": "[0.5]", "space.loss": "{choices: [triplet, softmax]}"},
    ],
)
def test_settings_with_effect_are_not_warned_about(
    overrides: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(MINIMAL)
    assert load(file, overrides.items()).warnings == ()


def test_warnings_name_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"{MINIMAL.rstrip()}\nearly_stopping: {{policy: none, first_examples: 5}}\n")
    number = len(file.read_text().splitlines())
    (warning,) = load(file).warnings
    assert warning.startswith(
        f"{file}: line {number}: early_stopping.first_examples: has no effect"
    )


def test_defaults_are_not_warned_about(tmp_path: Path) -> None:
    """A run's own file has every key: `raysweep validate RUN/config.yaml`."""
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"{MINIMAL.rstrip()}\nearly_stopping: {{policy: none, first_examples: 2048, reduction_factor: 2}}\n"
    )
    assert load(file).warnings == ()
