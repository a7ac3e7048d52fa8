"""Training options that raise the front of one softmax trial: share of the oracle's hypervolume on test, seed by seed.

A trial of the space `front` is trained in this process for each task, seed and option, with the space's other settings.
Its temperature is fitted on dev, and all values of g of the space are measured on test. One training run yields several
rows, for its last weights and for weight averages, which do not change the training.

Every seed has its own test split, dev split and training. Tasks without a test split (MR, SUBJ) use a tenth of their
rows, sampled by the seed. Differences from the baseline (no option, last weights) are paired by seed; their 90%
intervals are Student's t intervals over seeds. `share` is the hypervolume of the points on test over that of the
oracle's hull, as in a report. Sentences are encoded in bf16 if that is faster, which changes cosines by 0.00002. Rows
may be collected from several calls: --keep appends them to a file, and --summarize reads such files.
"""

import argparse
import csv
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks import measure

if TYPE_CHECKING:
    from raysweep.config.sweep import EvaluationConfig, SweepConfig
    from raysweep.evaluation.evaluation_set import EvaluationSet
    from raysweep.training.trainer import Training

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "baseline": {},
    "label_smoothing 0.1": {"label_smoothing": 0.1},
    "layer_decay 0.8": {"layer_decay": 0.8},
    "consistency_weight 1": {"consistency_weight": 1.0},
    "5 epochs": {"rungs": 5},
}
"""What each option changes in a trial's configuration, or in the number of its rungs."""

DECAYS = (0.99,)
"""Decays of the moving averages of weights that are measured in addition to the last weights of each training."""

BATCH_SIZE = 64


@dataclass(frozen=True)
class Schedule:
    """How often a trial uses its training sentences, and the maximum number each time."""

    epochs: int
    most_sentences: int | None = None


WHOLE = Schedule(epochs=3)
QUICK = Schedule(epochs=1, most_sentences=512)

JUDGED_ON = ("mr", "trec")
JUDGING_SEEDS = range(10, 15)
"""Nothing is tuned on them."""

LAST = "last"

NUM_RUNGS_IN_MEAN = 2
MEAN_OF_RUNGS = f"mean of {NUM_RUNGS_IN_MEAN} rungs"
DECAY_OVER_RUNGS = 1 - 1e-6  # so that each counts alike
BASELINE = ("baseline", LAST)

HEADER = (
    "",
    "share",
    "less baseline",
    "90%",
    "accuracy",
    "cross-entropy",
    "calibrated",
    "error",
    "calibrated",
    "seeds",
)


@dataclass(frozen=True)
class Row:
    """One front: task, seed, option and weights; scores on test, calibration there before and after."""

    task: str
    seed: int
    option: str
    weights: str
    share: float
    accuracy: float
    temperature: float
    cross_entropy_before: float
    cross_entropy: float
    error_before: float
    error: float
    train_seconds: float


def main() -> None:
    arguments = _arguments()
    if arguments.summarize:
        rows = [row for file in arguments.summarize for row in _read(file)]
        print(_summary(rows))
        return
    with measure.workplace() as temporary:
        machine = measure.machine()
        rows = []
        for row in _measure(arguments, arguments.artifacts or temporary):
            rows.append(row)
            print(_line(row), flush=True)
            if arguments.keep:
                _append(arguments.keep, row)
    print(f"\n{_summary(rows)}")
    figures = {
        "rows": [asdict(row) for row in rows],
        "differences": _differences(rows),
        "kept": _kept(rows),
    }
    measure.finish("front_options", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.front_options", __doc__)
    measure.artifacts_option(parser)
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=TASKS,
        help="those that options are judged on; with --quick demo",
    )
    parser.add_argument("--seeds", nargs="+", type=int, help="the judging ones; with --quick 0")
    parser.add_argument(
        "--train",
        type=int,
        help="rows that train and dev have, drawn by the seed; all if not given",
    )
    parser.add_argument(
        "--options", nargs="+", choices=OPTIONS, help="all; with --quick the first two"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="append every row to this file of JSON lines"
    )
    parser.add_argument(
        "--summarize", nargs="+", type=Path, metavar="FILE", help="only print what such files hold"
    )
    arguments = parser.parse_args()
    arguments.tasks = arguments.tasks or (["demo"] if arguments.quick else list(JUDGED_ON))
    arguments.seeds = arguments.seeds or ([0] if arguments.quick else list(JUDGING_SEEDS))
    arguments.options = arguments.options or (
        list(OPTIONS)[:2] if arguments.quick else list(OPTIONS)
    )
    arguments.schedule = QUICK if arguments.quick else WHOLE
    return arguments


