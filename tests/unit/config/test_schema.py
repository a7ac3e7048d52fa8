"""The JSON schema of a sweep's file: the committed copy, the shipped files, and mistakes that editors underline."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from raysweep.config.document import Document, parse_value
from raysweep.config.schema import sweep_schema
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import parameter_names
from support.paths import SPACES
from support.sweep_files import MINIMAL

VALIDATOR = Draft202012Validator(sweep_schema())


def check_descriptions(schema: Any, path: str = "") -> None:
    """Check that every key of every mapping has a description."""
    for key, value in schema.get("properties", {}).items():
        assert value.get("description"), f"{path}{key}"
        check_descriptions(value, f"{path}{key}.")


def test_the_schema_is_valid_and_describes_every_key() -> None:
    schema = sweep_schema()
    Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == set(SweepConfig.model_fields)
    assert set(schema["$defs"]["Parameters"]["properties"]) == set(parameter_names())
    check_descriptions(schema)
    for name, definition in schema["$defs"].items():
        for part in definition.get("anyOf", [definition]):
            check_descriptions(part, f"{name}.")
            assert part["type"] in ("string", "array") or part["additionalProperties"] is False, (
                name
            )


def test_the_committed_schema_is_current() -> None:
    committed = json.loads((SPACES / "sweep.schema.json").read_text(encoding="utf-8"))
    assert committed == sweep_schema(), (
        "regenerate it: raysweep schema > search_spaces/sweep.schema.json"
    )


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_files_name_the_schema_and_follow_it(path: Any) -> None:
    first_line = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first_line == "# yaml-language-server: $schema=sweep.schema.json"
    VALIDATOR.validate(Document.read(path).values)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("model: demo", "model: {name: intfloat/e5-small, prompt: 'query: '}"),
        ("model: demo", "model: demo\nbudget: {money: 3, prices: {default: 0.5}}"),
        ("model: demo", "model: demo\nresources: {gpus_per_trial: measured}"),
        (
            "{choices: [none, emb+B0]}",
            "{choices: {none: , emb+B0-3: {dropout: {choices: [null, 0.1]}}}}",
        ),
        ("2048", "{choices: [1024, 2048]}"),
        (
            "  learning_rate",
            "  freeze_output_dense: {choices: {true: {weight_decay: 0}, false: {}}}\n  learning_rate",
        ),
    ],
)
def test_valid_files_match_the_schema(old: str, new: str) -> None:
    assert old in MINIMAL
    VALIDATOR.validate(parse_value(MINIMAL.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("model: demo", "modle: demo", ""),
        ("model: demo", "model: ''", "model"),
        ("model: demo", "model: {nmae: demo}", "model"),
        ("  train: train.csv", "  trian: train.csv", "data"),
        ("model: demo", "model: demo\nseed: one", "seed"),
        ("model: demo", "model: demo\nevaluation: {k: 0}", "evaluation.k"),
        ("model: demo", "model: demo\nbudget: {trials: 2.5}", "budget.trials"),
        ("model: demo", "model: demo\nresources: {gpus_per_trial: 2}", "resources.gpus_per_trial"),
        (
            "model: demo",
            "model: demo\nearly_stopping: {policy: median_rule}",
            "early_stopping.policy",
        ),
        ("  loss:", "  optimizer:", "space"),
        ("      contrastive:", "      contrastiv:", "space.loss"),
        ("{margin: 0.5}", "{margn: 0.5}", "space.loss"),
        ("{margin: 0.5}", "{margin: null}", "space.loss"),
        ("learning_rate: {low", "learning_rate: {lo", "space.learning_rate"),
        ("log: true}\n  freezing", "log: 10}\n  freezing", "space.learning_rate"),
        ("high: 1e-4", "high: 2", "space.learning_rate"),
        ("{choices: [none, emb+B0]}", "[none, emb+B0]", "space.freezing"),
        ("{choices: [none, emb+B0]}", "{choices: [none, emb+B1]}", "space.freezing"),
        ("{choices: [none, emb+B0]}", "{choices: [none, none]}", "space.freezing"),
        ("{choices: [none, emb+B0]}", "{low: 1, high: 2}", "space.freezing"),
        ("examples_per_rung: 2048", "examples_per_rung: many", "space.examples_per_rung"),
        ("examples_per_rung", "examples_per_run", "space"),
    ],
)
def test_mistakes_violate_the_schema(old: str, new: str, place: str) -> None:
    assert old in MINIMAL
    errors = list(VALIDATOR.iter_errors(parse_value(MINIMAL.replace(old, new, 1))))
    assert place in {".".join(map(str, error.absolute_path)) for error in errors}
