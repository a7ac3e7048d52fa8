"""HyperMask on sentences, next to training in sequence, EWC, an adapter per data set and a probe per data set.

SST-2, SUBJ and TREC arrive in this order and in the reverse one. All methods read the stored embeddings of MiniLM. All but
the last train the product's adapter on the same batches, with the same number of iterations. The last is the point
class_concat of the reference, with a softmax head for each data set; these heads are the product's probes and cannot forget.

P and S are measured as in a sweep over a sequence: on the same number of queries of each data set, with its own pool.
Each method has one operating point for all data sets: for adapters plain or concat(g), for the probe class_concat(g), with
the product's values of g. It is the one with the product's highest objective, (P + S) / 2, on dev at the end.

Each seed draws its own pools, initial weights and batches; splits are the same. Differences are paired by seed. The
other constants are those in a grid with the highest mean objective on dev over both orders, under a seed that is not
reported; ``--select`` prints them. Test is not used for any choice.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import measure, sst2
from benchmarks.continual import Ewc, Interval, Separate, Sequential, interval
from benchmarks.front_options import TASKS
from raysweep.config.sweep import BaselinesConfig, EvaluationConfig, ObjectiveConfig, PointsConfig
from raysweep.data.prepared import Prepared
from raysweep.evaluation import operating_points, probe
from raysweep.evaluation.calibration import calibrated
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import Encoded
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.objective import Objective
from raysweep.metrics.retrieval import Scores
from raysweep.prepare.build import prepare_here
from raysweep.results.types import PointKey, ScoredSplit, key_name
from raysweep.training.hypermask.model import HyperMask, MaskSettings
from raysweep.training.hypermask.sequence import (
    HyperMaskLearner,
    Learner,
    TaskData,
    TrainingSettings,
    seeded,
    train_sequence,
)
from raysweep.training.hypermask.targets import Adapter, Heads

DATA_SETS = ("sst2", "subj", "trec")
MAX_TRAIN = 5_000  # random rows of each data set, of which dev is split off
QUICK_TRAIN = 500
ADAPTER_SIZE = 64  # the product's default
TRAINING = TrainingSettings(num_iterations=400, batch_size=128)
QUICK_ITERATIONS = 20
SPACE = {"loss": "hypermask", "learning_rate": 1e-3}  # only to prepare
SELECTION_SEED = 100
OBJECTIVE = Objective(ObjectiveConfig().polarity_weight, reference_point=(0, 0))
HYPERMASK = "HyperMask"
SEPARATE = "adapter per data set"
PROBE = "class_concat"
UNTUNED = "untuned"
MEAN = "mean"
COMPARED = ("P", "S", "(P + S) / 2")
SPLITS: tuple[ScoredSplit, ...] = ("dev", "test")


@dataclass(frozen=True)
class Method:
    """A learner's name and its constants, chosen on dev. Only HyperMask has masks, and only EWC a strength."""

    name: str
    learning_rate: float
    heads: Heads = "per_task"
    masks: MaskSettings = field(default_factory=MaskSettings)
    strength: float = 0.0

    def make_learner(self, width: int, num_classes: Sequence[int], seed: int) -> Learner:
        """Return an untrained learner over embeddings of a width."""

        def make_adapter() -> Adapter:
            return Adapter(width, [ADAPTER_SIZE], num_classes, self.heads)

        with seeded(seed):
            if self.name == SEPARATE:
                return Separate([make_adapter() for _ in num_classes])
            if self.name == HYPERMASK:
                return HyperMaskLearner(HyperMask(make_adapter(), len(num_classes), self.masks))
            return (
                Ewc(make_adapter(), self.strength)
                if self.name == "EWC"
                else Sequential(make_adapter())
            )


