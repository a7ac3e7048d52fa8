"""Accuracy on frozen embeddings with SentEval's fitting procedure; ``raysweep transfer`` uses scikit-learn's.

SentEval (Conneau and Kiela 2018, ``senteval/tools``) minimizes the cross-entropy by Adam, with a learning rate of 1e-3,
here in batches of 128. Every three epochs it evaluates held-out rows. It stops at the sixth evaluation without
improvement, or after 200 epochs, and keeps the best epoch. The L2 penalty, 1e-5 to 1e-2, is chosen on three folds.
These settings are those of margins-contrastive. Sentences are in lower case, with tokens joined by spaces, and sorted
by number of tokens. Random numbers are drawn as in SentEval, seeded again for each regression, so that the same
embeddings in the same order get the same score.

With ``--tasks FOLDER``, a file NAME.csv is tested on three folds, and NAME_train.csv on NAME_test.csv; columns are text
and label. Each seed fits again; with a given split, it also determines the folds on which the penalty is chosen.
Without --tasks, the built-in demo sentences are classified.

The accuracy on the rows used to choose the penalty is printed too: TREC has 5,452 of these, but 500 test questions.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold

from benchmarks import measure, sst2
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate

PENALTIES = tuple(10.0**power for power in range(-5, -1))
NUM_FOLDS = 3
SEED = 1111  # SentEval's, of everything
BATCH_SIZE = 128
EPOCHS_A_LOOK = 3
MOST_EPOCHS = 200
PATIENCE = 5  # looks without improvement before the one that ends it
HELD_OUT = 0.05  # of the rows that the chosen penalty is fitted on
QUICK_ROWS = 1000

Labels = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Rows:
    """Embeddings, (rows, width), and the numbers of their classes, (rows,)."""

    embeddings: torch.Tensor
    labels: torch.Tensor

    def take(self, numbers: Numbers) -> "Rows":
        chosen = torch.from_numpy(numbers)
        return Rows(self.embeddings[chosen], self.labels[chosen])

    def split(self, seed: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Return the fitted and the tested rows of each fold."""
        folds = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=seed)
        yield from folds.split(self.embeddings, self.labels)


@dataclass(frozen=True)
class Answer:
    """Accuracies on the rows that chose the penalty and on the tested rows; penalties and epochs."""

    dev: float
    test: float
    penalties: tuple[float, ...]
    epochs: tuple[int, ...]


@dataclass
class Kept:
    """The best evaluation so far of one regression."""

    accuracy: float = -1.0
    weights: torch.Tensor | None = None
    epoch: int = 0
    misses: int = 0

    @property
    def is_over(self) -> bool:
        return self.misses > PATIENCE

    def look(self, weights: torch.Tensor, dev: Rows, epoch: int) -> None:
        accuracy = _accuracy(weights, dev)
        if accuracy > self.accuracy:
            self.accuracy, self.weights, self.epoch = accuracy, weights.clone(), epoch
        else:
            self.misses += 1