@dataclass(frozen=True)
class Task:
    """Files of labeled sentences in the data folder; without ``test`` a tenth of ``train`` is drawn for it."""

    train: str
    test: str | None = None

    def sources(
        self, data: Path, folder: Path, seed: int, most: int | None
    ) -> tuple[str, str | None]:
        """Return the sources of train, with at most ``max_train`` rows, and of test; samples are stored in ``folder``."""
        if self.train == "demo":
            return "demo", None
        with (data / self.train).open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        order = np.random.default_rng(seed).permutation(len(rows))
        num_test = 0 if self.test else len(rows) // 10
        end = None if most is None else num_test + most
        parts = {"test": order[:num_test], "train": order[num_test:end]}
        folder.mkdir(parents=True, exist_ok=True)
        for split, chosen in parts.items():
            with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(
                    [header, *(rows[row] for row in sorted(chosen.tolist()))]
                )
        test = data / self.test if self.test else folder / "test.csv"
        return str(folder / "train.csv"), str(test)


TASKS = {
    "mr": Task("transfer/mr.csv"),
    "subj": Task("transfer/subj.csv"),
    "trec": Task("transfer/trec_train.csv", "transfer/trec_test.csv"),
    "sst2": Task("sst2/train.csv", "sst2/test.csv"),
    "demo": Task("demo"),
}


def _measure(arguments: argparse.Namespace, folder: Path) -> Iterator[Row]:
    data = arguments.data or Path(
        os.environ.get("RAYSWEEP_DATA_DIR", measure.ROOT.parent / "shared" / "data")
    )
    for seed in arguments.seeds:
        for task in arguments.tasks:
            own = folder / f"{task}-{seed}-{arguments.train or 'all'}"
            sources = TASKS[task].sources(data, own, seed, arguments.train)
            experiment = Experiment(sources, folder / "artifacts", seed)
            for option in arguments.options:
                for weights, measured in experiment.rows(OPTIONS[option], arguments.schedule):
                    yield Row(task, seed, option, weights, **measured)