MASKS = MaskSettings(
    0, "signed", beta=0.01, lambda_=1e-3, embedding_size=24, hidden_layers=(25, 25)
)
METHODS = (
    Method(HYPERMASK, 1e-3, masks=MASKS),
    Method("sequential", 3e-3),
    Method("EWC", 1e-2, strength=1e4),
    Method(SEPARATE, 3e-3),
)
TASK_HEADS: tuple[Heads, ...] = ("shared", "per_task")
RATES_AND_HEADS = tuple(itertools.product((1e-3, 3e-3, 1e-2), TASK_HEADS))
CANDIDATES = (
    *(
        Method(HYPERMASK, *one, masks=replace(MASKS, beta=beta, lambda_=lambda_))
        for one, beta, lambda_ in itertools.product(RATES_AND_HEADS, (0.01, 1.0), (1e-4, 1e-3))
    ),
    *(
        Method("EWC", *one, strength=strength)
        for one in RATES_AND_HEADS
        for strength in (1e2, 1e3, 1e4, 1e5)
    ),
    *(Method(name, *one) for one in RATES_AND_HEADS for name in ("sequential", SEPARATE)),
)


@dataclass(frozen=True)
class DataSet:
    """A data set's training rows, and the queries and pools of dev and test."""

    num_classes: int
    train: TaskData
    evaluations: Mapping[ScoredSplit, EvaluationSet]

    @classmethod
    def read_all(cls, prepared: Prepared, config: EvaluationConfig) -> "dict[str, DataSet]":
        """Return the data sets of a sequence by name."""
        num_queries = {split: prepared.sequence.queries_per_data_set(split) for split in SPLITS}
        data_sets = {}
        for name, part in prepared.parts.items():
            ids = part.sentences.ids("train")
            embeddings = np.asarray(part.reference_embeddings.document[ids])
            labels = np.asarray(part.sentences.labels[ids], np.int64)
            train = TaskData(torch.from_numpy(embeddings), torch.from_numpy(labels))
            evaluations = {
                split: EvaluationSet.of(part, split, config, num_queries[split]) for split in SPLITS
            }
            data_sets[name] = cls(len(part.sentences.label_names), train, evaluations)
        return data_sets


@dataclass(frozen=True)
class Outcome:
    """P and S of a method's points, (data sets, points, 2), in percent, in the order of the sequence.

    ``dev`` and ``at_end`` (test) are measured after the last data set, ``right_after`` (test) after each.
    """

    keys: Sequence[PointKey]
    dev: Float64Array
    right_after: Float64Array
    at_end: Float64Array

    @classmethod
    def of_reference(
        cls, keys: Sequence[PointKey], scores: Mapping[ScoredSplit, list[Float64Array]]
    ) -> "Outcome":
        """Return the outcome of points that later data sets do not change."""
        dev, test = (np.stack(scores[split]) for split in SPLITS)
        return cls(keys, dev, test, test)

    @property
    def dev_objectives(self) -> list[float]:
        """The objective of each point on dev, with means over data sets."""
        return [OBJECTIVE.weighted_sum(pair) for pair in self.dev.mean(axis=0).tolist()]

    @property
    def best(self) -> int:
        """The number of the point with the highest objective on dev."""
        return int(np.argmax(self.dev_objectives))

    def values(self, place: int | None) -> dict[str, float]:
        """Return the scores of this point on test for a data set of the sequence, or means over data sets for None."""
        of_point = [scores[:, self.best] for scores in (self.right_after, self.at_end)]
        right_after, at_end = (
            scores.mean(axis=0) if place is None else scores[place] for scores in of_point
        )
        return {
            "P right after": right_after[0],
            "S right after": right_after[1],
            "P": at_end[0],
            "S": at_end[1],
            "P forgotten": right_after[0] - at_end[0],
            "(P + S) / 2": OBJECTIVE.weighted_sum(at_end),
        }


def _percentages(scores: Iterable[Scores]) -> Float64Array:
    """Return P and S of points, (points, 2), in percent."""
    return np.array(
        [[100 * of_point.mean(name) for name in ("polarity", "similarity")] for of_point in scores]
    )


def _score(
    learner: Learner, task: int, evaluation: EvaluationSet, keys: Sequence[PointKey]
) -> Float64Array:
    """Return P and S of the points of a learner's adapter for a data set."""
    inputs = (
        torch.from_numpy(side) for side in (evaluation.reference_queries, evaluation.reference_pool)
    )
    encoded = Encoded(*(learner.predict(of_side, task).embeddings.numpy() for of_side in inputs))
    return _percentages(operating_points.score_encoded(encoded, evaluation, keys).values())


