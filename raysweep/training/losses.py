"""Losses as torch modules, from sentence-transformers, raysweep and user code."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from raysweep.config.custom_loss import SUPPLIED, import_object
from raysweep.config.loss_spec import TargetRule, Value
from raysweep.config.losses import TEACHER, find_loss
from raysweep.training.batch import Batch, cosines, targets_of


class BatchLoss(Protocol):
    """A loss over a batch."""

    def compute_loss(self, batch: Batch) -> Tensor:
        """Return the loss, a scalar with gradients."""


class EmbeddingLoss(nn.Module):
    """Adapter for losses with ``compute_loss_from_embeddings``, such as those of sentence-transformers."""

    def __init__(self, loss: nn.Module, targets: TargetRule) -> None:
        super().__init__()
        self.loss = loss
        self.targets = targets

    def compute_loss(self, batch: Batch) -> Tensor:
        loss: Any = self.loss
        result: Tensor = loss.compute_loss_from_embeddings(
            batch.columns, targets_of(batch, self.targets)
        )
        return result


class SoftmaxLoss(nn.Module):
    """Cross-entropy of a linear head on single sentences, for any number of classes.

    Unit embeddings are multiplied by the square root of their width. The entries of the head's input are then of order 1,
    like an encoder's hidden states, so the same learning rate works for the head and the encoder. ``label_smoothing`` is
    the share of each target that is spread evenly over all classes (Szegedy et al. 2016, arXiv:1512.00567).

    With ``targets="teacher"``, the loss is w D + (1 - w) C, where C is the cross-entropy above, w is ``teacher_weight``
    and D is the distillation loss of Hinton et al. 2015 (arXiv:1503.02531, section 2): T^2 times the cross-entropy of
    softmax(z / T) with targets softmax(log p / T), where z is the head's logits, p is the teacher's class
    probabilities, and T is ``teacher_temperature``.
    """

    def __init__(  # noqa: PLR0913 (the parameters of the loss)
        self,
        model: nn.Module,
        width: int,
        num_labels: int,
        label_smoothing: float = 0.0,
        targets: str = "labels",
        teacher_temperature: float = 1.0,
        teacher_weight: float = 1.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(width, num_labels)
        self.label_smoothing = label_smoothing
        self.teacher_temperature = teacher_temperature
        self.teacher_weight = teacher_weight if targets == TEACHER else 0.0

    def compute_loss(self, batch: Batch) -> Tensor:
        """Return the mean loss of the sentences."""
        assert batch.targets is not None
        scores = logits(self.head, batch.columns[0])
        weight = self.teacher_weight
        if weight == 1:
            return self._distillation_loss(scores, batch.teacher)
        loss = nn.functional.cross_entropy(
            scores, batch.targets.long(), label_smoothing=self.label_smoothing
        )
        if weight:
            loss = weight * self._distillation_loss(scores, batch.teacher) + (1 - weight) * loss
        return loss

    def _distillation_loss(self, scores: Tensor, probabilities: Tensor) -> Tensor:
        """Return the distillation loss for logits and the teacher's probabilities, both (batch, classes)."""
        temperature = self.teacher_temperature
        smallest = torch.finfo(probabilities.dtype).tiny  # avoids log(0)
        teacher_scores = probabilities.clamp_min(smallest).log().to(scores.dtype)
        soft_targets = nn.functional.softmax(teacher_scores / temperature, dim=-1)
        return temperature**2 * nn.functional.cross_entropy(scores / temperature, soft_targets)

    def divergence(self, embeddings: Tensor, others: Tensor) -> Tensor:
        """Return the R-Drop loss term for two embeddings (batch, width) of the same sentences, a scalar.

        It is the mean over sentences of (KL(p, q) + KL(q, p)) / 2, where p and q are the class probabilities for the two
        embeddings (Liang et al. 2021, arXiv:2106.14448).
        """
        log_p = nn.functional.log_softmax(logits(self.head, embeddings), dim=-1)
        log_q = nn.functional.log_softmax(logits(self.head, others), dim=-1)
        by_class = (log_p.exp() - log_q.exp()) * (log_p - log_q)
        return by_class.sum(dim=-1).mean() / 2