@dataclass(frozen=True)
class Classifier:
    """Fits regressions to rows of ``num_classes`` classes. ``penalize`` holds the strengths to try."""

    num_classes: int
    seed: int
    penalties: Sequence[float] = PENALTIES

    def cross_validate(self, rows: Rows) -> Answer:
        """Test each row once. The folds are SentEval's for every seed."""
        answers = []
        for fitted, tested in rows.split(SEED):
            answers.append(self._test(rows.take(fitted), rows.take(tested), SEED))
        return Answer(
            statistics.fmean(answer.dev for answer in answers),
            statistics.fmean(answer.test for answer in answers),
            tuple(penalty for answer in answers for penalty in answer.penalties),
            tuple(epoch for answer in answers for epoch in answer.epochs),
        )

    def test(self, train: Rows, test: Rows) -> Answer:
        """Test the rows of a given split."""
        return self._test(train, test, self.seed)

    def _test(self, train: Rows, test: Rows, fold_seed: int) -> Answer:
        by_fold = []
        for fitted, tested in train.split(fold_seed):
            folds_fitted = self.fit(
                train.take(fitted),
                train.take(tested),
                self.penalties,
                np.random.RandomState(self.seed),
            )
            by_fold.append([each.accuracy for each in folds_fitted])
        shares = np.mean(by_fold, axis=0).round(4)
        chosen = int(shares.argmax())
        draws = np.random.RandomState(self.seed)
        order = draws.permutation(len(train.labels))
        num_held_out = int(HELD_OUT * len(order))
        held_out, fitted = order[:num_held_out], order[num_held_out:]
        penalty = self.penalties[chosen]
        (last,) = self.fit(train.take(fitted), train.take(held_out), [penalty], draws)
        assert last.weights is not None
        share = _accuracy(last.weights, test)
        return Answer(float(shares[chosen]), share, (penalty,), (last.epoch,))

    def fit(
        self, train: Rows, dev: Rows, penalties: Sequence[float], draws: np.random.RandomState
    ) -> list[Kept]:
        """Fit a regression for each penalty and keep the epoch that is best on ``dev``."""
        weights = self._start(train.embeddings.shape[1] - 1, len(penalties))
        strengths = torch.tensor(penalties)[:, None, None]
        optimizer = torch.optim.Adam([weights], lr=1e-3, fused=True)
        kept = [Kept() for _ in penalties]
        for epoch in range(EPOCHS_A_LOOK, MOST_EPOCHS + EPOCHS_A_LOOK + 1, EPOCHS_A_LOOK):
            for _ in range(EPOCHS_A_LOOK):
                _epoch(weights, strengths, train, draws, optimizer)
            for number, each in enumerate(kept):
                if not each.is_over:
                    each.look(weights[number], dev, epoch)
            if all(each.is_over for each in kept):
                break
        return kept

    def _start(self, width: int, num_penalties: int) -> torch.Tensor:
        """Return weights and, in the last column, biases: (penalties, classes, width + 1)."""
        torch.manual_seed(self.seed)
        layer = torch.nn.Linear(width, self.num_classes)
        start = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach()
        return start.repeat(num_penalties, 1, 1)


def _epoch(
    weights: torch.Tensor,
    strengths: torch.Tensor,
    train: Rows,
    draws: np.random.RandomState,
    optimizer: torch.optim.Optimizer,
) -> None:
    order = torch.from_numpy(draws.permutation(len(train.labels)))
    for batch in order.split(BATCH_SIZE):
        embeddings, labels = train.embeddings[batch], train.labels[batch]
        errors = (embeddings @ weights.transpose(1, 2)).softmax(dim=-1)
        errors[:, torch.arange(len(batch)), labels] -= 1.0
        weights.grad = errors.transpose(1, 2) @ embeddings / len(batch) + strengths * weights
        optimizer.step()


def _accuracy(weights: torch.Tensor, rows: Rows) -> float:
    answers = (rows.embeddings @ weights.T).argmax(dim=1)
    return float((answers == rows.labels).double().mean())


@dataclass(frozen=True)
class Task:
    """Sentences and the names of their classes; the last ``num_test`` of them are a test split."""

    name: str
    texts: list[str]
    labels: list[str]
    num_test: int = 0

    def answer(self, embeddings: npt.NDArray[np.float32], seed: int) -> Answer:
        """Return the accuracies of a regression on these embeddings of the texts."""
        ones = np.ones((len(embeddings), 1), np.float32)
        names, labels = np.unique(self.labels, return_inverse=True)
        rows = Rows(
            torch.from_numpy(np.hstack([embeddings, ones])),
            torch.from_numpy(labels.astype(np.int64)),
        )
        classifier = Classifier(len(names), seed)
        if not self.num_test:
            return classifier.cross_validate(rows)
        numbers = np.arange(len(self.texts))
        return classifier.test(
            rows.take(numbers[: -self.num_test]), rows.take(numbers[-self.num_test :])
        )


