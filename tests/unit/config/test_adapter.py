"""Parameters of adapters: defaults, seeds and invalid combinations."""

from typing import Any

import pytest

from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.adapter import Lora
from raysweep.config.document import Document
from raysweep.config.space import Space, branches
from raysweep.config.trial import trial_config
from raysweep.errors import InputError
from support.paths import SPACES

PLAIN: dict[str, Any] = {"loss": "softmax", "learning_rate": 1e-4}


def space_of(adapter: str, **overrides: str) -> Space:
    document = Document.read(SPACES / "smoke.yaml")
    del document.values["space"]["freezing"]
    document.override("space.adapter", adapter)
    for key, value in overrides.items():
        document.override(f"space.{key}", value)
    return space_parser.parse(document, configuration.parse(document))


def test_defaults_of_an_adapter() -> None:
    assert trial_config(PLAIN).lora is None
    assert trial_config({**PLAIN, "adapter": "lora"}).lora == Lora(8, 16.0, "all_linear", 0.0)
    config = trial_config({**PLAIN, "adapter": "lora", "lora_rank": 2, "lora_targets": "attention"})
    assert config.lora == Lora(2, 4.0, "attention", 0.0)


def test_seeds_depend_only_on_values_that_differ_from_the_defaults() -> None:
    assert "adapter" not in trial_config(PLAIN).recorded
    assert trial_config(PLAIN).record(searched=["adapter"])["adapter"] == "none"
    assert (
        trial_config(PLAIN).identity == PLAIN == trial_config({**PLAIN, "adapter": "none"}).identity
    )
    lora = {**PLAIN, "adapter": "lora"}
    assert (
        trial_config(lora).identity
        == lora
        == trial_config({**lora, "lora_rank": 8, "lora_dropout": 0}).identity
    )
    assert trial_config({**lora, "lora_rank": 4}).identity == {**lora, "lora_rank": 4}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lora_rank": 4}, "lora_rank is 4.*adapter"),
        ({"adapter": "lora", "lora_rank": 0}, "lora_rank"),
        ({"adapter": "lora", "lora_targets": "query"}, "lora_targets.*attention"),
        ({"adapter": "lora", "lora_dropout": 1.0}, "lora_dropout"),
        ({"adapter": "lora", "freezing": "emb"}, "freezing is emb.*lora.*allowed: none"),
        (
            {"adapter": "lora", "freeze_output_dense": True},
            "freeze_output_dense is True.*lora.*allowed: False",
        ),
        ({"adapter": "dora"}, "adapter.*none.*lora"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trial_config({**PLAIN, **values})


def test_space_over_adapters() -> None:
    space = space_of(
        "{choices: {none: {freezing: {choices: [none, emb]}}, lora: {lora_rank: {choices: [2, 8]}, "
        "lora_targets: {choices: [attention, all_linear]}, lora_dropout: {low: 0.0, high: 0.2}}}}",
    )
    largest = {config.adapter: config for config in space.largest()}
    assert largest["none"].freezing == "none"
    assert largest["lora"].lora == Lora(8, 16.0, "all_linear", 0.2)


@pytest.mark.parametrize(
    ("adapter", "overrides", "message"),
    [
        (
            "lora",
            {"freezing": "{choices: [none, emb]}"},
            r"space\.freezing.*is emb.*lora.*space\.adapter\.choices\.none",
        ),
        ("lora", {"freeze_output_dense": "true"}, r"space\.freeze_output_dense.*is True.*lora"),
        ("none", {"lora_rank": "{choices: [4, 8]}"}, r"lora_rank is 4.*adapter"),
        ("{choices: [none, lora]}", {"lora_rank": "4"}, r"lora_rank is 4.*adapter"),
        ("lora", {"lora_rank": "{low: 0, high: 8}"}, r"space\.lora_rank\.low.*is 0"),
    ],
)
def test_combinations_without_effect_are_rejected(
    adapter: str, overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        space_of(adapter, **overrides)


def test_searched_adapters_are_recorded() -> None:
    space = space_of("{choices: [none, lora]}")
    for adapter in ("none", "lora"):
        values = next(
            branch for branch in branches(space.parameters) if branch["adapter"] == adapter
        )
        recorded = trial_config(values).record(searched=values)
        assert space.suggest_fixed(recorded).params["adapter"] == adapter