class Experiment:
    """The artifacts of a task and a seed, the sets that its fronts are measured on, and a trainer."""

    def __init__(self, sources: tuple[str, str | None], artifacts: Path, seed: int) -> None:
        import torch

        from raysweep.evaluation.evaluation_set import EvaluationSet
        from raysweep.prepare.build import prepare_here
        from raysweep.training.workbench import Workbench

        self.seed = seed
        self.sweep, space = _front_sweep(sources, artifacts, seed)
        threads = torch.get_num_threads()
        self.prepared = prepare_here(self.sweep, space)
        torch.set_num_threads(threads)  # preparing takes all cores
        # Rungs are scored on dev with little: what counts is measured here, at the end.
        self.bench = Workbench(self.prepared, _cheap(self.sweep.evaluation))
        self.dev = self.bench.labeled_dev
        self.test = EvaluationSet.of(self.prepared, self.bench.shown_split, self.sweep.evaluation)
        self.limit = _Limit.of(self.test)

    def rows(
        self, option: Mapping[str, Any], schedule: Schedule
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """Train once, and measure the last weights and averages of them, by name."""
        from raysweep.config.trial import trial_config
        from raysweep.training.optimization import WeightAverage
        from raysweep.training.trainer import Training

        changed = dict(option)
        num_rungs = changed.pop("rungs", schedule.epochs)
        num_train = len(self.prepared.sentences.ids("train"))
        num_train = min(num_train, schedule.most_sentences or num_train)
        values = {
            "loss": "softmax",
            "learning_rate": 1e-4,
            "batch_size": BATCH_SIZE,
            "examples_per_rung": num_train,
        }
        config = trial_config({**values, **changed})
        training = Training(config, self.bench, self.seed, num_rungs)
        averages = {
            f"average {decay:g}": WeightAverage(training.parameters, decay) for decay in DECAYS
        }
        of_rungs = WeightAverage(training.parameters, DECAY_OVER_RUNGS)
        started = time.perf_counter()
        while training.progress.rung < num_rungs:
            while not training.rung_is_full:
                training.step()
                for average in averages.values():
                    average.update()
            training.evaluate()
            if training.progress.rung > num_rungs - NUM_RUNGS_IN_MEAN:
                of_rungs.update()
        seconds = time.perf_counter() - started
        yield LAST, {**self._measured(training), "train_seconds": seconds}
        for name, average in {**averages, MEAN_OF_RUNGS: of_rungs}.items():
            average.swap()
            yield name, {**self._measured(training), "train_seconds": seconds}
            average.swap()

    def _measured(self, training: "Training") -> dict[str, float]:
        """Return the front of the model's current weights."""
        from raysweep.evaluation import operating_points
        from raysweep.evaluation.calibration import calibrated, calibration_of
        from raysweep.evaluation.operating_points import Encoded
        from raysweep.metrics.pareto import hypervolume

        head = training.head()
        assert head is not None
        of_dev = self._embed(self.dev.queries)
        head = calibrated(head, of_dev, self.dev.query_labels)
        encoded = Encoded(self._embed(self.test.queries), self._embed(self.test.pool)).under(head)
        keys = [("class_concat", value) for value in self.sweep.evaluation.points.class_concat]
        scores = operating_points.score_encoded(encoded, self.test, keys)
        points = [
            (scored.mean("polarity"), scored.mean("similarity")) for scored in scores.values()
        ]
        calibration = calibration_of(head, encoded.queries, self.test.query_labels, self.test.split)
        assert encoded.query_classes is not None
        right = encoded.query_classes.argmax(axis=1) == self.test.query_labels
        figures = asdict(calibration)
        names = ("temperature", "cross_entropy_before", "cross_entropy", "error_before", "error")
        return {
            "share": hypervolume(points, self.limit.begin) / self.limit.area,
            "accuracy": float(right.mean()),
            **{name: figures[name] for name in names},
        }

    def _embed(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        from raysweep.encoders import precision
        from raysweep.encoders.encoder import embed

        arithmetic = precision.resolve("auto", self.bench.device)
        return embed(self.bench.model, self.bench.tokens.document, ids, arithmetic=arithmetic)


@dataclass(frozen=True)
class _Limit:
    """The reference point of hypervolumes, and the hypervolume of the oracle's hull."""

    begin: tuple[float, float]
    area: float

    @classmethod
    def of(cls, evaluation: "EvaluationSet") -> "_Limit":
        from raysweep.metrics.hull import hull_area
        from raysweep.metrics.oracle import oracle_scores

        scores = evaluation.reference_scores
        begin = scores.mean("polarity"), scores.mean("similarity") / 2
        cosines = evaluation.reference_queries @ evaluation.reference_pool.T
        same_label = evaluation.query_labels[:, None] == evaluation.pool_labels
        oracle_front = oracle_scores(cosines, same_label, evaluation.weights).mean(axis=1)
        return cls(begin, hull_area(oracle_front, begin))


def _front_sweep(
    sources: tuple[str, str | None], artifacts: Path, seed: int
) -> tuple["SweepConfig", Any]:
    from raysweep.config import space_parser
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document

    document = Document.read(measure.ROOT / "search_spaces" / "front.yaml")
    train, test = sources
    document.override("data.train", train)
    if test:
        document.override("data.test", test)
    document.override("seed", str(seed))
    document.override("storage.runs", str(artifacts.parent))
    document.override("storage.artifacts", str(artifacts))
    config = configuration.parse(document)
    return config, space_parser.parse(document, config)


def _cheap(evaluation: "EvaluationConfig") -> "EvaluationConfig":
    points = evaluation.points.model_copy(update={"class_concat": [], "calibrate": False})
    return evaluation.model_copy(update={"points": points, "num_pool": 2 * evaluation.k})


def _append(file: Path, row: Row) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(row)) + "\n")


