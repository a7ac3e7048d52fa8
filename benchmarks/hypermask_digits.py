"""HyperMask on handwritten digits, next to training in sequence, EWC and one network per task.

    python -m benchmarks.hypermask_digits --figure digits.png
    python -m benchmarks.hypermask_digits --mnist FOLDER

The data is scikit-learn's bundled digits (8 x 8 pixels): ten tasks that permute the pixels, and five tasks of two classes.
Each seed draws its own split (a quarter of the rows is the test split), permutations, initial weights and batches. With
--mnist, the data is MNIST (train-images-idx3-ubyte and so on, or .gz, in FOLDER) with the published settings (Książek and
Spurek 2023, arXiv:2310.00113); permuted images are padded to 32 x 32. Unlike the published code, all training rows are
used, and images of the split tasks are not augmented.

All methods train the same target network with the same batches and iterations. Sequential training and EWC know the task
like the others; they are also trained with a head per task.
"""

import argparse
import gzip
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks import measure
from benchmarks.continual import Accuracies, Ewc, Separate, Sequential, follow, interval
from raysweep.training.hypermask.model import HyperMask, MaskSettings
from raysweep.training.hypermask.sequence import (
    HyperMaskLearner,
    Learner,
    TaskData,
    TrainingSettings,
    seeded,
)
from raysweep.training.hypermask.targets import Classifier, Heads

NUM_CLASSES = 10
TEST_SHARE = 0.25
MNIST_PADDING = 2  # pixels on each side of a permuted image
QUICK_SEEDS = 1
QUICK_ITERATIONS = 20


@dataclass(frozen=True)
class Images:
    """Pixels (rows, height, width) in [0, 1] and digits (rows,)."""

    pixels: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def padded(self, padding: int) -> "Images":
        """Return images with a margin of zeros."""
        widths = ((0, 0), (padding, padding), (padding, padding))
        return Images(np.pad(self.pixels, widths), self.labels)

    def permuted(self, order: npt.NDArray[np.int64]) -> TaskData:
        """Return the images with their pixels in another order."""
        pixels = self.pixels.reshape(len(self.pixels), -1)[:, order]
        return TaskData(torch.from_numpy(pixels), torch.from_numpy(self.labels))

    def pair(self, number: int) -> TaskData:
        """Return the images of the digits 2 ``number`` and 2 ``number`` + 1, which are the classes 0 and 1."""
        is_included = self.labels // 2 == number
        pixels = self.pixels[is_included].reshape(int(is_included.sum()), -1)
        return TaskData(torch.from_numpy(pixels), torch.from_numpy(self.labels[is_included] % 2))


@dataclass(frozen=True)
class Problem:
    """A sequence of tasks and its settings.

    ``ewc_strength`` and the weights of HyperMask's penalties are chosen on seeds that are not reported.
    """

    name: str
    num_tasks: int
    hidden_layers: tuple[int, ...]
    masks: MaskSettings
    training: TrainingSettings
    ewc_strength: float
    padding: int = 0

    @property
    def is_permuted(self) -> bool:
        return self.name == "permuted"

    @property
    def num_classes(self) -> list[int]:
        return [NUM_CLASSES if self.is_permuted else 2] * self.num_tasks

    def tasks(self, images: Images, seed: int) -> Callable[[int], TaskData]:
        """Return a function from a task's number to its data."""
        if not self.is_permuted:
            return images.pair
        padded = images.padded(self.padding)
        draws = np.random.default_rng([seed, 1])
        orders = [draws.permutation(padded.pixels[0].size) for _ in range(self.num_tasks)]
        return lambda task: padded.permuted(orders[task])


_DIGITS_MASKS = MaskSettings(
    percent=0, beta=0.01, lambda_=0.01, embedding_size=24, hidden_layers=(25,)
)
_DIGITS_TRAINING = TrainingSettings(num_iterations=400, batch_size=64, learning_rate=2e-3)
DIGITS = (
    Problem("permuted", 10, (64, 64), _DIGITS_MASKS, _DIGITS_TRAINING, ewc_strength=10),
    Problem(
        "split",
        5,
        (32, 32),
        replace(_DIGITS_MASKS, percent=30, lambda_=0.005),
        replace(_DIGITS_TRAINING, num_iterations=100, learning_rate=3e-3),
        ewc_strength=100,
    ),
)
_MNIST_MASKS = MaskSettings(
    percent=0, beta=5e-4, lambda_=1e-3, embedding_size=24, hidden_layers=(100, 100)
)
_MNIST_TRAINING = TrainingSettings(num_iterations=5000, batch_size=128, learning_rate=1e-3)
MNIST = (
    Problem(
        "permuted",
        10,
        (1000, 1000),
        _MNIST_MASKS,
        _MNIST_TRAINING,
        ewc_strength=100,
        padding=MNIST_PADDING,
    ),
    Problem(
        "split",
        5,
        (400, 400),
        replace(_MNIST_MASKS, percent=30, beta=1e-3, embedding_size=128, hidden_layers=(25, 25)),
        replace(_MNIST_TRAINING, num_iterations=2000),
        ewc_strength=100,
    ),
)