def train(method: Method, data_sets: Sequence[DataSet], settings: TrainingSettings) -> Outcome:
    """Train a method on data sets in order and return its outcome."""
    keys = operating_points.wanted(PointsConfig(), has_head=False)
    width = data_sets[0].train.inputs.shape[1]
    learner = method.make_learner(
        width, [data_set.num_classes for data_set in data_sets], settings.seed
    )

    def score(task: int, split: ScoredSplit) -> Float64Array:
        return _score(learner, task, data_sets[task].evaluations[split], keys)

    right_after: list[Float64Array] = []
    train_sequence(
        learner,
        [data_set.train for data_set in data_sets],
        replace(settings, learning_rate=method.learning_rate),
        lambda task: right_after.append(score(task, "test")),
    )
    dev, test = (
        np.stack([score(task, split) for task in range(len(data_sets))]) for split in SPLITS
    )
    return Outcome(keys, dev, np.stack(right_after), test)


def fit_probes(data_sets: Sequence[DataSet]) -> Outcome:
    """Fit a calibrated probe on each data set, as the baseline of a sweep, and return the outcome of class_concat."""
    values = BaselinesConfig().probe
    scores: dict[ScoredSplit, list[Float64Array]] = {split: [] for split in SPLITS}
    for data_set in data_sets:
        dev = data_set.evaluations["dev"]
        head = probe.fit(data_set.train.inputs.numpy(), data_set.train.labels.numpy())
        assert head is not None
        head = calibrated(head, dev.reference_queries, dev.query_labels)
        for split, evaluation in data_set.evaluations.items():
            scores[split].append(_percentages(probe.score(head, evaluation, values).values()))
    return Outcome.of_reference([(PROBE, value) for value in values], scores)


def measure_untuned(data_sets: Sequence[DataSet]) -> Outcome:
    """Return the outcome of the encoder itself."""
    sets = [data_set.evaluations for data_set in data_sets]
    scores = {
        split: [_percentages([of_splits[split].reference_scores]) for of_splits in sets]
        for split in SPLITS
    }
    return Outcome.of_reference([("plain", None)], scores)


Outcomes = Mapping[str, Sequence[Outcome]]
"""The outcomes of each method by name, one for each seed."""


def compare(
    prepared: Prepared,
    seeds: Sequence[int],
    settings: TrainingSettings,
    evaluation: EvaluationConfig,
    methods: Sequence[Method] = METHODS,
) -> Iterator[tuple[tuple[str, ...], Outcomes, dict[str, float]]]:
    """Yield for both orders the names of the data sets, the outcomes and the seconds of all seeds of each method."""
    names = tuple(prepared.parts)
    for order in (names, names[::-1]):
        outcomes: dict[str, list[Outcome]] = {}
        seconds: dict[str, float] = {}
        for seed in seeds:
            by_name = DataSet.read_all(prepared, evaluation.model_copy(update={"pool_seed": seed}))
            data_sets = [by_name[name] for name in order]
            runs: dict[str, Callable[[Sequence[DataSet]], Outcome]] = {
                **{
                    one.name: partial(train, one, settings=replace(settings, seed=seed))
                    for one in methods
                },
                PROBE: fit_probes,
                UNTUNED: measure_untuned,
            }
            for name, run in runs.items():
                start = time.monotonic()
                outcomes.setdefault(name, []).append(run(data_sets))
                seconds[name] = seconds.get(name, 0.0) + time.monotonic() - start
        yield order, outcomes, seconds


def rows(
    order: Sequence[str], outcomes: Outcomes
) -> Iterator[tuple[str, str, dict[str, Interval]]]:
    """Yield each data set and the mean, each method, and its scores over seeds."""
    for place, data_set in [*enumerate(order), (None, MEAN)]:
        ours = [outcome.values(place) for outcome in outcomes[HYPERMASK]]
        for name, of_method in outcomes.items():
            theirs = [outcome.values(place) for outcome in of_method]
            cells = {key: interval([values[key] for values in theirs]) for key in theirs[0]}
            for key in COMPARED if name != HYPERMASK else ():
                differences = [
                    own[key] - other[key] for own, other in zip(ours, theirs, strict=True)
                ]
                cells[f"HyperMask minus it: {key}"] = interval(differences)
            yield data_set, name, cells