def logits(head: nn.Linear, embeddings: Tensor) -> Tensor:
    """Return the logits (batch, classes) of embeddings (batch, width), which need not be normalized.

    Embeddings narrower than the head use its first columns, as in Kusupati et al. 2022, section 3.
    """
    width = embeddings.shape[1]
    scaled = nn.functional.normalize(embeddings, dim=-1) * width**0.5
    return nn.functional.linear(scaled, head.weight[:, :width], head.bias)


class OtherClassNegativesLoss(nn.Module):
    """sentence-transformers' ``MultipleNegativesRankingLoss`` without negatives of the anchor's own class.

    An example is an anchor, its positive and possibly a negative. ``directions`` and ``partition_mode`` have
    the same meaning as in sentence-transformers. An anchor without negatives has a loss of 0.
    """

    def __init__(
        self,
        model: nn.Module,
        scale: float,
        directions: Sequence[str] = ("query_to_doc",),
        partition_mode: str = "joint",
    ) -> None:
        super().__init__()
        self.model = model
        self.scale = scale
        self.directions = directions
        self.partition_mode = partition_mode

    def compute_loss(self, batch: Batch) -> Tensor:
        """Return the mean loss of the anchors."""
        anchors, *documents = (nn.functional.normalize(column, dim=-1) for column in batch.columns)
        anchor_labels, *document_labels = batch.labels.T
        sides = {
            "query": _Side(anchors, anchor_labels),
            "positive": _Side(documents[0], document_labels[0]),
            "doc": _Side(torch.cat(documents), torch.cat(document_labels)),
        }
        matrices = [self._scores(sides, direction) for direction in self.directions]
        if self.partition_mode == "joint" and len(matrices) > 1:
            matrices = [torch.cat(matrices, dim=1)]
        own_positives = torch.arange(len(anchors), device=anchors.device)
        losses = [nn.functional.cross_entropy(matrix, own_positives) for matrix in matrices]
        return torch.stack(losses).mean()

    def _scores(self, sides: Mapping[str, "_Side"], direction: str) -> Tensor:
        """Return the scaled cosines for a direction, (batch, contrasted sentences), with -inf for excluded sentences.

        Sentences of the row's class are excluded, except the row's positive. If the direction has no positive,
        sentences of the row's own example are excluded too.
        """
        from_name, _, to_name = direction.partition("_to_")
        rows = sides["query" if from_name == "query" else "positive"]
        others = sides[to_name]
        scores = self.scale * rows.embeddings @ others.embeddings.T
        is_left_out = rows.labels[:, None] == others.labels
        if from_name != to_name:
            is_left_out.fill_diagonal_(False)
        else:
            num_rows, num_others = scores.shape
            own_example = torch.eye(num_rows, dtype=torch.bool, device=scores.device)
            is_left_out |= own_example.repeat(1, num_others // num_rows)
        return scores.masked_fill(is_left_out, -torch.inf)


class _Side(NamedTuple):
    """Unit embeddings (sentences, width) and classes (sentences,) of one side of the contrasted pairs."""

    embeddings: Tensor
    labels: Tensor


class GuidedLoss(nn.Module):
    """sentence-transformers' ``GISTEmbedLoss`` with the reference encoder as the guide (Solatorio 2024, arXiv:2402.16829).

    An example is an anchor, its positive and possibly a negative. The anchor-positive cosine is contrasted with the
    cosines between the anchor and all other sentences of the batch, and with those between its positive and the other
    positives. Pairs whose cosine under the guide exceeds the guide's anchor-positive cosine minus the margin are
    left out.
    """

    def __init__(
        self,
        model: nn.Module,
        temperature: float = 0.01,
        margin: float = 0.0,
        margin_strategy: str = "absolute",
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.margin = margin
        self.margin_strategy = margin_strategy

    def compute_loss(self, batch: Batch) -> Tensor:
        """Return the mean loss of the anchors."""
        matrices = _contrasted(batch.columns)
        guides = _contrasted(batch.reference)
        of_positive = guides[0].diagonal()[:, None]
        margin = (
            self.margin if self.margin_strategy == "absolute" else self.margin * of_positive.abs()
        )
        scores = []
        for number, (matrix, guide) in enumerate(zip(matrices, guides, strict=True)):
            is_left_out = guide > of_positive - margin
            if number == 0:
                is_left_out.fill_diagonal_(False)
            scores.append(matrix.masked_fill(is_left_out, -torch.inf))
        all_scores = torch.cat(scores, dim=1)
        own_positives = torch.arange(len(all_scores), device=all_scores.device)
        return nn.functional.cross_entropy(all_scores / self.temperature, own_positives)


def _contrasted(columns: Sequence[Tensor]) -> list[Tensor]:
    """Return the anchor-positive, anchor-anchor, positive-positive and anchor-negative cosines, each (batch, batch)."""
    anchors, positives, *negatives = (nn.functional.normalize(column, dim=-1) for column in columns)
    pairs = [(anchors, positives), (anchors, anchors), (positives, positives)]
    pairs += [(anchors, negative) for negative in negatives]
    return [first @ second.T for first, second in pairs]


def build(
    name: str, values: Mapping[str, Value], model: nn.Module, *, width: int = 0, num_labels: int = 0
) -> nn.Module:
    """Return a loss as a module that implements :class:`BatchLoss`.

    ``model`` becomes a submodule of the loss, but the loss never calls it.

    Args:
        name: The name of a built-in loss, or the import path of a user-defined loss.
        values: The values of all parameters of the loss.
        model: The encoder.
        width: The width of the embeddings, for losses with a head.
        num_labels: The number of classes, for losses with a head.

    Raises:
        InputError: If a parameter is out of range, or if the class cannot be imported in this process.
    """
    loss = find_loss(name)
    checked: dict[str, Value] = {}
    for key, parameter in loss.parameters.items():
        checked[key] = parameter.check(f"{key} of the loss {name}", values[key])
    loss_class = import_object(loss.class_path_of(checked))
    arguments = loss.arguments(checked)
    for keyword, path in loss.constants.items():
        arguments[keyword] = import_object(path)
    accepted = inspect.signature(loss_class).parameters
    for keyword, value in zip(SUPPLIED, (width, num_labels), strict=True):
        if keyword in accepted:
            arguments[keyword] = value
    module: nn.Module = loss_class(model, **arguments)
    return module if hasattr(module, "compute_loss") else EmbeddingLoss(module, loss.targets)


def sum_over_widths(loss: BatchLoss, batch: Batch, widths: Sequence[int]) -> Tensor:
    """Return the sum of a loss over embeddings truncated to each of ``widths``, a scalar.

    It equals sentence-transformers' ``MatryoshkaLoss`` with weights of 1 (Kusupati et al. 2022, arXiv:2205.13147).
    """
    losses = [loss.compute_loss(batch.truncated(width)) for width in widths]
    return torch.stack(losses).sum()


def retention_term(batch: Batch) -> Tensor:
    """Return the mean squared difference between the tuned and reference cosines of a batch's pairs, a scalar.

    An example's first sentence is paired with each of its other sentences. If examples are single sentences, each is
    paired with the next one in the batch.
    """
    return nn.functional.mse_loss(_pair_cosines(batch.columns), _pair_cosines(batch.reference))


def _pair_cosines(columns: Sequence[Tensor]) -> Tensor:
    first, *others = columns
    others = others or [first.roll(-1, 0)]
    return torch.cat([cosines(first, other) for other in others])
