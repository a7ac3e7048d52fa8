"""Training steps, compared with the stock trainer of sentence-transformers on the same batches in fp32 without dropout."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

from raysweep.config.loss_spec import EXAMPLES
from raysweep.config.losses import LOSSES, find_loss
from raysweep.config.sweep import EncoderConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.encoders import encoder, packed
from raysweep.encoders.structure import Structure
from raysweep.training import batches
from raysweep.training import losses as criterion
from raysweep.training.batch import Batch
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench
from support.encoders import trial
from support.losses import WithOtherReference, expected_loss

pytest.importorskip("accelerate")
datasets = pytest.importorskip("datasets")


LEVELS = ("emb", "emb+B0-1")  # of freezing


class RecordedTraining(WithOtherReference):
    """A training that records its batches and their losses."""

    def __init__(self, config: TrialConfig, bench: Workbench, seed: int = 0) -> None:
        self.losses: list[float] = []
        self.batches: list[tuple[np.ndarray, np.ndarray | None]] = []
        super().__init__(config, bench, seed, num_rungs=1)

    def batch_loss(self, ids: Any, targets: Any) -> torch.Tensor:
        value = super().batch_loss(ids, targets)
        self.losses.append(float(value.detach()))
        self.batches.append((ids, targets))
        return value

    def run(self) -> "RecordedTraining":
        while not self.rung_is_full:
            self.step()
        return self


class StockLoss(torch.nn.Module):
    """An independent implementation of a trial's loss, for the stock trainer; labels are rows of all batches."""

    def __init__(self, model: Any, ours: RecordedTraining, head: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.model, self.ours = model, ours
        self.ids = np.concatenate([ids for ids, _ in ours.batches])
        self.targets = None
        if ours.batches[0][1] is not None:
            self.targets = np.concatenate([targets for _, targets in ours.batches])  # type: ignore[misc]
        self.head = None
        if head:
            self.head = torch.nn.Linear(model.get_embedding_dimension(), 2)
            self.head.load_state_dict(head)

    def forward(
        self, features: list[dict[str, torch.Tensor]], labels: torch.Tensor
    ) -> torch.Tensor:
        columns = [self.model(one)["sentence_embedding"] for one in features]
        rows = labels.numpy()
        targets = None if self.targets is None else self.targets[rows]
        batch = self.ours.make_batch(columns, self.ids[rows], targets)
        return expected_loss(
            self.ours.config.loss, self.ours.config.loss_parameters, batch, self.head
        )


def train_with_stock_trainer(
    ours: RecordedTraining, head: dict[str, torch.Tensor], folder: Path, optimizer: Any = None
) -> tuple[list[float], Any]:
    """Return the stock trainer's losses on the same batches from the same weights, and its model."""
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from transformers import TrainerCallback

    config, prepared = ours.config, ours.bench.prepared
    model = encoder.load(EncoderConfig(**prepared.model))
    frozen = Structure.of(model).frozen_names(config.freezing)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    loss = StockLoss(model, ours, head)
    schema = EXAMPLES[find_loss(config.loss).examples]
    columns: dict[str, Any] = {
        name: prepared.sentences.texts(column)
        for name, column in zip(schema.columns, loss.ids.T, strict=True)
    }
    columns["label"] = np.arange(len(loss.ids))
    losses: list[float] = []

    class Stock(SentenceTransformerTrainer):
        def get_batch_sampler(
            self, dataset: Any, batch_size: int, drop_last: bool, **_: Any
        ) -> Any:
            return DefaultBatchSampler(range(len(dataset)), batch_size, drop_last)

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            value = super().compute_loss(*args, **kwargs)
            losses.append(float(value.detach()))
            return value

    class WithHead(Stock):
        """The stock trainer neither clips nor ever zeroes the gradients of a loss's own parameters."""

        def _clip_grad_norm(self, model: Any) -> Any:
            return super()._clip_grad_norm(self.loss)

    class ZeroHead(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            loss.zero_grad()

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulation_steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        report_to=[],
    )
    trainer = (WithHead if head else Stock)(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=loss,
        optimizers=(optimizer(list(loss.parameters())) if optimizer else None, None),
        callbacks=[ZeroHead()] if head else [],
    )
    trainer.train()
    return losses, model


def check(
    config: TrialConfig,
    bench: Workbench,
    folder: Path,
    steps: int,
    optimizer: Any = None,
    atol: float = 1e-5,
) -> None:
    """Check that every loss and the final embeddings equal the stock trainer's."""
    ours = RecordedTraining(config, bench)
    head = (
        {name: value.clone() for name, value in ours.loss.head.state_dict().items()}
        if config.loss == "softmax"
        else {}
    )
    ours.run()
    assert len(ours.losses) == steps
    theirs, model = train_with_stock_trainer(ours, head, folder, optimizer)
    assert ours.losses == pytest.approx(theirs, rel=1e-4)
    assert len({f"{value:.4g}" for value in theirs}) > steps / 2, "the losses change"
    embeddings = [
        encoder.embed(trained, bench.tokens.document, bench.dev.queries[:20])
        for trained in (ours.model, model)
    ]
    np.testing.assert_allclose(*embeddings, atol=atol)  # the losses do not show the last step


def exact(**values: object) -> TrialConfig:
    return trial(
        **{
            "dropout": 0.0,
            "learning_rate": 2e-4,
            "examples_per_rung": 96,
            "warmup_steps": 5,
            **values,
        }
    )


@pytest.mark.ray  # takes long
@pytest.mark.parametrize(
    ("loss", "freezing"),
    [
        *((loss, "none") for loss in LOSSES),
        *((loss, level) for loss in ("triplet", "softmax") for level in LEVELS),
    ],
)
def test_losses_equal_the_stock_trainer(
    loss: str, freezing: str, tiny_bench: Workbench, tmp_path: Path
) -> None:
    # At the default of 0.01, rounding grows within 30 steps.
    temperature = {"temperature": 0.05} if loss.startswith("gist") else {}
    config = exact(loss=loss, freezing=freezing, examples_per_rung=240, **temperature)
    check(config, tiny_bench, tmp_path, steps=30)


@pytest.mark.parametrize("negatives", ["all", "other_class"])
def test_negatives_equal_the_stock_trainer(
    negatives: str, tiny_bench: Workbench, tmp_path: Path
) -> None:
    check(
        exact(loss="multiple_negatives", negatives=negatives, no_duplicates=True),
        tiny_bench,
        tmp_path,
        steps=12,
    )


def test_losses_equal_the_stock_trainer_with_the_real_encoder(
    demo_bench: Workbench, tmp_path: Path
) -> None:
    config = exact(learning_rate=5e-5, batch_size=4, examples_per_rung=12, warmup_steps=1)
    check(config, demo_bench, tmp_path, steps=3, atol=1e-3)


OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, momentum=0.9),
    "adamax": torch.optim.Adamax,
    # Vasilyev et al. 2024, Table 20
    "adamax without momentum": partial(torch.optim.Adamax, betas=(0.0, 0.0)),
    "adamw without momentum": partial(torch.optim.AdamW, betas=(0.0, 0.999)),
    "adadelta": torch.optim.Adadelta,
}


