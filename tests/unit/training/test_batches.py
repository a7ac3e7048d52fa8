"""The order of examples, the embeddings of batches, and the gradient of the word embedding table."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raysweep.config.losses import LOSSES
from raysweep.config.trial import trial_config
from raysweep.encoders import buckets, encoder
from raysweep.errors import InputError
from raysweep.training import batches
from raysweep.training.batches import ExampleOrder, TrainedEncoder, interleave_classes
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench
from support.losses import WithOtherReference, expected_loss


def order_of(ids: np.ndarray, seed: int = 0, *, no_duplicates: bool = True) -> ExampleOrder:
    prepared: Any = SimpleNamespace(examples=lambda kind: (ids, np.arange(len(ids))))
    return ExampleOrder(prepared, "positive_pair", seed, no_duplicates=no_duplicates)


def random_pairs(num_examples: int, num_sentences: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(num_sentences, 2, replace=False) for _ in range(num_examples)])


def test_batches_without_duplicates_equal_those_of_sentence_transformers() -> None:
    datasets = pytest.importorskip("datasets")
    from sentence_transformers.base.sampler import NoDuplicatesBatchSampler

    ids = random_pairs(600, 150)
    dataset = datasets.Dataset.from_dict(
        {"anchor": ids[:, 0].tolist(), "positive": ids[:, 1].tolist()}
    )
    sampler = NoDuplicatesBatchSampler(
        dataset, batch_size=16, drop_last=True, generator=torch.Generator().manual_seed(7), seed=7
    )
    order = order_of(ids)
    order.remaining = torch.randperm(len(ids), generator=torch.Generator().manual_seed(7)).numpy()
    expected = list(sampler)
    actual = [order.take(16)[1].tolist() for _ in expected]  # type: ignore[union-attr]
    assert len(expected) > 30
    assert [sorted(batch) for batch in actual] == [sorted(batch) for batch in expected]


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 5))
def test_examples_of_one_anchor_fill_batches(num_examples: int, batch_size: int, seed: int) -> None:
    """Each example is taken equally often, although no batch can avoid duplicates."""
    ids = np.stack([np.zeros(num_examples, int), np.arange(1, num_examples + 1)], axis=1)
    order = order_of(ids, seed)
    examples = [order.take(batch_size) for _ in range(10)]
    assert all(len(ids) == batch_size for ids, _ in examples)
    counts = np.bincount(
        np.concatenate([positions for _, positions in examples]), minlength=num_examples
    )  # type: ignore[misc]
    assert counts.max() - counts.min() <= 2


def test_each_pass_contains_every_example_once() -> None:
    ids = np.arange(24).reshape(12, 2)  # no two share a sentence
    for no_duplicates in (False, True):
        order = order_of(ids, no_duplicates=no_duplicates)
        passes = np.concatenate([order.take(4)[1] for _ in range(9)]).reshape(3, 12)  # type: ignore[misc]
        assert all(sorted(positions) == list(range(12)) for positions in passes.tolist())
        assert len({tuple(positions) for positions in passes.tolist()}) == 3


def test_duplicates_are_allowed_by_default() -> None:
    ids = random_pairs(64, 20)
    with_duplicates, _ = order_of(ids, no_duplicates=False).take(32)
    assert len(np.unique(with_duplicates)) < with_duplicates.size


@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=80).filter(
        lambda labels: (np.bincount(labels) >= 2).sum() >= 2
    ),
    st.integers(2, 5),
    st.integers(0, 3),
)
def test_classes_are_interleaved_in_groups(labels: list[int], per_class: int, seed: int) -> None:
    """Each example occurs once, groups are of one class, and every batch of two groups has two classes."""
    classes = np.array(labels)
    order = interleave_classes(classes, per_class, np.random.default_rng(seed))
    assert len(set(order.tolist())) == len(order)
    changes = np.flatnonzero(np.diff(classes[order])) + 1
    sizes = [len(group) for group in np.split(order, changes)]
    assert all(2 <= size <= per_class for size in sizes)
    num_groups = {
        label: -(-count // per_class) - (count % per_class == 1)
        for label, count in enumerate(np.bincount(classes))
    }
    num_rounds = sorted(num_groups.values())[-2]
    assert len(sizes) == sum(min(number, num_rounds) for number in num_groups.values())


def test_groups_of_two_are_the_library_s_batches_by_label() -> None:
    """Both orders are random, so the number of examples of each class and of each batch are compared."""
    datasets = pytest.importorskip("datasets")
    from sentence_transformers.base.sampler import GroupByLabelBatchSampler

    labels = np.random.default_rng(2).choice(5, 301, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    dataset = datasets.Dataset.from_dict({"label": labels.tolist()})
    generator = torch.Generator().manual_seed(1)
    sampler = GroupByLabelBatchSampler(
        dataset,
        batch_size=8,
        drop_last=True,
        valid_label_columns=["label"],
        generator=generator,
        seed=1,
    )
    expected = list(sampler)
    order = interleave_classes(labels, 2, np.random.default_rng(1))
    actual = [order[start : start + 8] for start in range(0, len(order) - 7, 8)]
    assert len(actual) == len(expected) > 20
    np.testing.assert_array_equal(
        np.bincount(labels[np.concatenate(actual)]), np.bincount(labels[np.concatenate(expected)])
    )
    for batch in (*actual, *expected):
        counts = np.bincount(labels[batch])
        assert (counts >= 2).sum() >= 2 and (counts[counts > 0] % 2 == 0).all()


def test_order_by_class_resumes_from_its_state() -> None:
    classes = np.random.default_rng(0).integers(0, 3, 50)
    prepared: Any = SimpleNamespace(
        examples=lambda kind: (np.arange(50)[:, None], classes),
        sentences=SimpleNamespace(labels=classes),
    )
    orders = [ExampleOrder(prepared, "labeled_sentence", seed=4, per_class=3) for _ in range(2)]
    for _ in range(5):
        orders[0].take(12)
    orders[1].remaining = orders[0].remaining.copy()
    orders[1].rng.bit_generator.state = orders[0].rng.bit_generator.state
    for _ in range(10):
        ids, targets = orders[0].take(12)
        np.testing.assert_array_equal(ids, orders[1].take(12)[0])
        np.testing.assert_array_equal(targets, classes[ids[:, 0]])


def test_batches_of_classes_need_two_classes() -> None:
    prepared: Any = SimpleNamespace(
        examples=lambda kind: (np.arange(4)[:, None], None),
        sentences=SimpleNamespace(labels=np.array([0, 0, 0, 1])),
    )
    with pytest.raises(InputError, match=r"only 1 of \d classes .*at least 2"):
        ExampleOrder(prepared, "labeled_sentence", seed=0, per_class=4)


@pytest.mark.parametrize("loss", LOSSES)
def test_buckets_give_the_loss_and_gradients_of_padded_columns(
    loss: str, tiny_bench: Workbench
) -> None:
    """Loss and gradients equal those of the library's class on embeddings by the stock forward, column by column."""
    config = trial_config(
        {"loss": loss, "learning_rate": 1e-5, "batch_size": 12, "precision": "fp32"}
    )
    training = WithOtherReference(config, tiny_bench, seed=0, num_rungs=1)
    model = tiny_bench.model
    model.eval()  # no dropout
    ids, targets = training.order.take(12)

    def stock_loss() -> torch.Tensor:
        texts = [tiny_bench.prepared.sentences.texts(column) for column in ids.T]
        columns = [model(model.preprocess(column))["sentence_embedding"] for column in texts]
        batch = training.make_batch(columns, ids, targets)
        return expected_loss(
            loss, config.loss_parameters, batch, getattr(training.loss, "head", None)
        )

    outcomes = []
    for value in (training.batch_loss(ids, targets), stock_loss()):
        model.zero_grad()
        value.backward()
        gradient = model[0].auto_model.encoder.layer[0].attention.self.query.weight.grad  # type: ignore[union-attr]
        outcomes.append((float(value.detach()), gradient.clone()))
    assert outcomes[0][0] == pytest.approx(outcomes[1][0], rel=1e-4, abs=1e-6)
    scale = outcomes[1][1].abs().max()
    assert (outcomes[0][1] - outcomes[1][1]).abs().max() <= 1e-3 * scale + 1e-9


