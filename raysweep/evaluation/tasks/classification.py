"""Logistic regression on frozen embeddings, scored on a test split or by cross-validation.

The regression is scikit-learn's, with an L2 penalty. Embeddings are centered on the mean of the training rows and divided
by the standard deviation of all their components, so that the inverse regularization strength C is comparable across
encoders.

C is selected from ``STRENGTHS`` by accuracy on a dev split or, without one, by cross-validation on the training rows, as
in SentEval (Conneau and Kiela 2018; ``senteval/tools/validation.py``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from raysweep.evaluation.tasks.scores import Flags, Score, accuracy
from raysweep.metrics.arrays import Float32Array

STRENGTHS = tuple(4.0**power for power in range(-6, 1))
"""Candidate values of C, in ascending order."""

NUM_INNER_FOLDS = 5
MAX_STEPS = 1000  # maximum number of solver iterations; dozens are usually enough


Labels = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Rows:
    """Embeddings (rows, width) and class numbers (rows,)."""

    embeddings: Float32Array
    labels: Labels

    def take(self, rows: npt.NDArray[np.integer]) -> "Rows":
        return Rows(self.embeddings[rows], self.labels[rows])


@dataclass(frozen=True)
class Predicted:
    """Results for the tested rows.

    ``is_right`` (rows,) is True for correctly classified rows, ``folds`` (rows,) contains each row's fold number, and
    ``strengths`` contains the selected value of C for each fold.
    """

    is_right: Flags
    folds: npt.NDArray[np.intp]
    strengths: tuple[float, ...]

    @property
    def fold_std(self) -> float | None:
        """Return the standard deviation of accuracy over folds, or None for a single fold."""
        if len(self.strengths) == 1:
            return None
        shares = [self.is_right[self.folds == fold].mean() for fold in range(len(self.strengths))]
        return float(np.std(shares))

    def score(self, rows: Flags | None = None) -> Score:
        """Return the accuracy over all tested rows, or over those in the mask ``rows``."""
        return accuracy(self.is_right if rows is None else self.is_right[rows])


@dataclass(frozen=True)
class Classifier:
    """Logistic regression, tested on a split or by cross-validation. ``on_fit`` is called after each fit."""

    num_folds: int
    seed: int
    on_fit: Callable[[], None] = lambda: None

    def num_fits(self, *, is_split: bool, has_dev: bool) -> int:
        """Return the number of regressions to fit for a task."""
        num_tried = len(STRENGTHS) * (1 if has_dev else NUM_INNER_FOLDS)
        return (num_tried + 1) * (1 if is_split else self.num_folds)

    def cross_validate(self, rows: Rows) -> Predicted:
        """Test every row once with a regression fitted on the other folds. Folds are stratified by class."""
        num_rows = len(rows.labels)
        is_right = np.zeros(num_rows, bool)
        folds = np.zeros(num_rows, np.intp)
        strengths: list[float] = []
        splits = self._split(rows, self.num_folds)
        for number, (fitted, tested) in enumerate(splits):
            train = rows.take(fitted)
            test = rows.take(tested)
            predicted = self.test(train, None, test)
            is_right[tested] = predicted.is_right
            folds[tested] = number
            strengths += predicted.strengths
        return Predicted(is_right, folds, tuple(strengths))

    def test(self, train: Rows, dev: Rows | None, test: Rows) -> Predicted:
        """Fit a regression on ``train`` with the C that is most accurate on ``dev``, and test it on ``test``.

        Without ``dev``, C is selected by cross-validation on ``train``. Ties go to the smallest C.
        """
        if dev is None:
            shares_of_folds = []
            for fitted, tested in self._split(train, NUM_INNER_FOLDS):
                answers = self._answers(train.take(fitted), train.take(tested), STRENGTHS)
                shares_of_folds.append([is_right.mean() for is_right in answers])
            shares = np.mean(shares_of_folds, axis=0).tolist()
        else:
            shares = [is_right.mean() for is_right in self._answers(train, dev, STRENGTHS)]
        strength = STRENGTHS[int(np.argmax(shares))]
        (is_right,) = self._answers(train, test, [strength])
        return Predicted(is_right, np.zeros(len(is_right), np.intp), (strength,))

    def _split(
        self, rows: Rows, num_folds: int
    ) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
        folds = StratifiedKFold(num_folds, shuffle=True, random_state=self.seed)
        split: Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = folds.split(
            rows.embeddings, rows.labels
        )
        return split

    def _answers(self, train: Rows, test: Rows, strengths: Sequence[float]) -> Iterator[Flags]:
        """Yield a mask of the correctly classified rows of ``test`` for each value of C."""
        mean = train.embeddings.mean(axis=0)
        centered = train.embeddings - mean
        scale = float(centered.std()) or 1.0
        scaled_train = centered / scale
        scaled_test = (test.embeddings - mean) / scale
        for strength in strengths:
            regression = LogisticRegression(C=strength, max_iter=MAX_STEPS)
            regression.fit(scaled_train, train.labels)
            predicted = regression.predict(scaled_test)
            yield predicted == test.labels
            self.on_fit()