def make_builder(name: str, rate: float) -> Any:
    """Return a function that builds an optimizer over the stock trainer's parameter groups."""

    def build(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        groups = [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.01},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        return OPTIMIZERS[name](groups, lr=rate)

    return build


@pytest.mark.parametrize(("weight_decay", "rate"), [(0.9, 3e-3), (100.0, 3e-5)])
def test_strong_weight_decay_equals_the_stock_trainer(
    weight_decay: float, rate: float, tiny_bench: Workbench, tmp_path: Path
) -> None:
    """The decay is strong enough to show which parameters decay."""
    config = exact(weight_decay=weight_decay, learning_rate=rate, examples_per_rung=160)
    check(config, tiny_bench, tmp_path, 20, atol=1e-3)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_accumulated_batches_equal_the_stock_trainer(
    name: str, tiny_bench: Workbench, tmp_path: Path
) -> None:
    """The last step has one batch instead of two. Only sgd shows whether gradients are averaged or summed."""
    values = {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.05} if name == "sgd" else {}
    config = exact(loss="cosine_similarity", accumulation_steps=2, examples_per_rung=104, **values)
    check(config, tiny_bench, tmp_path, 13, make_builder("sgd", 0.05) if name == "sgd" else None)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_other_optimizers_equal_torch(name: str, tiny_bench: Workbench, tmp_path: Path) -> None:
    values: dict[str, float] = {}
    if name == "sgd":
        values = {"momentum": 0.9, "learning_rate": 0.05}
    elif name == "adadelta":
        values = {"learning_rate": 0.3}
    elif "without momentum" in name:
        values = {"momentum": 0.0}
    config = exact(optimizer=name.split()[0], **values)
    check(config, tiny_bench, tmp_path, 12, make_builder(name, config.learning_rate))


@pytest.mark.parametrize("loss", ["triplet", "contrastive", "softmax"])
def test_retention_term_is_the_mean_squared_change_of_cosines(
    loss: str, tiny_bench: Workbench
) -> None:
    """Pairs are an example's first sentence with its others, or single sentences with the next in the batch."""
    training = RecordedTraining(
        exact(loss=loss, retention_weight=0.5, examples_per_rung=80, learning_rate=2e-3), tiny_bench
    ).run()
    ids, targets = training.batches[0]
    tuned = np.stack(
        [encoder.embed(training.model, tiny_bench.tokens.document, column) for column in ids.T]
    )
    base = np.stack(
        [tiny_bench.prepared.reference_embeddings.document[column[::-1]] for column in ids.T]
    )
    squares = []
    for row in range(len(ids)):
        pairs = [((0, row), (column, row)) for column in range(1, ids.shape[1])] or [
            ((0, row), (0, (row + 1) % len(ids)))
        ]
        squares += [(tuned[a] @ tuned[b] - base[a] @ base[b]) ** 2 for a, b in pairs]
    training.model.train()
    with torch.no_grad():
        with_term = training.batch_loss(ids, targets)
        training.config = training.config.model_copy(update={"retention_weight": 0.0})
        without_term = training.batch_loss(ids, targets)
    assert np.mean(squares) > 1e-4
    assert float(with_term - without_term) == pytest.approx(0.5 * np.mean(squares), rel=1e-3)


def test_retention_term_accepts_any_width_and_length() -> None:
    rng = np.random.default_rng(0)
    tuned, frozen = rng.normal(size=(3, 5, 4)), rng.normal(size=(3, 5, 7))

    def cosines(columns: np.ndarray) -> np.ndarray:
        units = columns / np.linalg.norm(columns, axis=-1, keepdims=True)
        return np.stack([(units[0] * units[1]).sum(-1), (units[0] * units[2]).sum(-1)])

    ids = np.arange(3)[None].repeat(5, axis=0)
    batch = Batch(
        [*torch.from_numpy(tuned)],
        None,
        ids,
        torch.zeros(5, 3),
        lambda column: torch.from_numpy(frozen)[column],
    )
    term = criterion.retention_term(batch)
    assert float(term) == pytest.approx(((cosines(tuned) - cosines(frozen)) ** 2).mean())


@pytest.mark.parametrize("freezing", ["none", "emb+B0"])
def test_layer_decay_equals_torch_parameter_groups(freezing: str, tiny_bench: Workbench) -> None:
    """A torch optimizer over explicit groups takes the same steps at the scheduled rates."""
    config = exact(loss="softmax", freezing=freezing, layer_decay=0.5, max_gradient_norm=1e9)
    ours = Training(config, tiny_bench, seed=0, num_rungs=1)
    num_blocks = len(
        {
            name.split("layer.")[1].split(".")[0]
            for name in ours.model.state_dict()
            if "layer." in name
        }
    )
    assert num_blocks > 1
    copies = {
        name: torch.nn.Parameter(value.detach().clone()) for name, value in ours.parameters.items()
    }

    def rate_factor(name: str) -> float:
        if "embeddings" in name:
            return 0.5 ** (num_blocks + 1)
        if "layer." in name:
            return 0.5 ** (num_blocks - int(name.split("layer.")[1].split(".")[0]))
        return 1.0

    groups: list[Any] = [
        {
            "params": [copy],
            "weight_decay": 0.01 if copy.ndim >= 2 else 0.0,
            "factor": rate_factor(name),
        }
        for name, copy in copies.items()
    ]
    theirs = torch.optim.AdamW(groups, lr=config.learning_rate)
    take_own_step = ours.optimizer.step

    def take_both_steps(*arguments: Any, **options: Any) -> Any:
        for name, copy in copies.items():
            gradient = ours.parameters[name].grad
            copy.grad = None if gradient is None else gradient.clone()
        rate = config.learning_rate * min(
            1.0, ours.progress.steps_in_rung / 5, (12 - ours.progress.steps_in_rung) / 7
        )
        for group in theirs.param_groups:
            group["lr"] = rate * group["factor"]
        theirs.step()
        return take_own_step(*arguments, **options)

    ours.optimizer.step = take_both_steps  # type: ignore[method-assign]
    while not ours.rung_is_full:
        ours.step()
    assert {rate_factor(name) for name in copies} >= {1.0, 0.5}
    for name, copy in copies.items():
        torch.testing.assert_close(
            ours.parameters[name].detach(), copy.detach(), rtol=0, atol=1e-6, msg=name
        )
        # key biases have no gradient
        if name in tiny_bench.trainable.base and copy.grad is not None and copy.ndim == 2:
            assert (copy.detach() - tiny_bench.trainable.base[name]).abs().max() > 1e-5, name


def test_consistency_term_of_two_passes_with_different_masks(tiny_bench: Workbench) -> None:
    """The loss is the mean of both passes plus the weighted divergence of their class probabilities."""
    config = trial(loss="softmax", dropout=0.3, consistency_weight=2.0)
    training = Training(config, tiny_bench, seed=4, num_rungs=1)
    training.model.train()
    ids, targets = training.order.take(8)
    before = training.streams.position()
    with torch.no_grad():
        loss = float(training.batch_loss(ids, targets))
        training.streams.go_to(before)
        passes = [batches.embed_columns(training.column_encoders, ids)[0] for _ in range(2)]
        head = training.loss.head
        logits = [
            head(torch.nn.functional.normalize(rows) * rows.shape[1] ** 0.5) for rows in passes
        ]
    assert targets is not None
    labels = torch.from_numpy(targets).long()
    cross_entropies = [torch.nn.functional.cross_entropy(rows, labels) for rows in logits]
    p, q = (scipy.special.softmax(rows.numpy().astype(float), axis=1) for rows in logits)
    divergence = (
        scipy.stats.entropy(p, q, axis=1).mean() + scipy.stats.entropy(q, p, axis=1).mean()
    ) / 2
    assert divergence > 1e-6
    assert loss == pytest.approx(float(sum(cross_entropies)) / 2 + 2.0 * divergence, rel=1e-5)


def test_second_pass_without_dropout_changes_nothing(tiny_bench: Workbench) -> None:
    losses = [
        RecordedTraining(exact(loss="softmax", consistency_weight=weight), tiny_bench).run().losses
        for weight in (0.0, 1.0)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_trial_recomputes_activations_after_running_out_of_memory(
    tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Memory runs out within a step, after a part of its gradients was accumulated; the gradients stay the same."""
    config = trial_config(
        {
            "loss": "triplet",
            "learning_rate": 1e-2,
            "optimizer": "sgd",
            "batch_size": 8,
            "accumulation_steps": 2,
            "examples_per_rung": 64,
            "precision": "fp32",
        }
    )
    weights = []
    for fails_at in (None, 4):
        training = Training(config, tiny_bench, seed=1, num_rungs=1)
        calls = 0
        real = batches.embed_columns

        def embed(*arguments: Any, fails_at: int | None = fails_at, real: Any = real) -> Any:
            nonlocal calls
            calls += 1
            if calls == fails_at:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(batches, "embed_columns", embed)
            while not training.rung_is_full:
                training.step()
        assert training.recomputes == (fails_at is not None)
        assert training.progress.seen == 64
        weights.append(
            {name: value.detach().clone() for name, value in training.parameters.items()}
        )
    expected, recomputed = weights
    for name in expected.keys() & tiny_bench.trainable.base.keys():
        distance = (expected[name] - tiny_bench.trainable.base[name]).abs().max()
        assert (expected[name] - recomputed[name]).abs().max() <= 0.02 * distance + 1e-7, name
    assert capsys.readouterr().out.count("out of memory") == 1


def test_trial_fails_if_recomputing_runs_out_of_memory(
    tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    config = trial_config(
        {"loss": "triplet", "learning_rate": 1e-4, "batch_size": 8, "examples_per_rung": 64}
    )
    training = Training(config, tiny_bench, seed=1, num_rungs=1)
    monkeypatch.setattr(packed, "forward", fail)
    with pytest.raises(torch.OutOfMemoryError):
        training.step()
