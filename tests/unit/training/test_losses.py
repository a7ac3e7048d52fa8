"""Values of losses, compared with golden values and with formulas in NumPy."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from raysweep.config.losses import LOSSES, Choice
from raysweep.errors import InputError
from raysweep.training.losses import build

NUM_COLUMNS = {"triplet": 3, "labeled_pair": 2, "positive_pair": 2, "scored_pair": 2, "labeled_sentence": 1}
LABELS = {
    "triplet": None,
    "labeled_pair": np.array([1, 1, 0, 0, 0, 1]),
    "positive_pair": np.array([0, 1, 1, 0, 2, 1]),  # classes of the anchors
    "scored_pair": np.array([1.0, 0.0, 0.7, 0.2, 1.0, -0.5]),
    "labeled_sentence": np.array([0, 2, 1, 1, 0, 2]),
}
# Lengths other than 1, so that a loss without normalization fails.
EMBEDDINGS = np.random.default_rng(3).normal(size=(3, 6, 4)) * np.array([1, 2, 0.5, 3, 1, 0.2])[:, None]
# A softmax head of three classes, one a row.
WEIGHT, BIAS = np.random.default_rng(4).normal(size=(3, 4)), np.array([0.1, -0.3, 0.2])
LIBRARY = [name for name, loss in LOSSES.items() if loss.library_class]


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def triplet(columns, labels, margin):
    """Schroff et al. 2015, with cosine distance."""
    anchor, positive, negative = columns
    return np.maximum((1 - cosines(anchor, positive)) - (1 - cosines(anchor, negative)) + margin, 0).mean()


def contrastive(columns, labels, margin):
    """Hadsell et al. 2006, equation 4, with 1 for similar pairs and cosine distance; mean over the batch."""
    distance = 1 - cosines(*columns)
    return (0.5 * labels * distance**2 + 0.5 * (1 - labels) * np.maximum(margin - distance, 0) ** 2).mean()


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


def multiple_negatives(columns, labels, scale, negatives):
    """Henderson et al. 2017, equation 4: cross-entropy of each anchor's own positive among those of the batch.

    With ``other_class``, among its own and those of other classes."""
    total = 0.0
    for row, anchor in enumerate(columns[0]):
        candidates = [
            positive
            for other, positive in enumerate(columns[1])
            if negatives == "all" or other == row or labels[other] != labels[row]
        ]
        logits = scale * cosines(anchor, np.array(candidates))
        total -= scale * cosines(anchor, columns[1][row]) - scipy.special.logsumexp(logits)
    return total / len(columns[0])


def cosine_similarity(columns, labels):
    """Reimers and Gurevych 2019: mean squared error of the cosine."""
    return ((cosines(*columns) - labels) ** 2).mean()


def softmax(columns, labels):
    """Cross-entropy of the head over unit vectors times the root of their width, 2."""
    (sentences,) = columns
    logits = 2 * sentences / np.linalg.norm(sentences, axis=1, keepdims=True) @ WEIGHT.T + BIAS
    return (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(6), labels]).mean()


# By loss: its formula, and rows of parameters and value.
GOLDEN = {
    "triplet": (triplet, [({"margin": 0.1}, 0.049148), ({"margin": 5.0}, 4.658430)]),
    "contrastive": (contrastive, [({"margin": 0.5}, 0.182706), ({"margin": 1.0}, 0.198231)]),
    "online_contrastive": (online_contrastive, [({"margin": 0.5}, 2.033756), ({"margin": 1.5}, 3.310900)]),
    "multiple_negatives": (
        multiple_negatives,
        [
            ({"scale": 20.0, "negatives": "all"}, 7.083681),
            ({"scale": 1.0, "negatives": "all"}, 1.737470),
            ({"scale": 20.0, "negatives": "other_class"}, 6.457827),
        ],
    ),
    "cosine_similarity": (cosine_similarity, [({}, 0.597634)]),
    "softmax": (softmax, [({}, 0.784497)]),
}


def value(name, parameters, columns, labels):
    loss = build(name, parameters, torch.nn.Identity(), width=4, num_labels=3)
    if name == "softmax":
        loss.double().load_state_dict({"head.weight": torch.from_numpy(WEIGHT), "head.bias": torch.from_numpy(BIAS)})
    targets = None if labels is None else torch.from_numpy(labels)
    with torch.no_grad():
        return float(loss.compute_loss_from_embeddings([torch.from_numpy(column) for column in columns], targets))


@pytest.mark.parametrize("name", LOSSES)
def test_golden_row(name):
    formula, rows = GOLDEN[name]
    kind = LOSSES[name].example_kind
    columns, labels = EMBEDDINGS[: NUM_COLUMNS[kind]], LABELS[kind]
    for parameters, golden in rows:
        assert parameters.keys() == LOSSES[name].parameters.keys()
        assert formula(columns, labels, **parameters) == pytest.approx(golden, abs=5e-7)
        assert value(name, parameters, columns, labels) == pytest.approx(
            formula(columns, labels, **parameters), rel=1e-6
        )


def test_labeled_pairs_contain_hard_and_easy_pairs():
    distance, labels = 1 - cosines(*EMBEDDINGS[:2]), LABELS["labeled_pair"]
    hard = np.where(labels == 1, distance > distance[labels == 0].min(), distance < distance[labels == 1].max())
    for label in (0, 1):
        assert set(hard[labels == label]) == {False, True}


@pytest.mark.parametrize("name", LIBRARY)
def test_loss_prefers_the_same_class_near(name):
    """The loss is lower if the same class is near and the other class far, and its gradient moves them so."""
    kind = LOSSES[name].example_kind
    parameters = {key: parameter.default for key, parameter in LOSSES[name].parameters.items()}
    anchors = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    near = np.array([[1.0, 0.1, 0.1], [0.1, 1.0, 0.1]])
    far = near[[1, 0]]
    good, bad, labels = {
        "triplet": ((anchors, near, far), (anchors, far, near), None),
        "positive_pair": ((anchors, near), (anchors, far), np.array([0, 1])),
    }.get(kind, ((anchors, near[[0, 0]]), (anchors, near[[1, 1]]), np.array([1, 0])))
    assert value(name, parameters, good, labels) < value(name, parameters, bad, labels)

    leaf = torch.from_numpy(bad[1]).requires_grad_()
    columns = [torch.from_numpy(bad[0]), leaf, *map(torch.from_numpy, bad[2:])]
    targets = None if labels is None else torch.from_numpy(labels)
    build(name, parameters, torch.nn.Identity()).compute_loss_from_embeddings(columns, targets).backward()
    step = bad[1][0] - 1e-3 * leaf.grad[0].numpy()
    assert cosines(bad[0][0], step) > cosines(bad[0][0], bad[1][0])  # row 0 has one class in every kind


def test_gradient_step_lowers_the_softmax_loss():
    loss = build("softmax", {}, torch.nn.Identity(), width=4, num_labels=3)
    columns = [torch.from_numpy(EMBEDDINGS[0]).float().requires_grad_()]
    labels = torch.from_numpy(LABELS["labeled_sentence"])
    before = loss.compute_loss_from_embeddings(columns, labels)
    before.backward()
    with torch.no_grad():
        for leaf in (columns[0], *loss.parameters()):
            leaf -= 0.1 * leaf.grad
    assert loss.compute_loss_from_embeddings(columns, labels) < before


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_label_smoothing_equals_torch(smoothing):
    """It is also the cross-entropy of targets with a share that is spread evenly over all classes."""
    sentences, labels = EMBEDDINGS[0], LABELS["labeled_sentence"]
    logits = 2 * sentences / np.linalg.norm(sentences, axis=1, keepdims=True) @ WEIGHT.T + BIAS
    torch_loss = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
    targets = (1 - smoothing) * np.eye(3)[labels] + smoothing / 3
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss = value("softmax", {"label_smoothing": smoothing}, [sentences], labels)
    assert loss == pytest.approx(float(torch_loss(torch.from_numpy(logits), torch.from_numpy(labels))), rel=1e-6)
    assert loss == pytest.approx(-(targets * log_probabilities).sum(axis=1).mean(), rel=1e-6)


def test_divergence_is_the_mean_of_both_relative_entropies():
    loss = build("softmax", {}, torch.nn.Identity(), width=4, num_labels=3)
    loss.double().load_state_dict({"head.weight": torch.from_numpy(WEIGHT), "head.bias": torch.from_numpy(BIAS)})
    first, second = EMBEDDINGS[:2]
    scaled = [2 * rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second)]
    p, q = (scipy.special.softmax(rows @ WEIGHT.T + BIAS, axis=1) for rows in scaled)
    expected = [scipy.stats.entropy(a, b, axis=1).mean() for a, b in ((p, q), (q, p))]
    with torch.no_grad():
        divergence = float(loss.divergence(torch.from_numpy(first), torch.from_numpy(second)))
        divergence_of_equals = float(loss.divergence(torch.from_numpy(first), torch.from_numpy(first)))
    assert divergence == pytest.approx(np.mean(expected), rel=1e-6)
    assert expected[0] != pytest.approx(expected[1], rel=1e-2)
    assert divergence_of_equals == 0


def test_triplet_distance_is_cosine_distance():
    anchor, positive, negative = (np.array([x]) for x in ([1.0, 0], [3.0, 0], [0, 2.0]))
    assert value("triplet", {"margin": 1.0}, (anchor, positive, negative), None) == pytest.approx(0)
    assert value("triplet", {"margin": 1.0}, (anchor, negative, positive), None) == pytest.approx(2)


def make_columns():
    rng = np.random.default_rng(5)
    return [torch.from_numpy(rng.normal(size=(8, 5))).requires_grad_() for _ in range(2)]


def test_other_class_negatives_equal_all_if_classes_differ():
    """Value and gradient equal those of the library's loss if every anchor has its own class."""
    losses = [
        build("multiple_negatives", {"scale": 20.0, "negatives": negatives}, torch.nn.Identity())
        for negatives in ("all", "other_class")
    ]
    values, gradients = [], []
    for loss in losses:
        columns = make_columns()
        loss.compute_loss_from_embeddings(columns, torch.arange(8)).backward()
        values.append(float(loss.compute_loss_from_embeddings(columns, torch.arange(8)).detach()))
        gradients.append([column.grad for column in columns])
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