def tasks_of(folder: Path, names: Sequence[str], most_rows: int | None) -> list[Task]:
    """Return the tasks of a folder, with at most ``most_rows`` random rows of each split."""
    tasks = []
    for name in names:
        if (folder / f"{name}.csv").is_file():
            rows = _rows(folder / f"{name}.csv", most_rows)
            tasks.append(_task(name, rows, []))
        else:
            parts = [_rows(folder / f"{name}_{part}.csv", most_rows) for part in ("train", "test")]
            tasks.append(_task(name, *parts))
    return tasks


def _task(name: str, train: list[tuple[str, str]], test: list[tuple[str, str]]) -> Task:
    rows = _in_order(train) + _in_order(test)
    texts, labels = map(list, zip(*rows, strict=True))
    return Task(name, texts, labels, len(test))


def _rows(path: Path, most: int | None) -> list[tuple[str, str]]:
    if not path.is_file():
        raise SystemExit(f"{path}: no such file")
    return _some(sst2.rows(str(path), "train"), most)


def _some(rows: list[tuple[str, str]], most: int | None) -> list[tuple[str, str]]:
    order = np.random.default_rng(0).permutation(len(rows))
    return rows if most is None else [rows[number] for number in order[:most]]


def _in_order(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Spell and sort sentences like SentEval."""
    split = [(text.lower().split(), label) for text, label in rows]
    split.sort(key=lambda row: (len(row[0]), row[1]))
    return [(" ".join(tokens), label) for tokens, label in split]


def main() -> None:
    arguments = _arguments()
    most_rows = QUICK_ROWS if arguments.quick else None
    with measure.workplace():
        machine = measure.machine()
        if arguments.tasks is None:
            tasks = [_task("demo", _some(sst2.rows("demo", "train"), most_rows), [])]
        else:
            tasks = tasks_of(arguments.tasks, arguments.names, most_rows)
        figures: dict[str, Any] = {}
        for name in arguments.models:
            embed = _embedder(name)
            figures[name] = {
                task.name: _figures(task, embed(task.texts), arguments.seeds) for task in tasks
            }
            _show(name, figures[name])
    measure.finish(
        "senteval_fit", {"models": figures, "seeds": arguments.seeds}, machine, arguments.json
    )


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.senteval_fit", __doc__)
    parser.add_argument(
        "models",
        nargs="*",
        default=["demo"],
        help="folders or names of sentence-transformers models; demo",
    )
    parser.add_argument(
        "--tasks", type=Path, metavar="FOLDER", help="folder with the files of the tasks"
    )
    parser.add_argument(
        "--names", nargs="+", default=["mr", "subj", "trec"], help="of the tasks; mr subj trec"
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[SEED, 1, 2], help=f"of the regressions; {SEED} 1 2"
    )
    return parser.parse_args()


def _embedder(name: str) -> Callable[[list[str]], npt.NDArray[np.float32]]:
    config = EncoderConfig(name=name)
    source = locate(config)
    model = encoder.load(config, device=encoder.best_device(), source=source)
    return lambda texts: encoder.embed_texts(model, texts, source.own_prompt(), unit=False)


def _figures(
    task: Task, embeddings: npt.NDArray[np.float32], seeds: Sequence[int]
) -> dict[str, Any]:
    """Return accuracies x100, one for each seed."""
    answers = [task.answer(embeddings, seed) for seed in seeds]
    return {
        "test": [round(100 * answer.test, 2) for answer in answers],
        "dev": [round(100 * answer.dev, 2) for answer in answers],
        "penalties": [answer.penalties for answer in answers],
        "epochs": [answer.epochs for answer in answers],
    }


def _show(name: str, figures: dict[str, Any]) -> None:
    cells = []
    for task, values in figures.items():
        listed = [", ".join(f"{share:.2f}" for share in values[part]) for part in ("test", "dev")]
        epochs = statistics.median(
            epoch for epochs_of_fold in values["epochs"] for epoch in epochs_of_fold
        )
        cells.append([task, f"{statistics.median(values['test']):.2f}", *listed, epochs])
    print(
        f"\n{measure.table((name, 'median', 'each seed', 'where the penalty is chosen', 'epochs'), cells)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
