"""One trial's configuration."""

import pytest

from raysweep.config.losses import LOSSES
from raysweep.config.trial import trial_config
from raysweep.errors import InputError


def test_a_trial_has_exactly_the_parameters_of_its_loss() -> None:
    assert (
        trial_config({"loss": "triplet", "learning_rate": 1e-5}).margin
        == LOSSES["triplet"].parameters["margin"].default
    )
    with pytest.raises(InputError, match="margin is 0.1, but the loss cosine_similarity"):
        trial_config({"loss": "cosine_similarity", "margin": 0.1, "learning_rate": 1e-5})
    with pytest.raises(InputError, match="learning_rate is 0.0; allowed: greater than 0"):
        trial_config({"loss": "triplet", "learning_rate": 0.0})


@pytest.mark.parametrize("name", ["label_smoothing", "consistency_weight"])
def test_class_parameters_require_softmax(name: str) -> None:
    assert getattr(trial_config({"loss": "softmax", "learning_rate": 1e-5, name: 0.5}), name) == 0.5
    trial_config({"loss": "triplet", "learning_rate": 1e-5, name: 0.0})
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
    with pytest.raises(InputError, match=f"^{name} is {wrong}; allowed: "):
        trial_config({"loss": "softmax", "learning_rate": 1e-5, name: wrong})


def test_negatives_belong_to_multiple_negatives() -> None:
    values = {"loss": "multiple_negatives", "learning_rate": 1e-5}
    assert trial_config({**values, "negatives": "other_class"}).negatives == "other_class"
    assert trial_config({"loss": "triplet", "learning_rate": 1e-5}).negatives is None
    with pytest.raises(InputError, match="negatives is 'all', but the loss triplet"):
        trial_config({"loss": "triplet", "learning_rate": 1e-5, "negatives": "all"})
    with pytest.raises(InputError, match=r"negatives is 'none'; allowed: .*'other_class'"):
        trial_config({**values, "negatives": "none"})


@pytest.mark.parametrize("loss", LOSSES)
def test_the_identity_omits_defaults(loss: str) -> None:
    required = {"loss": loss, "learning_rate": 1e-5}
    config = trial_config(required)
    assert config.identity == required
    assert trial_config(config.model_dump()).identity == required, "defaults may be written out"


def test_the_identity_has_all_values_that_differ() -> None:
    on = {"label_smoothing": 0.1, "layer_decay": 0.8, "average_decay": 0.99, "dropout": 0.0, "batch_size": 32}
    values = {"loss": "softmax", "learning_rate": 1e-5, **on}
    assert trial_config(values).identity == values
    negatives = {"loss": "multiple_negatives", "learning_rate": 1e-5, "negatives": "all"}
    assert trial_config(negatives).identity == negatives
