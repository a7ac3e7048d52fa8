"""Layouts of P and S by loss and margin, by N, by rung and by k, and of z-tests of P."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from raysweep.errors import InputError
from raysweep.output import ABSENT
from raysweep.paper import figures
from raysweep.paper.layout import Column, Layout, NoLayoutError, make_column, mark_best
from raysweep.paper.model_scores import (
    NUM_EXAMPLES,
    ModelScores,
    Scores,
    all_configurations,
    column_names,
)
from raysweep.paper.points import baseline_points, choose_split, configuration_points
from raysweep.results.types import ScoredSplit
from raysweep.uncertainty.differences import Proportion, ZTest, holm, z_test

if TYPE_CHECKING:
    import pandas as pd

Score = Literal["polarity", "similarity"]

ALL_MODELS = "all"
DIGITS = 1
DIGITS_BY_K = 3

_SYMBOLS: dict[Score, str] = {"polarity": "P", "similarity": "S"}

_STATISTICS = {"mean": "mean", "std": "std", "least": "min", "most": "max"}
"""pandas aggregations, also used as column titles, keyed by the suffix of the CSV key."""

_Z_CAPTION = (
    "Two-proportion z-tests of polarity P (x100) against {against}. With uniform rank weights, P is the share of all "
    "retrieved sentences that have their query's label. The binomial z treats these sentences as independent, but the "
    "k sentences retrieved for a query are correlated. The design effect is the variance of P over queries divided by "
    "the binomial variance, P (1 - P) / k. If it is known for only one of the two rows, it is used for both. "
    "z is corrected for the design effect. The two-sided p-values of z are adjusted for all rows by Holm's method. The "
    "tests assume that the rows were measured on different queries. For rows with the same queries, a paired comparison "
    "is more powerful."
)


def by_margin(
    models: Sequence[ModelScores], score: Score, wanted: ScoredSplit | None = None
) -> Layout:
    """Return a layout with one row per configuration and one column per model.

    The reference and the baselines come first. Each configuration is shown after its last rung.

    Raises:
        NoLayoutError: If no configuration has a loss.
    """
    _check_losses(models)
    last_points = _last_points(models)
    split, measured = choose_split(models, last_points, wanted)
    points = _add_baselines(models, last_points, split)
    rows = points.drop_duplicates("position").set_index("position").sort_index()
    is_configuration = rows.index >= 0
    columns = [make_column(rows, "loss", "loss"), make_column(rows, "margin", "margin")]
    has_others = last_points["others"] != ABSENT
    if has_others.any():
        columns.append(make_column(rows, "others", "others"))
    for title in column_names(models):
        points_of_model = points[points["model"] == title]
        by_position = points_of_model.drop_duplicates("position", keep="last").set_index("position")
        cells = by_position.reindex(rows.index)
        candidates = cells[score].where(is_configuration)
        column = Column(
            title,
            title,
            cells[score].tolist(),
            DIGITS,
            spreads=cells[f"{score}_std"].tolist(),
            is_best=mark_best(candidates, DIGITS).tolist(),
        )
        columns.append(column)
    caption = (
        f"{score.capitalize()} {_SYMBOLS[score]} (x100) by loss, margin and model: mean over queries, "
        f"with the standard deviation in parentheses if known. {measured} Each configuration is shown after "
        f"its last rung.{_describe_endings(last_points)} The best configuration in each column is in bold."
    )
    groups = rows["loss"].where(is_configuration, "baselines").tolist()
    return Layout(f"by_margin_{score}", caption, columns, groups)


def _check_losses(models: Sequence[ModelScores]) -> None:
    if not any("loss" in configuration.values for configuration in all_configurations(models)):
        raise NoLayoutError("no configuration has a parameter 'loss'")


def _last_points(models: Sequence[ModelScores]) -> "pd.DataFrame":
    points = configuration_points(models)
    return points[points["is_last"]]


def _add_baselines(
    models: Sequence[ModelScores], points: "pd.DataFrame", split: ScoredSplit
) -> "pd.DataFrame":
    """Return the points and the baselines on a split, sorted by model and position."""
    import pandas as pd

    rows = pd.concat([baseline_points(models), points])
    return rows[rows["split"] == split].sort_values(["model", "position"])


def by_examples(models: Sequence[ModelScores], wanted: ScoredSplit | None = None) -> Layout:
    """Return a layout with one row per model and N (examples per rung), and a last group of rows for all models.

    Raises:
        NoLayoutError: If there are fewer than two values of N, or one of them is not a positive integer.
    """
    import pandas as pd

    _check_counts(models)
    last_points = _last_points(models)
    points = last_points[last_points[NUM_EXAMPLES].notna()]
    split, measured = choose_split(models, points, wanted)
    points = points[points["split"] == split].astype({NUM_EXAMPLES: int, "model": str})
    parts = list(points.groupby("model", sort=False))
    if len(parts) > 1:
        parts.append((ALL_MODELS, points))
    aggregations = {"configurations": ("polarity", "size")}
    for score in _SYMBOLS:
        for key, function in _STATISTICS.items():
            aggregations[f"{score}_{key}"] = (score, function)
    statistics = []
    for model, points_of_model in parts:
        by_count = points_of_model.groupby(NUM_EXAMPLES)
        statistics.append(by_count.agg(**aggregations).assign(model=model))
    rows = pd.concat(statistics).reset_index()
    columns = [make_column(rows, "model", "model")] if len(parts) > 1 else []
    columns.append(Column("N", "num_examples", rows[NUM_EXAMPLES].tolist(), 0))
    columns.append(make_column(rows, "configurations", "configurations", 0))
    for score, symbol in _SYMBOLS.items():
        for key, title in _STATISTICS.items():
            columns.append(make_column(rows, f"{score}_{key}", f"{symbol} {title}", DIGITS))
    caption = (
        "Polarity P and similarity S (x100) by the number N of examples per rung: mean, standard deviation, minimum and "
        f"maximum over configurations, each after its last rung. {measured}{_describe_endings(last_points)}"
    )
    return Layout(
        "by_examples",
        caption,
        columns,
        rows["model"].tolist(),
        lambda: figures.draw_spreads(points),
    )


def _check_counts(models: Sequence[ModelScores]) -> None:
    """Raise NoLayoutError unless N has at least two values, all of them valid."""
    counts = set()
    for configuration in all_configurations(models):
        if NUM_EXAMPLES in configuration.values:
            counts.add(configuration.values[NUM_EXAMPLES])
    for count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise NoLayoutError(f"{NUM_EXAMPLES} is {count!r}; allowed: whole numbers above 0")
    if len(counts) < 2:
        problem = (
            f"has {NUM_EXAMPLES} {counts.pop():,}"
            if counts
            else f"lacks the parameter {NUM_EXAMPLES!r}"
        )
        raise NoLayoutError(f"every configuration {problem}; the layout compares several values")


def by_rung(models: Sequence[ModelScores], wanted: ScoredSplit | None = None) -> Layout:
    """Return a layout of each loss's best scores by rung, grouped by model and loss.

    Raises:
        NoLayoutError: If no configuration has a second rung, or none has a loss.
    """
    _check_losses(models)
    max_rungs = max(len(configuration.rungs) for configuration in all_configurations(models))
    if max_rungs == 1:
        raise NoLayoutError(
            "every configuration has only one rung; the layout compares several rungs"
        )
    points = configuration_points(models)
    split, measured = choose_split(models, points, wanted)
    points = points[points["split"] == split]
    by_place = points.groupby(["model", "loss", "rung"], observed=True)
    rows = by_place.size().rename("configurations").reset_index()
    columns = [
        make_column(rows, "model", "model"),
        make_column(rows, "loss", "loss"),
        make_column(rows, "rung", "rung", 0),
        make_column(rows, "configurations", "configurations", 0),
    ]
    for score, symbol in _SYMBOLS.items():
        best_points = points.loc[by_place[score].idxmax()]
        rows[score] = best_points[score].tolist()
        curves = rows.groupby(["model", "loss"], observed=True)[score]
        is_best = curves.transform(mark_best, DIGITS).astype(bool)
        best_scores = rows[score].tolist()
        columns.append(
            Column(f"best {symbol}", score, best_scores, DIGITS, is_best=is_best.tolist())
        )
        columns.append(Column("reached by", f"{score}_of", best_points["text"].tolist()))
    caption = (
        "The best polarity P and the best similarity S (x100) of each loss at each rung, and the configurations that reach "
        f"them. Rungs are epochs if the source has epochs. {measured} The best values over rungs are in bold."
    )
    baselines = baseline_points(models)
    is_reference = baselines["loss"] == "reference"
    references = baselines[is_reference & (baselines["split"] == split)]
    groups = list(zip(rows["model"], rows["loss"], strict=True))
    return Layout(
        "by_rung", caption, columns, groups, lambda: figures.draw_curves(rows, references)
    )


def by_k(scores: "pd.DataFrame", measured: str = "") -> Layout:
    """Return a layout with one row per k, grouped by rank weights and model.

    ``scores`` has the columns of the layout's CSV file. ``measured`` is a sentence about the data for the caption.

    Raises:
        InputError: If a model has two different scores for the same k.
    """
    import pandas as pd

    scores = scores.drop_duplicates()
    repeated = scores[scores.duplicated(["model", "rank_weights", "k"])]
    for row in repeated.itertuples():
        raise InputError(
            f"{row.model} has two different rows for k = {row.k} with {row.rank_weights} rank weights"
        )
    curves = []
    for _, rows_of_kind in scores.groupby("rank_weights", sort=False):
        curves += [curve.sort_values("k") for _, curve in rows_of_kind.groupby("model", sort=False)]
    rows = pd.concat(curves)
    columns = (
        make_column(rows, "model", "model"),
        make_column(rows, "rank_weights", "rank weights"),
        make_column(rows, "k", "k", 0),
        make_column(rows, "polarity", "P", DIGITS_BY_K),
        make_column(rows, "similarity", "S", DIGITS_BY_K),
        make_column(rows, "accuracy", "accuracy", DIGITS_BY_K),
    )
    caption = (
        "Polarity P, similarity S and accuracy (x100) by the number k of retrieved sentences: mean over queries, with the "
        f"standard deviations of P and S in parentheses. {measured}"
    )
    groups = list(zip(rows["rank_weights"], rows["model"], strict=True))
    return Layout("by_k", caption.strip(), columns, groups, lambda: figures.draw_by_k(rows))


def z_tests(
    models: Sequence[ModelScores], against: str, wanted: ScoredSplit | None = None
) -> Layout:
    """Return a layout with z-tests of each row's P against that of the row ``against``.

    Raises:
        InputError: If the row ``against`` does not exist; the message lists the rows.
        NoLayoutError: If nothing can be tested.
    """
    last_points = _last_points(models)
    split, measured = choose_split(models, last_points, wanted)
    rows = _add_baselines(models, last_points, split).astype({"model": str}).reset_index(drop=True)
    names = rows["loss"] + " " + rows["text"]
    rows["row"] = rows["loss"].where(rows["text"] == ABSENT, names)
    rows["label"] = rows["model"] + ": " + rows["row"]
    chosen = _find_row(rows, against)
    tests = _test_rows([_proportion(scores) for scores in rows["scores"]], chosen)
    if not tests:
        raise NoLayoutError(
            f"no row can be tested against {against!r}; required: the same k and uniform rank weights, a standard "
            "deviation over queries for at least one of the two rows and, in files, the columns num_queries and k"
        )
    adjusted = holm([test.p_value for test in tests.values()])
    for (row, test), p_holm in zip(tests.items(), adjusted, strict=True):
        rows.loc[row, "difference"] = 100 * test.difference
        rows.loc[row, "binomial_z"] = test.binomial_z
        rows.loc[row, "design_effect"] = test.design_effect
        rows.loc[row, "z"] = test.z
        rows.loc[row, "p_holm"] = p_holm
    columns = (
        make_column(rows, "model", "model"),
        make_column(rows, "row", "row"),
        make_column(rows, "polarity", "P", 1),
        make_column(rows, "difference", "difference", 1),
        make_column(rows, "binomial_z", "binomial z", 2),
        make_column(rows, "design_effect", "design effect", 2),
        make_column(rows, "z", "z", 2),
        make_column(rows, "p_holm", "p (Holm)", 4),
    )
    caption = f"{_Z_CAPTION.format(against=rows['label'][chosen])} {measured}"
    return Layout("z_tests", caption, columns, rows["model"].tolist())


def _test_rows(proportions: Sequence[Proportion | None], chosen: int) -> dict[int, ZTest]:
    """Return the tests against the row ``chosen``, keyed by row; rows that cannot be tested are omitted."""
    other = proportions[chosen]
    tests: dict[int, ZTest] = {}
    if other is None:
        return tests
    for row, proportion in enumerate(proportions):
        if row == chosen or proportion is None or proportion.k != other.k:
            continue
        test = z_test(proportion, other)
        if test is not None:
            tests[row] = test
    return tests


def _find_row(rows: "pd.DataFrame", against: str) -> int:
    """Return the row with this label, or the only row with this name."""
    matches = rows[rows["label"] == against]
    if matches.empty:
        matches = rows[rows["row"] == against]
    if len(matches) == 1:
        return int(matches.index[0])
    problem = "the name of several rows"
    if matches.empty:
        problem = "an unknown row"
        matches = rows
    allowed = "; ".join(matches["label"])
    raise InputError(f"--z-test {against!r} is {problem}; allowed: {allowed}")


def _proportion(scores: Scores) -> Proportion | None:
    """Return P with its counts, or None if the counts are unknown."""
    counts = scores.counts
    if counts is None:
        return None
    return Proportion(scores.polarity, counts.num_queries, counts.k, scores.polarity_std)


def _describe_endings(points: "pd.DataFrame") -> str:
    """Return a caption note about configurations that ended early, or an empty string."""
    configurations = points.drop_duplicates(["model", "position"])
    most_rungs = configurations.groupby("model", observed=True)["rung"].transform("max")
    num_short = int((configurations["rung"] < most_rungs).sum())
    if not num_short:
        return ""
    return f" {num_short} of {len(configurations)} configurations ended earlier than other configurations of the same model."
