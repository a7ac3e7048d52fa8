"""The regression, its folds and its choice of C equal scikit-learn's search and cross-validation."""

import numpy as np
import pytest
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from raysweep.evaluation.tasks.classification import STRENGTHS, Classifier, Rows
from support.regression import searched, stratified


def noisy(num_rows: int, num_classes: int, seed: int) -> Rows:
    """Return overlapping classes of different sizes, with an offset and uneven spread."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(
        num_classes, num_rows, p=np.arange(1, num_classes + 1) / np.arange(1, num_classes + 1).sum()
    )
    centers = rng.normal(size=(num_classes, 12))
    spread = np.linspace(0.2, 4, 12)
    embeddings = 5 + spread * (centers[labels] + 1.5 * rng.normal(size=(num_rows, 12)))
    return Rows(embeddings.astype(np.float32), labels)


@pytest.mark.parametrize(("num_classes", "num_folds", "seed"), [(2, 10, 0), (2, 3, 5), (4, 3, 1)])
def test_cross_validation_equals_scikit_learn(num_classes: int, num_folds: int, seed: int) -> None:
    rows = noisy(200, num_classes, seed)
    search = searched(STRENGTHS, stratified(5, seed))
    folds = stratified(num_folds, seed)
    expected = cross_val_predict(search, rows.embeddings, rows.labels, cv=folds)
    predicted = Classifier(num_folds, seed).cross_validate(rows)
    assert (predicted.is_right == (expected == rows.labels)).all()
    assert predicted.score().value == pytest.approx((expected == rows.labels).mean())
    shares = [
        (expected == rows.labels)[tested].mean()
        for _, tested in folds.split(rows.embeddings, rows.labels)
    ]
    assert predicted.fold_std == pytest.approx(np.std(shares))
    chosen = [
        search.fit(rows.embeddings[fitted], rows.labels[fitted]).best_params_["regression__C"]
        for fitted, _ in folds.split(rows.embeddings, rows.labels)
    ]
    assert predicted.strengths == tuple(chosen)
    assert len(set(chosen)) > 1 or num_classes > 2, "nothing is chosen here"


def test_split_equals_scikit_learn() -> None:
    train, test = noisy(180, 3, 2), noisy(90, 3, 3)
    search = searched(STRENGTHS, stratified(5, 7)).fit(train.embeddings, train.labels)
    predicted = Classifier(10, 7).test(train, None, test)
    assert (predicted.is_right == (search.predict(test.embeddings) == test.labels)).all()
    assert predicted.strengths == (search.best_params_["regression__C"],)
    assert predicted.fold_std is None


def test_dev_split_selects_c_and_is_not_fitted() -> None:
    train, dev, test = (noisy(120, 2, seed) for seed in (4, 5, 6))
    both = Rows(
        np.concatenate([train.embeddings, dev.embeddings]),
        np.concatenate([train.labels, dev.labels]),
    )
    one_fold = PredefinedSplit([-1] * len(train.labels) + [0] * len(dev.labels))
    search = searched(STRENGTHS, one_fold).set_params(refit=False).fit(both.embeddings, both.labels)
    regression = (
        searched(STRENGTHS, one_fold)
        .estimator.set_params(**search.best_params_)
        .fit(train.embeddings, train.labels)
    )
    predicted = Classifier(10, 0).test(train, dev, test)
    assert predicted.strengths == (search.best_params_["regression__C"],)
    assert (predicted.is_right == (regression.predict(test.embeddings) == test.labels)).all()


def test_scale_and_offset_of_embeddings_do_not_matter() -> None:
    rows = noisy(150, 2, 8)
    moved = Rows(rows.embeddings * 64 - 128, rows.labels)
    predicted, moved_predicted = (
        Classifier(3, 0).cross_validate(variant) for variant in (rows, moved)
    )
    assert predicted.strengths == moved_predicted.strengths
    assert (predicted.is_right != moved_predicted.is_right).sum() <= 1


def test_on_fit_is_called_for_each_fit() -> None:
    rows = noisy(60, 2, 9)
    num_calls = [0]

    def on_fit() -> None:
        num_calls[0] += 1

    classifier = Classifier(3, 0, on_fit)
    classifier.cross_validate(rows)
    assert (
        num_calls
        == [classifier.num_fits(is_split=False, has_dev=False)]
        == [3 * (5 * len(STRENGTHS) + 1)]
    )
    num_calls[0] = 0
    classifier.test(rows, None, rows)
    assert num_calls == [classifier.num_fits(is_split=True, has_dev=False)]
    num_calls[0] = 0
    classifier.test(rows, rows, rows)
    assert num_calls == [classifier.num_fits(is_split=True, has_dev=True)]


def test_constant_embeddings_predict_the_largest_class() -> None:
    rows = Rows(np.ones((40, 3), np.float32), np.repeat([0, 1], [15, 25]))
    assert Classifier(4, 0).cross_validate(rows).score().value == 25 / 40
