"""Values and gradients of losses, compared with the library's, with golden values and with formulas in NumPy."""

import itertools
import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from raysweep.config.loss_spec import EXAMPLES, Choice
from raysweep.config.losses import LOSSES
from raysweep.errors import InputError
from raysweep.training.batch import Batch
from raysweep.training.losses import build, sum_over_widths
from support.losses import expected_loss, random_batch

TARGETS = {
    "triplet": None,
    "labeled_pair": np.array([1, 1, 0, 0, 0, 1]),
    "positive_pair": None,
    "scored_pair": np.array([1.0, 0.0, 0.7, 0.2, 1.0, -0.5]),
    "labeled_sentence": np.array([0, 2, 1, 1, 0, 2]),
}
CLASSES = np.array([0, 1, 1, 0, 2, 1])  # of anchors and positives
NEGATIVE_CLASSES = np.array([1, 0, 2, 1, 1, 0])
# Lengths other than 1, so that a loss without normalization fails.
EMBEDDINGS = (
    np.random.default_rng(3).normal(size=(3, 6, 4)) * np.array([1, 2, 0.5, 3, 1, 0.2])[:, None]
)
REFERENCE = np.random.default_rng(6).normal(size=(3, 6, 5))
# A softmax head of three classes, one a row.
TEACHER = np.random.default_rng(7).dirichlet(np.ones(3), size=6)
WEIGHT, BIAS = np.random.default_rng(4).normal(size=(3, 4)), np.array([0.1, -0.3, 0.2])


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def triplet(columns, labels, margin):
    """Schroff et al. 2015, with cosine distance."""
    anchor, positive, negative = columns
    return np.maximum(
        (1 - cosines(anchor, positive)) - (1 - cosines(anchor, negative)) + margin, 0
    ).mean()


def contrastive(columns, labels, margin):
    """Hadsell et al. 2006, equation 4, with 1 for similar pairs and cosine distance; mean over the batch."""
    distance = 1 - cosines(*columns)
    return (
        0.5 * labels * distance**2 + 0.5 * (1 - labels) * np.maximum(margin - distance, 0) ** 2
    ).mean()


def online_contrastive(columns, labels, margin):
    """Sum over positives farther than the nearest negative, and negatives nearer than the farthest positive.

    As in sentence-transformers, and without factors of one half.
    """
    distance = 1 - cosines(*columns)
    total = 0.0
    for d, label in zip(distance, labels, strict=True):
        if label == 1 and d > distance[labels == 0].min():
            total += d**2
        if label == 0 and d < distance[labels == 1].max():
            total += max(margin - d, 0) ** 2
    return total


def multiple_negatives(columns, labels, scale, negatives, directions):
    """Henderson et al. 2017, equation 4: cross-entropy of each anchor's own positive among the batch's documents.

    With ``other_class``, among its own and those of other classes. With ``symmetric``, also that of each positive's own
    anchor, of the same weight.
    """
    classes = [CLASSES, NEGATIVE_CLASSES]
    documents = np.concatenate(columns[1:])
    of_documents = np.concatenate([CLASSES, NEGATIVE_CLASSES][: len(columns) - 1])
    sides = [(columns[0], classes[0], documents, of_documents)]
    if directions == "symmetric":
        sides.append((columns[1], classes[0], columns[0], classes[0]))
    total = 0.0
    for rows, of_rows, others, of_others in sides:
        for row, vector in enumerate(rows):
            is_candidate = (of_others != of_rows[row]) | (negatives == "all")
            is_candidate[row] = True
            logits = scale * cosines(vector, others)
            total += scipy.special.logsumexp(logits[is_candidate]) - logits[row]
    return total / len(columns[0]) / len(sides)


def gist(columns, labels, temperature, margin, margin_strategy):
    """Solatorio 2024, equations 3 to 7, with the negatives of a triplet as another block."""
    references = REFERENCE[: len(columns)]
    pairs = [(0, 1), (0, 0), (1, 1), (0, 2)][: len(columns) + 1]
    total = 0.0
    for row in range(len(columns[0])):
        of_positive = cosines(references[0, row], references[1, row])
        limit = of_positive - (
            margin if margin_strategy == "absolute" else margin * abs(of_positive)
        )
        logits = []
        for first, second in pairs:
            for other in range(len(columns[0])):
                is_positive = (first, second) == (0, 1) and other == row
                if (
                    is_positive
                    or cosines(references[first, row], references[second, other]) <= limit
                ):
                    logits.append(
                        cosines(columns[first][row], columns[second][other]) / temperature
                    )
        total += (
            scipy.special.logsumexp(logits)
            - cosines(columns[0][row], columns[1][row]) / temperature
        )
    return total / len(columns[0])


