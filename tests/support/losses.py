"""Random batches, and the value of every loss computed independently: by sentence-transformers, or by brute force."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from raysweep.config.loss_spec import EXAMPLES
from raysweep.config.losses import find_loss
from raysweep.training.batch import Batch
from raysweep.training.trainer import Training

DIRECTIONS: dict[str, dict[str, Any]] = {
    "forward": {},
    "symmetric": {
        "directions": ("query_to_doc", "doc_to_query"),
        "partition_mode": "per_direction",
    },
    "all": {"directions": ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")},
}


class WithOtherReference(Training):
    """A training under a reference encoder that is not the untrained model, so that every loss has gradients."""

    def make_batch(self, columns: Any, ids: Any, targets: Any) -> Batch:
        batch = super().make_batch(columns, ids, targets)
        return dataclasses.replace(
            batch, read_reference=lambda column: batch.read_reference(column).flip(0)
        )


def random_batch(
    name: str, num_examples: int = 12, width: int = 8, seed: int = 0, dtype: Any = torch.float64
) -> Batch:
    """Return a batch of a loss's examples with gradients: three classes, and embeddings of any length."""
    rng = np.random.default_rng(seed)
    schema = EXAMPLES[find_loss(name).examples]
    num_columns = len(schema.columns)
    # negatives differ
    labels = rng.integers(0, 3, (num_examples, 1)) + np.array([0, 0, 1])[:num_columns]
    columns = rng.normal(size=(num_columns, num_examples, width)) * rng.uniform(
        0.3, 3, (num_examples, 1)
    )
    reference = torch.from_numpy(rng.normal(size=(num_columns, num_examples, width + 3))).to(dtype)
    ids = np.arange(num_examples * num_columns).reshape(num_columns, num_examples).T
    teacher = torch.from_numpy(rng.dirichlet(np.ones(3), num_examples * num_columns)).to(dtype)
    targets = {
        "none": None,
        "float": rng.choice([0.0, 0.5, 1.0], num_examples),
        "class": labels[:, 0] % 3 if num_columns == 1 else rng.integers(0, 2, num_examples),
    }[schema.targets]
    return Batch(
        columns=[torch.from_numpy(column).to(dtype).requires_grad_() for column in columns],
        targets=None if targets is None else torch.from_numpy(targets),
        ids=ids,
        labels=torch.from_numpy(labels % 3),
        read_reference=lambda column: torch.nn.functional.normalize(reference[column]),
        read_teacher=lambda column: teacher[column],
    )


def distillation(logits: Tensor, batch: Batch, temperature: float) -> Tensor:
    """Return the cross-entropy under softened probabilities as their entropy plus torch's divergence."""
    softened = batch.teacher.pow(1 / temperature)
    softened = softened / softened.sum(dim=1, keepdim=True)
    entropy = -(softened * softened.log()).sum(dim=1).mean()
    log_probabilities = torch.log_softmax(logits / temperature, dim=1)
    divergence = torch.nn.functional.kl_div(log_probabilities, softened, reduction="batchmean")
    return temperature**2 * (entropy + divergence)


def expected_loss(
    name: str, values: Mapping[str, Any], batch: Batch, head: torch.nn.Linear | None = None
) -> Tensor:
    """Return the loss of a batch, with gradients, independently of raysweep's table; ``head`` is softmax's."""
    columns, targets = batch.columns, batch.targets
    if name == "softmax":
        assert head is not None and targets is not None
        hidden = columns[0] / columns[0].norm(dim=1, keepdim=True) * math.sqrt(columns[0].shape[1])
        cross_entropy = torch.nn.CrossEntropyLoss(label_smoothing=values["label_smoothing"])
        result: Tensor = cross_entropy(head(hidden), targets.long())
        if values["targets"] == "teacher":
            weight = values["teacher_weight"]
            result = (1 - weight) * result + weight * distillation(
                head(hidden), batch, values["teacher_temperature"]
            )
        return result
    if name in ("gist", "gist_triplet"):
        return guided(batch, values)
    if values.get("negatives") == "other_class":
        return other_class_negatives(batch, values["scale"], values["directions"])
    if name == "margin_mse":
        anchor, positive, negative = batch.reference
        targets = (anchor * positive).sum(1) - (anchor * negative).sum(1)
    loss = library_loss(name, values)
    value: Tensor = loss.compute_loss_from_embeddings(columns, targets)
    return value


