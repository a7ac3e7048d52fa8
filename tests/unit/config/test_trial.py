"""One trial's configuration."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.config.loss_spec import Number
from raysweep.config.losses import LOSSES
from raysweep.config.trial import SHARED_PARAMETERS, TrialConfig, trial_config
from raysweep.errors import InputError
from raysweep.training.trial import trial_seed
from support.paths import ROOT


def test_a_trial_has_exactly_the_parameters_of_its_loss() -> None:
    triplet = trial_config({"loss": "triplet", "learning_rate": 1e-5})
    assert triplet.loss_parameters == {"margin": LOSSES["triplet"].parameters["margin"].default}
    with pytest.raises(InputError, match="margin is 0.1, but the loss cosine_similarity"):
        trial_config({"loss": "cosine_similarity", "margin": 0.1, "learning_rate": 1e-5})
    with pytest.raises(InputError, match="learning_rate is 0.0; allowed: greater than 0"):
        trial_config({"loss": "triplet", "learning_rate": 0.0})


@pytest.mark.parametrize("name", ["label_smoothing", "consistency_weight"])
def test_class_parameters_require_softmax(name: str) -> None:
    assert (
        trial_config({"loss": "softmax", "learning_rate": 1e-5, name: 0.5}).loss_parameters[name]
        == 0.5
    )
    triplet = trial_config({"loss": "triplet", "learning_rate": 1e-5, name: 0.0})
    assert name not in triplet.loss_parameters and triplet.flat[name] == 0.0
    with pytest.raises(InputError, match=f"{name} is 0.5, but the loss triplet"):
        trial_config({"loss": "triplet", "learning_rate": 1e-5, name: 0.5})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *[("label_smoothing", value) for value in (-0.1, 1.0, float("nan"))],
        *[("consistency_weight", value) for value in (-0.1, float("nan"))],
        *[("layer_decay", value) for value in (0.0, 1.1, float("nan"))],
        *[("average_decay", value) for value in (0.0, 1.0, float("nan"))],
    ],
)
def test_values_out_of_range_are_rejected(name: str, wrong: float) -> None:
    with pytest.raises(
        InputError, match=rf"^{name}( of the loss softmax)? is {wrong:g}(\.0)?; allowed: "
    ):
        trial_config({"loss": "softmax", "learning_rate": 1e-5, name: wrong})


def test_negatives_belong_to_multiple_negatives() -> None:
    values = {"loss": "multiple_negatives", "learning_rate": 1e-5}
    assert trial_config({**values, "negatives": "all"}).loss_parameters["negatives"] == "all"
    with pytest.raises(InputError, match="negatives is 'all', but the loss triplet"):
        trial_config({"loss": "triplet", "learning_rate": 1e-5, "negatives": "all"})
    with pytest.raises(InputError, match="negatives .* is 'none'; allowed: all, other_class"):
        trial_config({**values, "negatives": "none"})


@pytest.mark.parametrize("loss", LOSSES)
def test_the_identity_omits_defaults(loss: str) -> None:
    required = {"loss": loss, "learning_rate": 1e-5}
    config = trial_config(required)
    assert config.identity == required
    assert trial_config(config.flat).identity == required, "defaults may be written out"


def test_the_identity_has_all_values_that_differ() -> None:
    on = {
        "label_smoothing": 0.1,
        "layer_decay": 0.8,
        "average_decay": 0.99,
        "dropout": 0.0,
        "batch_size": 32,
    }
    values = {"loss": "softmax", "learning_rate": 1e-5, **on}
    assert trial_config(values).identity == values
    negatives = {"loss": "multiple_negatives", "learning_rate": 1e-5, "negatives": "all"}
    assert trial_config(negatives).identity == negatives


SEEDS: list[tuple[dict[str, Any], int, int]] = [
    ({"loss": "triplet", "margin": 0.1, "learning_rate": 3e-05}, 2773212526, 3193358448),
    (
        {
            "loss": "triplet",
            "margin": 1,
            "learning_rate": 1e-4,
            "freezing": "emb",
            "batch_size": 32,
        },
        3738224633,
        3881543256,
    ),
    ({"loss": "contrastive", "margin": 0.5, "learning_rate": 1e-5}, 2500646388, 3695201592),
    (
        {"loss": "online_contrastive", "margin": 1.0, "learning_rate": 1e-5, "no_duplicates": True},
        2803739544,
        607103363,
    ),
    ({"loss": "multiple_negatives", "scale": 20, "learning_rate": 1e-4}, 174903979, 620521330),
    (
        {"loss": "multiple_negatives", "scale": 40, "negatives": "all", "learning_rate": 1e-4},
        1864582215,
        1092007949,
    ),
    (
        {"loss": "cosine_similarity", "learning_rate": 1e-4, "retention_weight": 0.5},
        1437447277,
        3168887789,
    ),
    (
        {"loss": "softmax", "learning_rate": 2e-4, "label_smoothing": 0.1, "consistency_weight": 1},
        1189495954,
        1892177840,
    ),
    ({"loss": "softmax", "learning_rate": 2e-4, "dropout": 0.0}, 2073808247, 824313783),
]
"""Configurations and their seeds in a sweep of seed 3: of the first run and of the second replicate."""


@pytest.mark.parametrize(("values", "seed", "of_replicate"), SEEDS)
def test_seeds_never_change(values: dict[str, Any], seed: int, of_replicate: int) -> None:
    config = trial_config(values)
    assert (trial_seed(3, config), trial_seed(3, config, run=2)) == (seed, of_replicate)


def test_a_new_loss_or_parameter_changes_no_seed(tmp_path: Path) -> None:
    """In a copy of the package, the table gets a loss, each loss a parameter, and trials another one."""
    shutil.copytree(
        ROOT / "raysweep",
        tmp_path / "raysweep",
        ignore=shutil.ignore_patterns("__pycache__", "assets"),
    )
    table = tmp_path / "raysweep" / "config" / "losses.py"
    more = """