def cosent(columns, labels, scale, similarity=cosines):
    """Su 2022: log(1 + sum of exp(scale (s_i - s_j))) over pairs i with a lower target than j."""
    scores = similarity(*columns)
    pairs = [(i, j) for i, j in itertools.permutations(range(6), 2) if labels[i] < labels[j]]
    return math.log(1 + sum(math.exp(scale * (scores[i] - scores[j])) for i, j in pairs))


def angle(columns, labels, scale):
    """Li and Li 2023: CoSENT over the angles of complex numbers, whose parts are the halves of a vector."""

    def similarity(a, b):
        real, imaginary = np.hsplit(a, 2)
        z = real + 1j * imaginary
        real, imaginary = np.hsplit(b, 2)
        w = real + 1j * imaginary
        product = (z * w.conj()).sum(1)
        return (
            abs(product.real + product.imag) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        )

    return cosent(columns, labels, scale, similarity)


def margin_mse(columns, labels):
    """Hofstätter et al. 2020, with cosines and the reference encoder as the teacher."""
    margins = [
        cosines(rows[0], rows[1]) - cosines(rows[0], rows[2]) for rows in (columns, REFERENCE)
    ]
    return ((margins[0] - margins[1]) ** 2).mean()


def distances_of(columns):
    (sentences,) = columns
    return 1 - cosines(sentences[:, None], sentences[None])


def batch_all_triplet(columns, labels, margin, examples_per_class):
    """Hermans et al. 2017, equation 6, averaged over the triplets that violate the margin."""
    distances = distances_of(columns)
    losses = [
        distances[a, p] - distances[a, n] + margin
        for a, p, n in itertools.permutations(range(6), 3)
        if labels[a] == labels[p] != labels[n]
    ]
    return np.mean([loss for loss in losses if loss > 0])


def hardest(columns, labels):
    """Return the distance of each sentence's farthest positive minus that of its nearest negative."""
    distances = distances_of(columns)
    same = labels[:, None] == labels
    return np.where(same, distances, 0).max(1) - np.where(same, np.inf, distances).min(1)


def batch_hard_triplet(columns, labels, margin, examples_per_class):
    """Hermans et al. 2017, equation 5."""
    return np.maximum(hardest(columns, labels) + margin, 0).mean()


def batch_hard_soft_margin_triplet(columns, labels, examples_per_class):
    """Hermans et al. 2017, with a softplus."""
    return np.log1p(np.exp(hardest(columns, labels))).mean()


def batch_semi_hard_triplet(columns, labels, margin, examples_per_class):
    """Schroff et al. 2015: the nearest negative beyond the positive, or the farthest negative if none is."""
    distances = distances_of(columns)
    losses = []
    for a, p in itertools.permutations(range(6), 2):
        if labels[a] == labels[p]:
            negatives = distances[a, labels != labels[a]]
            beyond = negatives[negatives > distances[a, p]]
            losses.append(
                max(
                    0, distances[a, p] - (beyond.min() if len(beyond) else negatives.max()) + margin
                )
            )
    return np.mean(losses)


def cosine_similarity(columns, labels, targets):
    """Reimers and Gurevych 2019: mean squared error of the cosine."""
    return ((cosines(*columns) - labels) ** 2).mean()


def softmax(columns, labels, targets, teacher_temperature, teacher_weight, **others):
    """Cross-entropy of the head over unit vectors times the root of their width, 2.

    With a teacher: Hinton et al. 2015, section 2, where the teacher's logits are the logarithms of its probabilities.
    """
    (sentences,) = columns
    logits = 2 * sentences / np.linalg.norm(sentences, axis=1, keepdims=True) @ WEIGHT.T + BIAS
    loss = (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(6), labels]).mean()
    if targets == "labels":
        return loss
    softened = scipy.special.softmax(np.log(TEACHER) / teacher_temperature, axis=1)
    log_probabilities = scipy.special.log_softmax(logits / teacher_temperature, axis=1)
    soft_loss = -(softened * log_probabilities).sum(axis=1).mean()
    return teacher_weight * teacher_temperature**2 * soft_loss + (1 - teacher_weight) * loss