def table(order: Sequence[str], outcomes: Outcomes) -> str:
    """Return a row for each data set and method; scores in percent with 95% intervals over seeds."""
    found = list(rows(order, outcomes))
    header = list(dict.fromkeys(key for _, _, cells in found for key in cells))
    lines = [
        [data_set, name, *(cells.get(key, "") for key in header)] for data_set, name, cells in found
    ]
    return measure.table(["data set", "method", *header], lines)


def select(prepared: Prepared, settings: TrainingSettings) -> None:
    """Print the mean objective of each candidate on dev over both orders, best first."""
    data_sets = list(
        DataSet.read_all(prepared, EvaluationConfig(pool_seed=SELECTION_SEED)).values()
    )
    settings = replace(settings, seed=SELECTION_SEED)
    objectives = {}
    for method in CANDIDATES:
        outcomes = [train(method, order, settings) for order in (data_sets, data_sets[::-1])]
        objectives[str(method)] = np.mean([max(outcome.dev_objectives) for outcome in outcomes])
    for text, objective in sorted(objectives.items(), key=lambda item: -item[1]):
        print(f"{objective:.2f}  {text}")


def prepare(data: Path, artifacts: Path, max_train: int) -> Prepared:
    """Build the missing artifacts of the sequence; samples of rows and splits are stored next to them."""
    sequence = []
    for name in DATA_SETS:
        if not (data / TASKS[name].train).is_file():
            raise SystemExit(
                f"{data}: {TASKS[name].train} is missing; allowed: a folder with sst2/ and transfer/"
            )
        train_file, test_file = TASKS[name].sources(
            data, artifacts / f"{name}-{max_train}", 0, max_train
        )
        sequence.append({"name": name, "train": train_file, "test": test_file})
    config, space = sst2.sweep(
        sst2.DEMO, artifacts / "artifacts", data={"sequence": sequence}, space=SPACE
    )
    threads = torch.get_num_threads()
    prepared = prepare_here(config, space)
    torch.set_num_threads(threads)  # preparing takes all cores
    return prepared


def main() -> None:
    arguments = _arguments()
    data = arguments.data or Path(
        os.environ.get("RAYSWEEP_DATA_DIR", measure.ROOT.parent / "shared" / "data")
    )
    settings, seeds, max_train = TRAINING, range(arguments.seeds), MAX_TRAIN
    if arguments.quick:
        settings, seeds, max_train = (
            replace(TRAINING, num_iterations=QUICK_ITERATIONS),
            range(1),
            QUICK_TRAIN,
        )
    with measure.workplace() as temporary:
        machine = measure.machine()
        start = time.monotonic()
        prepared = prepare(data, (arguments.artifacts or temporary).resolve(), max_train)
        print(f"prepared in {time.monotonic() - start:.0f} s", flush=True)
        if arguments.select:
            select(prepared, settings)
            return
        start = time.monotonic()
        figures: dict[str, Any] = {}
        for order, outcomes, seconds in compare(prepared, seeds, settings, EvaluationConfig()):
            print(f"\n{', '.join(order)}, {len(seeds)} seeds\n{table(order, outcomes)}\n")
            for name, of_method in outcomes.items():
                points = ", ".join(key_name(outcome.keys[outcome.best]) for outcome in of_method)
                print(f"{name}: {seconds[name]:.0f} s; points by seed: {points}", flush=True)
            scores = [
                {"data_set": one, "method": name, **cells}
                for one, name, cells in rows(order, outcomes)
            ]
            figures["-".join(order)] = {"scores": scores, "seconds": seconds}
        total = time.monotonic() - start
        print(f"\n{total:.0f} s in total, {time.process_time():.0f} s of CPU time")
    measure.finish(
        "hypermask_sentences", {"orders": figures, "seconds": total}, machine, arguments.json
    )


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.hypermask_sentences", __doc__)
    measure.artifacts_option(parser)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument(
        "--select", action="store_true", help="print the scores of all candidates on dev instead"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
