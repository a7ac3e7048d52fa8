"""Which negatives `multiple_negatives` should train against, by scores on test, seed by seed.

One trial of a fixed configuration is trained for each task, seed and option. All options of a task and seed share the
split, the mined pairs and the order of examples. The tuned encoder alone is scored (the plain point): P, S and their
mean, which is the default objective. Differences from `all` are paired by task and seed; intervals are Student's t,
95%. The rule was fixed before any run: `other_class` is the default if the interval of its gain in (P + S) / 2 over all
pairs is above 0 and its mean gain is positive on every task.
"""

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import measure
from benchmarks.front_options import TASKS

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "all": {"negatives": "all"},
    "other_class": {"negatives": "other_class"},
    "other_class, no duplicates": {"negatives": "other_class", "no_duplicates": True},
    "all, no duplicates": {"negatives": "all", "no_duplicates": True},
}
BASELINE = "all"

CONFIG = {"loss": "multiple_negatives", "scale": 20.0, "learning_rate": 1e-4, "batch_size": 64}
NUM_EXAMPLES = 4096
QUICK_EXAMPLES = 256

JUDGED_ON = ("trec", "subj", "sst2")
MAX_TRAIN = 20_000  # rows, drawn by the seed; only SST-2 has more
EXAMPLES_MINED = 50_000


@dataclass(frozen=True)
class Row:
    """The scores of one trial on test, x100, next to those of the untrained encoder."""

    task: str
    seed: int
    option: str
    polarity: float
    similarity: float
    reference_polarity: float
    reference_similarity: float

    @property
    def objective(self) -> float:
        return (self.polarity + self.similarity) / 2


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        rows = []
        for row in _measure(arguments, arguments.artifacts or temporary):
            rows.append(row)
            print(
                f"{row.task}, seed {row.seed}, {row.option}: P {row.polarity:.2f}, S {row.similarity:.2f}",
                flush=True,
            )
    gains = _gains(rows)
    print(f"\n{_summary(rows, gains)}")
    figures = {"rows": [asdict(row) for row in rows], "gains": gains}
    measure.finish("negatives", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.negatives", __doc__)
    measure.artifacts_option(parser)
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=TASKS,
        help=f"default: {' '.join(JUDGED_ON)}; with --quick demo",
    )
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0 1 2; with --quick 0")
    parser.add_argument("--options", nargs="+", choices=OPTIONS, help="default: all of them")
    arguments = parser.parse_args()
    arguments.tasks = arguments.tasks or (["demo"] if arguments.quick else list(JUDGED_ON))
    arguments.seeds = arguments.seeds or ([0] if arguments.quick else [0, 1, 2])
    arguments.options = arguments.options or list(OPTIONS)
    return arguments


def _measure(arguments: argparse.Namespace, folder: Path) -> Iterator[Row]:
    data = arguments.data or Path(
        os.environ.get("RAYSWEEP_DATA_DIR", measure.ROOT.parent / "shared" / "data")
    )
    num_examples = QUICK_EXAMPLES if arguments.quick else NUM_EXAMPLES
    for task in arguments.tasks:
        for seed in arguments.seeds:
            sources = TASKS[task].sources(data, folder / f"{task}-{seed}", seed, MAX_TRAIN)
            for option, scores in _train(sources, folder, seed, num_examples, arguments.options):
                yield Row(task, seed, option, **scores)


def _train(
    sources: tuple[str, str | None], folder: Path, seed: int, num_examples: int, options: list[str]
) -> Iterator[tuple[str, dict[str, float]]]:
    import torch

    import raysweep
    from raysweep.config.trial import trial_config
    from raysweep.evaluation import operating_points
    from raysweep.evaluation.evaluation_set import EvaluationSet
    from raysweep.prepare.build import prepare_here
    from raysweep.training.trainer import Training
    from raysweep.training.workbench import Workbench

    train, test = sources
    overrides = {
        "data.train": train,
        "seed": seed,
        "space": {"loss": "multiple_negatives", "learning_rate": 1e-4},
        "examples.target": EXAMPLES_MINED,
        "storage.runs": str(folder),
        "storage.artifacts": str(folder / "artifacts"),
        **({"data.test": test} if test else {}),
    }
    sweep = raysweep.load_sweep("polarity", overrides)
    threads = torch.get_num_threads()
    prepared = prepare_here(sweep.config, sweep.space)
    torch.set_num_threads(threads)  # preparing takes all cores
    bench = Workbench(prepared, sweep.config.evaluation)
    evaluation = EvaluationSet.of(prepared, bench.shown_split, sweep.config.evaluation)
    reference = evaluation.reference_scores
    for option in options:
        config = trial_config({**CONFIG, **OPTIONS[option], "examples_per_rung": num_examples})
        training = Training(config, bench, seed, num_rungs=1)
        while not training.rung_is_full:
            training.step()
        key = ("plain", None)
        encoded = operating_points.encode(bench.tuned(), evaluation)
        scores = operating_points.measure(bench.tuned(), evaluation, [key], encoded)[key]
        yield (
            option,
            {
                "polarity": 100 * scores.mean("polarity"),
                "similarity": 100 * scores.mean("similarity"),
                "reference_polarity": 100 * reference.mean("polarity"),
                "reference_similarity": 100 * reference.mean("similarity"),
            },
        )


def _gains(rows: list[Row]) -> list[dict[str, Any]]:
    """Return each option's mean gain over the baseline in P, S and the objective, by task and over all pairs."""
    by_key = {(row.task, row.seed, row.option): row for row in rows}
    tasks = list(dict.fromkeys(row.task for row in rows))
    gains = []
    for option in dict.fromkeys(row.option for row in rows if row.option != BASELINE):
        for group in [*([task] for task in tasks), *([tasks] if len(tasks) > 1 else [])]:
            pairs = [
                (by_key[task, seed, option], by_key[task, seed, BASELINE])
                for task, seed, name in by_key
                if name == option and task in group and (task, seed, BASELINE) in by_key
            ]
            for name in ("polarity", "similarity", "objective") if pairs else ():
                differences = np.array(
                    [getattr(tuned, name) - getattr(base, name) for tuned, base in pairs]
                )
                gains.append(
                    {
                        "option": option,
                        "tasks": " ".join(group),
                        "score": name,
                        **_interval(differences),
                    }
                )
    return gains


def _interval(differences: Any) -> dict[str, Any]:
    mean = float(differences.mean())
    if len(differences) < 2:
        return {"pairs": len(differences), "gain": mean, "low": None, "high": None}
    half = float(stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences))
    return {"pairs": len(differences), "gain": mean, "low": mean - half, "high": mean + half}


def _summary(rows: list[Row], gains: list[dict[str, Any]]) -> str:
    scores = []
    for row in rows:
        figures = (row.polarity, row.similarity, row.reference_polarity, row.reference_similarity)
        scores.append(
            [f"{row.task}, seed {row.seed}", row.option, *(f"{figure:.2f}" for figure in figures)]
        )
    differences = []
    for gain in gains:
        interval = "" if gain["low"] is None else f"[{gain['low']:+.2f}, {gain['high']:+.2f}]"
        differences.append(
            [
                gain["option"],
                gain["tasks"],
                gain["score"],
                f"{gain['gain']:+.2f}",
                interval,
                gain["pairs"],
            ]
        )
    return "\n\n".join(
        [
            measure.table(("task", "option", "P", "S", "P of R", "S of R"), scores),
            measure.table(
                ("option", "tasks", "score", "gain over all", "95%", "pairs"), differences
            ),
        ]
    )


if __name__ == "__main__":
    main()