def library_loss(name: str, values: Mapping[str, Any]) -> Any:
    """Return sentence-transformers' loss of this name."""
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer import losses

    model = torch.nn.Identity()
    margin, scale = values.get("margin"), values.get("scale")
    batch_distance = losses.BatchHardTripletLossDistanceFunction.cosine_distance
    pair_distance = losses.SiameseDistanceMetric.COSINE_DISTANCE
    triplet_distance = losses.TripletDistanceMetric.COSINE
    if name.startswith("multiple_negatives"):
        return losses.MultipleNegativesRankingLoss(
            model, scale=scale, **DIRECTIONS[values["directions"]]
        )  # type: ignore[arg-type]
    builders: dict[str, Callable[[], Any]] = {
        "triplet": lambda: losses.TripletLoss(model, triplet_distance, margin),
        "contrastive": lambda: losses.ContrastiveLoss(model, pair_distance, margin),
        "online_contrastive": lambda: losses.OnlineContrastiveLoss(model, pair_distance, margin),
        "cosine_similarity": lambda: losses.CosineSimilarityLoss(model),
        "cosent": lambda: losses.CoSENTLoss(model, scale),
        "angle": lambda: losses.AnglELoss(model, scale),
        "margin_mse": lambda: losses.MarginMSELoss(model, util.pairwise_cos_sim),
        "batch_all_triplet": lambda: losses.BatchAllTripletLoss(model, batch_distance, margin),
        "batch_hard_triplet": lambda: losses.BatchHardTripletLoss(model, batch_distance, margin),
        "batch_semi_hard_triplet": lambda: losses.BatchSemiHardTripletLoss(
            model, batch_distance, margin
        ),
        "batch_hard_soft_margin_triplet": lambda: losses.BatchHardSoftMarginTripletLoss(
            model, batch_distance
        ),
    }
    return builders[name]()


def other_class_negatives(batch: Batch, scale: float, directions: str) -> Tensor:
    """Return the loss of ``negatives: other_class`` by loops over anchors, directions and sentences."""
    sides = {0: list(zip(batch.columns[0], batch.labels[:, 0], strict=True)), 1: []}
    for column, labels in zip(batch.columns[1:], batch.labels.T[1:], strict=True):
        sides[1] += zip(column, labels, strict=True)
    num_examples = len(batch.ids)

    def cosine(a: Tensor, b: Tensor) -> Tensor:
        return scale * (a @ b) / a.norm() / b.norm()

    def logits(example: int, source: int, target: int) -> list[Tensor]:
        vector, label = sides[source][example]
        others = sides[target] if (source, target) != (1, 0) else sides[0]
        result = []
        for place, (other, other_label) in enumerate(others):
            is_positive = source != target and place == example
            is_own = place % num_examples == example
            if is_positive or (other_label != label and not (source == target and is_own)):
                result.append(cosine(vector, other))
        return result

    pairs = {
        "forward": [(0, 1)],
        "symmetric": [(0, 1), (1, 0)],
        "all": [(0, 1), (0, 0), (1, 0), (1, 1)],
    }[directions]
    total = torch.zeros((), dtype=batch.columns[0].dtype)
    for example in range(num_examples):
        positive = cosine(sides[0][example][0], sides[1][example][0])
        by_direction = [logits(example, *pair) for pair in pairs]
        if directions == "symmetric":
            parts = [torch.stack(scores).logsumexp(0) for scores in by_direction]
        else:
            parts = [
                torch.stack([score for scores in by_direction for score in scores]).logsumexp(0)
            ]
        total = total + torch.stack(parts).mean() - positive
    return total / num_examples


def guided(batch: Batch, values: Mapping[str, Any]) -> Tensor:
    """Return the library's GISTEmbedLoss, whose encoder and guide return the batch's embeddings."""
    from sentence_transformers.sentence_transformer.losses import gist_embed
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    )
    model, guide = (SimpleNamespace(tokenizer=tokenizer, max_seq_length=8) for _ in range(2))
    loss = gist_embed.GISTEmbedLoss(model, guide, **values)  # type: ignore[arg-type]

    def embed_columns(encoder: Any, features: Any) -> list[Tensor]:
        return batch.columns if encoder is model else batch.reference

    with mock.patch.object(gist_embed, "embed_columns", embed_columns):
        value: Tensor = loss(({} for _ in batch.columns), torch.zeros(0))
    return value
