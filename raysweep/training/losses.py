"""Losses as torch modules over embeddings: those of sentence-transformers, and a softmax head."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from raysweep.config.losses import LOSSES, Number


class EmbeddingLoss(Protocol):
    """A loss over embeddings."""

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """Return the scalar loss of (batch, width) embeddings, one tensor for each sentence of an example.

        ``labels`` (batch,) are the examples' targets, None for losses without targets.
        """


class SoftmaxLoss(nn.Module):
    """Cross-entropy of a linear head over single sentences, for any number of classes.

    The head reads unit embeddings times the square root of their width. Their entries are then of order 1, like an
    encoder's hidden states, so that one learning rate suits both. The loss also works in sentence-transformers'
    trainer, which neither zeroes nor clips the gradients of a loss's own parameters, so that the head's gradients
    accumulate from step to step. In raysweep, they are treated like the encoder's. ``label_smoothing`` is the share of
    each target that is spread evenly over all classes (Szegedy et al. 2016, arXiv:1512.00567).
    """

    def __init__(self, model: nn.Module, width: int, num_labels: int, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(width, num_labels)
        self.label_smoothing = label_smoothing

    def forward(self, sentence_features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        embeddings = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        assert labels is not None
        return nn.functional.cross_entropy(
            logits(self.head, embeddings[0]), labels.long(), label_smoothing=self.label_smoothing
        )

    def divergence(self, embeddings: Tensor, others: Tensor) -> Tensor:
        """Return the divergence of the class probabilities p and q of two embeddings of the same sentences.

        The embeddings are (batch, width). The result is a scalar, the mean over sentences of (KL(p, q) + KL(q, p)) / 2,
        which R-Drop adds to the loss (Liang et al. 2021, arXiv:2106.14448).
        """
        log_p = nn.functional.log_softmax(logits(self.head, embeddings), dim=-1)
        log_q = nn.functional.log_softmax(logits(self.head, others), dim=-1)
        by_class = (log_p.exp() - log_q.exp()) * (log_p - log_q)
        return by_class.sum(dim=-1).mean() / 2


class OtherClassNegativesLoss(nn.Module):
    """sentence-transformers' ``MultipleNegativesRankingLoss`` without negatives of the anchor's own class.

    Each anchor's cross-entropy is over its own positive and the positives of the batch's examples of other classes. An
    anchor without negatives has loss 0.
    """

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.model = model
        self.scale = scale

    def forward(self, sentence_features: list[dict[str, Tensor]], labels: Tensor) -> Tensor:
        embeddings = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """Return the loss of (batch, width) anchors and positives; ``labels`` (batch,) are the anchors' classes."""
        assert labels is not None
        anchors, positives = (nn.functional.normalize(column, dim=-1) for column in embeddings)
        scores = self.scale * anchors @ positives.T
        is_same_class = labels[:, None] == labels
        is_masked = is_same_class.fill_diagonal_(False)
        own_positives = torch.arange(len(scores), device=scores.device)
        return nn.functional.cross_entropy(scores.masked_fill(is_masked, -torch.inf), own_positives)


def logits(head: nn.Linear, embeddings: Tensor) -> Tensor:
    """Return the logits (batch, classes) of embeddings (batch, width), which need not be normalized."""
    scaled = nn.functional.normalize(embeddings, dim=-1) * head.in_features**0.5
    result: Tensor = head(scaled)
    return result


def build(
    name: str, parameters: Mapping[str, Any], model: nn.Module, *, width: int = 0, num_labels: int = 0
) -> EmbeddingLoss:
    """Return the module of ``LOSSES[name]``; ``parameters`` of other losses are ignored.

    The module keeps ``model`` as a submodule, which is not called if embeddings are computed elsewhere. ``width`` and
    ``num_labels`` are the size of the head of ``softmax``.

    Raises:
        InputError: If a parameter is out of range.
    """
    loss = LOSSES[name]
    arguments: dict[str, object] = {}
    for key, parameter in loss.parameters.items():
        value = parameters[key]
        parameter.check(f"{key} of the loss {name}", value)
        if isinstance(parameter, Number):
            arguments[parameter.keyword] = value
    if loss.library_class is None:
        return SoftmaxLoss(model, width, num_labels, parameters.get("label_smoothing", 0.0))
    from sentence_transformers.sentence_transformer import losses as library

    if parameters.get("negatives") == "other_class":
        return OtherClassNegativesLoss(model, parameters["scale"])
    if loss.distance:
        class_name, function_name = loss.distance.split(".")
        distances = getattr(library, class_name)
        # Always explicit: in sentence-transformers 5.0 to 5.3, the default of TripletLoss pushed positives away.
        arguments["distance_metric"] = getattr(distances, function_name)
    loss_class = getattr(library, loss.library_class)
    built: EmbeddingLoss = loss_class(model, **arguments)
    return built


def retention_term(embeddings: list[Tensor], reference: list[Tensor]) -> Tensor:
    """Return the mean squared difference between tuned and reference cosines on a batch's pairs, a scalar.

    Both lists hold (batch, width) tensors, one for each sentence of an example; widths may differ. An example's first
    sentence is paired with each of its other sentences; if examples are single sentences, each one is paired with the
    next in the batch.
    """
    return nn.functional.mse_loss(_pair_cosines(embeddings), _pair_cosines(reference))


def _pair_cosines(columns: list[Tensor]) -> Tensor:
    first, *others = columns
    others = others or [first.roll(-1, 0)]
    return torch.cat([nn.functional.cosine_similarity(first, other) for other in others])
