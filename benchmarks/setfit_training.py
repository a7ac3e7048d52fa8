"""The two ways to train that are compared, each as a peer: the setfit package, and its first phase as a raysweep trial."""

import importlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import PrinterCallback

from benchmarks import sst2
from benchmarks.peers import Turns
from raysweep.config.sweep import EncoderConfig, EvaluationConfig, PointsConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate_same
from raysweep.encoders.tokens import Tokens, tokenise
from raysweep.evaluation import operating_points
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import TunedEncoder
from raysweep.metrics import retrieval
from raysweep.metrics.retrieval import Scores
from raysweep.prepare.build import prepare_here
from raysweep.training import trial
from raysweep.training.workbench import Workbench

BATCH = 32
PAIR_LEARNING_RATE = 2e-5  # setfit's own: the published code names rates for the second phase only
BODY_LEARNING_RATE = 3e-5
HEAD_LEARNING_RATE = 1e-2
WEIGHT_DECAY = 0.01
WARMUP_FRACTION = 0.1
SECOND_PHASE_EPOCHS = 5
K = 16


def prepare(data: sst2.Data, artifacts: Path, per_class: int, iterations: int, seed: int) -> Prepared:
    """Pairs of SetFit's kind, and all else that a trial on them reads, built in this process where it is missing."""
    examples = {"neighbours": "random", "k": iterations, "anchors_per_class": per_class}
    return prepare_here(*sst2.sweep(data, artifacts, loss="cosine_similarity", examples=examples, seed=seed))


@dataclass(frozen=True)
class Scoring:
    """The test rows as queries and a pool of training rows, as they are, so that published values come out."""

    evaluation: EvaluationSet
    tokens: Tokens

    @classmethod
    def of(cls, data: sst2.Data, device: str) -> "Scoring":
        """Under the demo's encoder, untrained, as the reference."""
        queries = sst2.rows(data.test, "test")
        train = sst2.rows(data.train, "train")
        drawn = retrieval.sample_pool(len(train), len(queries))
        pool = [train[row] for row in drawn]
        texts, labels = zip(*queries, *pool, strict=True)
        model = encoder.load(EncoderConfig(name="demo"), device=device)
        tokens = tokenise(model, texts)
        ids = np.arange(len(texts))
        reference = encoder.embed(model, tokens, ids)
        _, classes = np.unique(labels, return_inverse=True)
        of_queries, of_pool = np.split(ids, [len(queries)])
        evaluation = EvaluationSet(
            split="test",
            queries=of_queries,
            pool=of_pool,
            query_labels=classes[of_queries],
            pool_labels=classes[of_pool],
            reference_queries=reference[of_queries],
            reference_pool=reference[of_pool],
            k=K,
            rank_weights="uniform",
        )
        return cls(evaluation, tokens)

    def scores(self, model: SentenceTransformer) -> Scores:
        """Per-query scores of retrieval by this model, in fp32."""
        tuned = TunedEncoder(model, self.tokens)
        found = operating_points.measure(tuned, self.evaluation, [("plain", None)])
        return found["plain", None]


@dataclass(frozen=True)
class Task:
    """What both train on: the sentences that raysweep's pairs are made of."""

    prepared: Prepared
    scoring: Scoring
    iterations: int  # pairs of one class, and as many of two, that begin with each sentence
    seed: int
    device: str

    @cached_property
    def sentences(self) -> npt.NDArray[np.integer]:
        """Ids, ascending. Every sentence that pairs end with also begins some."""
        ids, _ = self.prepared.examples("scored_pair")
        return np.unique(ids[:, 0])

    @property
    def num_pairs(self) -> int:
        ids, _ = self.prepared.examples("scored_pair")
        return len(ids)

    @property
    def config(self) -> TrialConfig:
        """SetFit's first phase: all pairs once."""
        return trial_config(
            {
                "loss": "cosine_similarity",
                "learning_rate": PAIR_LEARNING_RATE,
                "batch_size": BATCH,
                "weight_decay": WEIGHT_DECAY,
                "schedule": "linear",
                "warmup_fraction": WARMUP_FRACTION,
                "examples_per_rung": self.num_pairs,
                "precision": "fp32",
            }
        )


def ours(turns: Turns, task: Task) -> Scores:
    """A trial of one rung, which ends with its evaluation on dev."""
    evaluation = EvaluationConfig(points=PointsConfig(concat=[], class_concat=[]))
    bench = Workbench(task.prepared, evaluation, device=task.device)
    turns.begin()
    for _ in trial.rungs(task.config, bench, seed=task.seed, num_rungs=1):
        pass  # the model is in the workbench
    turns.end(task.num_pairs)
    return task.scoring.scores(bench.model)


def package(turns: Turns, task: Task, folder: Path) -> tuple[Scores, Scores]:
    """What setfit's own trainer does, with a rest between its two phases; scores after each. Saves the model."""
    setfit: Any = importlib.import_module("setfit")
    setfit.logging.set_verbosity_error()
    prepared = task.prepared
    source = locate_same(EncoderConfig(**prepared.model), prepared.model_identity)
    num_classes = len(prepared.sentences.label_names)
    texts = prepared.sentences.texts(task.sentences)
    labels = np.asarray(prepared.sentences.labels[task.sentences]).tolist()
    model = setfit.SetFitModel.from_pretrained(
        str(source.folder),
        use_differentiable_head=True,
        head_params={"out_features": num_classes},
        device=task.device,
    )
    arguments = _arguments(setfit, task, folder)
    sentences = Dataset.from_dict({"text": texts, "label": labels})
    trainer = setfit.Trainer(model, arguments, train_dataset=sentences)
    trainer.remove_callback(PrinterCallback)
    turns.begin()
    trainer.train_embeddings(texts, labels, args=arguments)
    turns.rest(2 * task.iterations * len(texts))
    weights = model.model_body.state_dict()
    after_first_phase = {name: value.detach().clone() for name, value in weights.items()}
    trainer.train_classifier(texts, labels, args=arguments)
    turns.end()
    model.save_pretrained(folder)
    saved = encoder.load(EncoderConfig(name=str(folder)), device=task.device)
    second = task.scoring.scores(saved)
    model.model_body.load_state_dict(after_first_phase)
    return task.scoring.scores(model.model_body), second


def _arguments(setfit: Any, task: Task, folder: Path) -> Any:
    ids = task.sentences
    longest = int(Tokens.open(task.prepared.tokens_artifact.folder).lengths(ids).max())
    return setfit.TrainingArguments(
        output_dir=str(folder.with_name(f"{folder.name}-checkpoints")),  # where nothing is written
        batch_size=BATCH,
        num_epochs=(1, SECOND_PHASE_EPOCHS),
        num_iterations=task.iterations,
        body_learning_rate=(PAIR_LEARNING_RATE, BODY_LEARNING_RATE),
        head_learning_rate=HEAD_LEARNING_RATE,
        end_to_end=True,
        warmup_proportion=WARMUP_FRACTION,
        l2_weight=WEIGHT_DECAY,
        max_length=longest,  # to which the second phase pads every sentence; by default to the encoder's limit
        seed=task.seed,
        report_to="none",
        logging_strategy="no",
        logging_first_step=False,
        save_strategy="no",
        show_progress_bar=False,
    )
