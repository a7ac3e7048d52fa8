"""The two training methods compared, each as a peer: raysweep's engine, and sentence-transformers' own trainer."""

import copy
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer import losses
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback, TrainerCallback

from benchmarks.peers import Turns
from benchmarks.sst2 import LEARNING_RATE, MARGIN
from raysweep.config.sides import Sides
from raysweep.config.sweep import EncoderConfig, EvaluationConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.data.prepared import Prepared
from raysweep.encoders import adapter, encoder
from raysweep.encoders.side_encoders import Encoders, StoredEncoder, TokenEncoder
from raysweep.encoders.structure import Structure
from raysweep.encoders.tokens import Tokens
from raysweep.evaluation import operating_points
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import TunedEncoder
from raysweep.metrics.retrieval import Scores
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench

BATCH = 64
SEED = 0
WEIGHT_DECAY = 0.01
WARMUP_FRACTION = 0.1


@dataclass(frozen=True)
class Task:
    """The training of every peer: these triplets of sentence ids, (examples, 3), in this order, in batches of 64."""

    prepared: Prepared
    triplets: npt.NDArray[np.integer]
    freezing: str
    precision: str
    device: str
    warm_up: int  # untimed examples beforehand
    per_turn: int  # batches; a multiple of them
    adapter: str = "none"  # or lora, with the default rank and targets
    tower: str = "both"  # or query
    is_scored: bool = True

    @classmethod
    def of(cls, prepared: Prepared, examples: int, **settings: Any) -> "Task":
        """Return the triplets that raysweep's trials of this seed begin with."""
        ids, _ = prepared.examples("triplet")
        order = np.random.default_rng(SEED).permutation(len(ids))[:examples]
        return cls(prepared, np.asarray(ids[order]), **settings)

    def config(self, examples: int) -> TrialConfig:
        return trial_config(
            {
                "loss": "triplet",
                "margin": MARGIN,
                "learning_rate": LEARNING_RATE,
                "batch_size": BATCH,
                "weight_decay": WEIGHT_DECAY,
                "warmup_fraction": WARMUP_FRACTION,
                "examples_per_rung": examples,
                "freezing": self.freezing,
                "precision": self.precision,
                "adapter": self.adapter,
                "tower": self.tower,
            }
        )


def ours(turns: Turns, task: Task, later: bool = False) -> Scores | None:
    """Run raysweep's training steps. A ``later`` trial has the frozen blocks' output in the cache.

    The cache is for trials that read much of the data; this one is too short for it, so it is forced.
    """
    bench = _bench(task)
    _finish(_training(task, bench, len(task.triplets) if later else task.warm_up, later))
    training = _training(task, bench, len(task.triplets), later)
    drawn, _ = copy.deepcopy(training.order).take(len(task.triplets))
    if not np.array_equal(drawn, task.triplets):
        raise RuntimeError(
            "raysweep's trials draw triplets in another order than this benchmark expects"
        )
    turns.begin()
    pending = 0
    while not training.rung_is_full:
        before = training.progress.seen
        training.step()
        pending += training.progress.seen - before
        if pending >= task.per_turn * BATCH:
            turns.rest(pending)
            pending = 0
    turns.end(pending)
    return _measure(task, bench.model)


def _training(task: Task, bench: Workbench, examples: int, later: bool) -> Training:
    training = Training(task.config(examples), bench, SEED, 1)
    if later:
        num_sentences = len(bench.prepared.sentences)
        training.use_prefixes(
            bench.prefixes(training.config, training.precision, num_reads=num_sentences)
        )
    return training