RANKING = {"scale": 20.0, "negatives": "other_class", "directions": "forward"}
GUIDED = {"temperature": 0.1, "margin": 0.0, "margin_strategy": "absolute"}
BY_LABEL = {"examples_per_class": 4}
PLAIN_SOFTMAX = {
    "label_smoothing": 0.0,
    "consistency_weight": 0.0,
    "teacher_temperature": 1.0,
    "teacher_weight": 1.0,
}

# By loss: its formula, and rows of parameters and value.
GOLDEN = {
    "triplet": (triplet, [({"margin": 0.1}, 0.049148), ({"margin": 5.0}, 4.658430)]),
    "contrastive": (contrastive, [({"margin": 0.5}, 0.182706), ({"margin": 1.0}, 0.198231)]),
    "online_contrastive": (
        online_contrastive,
        [({"margin": 0.5}, 2.033756), ({"margin": 1.5}, 3.310900)],
    ),
    "multiple_negatives": (
        multiple_negatives,
        [
            ({**RANKING, "negatives": "all"}, 7.083681),
            ({**RANKING, "negatives": "all", "scale": 1.0}, 1.737470),
            (RANKING, 6.457827),
            ({**RANKING, "directions": "symmetric"}, 7.151628),
        ],
    ),
    "multiple_negatives_triplet": (
        multiple_negatives,
        [(RANKING, 9.081213), ({**RANKING, "negatives": "all"}, 10.535351)],
    ),
    "gist": (
        gist,
        [(GUIDED, 4.804045), ({**GUIDED, "margin": 0.2, "margin_strategy": "relative"}, 4.541092)],
    ),
    "gist_triplet": (gist, [({**GUIDED, "margin": 0.2}, 4.590764)]),
    "cosine_similarity": (cosine_similarity, [({"targets": "hard"}, 0.597634)]),
    "cosent": (cosent, [({"scale": 20.0}, 15.565418)]),
    "angle": (angle, [({"scale": 20.0}, 10.548302)]),
    "margin_mse": (margin_mse, [({}, 1.219287)]),
    "batch_all_triplet": (batch_all_triplet, [({"margin": 0.1, **BY_LABEL}, 0.845249)]),
    "batch_hard_triplet": (batch_hard_triplet, [({"margin": 0.1, **BY_LABEL}, 0.940255)]),
    "batch_semi_hard_triplet": (batch_semi_hard_triplet, [({"margin": 1.0, **BY_LABEL}, 0.652221)]),
    "batch_hard_soft_margin_triplet": (batch_hard_soft_margin_triplet, [(BY_LABEL, 1.204913)]),
    "softmax": (
        softmax,
        [
            ({**PLAIN_SOFTMAX, "targets": "labels"}, 0.784497),
            ({**PLAIN_SOFTMAX, "targets": "teacher"}, 1.978825),
            (
                {
                    **PLAIN_SOFTMAX,
                    "targets": "teacher",
                    "teacher_temperature": 3.0,
                    "teacher_weight": 0.7,
                },
                7.946925,
            ),
        ],
    ),
}


def make_batch(columns, targets, classes=None, reference=REFERENCE):
    """Return a batch whose sentences are numbered by column; ``classes`` are those of anchors and positives."""
    num_examples = len(columns[0])
    ids = np.arange(num_examples * len(columns)).reshape(len(columns), num_examples)
    classes = (
        np.stack([CLASSES, CLASSES, NEGATIVE_CLASSES])[: len(columns)]
        if classes is None
        else classes
    )
    units = [torch.nn.functional.normalize(torch.from_numpy(rows)) for rows in reference]
    return Batch(
        columns=[torch.as_tensor(column) for column in columns],
        targets=None if targets is None else torch.from_numpy(targets),
        ids=ids.T,
        labels=torch.from_numpy(np.asarray(classes).T),
        read_reference=lambda column: units[column],
        read_teacher=lambda column: torch.from_numpy(TEACHER[column]),
    )