# error relative to the largest gradient: bf16 has 8 significant bits
ROUNDING = {
    "fp32": 1e-5,
    "bf16": 0.03,
}


@pytest.mark.parametrize(
    ("loss", "retention_weight", "precision"),
    [*((loss, 0.5, "fp32") for loss in LOSSES), ("triplet", 0.0, "fp32"), ("triplet", 0.5, "bf16")],
)
def test_recomputed_activations_give_the_same_gradient(
    loss: str,
    retention_weight: float,
    precision: str,
    tiny_bench: Workbench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With dropout and several packs, also for losses that compare each example with the whole batch."""
    monkeypatch.setattr(buckets, "CELLS_PER_PACK", 256)
    values = {"loss": loss, "retention_weight": retention_weight, "precision": precision}
    config = trial_config({"learning_rate": 1e-5, "dropout": 0.2, **values})
    gradients = []
    ends = []
    for recomputes in (False, True):
        training = Training(config, tiny_bench, seed=3, num_rungs=1)
        training.recomputes = recomputes
        training.model.train()
        ids, targets = training.order.take(40)
        assert len(training.trained.document.packs(np.unique(ids))) > 1
        value = training.add_gradient(ids, targets, 2)
        gradients.append(
            {
                name: parameter.grad
                for name, parameter in training.parameters.items()
                if parameter.grad is not None
            }
        )
        ends.append((float(value), tiny_bench.dropouts.state(), torch.get_rng_state()))
    expected, recomputed = gradients
    assert expected.keys() == recomputed.keys()
    assert len(expected) > 60
    for name, gradient in expected.items():
        scale = float(gradient.abs().max())
        assert (
            float((recomputed[name] - gradient).abs().max()) <= ROUNDING[precision] * scale + 1e-9
        ), name
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-6)
    assert ends[0][1] == ends[1][1]
    assert torch.equal(ends[0][2], ends[1][2])


def word_table(bench: Workbench) -> torch.nn.Embedding:
    table = encoder.word_table(bench.model)
    assert table is not None
    return table


def compute_loss(trained: TrainedEncoder, ids: Any) -> torch.Tensor:
    """Return a function of the embeddings whose gradient differs between them."""
    trained.model.eval()  # no dropout
    (embeddings,) = batches.embed_columns([trained], ids[:, None])
    weights = torch.linspace(-1, 1, embeddings.shape[1])
    return (embeddings * weights).square().sum()


def plain_gradient(
    bench: Workbench, ids_of_batches: Any, monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    """Return the table's gradient if the model looks words up by itself."""
    with monkeypatch.context() as patch:
        patch.setattr(encoder, "word_table", lambda model: None)
        trained = TrainedEncoder(bench.model, bench.tokens.document)
    bench.model.zero_grad()
    for ids in ids_of_batches:
        compute_loss(trained, ids).backward()
    gradient = word_table(bench).weight.grad
    assert gradient is not None
    return gradient.clone()


def test_word_table_has_the_gradient_of_the_plain_lookup(
    tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For steps of one or two batches, after steps with other words."""
    tiny_bench.reset()
    weight = word_table(tiny_bench).weight
    trained = TrainedEncoder(tiny_bench.model, tiny_bench.tokens.document)
    rng = np.random.default_rng(0)
    for num_batches in (1, 2, 1):
        ids_of_batches = [
            rng.choice(len(tiny_bench.tokens.document), 6, replace=False)
            for _ in range(num_batches)
        ]
        expected = plain_gradient(tiny_bench, ids_of_batches, monkeypatch)
        tiny_bench.model.zero_grad(set_to_none=True)
        for ids in ids_of_batches:
            compute_loss(trained, ids).backward()
        assert weight.grad is not None
        assert 0 < (expected != 0).any(dim=1).sum() < len(weight)
        torch.testing.assert_close(
            weight.grad, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max())
        )
        assert torch.equal(weight.grad == 0, expected == 0)


@pytest.mark.parametrize("optimizer", ["adamw", "adamax", "adadelta", "sgd"])
def test_every_optimizer_steps_as_with_the_plain_lookup(
    optimizer: str, tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trial_config(
        {
            "loss": "softmax",
            "learning_rate": 1e-2,
            "optimizer": optimizer,
            "weight_decay": 0.1,
            "dropout": 0.0,
            "batch_size": 4,
            "accumulation_steps": 2,
            "examples_per_rung": 24,
            "precision": "fp32",
        }
    )
    tiny_bench.reset()
    beginning = word_table(tiny_bench).weight.detach().clone()
    tables = []
    for is_plain in (True, False):
        with monkeypatch.context() as patch:
            if is_plain:
                patch.setattr(encoder, "word_table", lambda model: None)
            training = Training(config, tiny_bench, seed=1, num_rungs=1)
        while not training.rung_is_full:
            training.step()
        tables.append(word_table(tiny_bench).weight.detach().clone())
    plain, shared = tables
    moved = float((plain - beginning).abs().max())
    assert moved > 0
    assert float((plain - shared).abs().max()) <= 0.01 * moved


def test_word_table_that_is_also_an_output_layer_is_looked_up_plainly(
    tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of an encoder with a head that predicts words has gradients for other words too."""
    head = torch.nn.Linear(1, 1)
    head.weight = word_table(tiny_bench).weight
    monkeypatch.setattr(tiny_bench.model[0].auto_model, "get_output_embeddings", lambda: head)
    assert encoder.word_table(tiny_bench.model) is None
