"""Losses as torch modules: the library's own classes, over embeddings computed in any way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from raysweep.losses import LOSSES

if TYPE_CHECKING:
    from torch import Tensor, nn


class EmbeddingLoss(Protocol):
    """A loss over embeddings."""

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """The loss, a scalar, of (batch, width) embeddings, one tensor for each sentence of an example.

        ``labels`` (batch,) are the examples' targets, None for losses whose examples have none.
        """


def build(name: str, parameters: Mapping[str, Any], model: nn.Module) -> EmbeddingLoss:
    """The module of ``LOSSES[name]``, with values for its parameters; others in ``parameters`` are not looked at.

    The module keeps ``model`` as a submodule, which nothing calls when embeddings are computed apart. Raises InputError
    when a value is out of range.
    """
    from sentence_transformers.sentence_transformer import losses as library

    loss = LOSSES[name]
    arguments: dict[str, object] = {}
    for key, parameter in loss.parameters.items():
        parameter.check(f"{key} of the loss {name}", parameters[key])
        arguments[parameter.keyword] = parameters[key]
    if loss.distance:
        metric, distance = loss.distance.split(".")
        # Always explicit: from 5.0 to 5.3 the default of TripletLoss pushed positives away.
        arguments["distance_metric"] = getattr(getattr(library, metric), distance)
    built: EmbeddingLoss = getattr(library, loss.library_class)(model, **arguments)
    return built