LOSSES = {name: replace(loss, parameters={**loss.parameters, "new": Number(0.5)}) for name, loss in LOSSES.items()}
LOSSES["newest"] = LossSpec("triplet", f"{_OWN}:GuidedLoss", _GUIDED)

LOSS_PARAMETERS"""
    text = table.read_text(encoding="utf-8").replace("\nLOSS_PARAMETERS", more, 1)
    table.write_text(f"from dataclasses import replace\n{text}", encoding="utf-8")
    trial = tmp_path / "raysweep" / "config" / "trial.py"
    field = "    new_in_every_trial: int = 7\n    learning_rate:"
    trial.write_text(
        trial.read_text(encoding="utf-8").replace("    learning_rate:", field, 1), encoding="utf-8"
    )
    code = (
        "import json, sys; from raysweep.config.trial import trial_config; from raysweep.training.trial import trial_seed;"
        "configs = [trial_config(values) for values in json.loads(sys.argv[1])];"
        "assert all({'new', 'new_in_every_trial'} <= config.flat.keys() for config in configs);"
        "print(json.dumps([[trial_seed(3, config, run) for run in (0, 2)] for config in configs]))"
    )
    command = [sys.executable, "-c", code, json.dumps([values for values, *_ in SEEDS])]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == [[seed, of_replicate] for _, seed, of_replicate in SEEDS]


OTHERS: dict[str, Any] = {
    "batch_size": 32,
    "freezing": "emb",
    "dropout": None,
    "matryoshka": "halves",
    "no_duplicates": True,
}


@given(st.sampled_from(sorted(LOSSES)), st.sets(st.sampled_from(sorted(OTHERS))), st.data())
def test_the_identity_gives_the_same_trial(loss: str, names: set[str], data: st.DataObject) -> None:
    """It has all values that differ from their defaults and no others, whatever the loss's parameters."""
    values: dict[str, Any] = {
        "loss": loss,
        "learning_rate": 1e-5,
        **{name: OTHERS[name] for name in names},
    }
    for name, parameter in LOSSES[loss].parameters.items():
        if isinstance(parameter, Number):
            allowed = st.sampled_from([parameter.default, 2 if parameter.is_integer else 0.25])
        else:
            allowed = st.sampled_from(sorted(parameter.options, key=str))  # type: ignore[arg-type]
        values[name] = data.draw(allowed)
    config = trial_config(values)
    assert trial_config(config.identity) == config
    assert trial_seed(0, trial_config(config.flat)) == trial_seed(0, config)
    defaults = {
        **{name: TrialConfig.model_fields[name].default for name in SHARED_PARAMETERS},
        **LOSSES[loss].defaults,
    }
    assert config.identity == {
        name: value for name, value in values.items() if value != defaults[name]
    }


@pytest.mark.parametrize("wrong", ["", "half", "192,", "0", "192,192", "-1", "1.5", "192, 96"])
def test_invalid_matryoshka_widths_are_rejected(wrong: str) -> None:
    with pytest.raises(InputError, match="matryoshka is .*allowed: halves or widths"):
        trial_config({"loss": "triplet", "learning_rate": 1e-5, "matryoshka": wrong})