def build_loss(name, parameters):
    """Return a loss, with the head above under softmax."""
    loss = build(
        name, {**LOSSES[name].defaults, **parameters}, torch.nn.Identity(), width=4, num_labels=3
    )
    if name == "softmax":
        loss.double().load_state_dict(
            {"head.weight": torch.from_numpy(WEIGHT), "head.bias": torch.from_numpy(BIAS)}
        )
    return loss


def value(name, parameters, columns, targets, classes=None):
    with torch.no_grad():
        return float(
            build_loss(name, parameters).compute_loss(make_batch(columns, targets, classes))
        )


@pytest.mark.parametrize("name", LOSSES)
def test_golden_row(name):
    formula, rows = GOLDEN[name]
    kind = LOSSES[name].examples
    columns, targets = EMBEDDINGS[: len(EXAMPLES[kind].columns)], TARGETS[kind]
    for parameters, golden in rows:
        assert parameters.keys() == LOSSES[name].parameters.keys()
        expected = formula(columns, targets, **parameters)
        assert value(name, parameters, columns, targets) == pytest.approx(expected, rel=1e-6)
        assert expected == pytest.approx(golden, abs=5e-7)


def variants(name):
    """Return the values of a loss's parameters: the defaults, and each option of a choice."""
    defaults = LOSSES[name].defaults
    others = [
        {**defaults, key: option}
        for key, parameter in LOSSES[name].parameters.items()
        if isinstance(parameter, Choice)
        for option in parameter.options
        if option != parameter.default
    ]
    if "directions" in defaults:
        others += [
            {**defaults, "negatives": "all", "directions": directions}
            for directions in ("symmetric", "all")
        ]
    if "margin_strategy" in defaults:
        others += [{**values, "margin": 0.1} for values in (defaults, others[0])]
    return [defaults, *others]


def outcome(loss, batch):
    """Return the value of a loss function and its gradients for the batch's columns."""
    result = loss(batch)
    return float(result.detach()), torch.autograd.grad(result, batch.columns)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_gradient_equal_the_library(name, seed):
    """On random batches, for every option, and summed over widths."""
    from sentence_transformers.sentence_transformer.losses.matryoshka import shrink

    batch = random_batch(name, seed=seed)
    torch.manual_seed(seed)
    for values in variants(name):
        loss = build(name, values, torch.nn.Identity(), width=8, num_labels=3).double()
        head = getattr(loss, "head", None)
        expected = outcome(lambda b, v=values, h=head: expected_loss(name, v, b, h), batch)
        actual = outcome(loss.compute_loss, batch)
        assert actual[0] == pytest.approx(expected[0], rel=1e-6)
        torch.testing.assert_close(actual[1], expected[1], rtol=1e-5, atol=1e-9)
        if name == "softmax":
            continue  # its head has one width

        def at_width(width, values=values):
            columns = [shrink(column, width) for column in batch.columns]
            return expected_loss(
                name,
                values,
                Batch(columns, batch.targets, batch.ids, batch.labels, batch.read_reference),
            )

        expected = outcome(lambda b: at_width(8) + at_width(4) + at_width(2), batch)
        actual = outcome(lambda b, one=loss: sum_over_widths(one, b, (8, 4, 2)), batch)
        assert actual[0] == pytest.approx(expected[0], rel=1e-6)
        torch.testing.assert_close(actual[1], expected[1], rtol=1e-5, atol=1e-9)


def test_softmax_head_of_a_narrow_embedding_is_a_part_of_the_full_one():
    """Kusupati et al. 2022, section 3, with tied heads: the first columns of the matrix, and the width's scale."""
    loss = build_loss("softmax", {})
    narrow = (
        EMBEDDINGS[0, :, :2] / np.linalg.norm(EMBEDDINGS[0, :, :2], axis=1, keepdims=True) * 2**0.5
    )
    logits = torch.from_numpy(narrow @ WEIGHT[:, :2].T + BIAS)
    labels = TARGETS["labeled_sentence"]
    batch = make_batch(EMBEDDINGS[:1], labels)
    expected = float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)))
    with torch.no_grad():
        assert float(loss.compute_loss(batch.truncated(2))) == pytest.approx(expected, rel=1e-9)
        total = float(sum_over_widths(loss, batch, (4, 2)))
        assert total == pytest.approx(float(loss.compute_loss(batch)) + expected, rel=1e-9)


