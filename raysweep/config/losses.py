"""The built-in losses and their parameters."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from raysweep.config import custom_loss
from raysweep.config.loss_spec import Choice, LossSpec, Number, Option, Parameter
from raysweep.config.soft_targets import SOFT_TARGETS
from raysweep.errors import InputError

_LIBRARY = "sentence_transformers.sentence_transformer.losses"

_OWN = "raysweep.training.losses"

_SCALE = Number(
    20,
    "scale",
    above=0,
    at_most=1000,
    description="multiplier of the cosines, an inverse temperature",
)

_MARGIN = "margin in units of cosine distance"

_DIRECTIONS = Choice(
    {
        "forward": Option(),
        "symmetric": Option(
            {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"},
        ),
        "all": Option(
            {"directions": ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")}
        ),
    },
    "forward",
    "pairs that the loss contrasts. forward: each anchor with all positives and negatives; symmetric: also each "
    "positive with all anchors, as a second loss of equal weight; all: all sentences in the batch with one another, in "
    "one softmax",
)

_RANKING: Mapping[str, Parameter] = {
    "scale": _SCALE,
    "negatives": Choice(
        {"all": Option(), "other_class": Option(class_path=f"{_OWN}:OtherClassNegativesLoss")},
        "other_class",
        "an anchor's negatives among the batch's other examples: all, or only sentences of another class",
    ),
    "directions": _DIRECTIONS,
}

_GUIDED: Mapping[str, Parameter] = {
    "temperature": Number(
        0.01, "temperature", above=0, at_most=1, description="divisor of the cosines"
    ),
    "margin": Number(0, "margin", at_least=0, at_most=2, description=_MARGIN),
    "margin_strategy": Choice(
        {name: Option({"margin_strategy": name}) for name in ("absolute", "relative")},
        "absolute",
        "negatives are left out if their cosine under the reference encoder exceeds the positive pair's cosine minus a "
        "threshold. absolute: the threshold is `margin`; relative: it is `margin` times the positive pair's cosine",
    ),
}

_BY_LABEL = {
    "examples_per_class": Number(
        4,
        at_least=2,
        at_most=64,
        is_integer=True,
        description="number of consecutive sentences of the same class in a batch",
    ),
}

_TRIPLETS_OF_BATCH = {
    "margin": Number(0.1, "margin", above=0, at_most=10, description=_MARGIN),
    **_BY_LABEL,
}

_PAIR_TARGETS = Choice(
    {"hard": Option(), **{rule: Option() for rule in SOFT_TARGETS}},
    "hard",
    "target cosines. hard: `examples.same_class_cosine` and `examples.other_class_cosine`; the others are computed from "
    "a pair's scores, which are its cosines under `examples.experts`; "
    + "; ".join(f"{rule}: {targets.description}" for rule, targets in SOFT_TARGETS.items()),
)

TEACHER = "teacher"
"""The ``targets`` option that requires a teacher."""

_COSINE_TRIPLET = {"distance_metric": f"{_LIBRARY}:TripletDistanceMetric.COSINE"}

_COSINE_PAIR = {"distance_metric": f"{_LIBRARY}:SiameseDistanceMetric.COSINE_DISTANCE"}

_COSINE_BATCH = {
    "distance_metric": f"{_LIBRARY}:BatchHardTripletLossDistanceFunction.cosine_distance"
}


LOSSES: Mapping[str, LossSpec] = MappingProxyType(
    {
        # The default distance of TripletLoss pushes positives away in sentence-transformers 5.0 to 5.3.
        # Cosine distances differ by at most 2, but published margins go up to 10.
        "triplet": LossSpec(
            "triplet",
            f"{_LIBRARY}:TripletLoss",
            {"margin": Number(0.1, "triplet_margin", above=0, at_most=10, description=_MARGIN)},
            _COSINE_TRIPLET,
            description="the positive is closer to the anchor than the negative by at least a margin",
        ),
        "contrastive": LossSpec(
            "labeled_pair",
            f"{_LIBRARY}:ContrastiveLoss",
            {"margin": Number(0.5, "margin", above=0, at_most=2, description=_MARGIN)},
            _COSINE_PAIR,
            description="pairs of the same class are close together; other pairs are farther apart than a margin",
        ),
        "online_contrastive": LossSpec(
            "labeled_pair",
            f"{_LIBRARY}:OnlineContrastiveLoss",
            {"margin": Number(0.5, "margin", above=0, at_most=2, description=_MARGIN)},
            _COSINE_PAIR,
            description="`contrastive` on only the hard pairs in a batch",
        ),
        "multiple_negatives": LossSpec(
            "positive_pair",
            f"{_LIBRARY}:MultipleNegativesRankingLoss",
            _RANKING,
            description="each anchor has a higher cosine with its own positive than with any other in the batch",
        ),
        "multiple_negatives_triplet": LossSpec(
            "triplet",
            f"{_LIBRARY}:MultipleNegativesRankingLoss",
            _RANKING,
            description="`multiple_negatives` with a hard negative for each anchor",
        ),
        "gist": LossSpec(
            "positive_pair",
            f"{_OWN}:GuidedLoss",
            _GUIDED,
            description="`multiple_negatives` without negatives that are closer than the positive under the reference "
            "encoder",
        ),
        "gist_triplet": LossSpec(
            "triplet",
            f"{_OWN}:GuidedLoss",
            _GUIDED,
            description="`gist` with a hard negative for each anchor",
        ),
        "cosine_similarity": LossSpec(
            "scored_pair",
            f"{_LIBRARY}:CosineSimilarityLoss",
            {"targets": _PAIR_TARGETS},
            description="cosines match the targets (squared error)",
        ),
        "cosent": LossSpec(
            "scored_pair",
            f"{_LIBRARY}:CoSENTLoss",
            {"scale": _SCALE},
            description="cosines rank the pairs in the same order as the targets",
        ),
        "angle": LossSpec(
            "scored_pair",
            f"{_LIBRARY}:AnglELoss",
            {"scale": _SCALE},
            description="`cosent` with angles in complex space instead of cosines",
        ),
        "margin_mse": LossSpec(
            "triplet",
            f"{_LIBRARY}:MarginMSELoss",
            constants={"similarity_fct": "sentence_transformers.util:pairwise_cos_sim"},
            targets="reference_margin",
            description="the difference between a triplet's two cosines matches that under the reference encoder",
        ),
        "batch_all_triplet": LossSpec(
            "labeled_sentence",
            f"{_LIBRARY}:BatchAllTripletLoss",
            _TRIPLETS_OF_BATCH,
            _COSINE_BATCH,
            batches="by_label",
            description="`triplet` on all triplets in a batch that violate the margin",
        ),
        "batch_hard_triplet": LossSpec(
            "labeled_sentence",
            f"{_LIBRARY}:BatchHardTripletLoss",
            _TRIPLETS_OF_BATCH,
            _COSINE_BATCH,
            batches="by_label",
            description="`triplet` on each sentence with its farthest positive and nearest negative in the batch",
        ),
        "batch_semi_hard_triplet": LossSpec(
            "labeled_sentence",
            f"{_LIBRARY}:BatchSemiHardTripletLoss",
            _TRIPLETS_OF_BATCH,
            _COSINE_BATCH,
            batches="by_label",
            description="`triplet` on each same-class pair with the nearest negative that is farther than the positive",
        ),
        "batch_hard_soft_margin_triplet": LossSpec(
            "labeled_sentence",
            f"{_LIBRARY}:BatchHardSoftMarginTripletLoss",
            _BY_LABEL,
            _COSINE_BATCH,
            batches="by_label",
            description="`batch_hard_triplet` with a softplus instead of a margin",
        ),
        "softmax": LossSpec(
            "labeled_sentence",
            f"{_OWN}:SoftmaxLoss",
            {
                "label_smoothing": Number(
                    0.0,
                    "label_smoothing",
                    at_least=0,
                    below=1,
                    off=0.0,
                    description="share of each target that is spread evenly over all classes",
                ),
                "consistency_weight": Number(
                    0.0,
                    at_least=0,
                    off=0.0,
                    description="weight of the divergence between the class probabilities of two passes with "
                    "different dropout masks (R-Drop); if positive, each batch is embedded twice",
                ),
                "targets": Choice(
                    {name: Option({"targets": name}) for name in ("labels", TEACHER)},
                    "labels",
                    "labels: the sentences' own classes; teacher: also the class probabilities of the run set by the "
                    "`teacher` key",
                ),
                "teacher_temperature": Number(
                    1.0,
                    "teacher_temperature",
                    above=0,
                    at_most=100,
                    description="divisor of the trial's and the teacher's logits; above 1, unlikely classes count more",
                ),
                "teacher_weight": Number(
                    1.0,
                    "teacher_weight",
                    above=0,
                    at_most=1,
                    description="weight of the teacher's probabilities in the loss; the weight of the sentences' own "
                    "classes is 1 minus this",
                ),
            },
            has_head=True,
            description="cross-entropy of a linear classification head on single sentences",
        ),
    }
)

_HYPERMASK: Mapping[str, Parameter] = {
    "beta": Number(
        0.001,
        at_least=0,
        description="weight of the squared distance between earlier data sets' masks, before thresholding, and their "
        "values before training on the current data set",
    ),
    "lambda": Number(
        0.001,
        at_least=0,
        description="weight of the L1 distance between the adapter's weights and their values before training on the "
        "current data set",
    ),
    "masked": Choice(
        {True: Option(), False: Option()},
        True,
        "whether the L1 distance weights each change by the absolute value of the mask",
    ),
    "p": Number(
        0.0, at_least=0, at_most=100, description="percentage of zeros in each layer's mask"
    ),
    "mask": Choice(
        {"signed": Option(), "absolute": Option()},
        "signed",
        "whether weights are multiplied by the hypernetwork's outputs or by their absolute values",
    ),
    "heads": Choice(
        {"shared": Option(), "per_task": Option()},
        "shared",
        "whether all data sets share one output layer, to which each applies its own mask, or each has its own output layer",
    ),
    "embedding_size": Number(
        24,
        at_least=1,
        at_most=4096,
        is_integer=True,
        description="width of a data set's embedding",
    ),
    "hidden_layers": Number(
        2,
        at_least=0,
        at_most=8,
        is_integer=True,
        description="number of hidden layers in the hypernetwork",
    ),
    "hidden_size": Number(
        25,
        at_least=1,
        at_most=4096,
        is_integer=True,
        description="width of the hypernetwork's hidden layers",
    ),
    "adapter_size": Number(
        64,
        at_least=1,
        at_most=65536,
        is_integer=True,
        description="width of the adapter's hidden layer",
    ),
}

SEQUENCE_LOSSES: Mapping[str, LossSpec] = MappingProxyType(
    {
        "hypermask": LossSpec(
            "labeled_sentence",
            "raysweep.training.hypermask.model:HyperMask",
            _HYPERMASK,
            description="an adapter over the frozen encoder with a mask for each data set in a sequence (HyperMask)",
        ),
    }
)
"""The losses for trials that train on the data sets of ``data.sequence`` one after another."""

LOSS_PARAMETERS = tuple(
    sorted(
        {name for loss in (*LOSSES.values(), *SEQUENCE_LOSSES.values()) for name in loss.parameters}
    )
)
"""The names of all parameters of the built-in losses."""

ALL_LOSSES: Mapping[str, LossSpec] = MappingProxyType({**LOSSES, **SEQUENCE_LOSSES})


def find_loss(name: str) -> LossSpec:
    """Return the specification of a built-in loss, or of a user-defined class at ``package.module:Class``.

    Raises:
        InputError: If the loss is unknown, or if the path cannot be imported or is not a loss.
    """
    if name in ALL_LOSSES:
        return ALL_LOSSES[name]
    if ":" in name:
        return custom_loss.inspect_class(name)
    raise InputError(
        f"loss is {name!r}; allowed: {', '.join(ALL_LOSSES)}, or an import path, package.module:Class"
    )


def mined_kinds(losses: Iterable[object]) -> list[str]:
    """Return the kinds of mined examples that these losses need."""
    kinds = {find_loss(str(loss)).examples for loss in losses}
    return sorted(kinds - {"labeled_sentence"})
