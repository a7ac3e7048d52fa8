"""The table of losses, with their examples and parameters. :mod:`raysweep.training.losses` builds the losses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from raysweep.errors import InputError

ExampleKind = Literal["triplet", "labeled_pair", "positive_pair", "scored_pair"]

# A labeled sentence is a training sentence with its class. It is not mined.
LossExamples = ExampleKind | Literal["labeled_sentence"]


@dataclass(frozen=True)
class Number:
    """A numeric parameter of a loss, above ``low`` and at most ``high``; ``keyword`` is its name in the library."""

    low: float
    high: float
    default: float
    keyword: str

    @property
    def allowed(self) -> str:
        return f"above {self.low:g}, at most {self.high:g}"

    def check(self, name: str, value: float) -> None:
        """Raise InputError with the parameter, its value and the allowed range if the value is out of range."""
        if not self.low < value <= self.high:  # also rejects NaN
            raise InputError(f"{name} is {value:g}; allowed: {self.allowed}")


@dataclass(frozen=True)
class Choice:
    """A loss parameter with a few named options that the library does not implement."""

    options: tuple[str, ...]
    default: str

    @property
    def allowed(self) -> str:
        return " or ".join(self.options)

    def check(self, name: str, value: str) -> None:
        """Raise InputError with the parameter, its value and the allowed options if the value is not an option."""
        if value not in self.options:
            raise InputError(f"{name} is {value!r}; allowed: {self.allowed}")


Parameter = Number | Choice


@dataclass(frozen=True)
class Loss:
    """A loss: a class of ``sentence_transformers.sentence_transformer.losses``, configured to use cosines.

    ``library_class`` is None for ``softmax``: the library's softmax loss takes pairs, so
    :class:`raysweep.training.losses.SoftmaxLoss` implements it. ``distance`` is the library's metric for cosine distance,
    in [0, 2]; None if the class always uses cosines.
    """

    example_kind: LossExamples
    library_class: str | None
    distance: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


_SIAMESE_COSINE = "SiameseDistanceMetric.COSINE_DISTANCE"


NEGATIVES = ("all", "other_class")
"""Negatives of an anchor in ``multiple_negatives``: all other positives in the batch, or only those of other classes."""


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        # Cosine distances differ by at most 2, so a margin above 2 is never met; published margins reach 10.
        "triplet": Loss(
            "triplet",
            "TripletLoss",
            "TripletDistanceMetric.COSINE",
            {"margin": Number(0, 10, 0.1, "triplet_margin")},
        ),
        "contrastive": Loss(
            "labeled_pair", "ContrastiveLoss", _SIAMESE_COSINE, {"margin": Number(0, 2, 0.5, "margin")}
        ),
        "online_contrastive": Loss(
            "labeled_pair", "OnlineContrastiveLoss", _SIAMESE_COSINE, {"margin": Number(0, 2, 0.5, "margin")}
        ),
        # The scale is the inverse of the softmax temperature.
        "multiple_negatives": Loss(
            "positive_pair",
            "MultipleNegativesRankingLoss",
            None,
            {"scale": Number(0, 1000, 20, "scale"), "negatives": Choice(NEGATIVES, "other_class")},
        ),
        "cosine_similarity": Loss("scored_pair", "CosineSimilarityLoss"),
        "softmax": Loss("labeled_sentence", None),
    }
)


def mined_kinds(losses: Iterable[object]) -> list[str]:
    """Return the kinds of mined examples that these losses need."""
    kinds = {LOSSES[str(loss)].example_kind for loss in losses}
    return sorted(kinds - {"labeled_sentence"})
