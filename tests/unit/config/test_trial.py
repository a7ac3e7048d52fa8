"""One trial's configuration."""

import pytest

from raysweep.config.losses import LOSSES
from raysweep.config.trial import trial_config
from raysweep.errors import InputError


def test_trial_config_needs_exactly_the_parameters_of_its_loss() -> None:
    assert (
        trial_config({"loss": "triplet", "learning_rate": 1e-5}).margin
        == LOSSES["triplet"].parameters["margin"].default
    )
    with pytest.raises(InputError, match="the loss cosine_similarity has none"):
        trial_config({"loss": "cosine_similarity", "margin": 0.1, "learning_rate": 1e-5})
    with pytest.raises(InputError, match="learning_rate: should be greater than 0, not 0"):
        trial_config({"loss": "triplet", "learning_rate": 0.0})