def stock(turns: Turns, task: Task) -> Scores | None:
    """Run the stock trainer with the same triplets, batches, schedule, loss and frozen parameters."""
    model = encoder.load(EncoderConfig(**task.prepared.model), device=task.device)
    structure = Structure.of(model)
    lora = task.config(len(task.triplets)).lora
    if lora is None:
        frozen = structure.frozen_names(task.freezing)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in frozen)
    else:
        adapter.attach(model, structure, lora)
    initial = {name: value.detach().clone() for name, value in model.state_dict().items()}
    # Frozen blocks rest from dropout, as raysweep's do: it would only add noise, and cost time.
    modules = dict(model.named_modules())
    dropouts = [name for name, module in modules.items() if isinstance(module, torch.nn.Dropout)]
    for name in structure.frozen_modules(dropouts, task.freezing):
        modules[name].p = 0.0
    with tempfile.TemporaryDirectory() as folder:
        _trainer(model, task, task.triplets[: task.warm_up], folder).train()
        model.load_state_dict(initial)
        trainer = _trainer(model, task, task.triplets, folder)
        rests = _Rests(turns, task)
        trainer.add_callback(rests)
        turns.begin()
        trainer.train()
        turns.end(len(task.triplets) - rests.reported)
    return _measure(task, model)


class _InOrder(SentenceTransformerTrainer):
    """Takes batches in the dataset's order; the trainer's own sampler shuffles."""

    def get_batch_sampler(self, dataset: Any, *arguments: Any, **options: Any) -> Any:
        return DefaultBatchSampler(SequentialSampler(dataset), *arguments, **options)


class _Rests(TrainerCallback):
    """Passes the turn to the next peer after every few optimizer steps."""

    def __init__(self, turns: Turns, task: Task) -> None:
        self.turns, self.task = turns, task
        self.reported = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        done = min(state.global_step * BATCH, len(self.task.triplets))
        if done - self.reported >= self.task.per_turn * BATCH:
            self.turns.rest(done - self.reported)
            self.reported = done


def _trainer(
    model: SentenceTransformer, task: Task, triplets: npt.NDArray[np.integer], folder: str
) -> SentenceTransformerTrainer:
    texts = task.prepared.sentences.texts
    columns = {
        name: texts(column)
        for name, column in zip(("anchor", "positive", "negative"), triplets.T, strict=True)
    }
    cosine = losses.TripletDistanceMetric.COSINE
    trainer = _InOrder(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            warmup_steps=round(WARMUP_FRACTION * -(-len(triplets) // BATCH)),
            bf16=task.precision == "bf16",
            use_cpu=task.device == "cpu",
            seed=SEED,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict(columns),
        loss=losses.TripletLoss(model, distance_metric=cosine, triplet_margin=MARGIN),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _bench(task: Task) -> Workbench:
    return Workbench(task.prepared, EvaluationConfig(), device=task.device)


def _finish(training: Training) -> None:
    while not training.rung_is_full:
        training.step()


def _measure(task: Task, model: SentenceTransformer) -> Scores | None:
    """Return per-query scores on the test split in fp32, by the same code for all, or None if there are none."""
    if not task.is_scored or not len(task.prepared.sentences.ids("test")):
        return None
    tokens = Tokens.open(task.prepared.tokens_artifacts.document.folder)
    encoders: Encoders = Sides.same(TokenEncoder(model, tokens))
    if task.tower == "query":
        encoders = Sides(encoders.query, StoredEncoder(task.prepared.reference_embeddings.document))
    tuned = TunedEncoder(encoders)
    test = EvaluationSet.of(task.prepared, "test", EvaluationConfig())
    scores = operating_points.measure(tuned, test, [("plain", None)])
    return scores["plain", None]


def token_counts(prepared: Prepared, triplets: npt.NDArray[np.integer]) -> dict[str, int]:
    """Tokens of one pass over the triplets in batches of 64.

    ``distinct`` counts each sentence once a batch, which is all the work there is; ``real`` every column's; ``padded``
    what a column-wise padded batch holds, as the stock trainer makes it.
    """
    tokens = Tokens.open(prepared.tokens_artifacts.document.folder)
    counts = {"distinct": 0, "real": 0, "padded": 0}
    for start in range(0, len(triplets), BATCH):
        batch = triplets[start : start + BATCH]
        lengths = tokens.lengths(batch)
        counts["distinct"] += int(tokens.lengths(np.unique(batch)).sum())
        counts["real"] += int(lengths.sum())
        counts["padded"] += int((lengths.max(axis=0) * len(batch)).sum())
    return counts


def working_parameters(model: SentenceTransformer) -> int:
    """Return the number of parameters that multiply every token: all but the tables and an unused pooler."""
    tables = Structure.of(model).frozen_names("emb.base")
    return sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if name not in tables and ".pooler." not in name
    )