def test_batch_of_one_class_has_no_loss_and_no_gradient():
    loss = build("multiple_negatives", {"scale": 20.0, "negatives": "other_class"}, torch.nn.Identity())
    columns = make_columns()
    value = loss.compute_loss_from_embeddings(columns, torch.zeros(8))
    value.backward()
    assert float(value.detach()) == pytest.approx(0, abs=1e-12)
    assert all(float(column.grad.abs().max()) < 1e-12 for column in columns)


def test_parameters_in_the_table_of_losses_are_checked():
    for name, loss in LOSSES.items():
        defaults = {key: parameter.default for key, parameter in loss.parameters.items()}
        for key, parameter in loss.parameters.items():
            parameter.check(key, parameter.default)
            if isinstance(parameter, Choice):
                with pytest.raises(InputError, match=f"{key} is 'none'.*allowed: {parameter.allowed}"):
                    parameter.check(key, "none")
                continue
            parameter.check(key, parameter.high)
            for invalid in (parameter.low, -1.0, parameter.high * 1.01, float("nan"), float("inf")):
                with pytest.raises(InputError, match=f"{key} .*above {parameter.low:g}, at most {parameter.high:g}"):
                    parameter.check(key, invalid)
            with pytest.raises(InputError, match=f"{key} of the loss {name}"):
                build(name, {**defaults, key: 0.0}, torch.nn.Identity())


def test_parameters_of_other_losses_are_ignored():
    build("triplet", {"margin": 0.1, "scale": None, "learning_rate": 1.0}, torch.nn.Identity())