def test_symmetric_directions_equal_the_symmetric_loss():
    from sentence_transformers.sentence_transformer.losses import (
        MultipleNegativesSymmetricRankingLoss,
    )

    batch = random_batch("multiple_negatives")
    values = {"scale": 20.0, "negatives": "all", "directions": "symmetric"}
    loss = build("multiple_negatives", values, torch.nn.Identity())
    expected = MultipleNegativesSymmetricRankingLoss(torch.nn.Identity(), scale=20.0)
    with torch.no_grad():
        assert float(loss.compute_loss(batch)) == pytest.approx(
            float(expected.compute_loss_from_embeddings(batch.columns, None)), rel=1e-6
        )


def test_labeled_pairs_contain_hard_and_easy_pairs():
    distance, labels = 1 - cosines(*EMBEDDINGS[:2]), TARGETS["labeled_pair"]
    hard = np.where(
        labels == 1, distance > distance[labels == 0].min(), distance < distance[labels == 1].max()
    )
    for label in (0, 1):
        assert set(hard[labels == label]) == {False, True}


ANCHORS = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
NEAR = np.array([[1.0, 0.1, 0.1, 0.0], [0.1, 1.0, 0.1, 0.0]])
FAR = NEAR[[1, 0]]
GOOD_AND_BAD = {
    "triplet": ((ANCHORS, NEAR, FAR), (ANCHORS, FAR, NEAR), None, [[0, 1], [0, 1], [1, 0]]),
    "positive_pair": ((ANCHORS, NEAR), (ANCHORS, FAR), None, [[0, 1], [0, 1]]),
    **dict.fromkeys(
        ("labeled_pair", "scored_pair"),
        ((ANCHORS, NEAR[[0, 0]]), (ANCHORS, NEAR[[1, 1]]), np.array([1, 0]), [[0, 1], [0, 0]]),
    ),
    "labeled_sentence": (
        (np.concatenate([ANCHORS, NEAR]),),
        (np.concatenate([ANCHORS, FAR]),),
        np.array([0, 1, 0, 1]),
        [[0, 1, 0, 1]],
    ),
}
"""By kind of examples: columns with the same class near, columns with it far, targets and classes."""


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if not loss.has_head])
def test_loss_prefers_the_same_class_near(name):
    """The loss is lower if the same class is near and the other class far. The guide of gist finds it so too."""
    good, bad, targets, classes = GOOD_AND_BAD[LOSSES[name].examples]
    loss = build_loss(name, {})
    values = [
        float(loss.compute_loss(make_batch(columns, targets, classes, good)))
        for columns in (good, bad)
    ]
    assert values[0] < values[1]


def test_gradient_step_lowers_the_softmax_loss():
    loss = build("softmax", LOSSES["softmax"].defaults, torch.nn.Identity(), width=4, num_labels=3)
    batch = make_batch(
        [torch.from_numpy(EMBEDDINGS[0]).float().requires_grad_()], TARGETS["labeled_sentence"]
    )
    before = loss.compute_loss(batch)
    before.backward()
    with torch.no_grad():
        for leaf in (batch.columns[0], *loss.parameters()):
            leaf -= 0.1 * leaf.grad
    assert loss.compute_loss(batch) < before


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_label_smoothing_equals_torch(smoothing):
    """It is also the cross-entropy of targets with a share that is spread evenly over all classes."""
    sentences, labels = EMBEDDINGS[0], TARGETS["labeled_sentence"]
    logits = 2 * sentences / np.linalg.norm(sentences, axis=1, keepdims=True) @ WEIGHT.T + BIAS
    torch_loss = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
    targets = (1 - smoothing) * np.eye(3)[labels] + smoothing / 3
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss = value("softmax", {"label_smoothing": smoothing}, EMBEDDINGS[:1], labels)
    assert loss == pytest.approx(
        float(torch_loss(torch.from_numpy(logits), torch.from_numpy(labels))), rel=1e-6
    )
    assert loss == pytest.approx(-(targets * log_probabilities).sum(axis=1).mean(), rel=1e-6)


