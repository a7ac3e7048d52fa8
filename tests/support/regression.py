"""A logistic regression with a search over C, built from scikit-learn's own parts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline


class OneScale(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Subtracts each column's mean and divides all columns by their joint standard deviation."""

    def fit(self, rows: Any, labels: Any = None) -> "OneScale":
        self.mean_ = rows.mean(axis=0)
        self.scale_ = np.sqrt(((rows - self.mean_) ** 2).mean())
        return self

    def transform(self, rows: Any) -> Any:
        return (rows - self.mean_) / self.scale_


def searched(strengths: Sequence[float], folds: Any) -> GridSearchCV:
    """Return the search; ``best_params_["regression__C"]`` is its C."""
    steps = [("scale", OneScale()), ("regression", LogisticRegression(max_iter=1000))]
    return GridSearchCV(Pipeline(steps), {"regression__C": strengths}, cv=folds)


def stratified(num_folds: int, seed: int) -> StratifiedKFold:
    return StratifiedKFold(num_folds, shuffle=True, random_state=seed)
