"""The table of losses: which examples each one takes, and its parameters. :mod:`raysweep.training.losses` builds them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from raysweep.errors import InputError

ExampleKind = Literal["triplet", "labelled_pair", "positive_pair", "scored_pair"]


# A labelled sentence is a training sentence and its class: nothing is mined for it.
LossExamples = ExampleKind | Literal["labelled_sentence"]


@dataclass(frozen=True)
class Number:
    """A number above ``low`` and at most ``high``, a parameter of a loss. ``keyword`` is the library's name for it."""

    low: float
    high: float
    default: float
    keyword: str

    @property
    def allowed(self) -> str:
        return f"above {self.low:g}, at most {self.high:g}"

    def check(self, name: str, value: float) -> None:
        """Raise InputError, naming the parameter, its value and what is allowed, unless the value is in range."""
        if not self.low < value <= self.high:  # also rejects NaN
            raise InputError(f"{name} must be above {self.low:g} and at most {self.high:g}, not {value:g}")


@dataclass(frozen=True)
class Choice:
    """One of a few names, a parameter of a loss that the library does not have."""

    options: tuple[str, ...]
    default: str

    @property
    def allowed(self) -> str:
        return " or ".join(self.options)

    def check(self, name: str, value: str) -> None:
        """Raise InputError, naming the parameter, its value and what is allowed, unless the value is an option."""
        if value not in self.options:
            raise InputError(f"{name} is {value!r}; allowed: {', '.join(self.options)}")


Parameter = Number | Choice


@dataclass(frozen=True)
class Loss:
    """One loss: a class of ``sentence_transformers.sentence_transformer.losses``, given what it needs to use cosines.

    ``library_class`` is None for ``softmax``, :class:`raysweep.training.losses.SoftmaxLoss`: the library's takes pairs.
    ``distance`` names the metric of the library that makes its distance cosine distance, in [0, 2]; None where the
    class works on cosines of its own accord.
    """

    example_kind: LossExamples
    library_class: str | None
    distance: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


_SIAMESE_COSINE = "SiameseDistanceMetric.COSINE_DISTANCE"


NEGATIVES = ("all", "other_class")
"""The positives of a batch's other examples that ``multiple_negatives`` takes as an anchor's negatives."""


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {
        # Cosine distances differ by at most 2, so a margin above 2 never lets a triplet go; published ones reach 10.
        "triplet": Loss(
            "triplet",
            "TripletLoss",
            "TripletDistanceMetric.COSINE",
            {"margin": Number(0, 10, 0.1, "triplet_margin")},
        ),
        "contrastive": Loss(
            "labelled_pair", "ContrastiveLoss", _SIAMESE_COSINE, {"margin": Number(0, 2, 0.5, "margin")}
        ),
        "online_contrastive": Loss(
            "labelled_pair", "OnlineContrastiveLoss", _SIAMESE_COSINE, {"margin": Number(0, 2, 0.5, "margin")}
        ),
        # The scale is the inverse of the softmax temperature.
        "multiple_negatives": Loss(
            "positive_pair",
            "MultipleNegativesRankingLoss",
            None,
            {"scale": Number(0, 1000, 20, "scale"), "negatives": Choice(NEGATIVES, "other_class")},
        ),
        "cosine_similarity": Loss("scored_pair", "CosineSimilarityLoss"),
        "softmax": Loss("labelled_sentence", None),
    }
)


def mined_kinds(losses: Iterable[object]) -> list[str]:
    """Return the kinds of example that these losses need and that are drawn from neighbors."""
    kinds = {LOSSES[str(loss)].example_kind for loss in losses}
    return sorted(kinds - {"labelled_sentence"})