def test_divergence_is_the_mean_of_both_relative_entropies():
    loss = build_loss("softmax", {})
    first, second = EMBEDDINGS[:2]
    scaled = [2 * rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second)]
    p, q = (scipy.special.softmax(rows @ WEIGHT.T + BIAS, axis=1) for rows in scaled)
    expected = [scipy.stats.entropy(a, b, axis=1).mean() for a, b in ((p, q), (q, p))]
    with torch.no_grad():
        divergence = float(loss.divergence(torch.from_numpy(first), torch.from_numpy(second)))
        divergence_of_equals = float(
            loss.divergence(torch.from_numpy(first), torch.from_numpy(first))
        )
    assert divergence == pytest.approx(np.mean(expected), rel=1e-6)
    assert expected[0] != pytest.approx(expected[1], rel=1e-2)
    assert divergence_of_equals == 0


def test_triplet_distance_is_cosine_distance():
    anchor, positive, negative = (np.array([x]) for x in ([1.0, 0], [3.0, 0], [0, 2.0]))
    classes = [[0], [0], [1]]
    assert value(
        "triplet", {"margin": 1.0}, (anchor, positive, negative), None, classes
    ) == pytest.approx(0)
    assert value(
        "triplet", {"margin": 1.0}, (anchor, negative, positive), None, classes
    ) == pytest.approx(2)


@pytest.mark.parametrize("directions", ["forward", "symmetric", "all"])
def test_other_class_negatives_equal_all_if_classes_differ(directions):
    """Value and gradient equal those of the library's loss if every sentence but the positive has its own class."""
    outcomes = []
    for negatives in ("all", "other_class"):
        values = {"scale": 20.0, "negatives": negatives, "directions": directions}
        loss = build("multiple_negatives", values, torch.nn.Identity())
        rng = np.random.default_rng(5)
        columns = [torch.from_numpy(rng.normal(size=(8, 5))).requires_grad_() for _ in range(2)]
        batch = make_batch(columns, None, [np.arange(8), np.arange(8)])
        outcomes.append(outcome(loss.compute_loss, batch))
    assert outcomes[0][0] == pytest.approx(outcomes[1][0], rel=1e-9)
    torch.testing.assert_close(outcomes[0][1], outcomes[1][1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("directions", ["forward", "symmetric", "all"])
def test_batch_of_one_class_has_no_loss_and_no_gradient(directions):
    values = {"scale": 20.0, "negatives": "other_class", "directions": directions}
    loss = build("multiple_negatives", values, torch.nn.Identity())
    columns = [torch.from_numpy(rows).requires_grad_() for rows in EMBEDDINGS[:2]]
    loss_value, gradients = outcome(
        loss.compute_loss, make_batch(columns, None, np.zeros((2, 6), int))
    )
    # the pair is a candidate in each direction of the joint softmax
    num_positives = 2 if directions == "all" else 1
    assert loss_value == pytest.approx(math.log(num_positives), abs=1e-12)
    assert all(float(gradient.abs().max()) < 1e-12 for gradient in gradients)


def test_parameters_in_the_table_of_losses_are_checked():
    for name, loss in LOSSES.items():
        for key, parameter in loss.parameters.items():
            assert parameter.check(key, parameter.default) == parameter.default
            invalid = (
                [None, [], float("nan")]
                if isinstance(parameter, Choice)
                else [-1, True, "0.1", *OUT_OF_RANGE]
            )
            for wrong in (*invalid, "none"):
                with pytest.raises(InputError) as caught:
                    parameter.check(key, wrong)
                assert key in str(caught.value) and parameter.allowed in str(caught.value)
            with pytest.raises(InputError, match=f"{key} of the loss {name}"):
                build(name, {**loss.defaults, key: -1.0}, torch.nn.Identity())


OUT_OF_RANGE = (float("nan"), float("inf"), -math.inf, 10**400)


def test_numbers_keep_their_bounds():
    margin = LOSSES["triplet"].parameters["margin"]
    assert margin.check("margin", 10) == 10.0 and isinstance(margin.check("margin", 10), float)
    smoothing = LOSSES["softmax"].parameters["label_smoothing"]
    assert smoothing.check("label_smoothing", 0) == 0
    per_class = LOSSES["batch_hard_triplet"].parameters["examples_per_class"]
    assert isinstance(per_class.check("examples_per_class", 2), int)
    for parameter, wrong in [
        (margin, 0),
        (margin, 10.01),
        (smoothing, 1),
        (per_class, 1),
        (per_class, 2.0),
    ]:
        with pytest.raises(InputError):
            parameter.check("x", wrong)