def _read(file: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _line(row: Row) -> str:
    return (
        f"{row.task}, seed {row.seed}, {row.option}, {row.weights}: share {row.share:.4f}, accuracy "
        f"{100 * row.accuracy:.2f}, cross-entropy {row.cross_entropy_before:.3f} -> {row.cross_entropy:.3f}, error "
        f"{row.error_before:.3f} -> {row.error:.3f}, T {row.temperature:.2f}, {row.train_seconds:.0f} s"
    )


def _by_name(rows: Sequence[Row], task: str) -> dict[tuple[str, str], dict[int, Row]]:
    """Group the rows of a task by option and weights, then by seed."""
    by_option: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if row.task == task:
            by_option.setdefault((row.option, row.weights), {})[row.seed] = row
    return by_option


def _differences(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the mean difference in share from the baseline and its 90% interval, by task, option and weights."""
    return [
        {
            "task": task,
            "option": name[0],
            "weights": name[1],
            **_paired(by_seed, by_option[BASELINE]),
        }
        for task in dict.fromkeys(row.task for row in rows)
        for by_option in [_by_name(rows, task)]
        if BASELINE in by_option
        for name, by_seed in by_option.items()
    ]


def _paired(rows: Mapping[int, Row], baseline: Mapping[int, Row]) -> dict[str, Any]:
    from scipy import stats

    seeds = sorted(rows.keys() & baseline.keys())
    differences = np.array([rows[seed].share - baseline[seed].share for seed in seeds])
    if not seeds:
        return {"seeds": 0, "difference": None, "low": None, "high": None}
    mean = float(differences.mean())
    if len(seeds) < 2:
        return {"seeds": 1, "difference": mean, "low": None, "high": None}
    half = float(stats.t.ppf(0.95, len(seeds) - 1) * differences.std(ddof=1) / len(seeds) ** 0.5)
    return {"seeds": len(seeds), "difference": mean, "low": mean - half, "high": mean + half}


def _kept(rows: Sequence[Row]) -> list[str]:
    """Return the options that raise the share on every task, at least two: the interval is above 0 on each."""
    differences = _differences(rows)
    tasks = {difference["task"] for difference in differences}
    helps_on: dict[tuple[str, str], set[str]] = {}
    for difference in differences:
        if difference["low"] is not None and difference["low"] > 0:
            helps_on.setdefault((difference["option"], difference["weights"]), set()).add(
                difference["task"]
            )
    return [
        ", ".join(name) for name, helped in helps_on.items() if len(tasks) > 1 and helped == tasks
    ]


def _summary(rows: Sequence[Row]) -> str:
    """Return a table for each task, and the options to keep."""
    differences = {
        (difference["task"], difference["option"], difference["weights"]): difference
        for difference in _differences(rows)
    }
    tables = []
    for task in dict.fromkeys(row.task for row in rows):
        cells = [
            _cells(name, by_seed, differences.get((task, *name)))
            for name, by_seed in _by_name(rows, task).items()
        ]
        tables.append(f"{task}\n{measure.table(HEADER, cells)}")
    kept = "; ".join(_kept(rows)) or "nothing"
    return "\n\n".join([*tables, f"helps on every task: {kept}"])


def _cells(
    name: tuple[str, str], by_seed: Mapping[int, Row], paired: Mapping[str, Any] | None
) -> list[str]:
    rows = list(by_seed.values())

    def mean(field: str) -> float:
        return float(np.mean([getattr(row, field) for row in rows]))

    difference, interval = "", ""
    if paired and paired["difference"] is not None:
        difference = f"{paired['difference']:+.4f}"
    if paired and paired["low"] is not None:
        interval = f"[{paired['low']:+.4f}, {paired['high']:+.4f}]"
    calibration = [
        f"{mean(field):.3f}"
        for field in ("cross_entropy_before", "cross_entropy", "error_before", "error")
    ]
    return [
        ", ".join(name),
        f"{mean('share'):.4f}",
        difference,
        interval,
        f"{100 * mean('accuracy'):.2f}",
        *calibration,
        str(len(rows)),
    ]


if __name__ == "__main__":
    main()