def split_digits(seed: int) -> tuple[Images, Images]:
    """Return the train and test split of scikit-learn's digits."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    pixels, labels = (data.images / 16).astype(np.float32), data.target.astype(np.int64)
    parts = train_test_split(
        pixels, labels, test_size=TEST_SHARE, stratify=labels, random_state=seed
    )
    train_pixels, test_pixels, train_labels, test_labels = parts
    return Images(train_pixels, train_labels), Images(test_pixels, test_labels)


def read_mnist(folder: Path) -> tuple[Images, Images]:
    """Return the train and test split of MNIST's IDX files."""
    parts = []
    for prefix in ("train", "t10k"):
        pixels = read_idx(folder / f"{prefix}-images-idx3-ubyte")
        labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte")
        parts.append(Images((pixels / 255).astype(np.float32), labels.astype(np.int64)))
    train, test = parts
    return train, test


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the array of unsigned bytes in an IDX file, which may end in .gz.

    The format is two zero bytes, the type (8), the number of dimensions, each dimension as a big-endian 32-bit integer,
    and the bytes (http://yann.lecun.com/exdb/mnist).
    """
    packed = path.with_name(f"{path.name}.gz")
    if not path.is_file() and not packed.is_file():
        raise SystemExit(
            f"{path}: no such file; allowed: MNIST's four IDX files, as they are or with .gz"
        )
    content = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
    num_dimensions = content[3] if content[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * num_dimensions
    shape = np.frombuffer(content[4:start], dtype=">u4")
    if num_dimensions == 0 or len(content) - start != shape.prod(dtype=np.int64):
        raise SystemExit(f"{path}: it is not an IDX file of bytes; allowed: MNIST's files")
    return np.frombuffer(content[start:], dtype=np.uint8).reshape(shape)


def make_learners(problem: Problem, num_inputs: int, seed: int) -> Iterator[tuple[str, Learner]]:
    """Yield each method's name and its untrained learner."""

    def target(heads: Heads = "shared", number: int = 0) -> Classifier:
        with seeded(1000 * seed + number):
            return Classifier(num_inputs, problem.hidden_layers, problem.num_classes, heads)

    first = target()
    with seeded(seed):
        model = HyperMask(first, problem.num_tasks, problem.masks)
    yield "HyperMask", HyperMaskLearner(model)
    yield "sequential", Sequential(target())
    yield "sequential, head per task", Sequential(target("per_task"))
    yield "EWC", Ewc(target(), problem.ewc_strength)
    yield "EWC, head per task", Ewc(target("per_task"), problem.ewc_strength)
    yield (
        "network per task",
        Separate([target(number=number) for number in range(problem.num_tasks)]),
    )


@dataclass
class Outcome:
    """Accuracies of a method for each seed, and the CPU time of all of them in seconds."""

    by_seed: list[Accuracies]
    cpu_seconds: float = 0.0

    def values(self, name: str) -> list[float]:
        """Return one number for each seed; the mean over tasks if there is one for each task."""
        return [float(np.mean(getattr(accuracies, name))) for accuracies in self.by_seed]


def compare(
    problem: Problem, splits: Callable[[int], tuple[Images, Images]], seeds: Sequence[int]
) -> dict[str, Outcome]:
    """Return the outcome of each method by name."""
    outcomes: dict[str, Outcome] = defaultdict(lambda: Outcome([]))
    for seed in seeds:
        train, test = (problem.tasks(images, seed) for images in splits(seed))
        settings = replace(problem.training, seed=seed)
        for name, learner in make_learners(problem, test(0).inputs.shape[1], seed):
            start = time.process_time()
            sequence = (train(task) for task in range(problem.num_tasks))
            accuracies = follow(learner, sequence, test, settings, problem.is_permuted)
            outcomes[name].by_seed.append(accuracies)
            outcomes[name].cpu_seconds += time.process_time() - start
    return dict(outcomes)


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Return one row per method; accuracies in percent with 95% intervals over seeds."""
    reference = outcomes["HyperMask"].values("at_end")
    header = (
        "method",
        "right after",
        "at the end",
        "forgetting",
        "HyperMask minus it",
        "tasks inferred",
        "without identity",
        "CPU s",
    )
    rows = []
    for name, outcome in outcomes.items():
        differences = np.subtract(reference, outcome.values("at_end"))
        row: list[object] = [name]
        row += [interval(outcome.values(key)) for key in ("right_after", "at_end", "forgetting")]
        row.append("" if name == "HyperMask" else interval(differences.tolist()))
        row += [interval(outcome.values(key)) for key in ("share_inferred", "without_identity")]
        row.append(f"{outcome.cpu_seconds:.0f}")
        rows.append(row)
    return measure.table(header, rows)


def task_table(outcome: Outcome) -> str:
    """Return one row per task with a method's accuracies right after it and at the end."""
    accuracies = zip(by_task(outcome, "right_after"), by_task(outcome, "at_end"), strict=True)
    rows = [(number, *map(interval, of_task)) for number, of_task in enumerate(accuracies, 1)]
    return measure.table(("task", "right after", "at the end"), rows)


def by_task(outcome: Outcome, key: str) -> list[tuple[float, ...]]:
    """Return the accuracies of each seed for each task."""
    return list(zip(*(getattr(accuracies, key) for accuracies in outcome.by_seed), strict=True))


def draw(outcomes: Mapping[str, Mapping[str, Outcome]], path: Path) -> None:
    """Write a figure with a panel per problem: accuracy of each task right after it and at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(outcomes), 3.6), layout="constrained")
    (panels,) = figure.subplots(1, len(outcomes), squeeze=False)
    for panel, (problem, methods) in zip(panels, outcomes.items(), strict=True):
        for number, (name, outcome) in enumerate(methods.items()):
            color = f"C{number}"
            _draw_line(
                panel, outcome, "at_end", f"{name}, at the end", {"color": color, "marker": "o"}
            )
            if name == "HyperMask":
                style = {
                    "color": color,
                    "marker": "s",
                    "linestyle": "--",
                    "markerfacecolor": "white",
                }
                _draw_line(panel, outcome, "right_after", f"{name}, right after", style)
        panel.set(title=f"{problem} digits", xlabel="task", ylabel="test accuracy, %")
        panel.set_xticks(range(1, len(by_task(outcome, "at_end")) + 1))
    figure.legend(
        *panel.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small"
    )
    figure.savefig(path, dpi=120)


def _draw_line(
    panel: Any, outcome: Outcome, key: str, label: str, style: Mapping[str, Any]
) -> None:
    means, half_widths = zip(*map(interval, by_task(outcome, key)), strict=True)
    numbers = range(1, len(means) + 1)
    panel.errorbar(
        numbers, means, yerr=half_widths, label=label, capsize=2, markersize=4, linewidth=1, **style
    )


def main() -> None:
    arguments = _arguments()
    problems = [
        problem
        for problem in (MNIST if arguments.mnist else DIGITS)
        if problem.name in arguments.problems
    ]
    seeds = range(QUICK_SEEDS if arguments.quick else arguments.seeds)
    iterations = QUICK_ITERATIONS if arguments.quick else arguments.iterations
    with measure.workplace():
        machine = measure.machine()
        mnist = read_mnist(arguments.mnist) if arguments.mnist else None
        results: dict[str, dict[str, Outcome]] = {}
        start = time.monotonic()
        for problem in problems:
            if iterations:
                problem = replace(
                    problem, training=replace(problem.training, num_iterations=iterations)
                )
            results[problem.name] = compare(
                problem, lambda seed: mnist or split_digits(seed), seeds
            )
            print(f"\n{problem.name}, {len(seeds)} seeds\n{table(results[problem.name])}")
            print(
                f"\nHyperMask, by task\n{task_table(results[problem.name]['HyperMask'])}",
                flush=True,
            )
        seconds = time.monotonic() - start
        print(f"\n{seconds:.0f} s in total, {time.process_time():.0f} s of CPU time")
        if arguments.figure:
            draw(results, arguments.figure)
    figures = {
        name: {key: asdict(outcome) for key, outcome in methods.items()}
        for name, methods in results.items()
    }
    measure.finish(
        "hypermask_digits", {"problems": figures, "seconds": seconds}, machine, arguments.json
    )


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.hypermask_digits", __doc__)
    parser.add_argument(
        "--mnist", type=Path, metavar="FOLDER", help="folder with MNIST's IDX files"
    )
    parser.add_argument(
        "--problems", nargs="+", choices=["permuted", "split"], default=["permuted", "split"]
    )
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--iterations", type=int, help="of each task, instead of the setting's")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="image to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
