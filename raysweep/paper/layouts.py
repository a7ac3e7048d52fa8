"""Layouts of configurations: P and S by loss and margin, by N and by rung, and z-tests of P against one row."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from raysweep.errors import InputError
from raysweep.output import ABSENT
from raysweep.paper import figures
from raysweep.paper.figures import Best, Curves, Spread
from raysweep.paper.layout import Column, Layout, NoLayoutError, Number, Row, mark_best
from raysweep.paper.model_scores import (
    NUM_EXAMPLES,
    Configuration,
    ModelScores,
    Name,
    Naming,
    Scores,
    SplitScores,
    all_configurations,
    column_names,
)
from raysweep.results.types import ScoredSplit
from raysweep.uncertainty.differences import Proportion, ZTest, holm, z_test

Score = Literal["polarity", "similarity"]

ALL_MODELS = "all"
DIGITS = 1

_STATISTICS = {"mean": "mean", "std": "std", "min": "least", "max": "most"}
"""Keys of CSV columns, by title."""

_Z_CAPTION = (
    "Two-proportion z-tests of polarity P (x100) against {against}. With uniform rank weights P is the share of all "
    "retrieved sentences that have their query's label. The binomial z treats these as independent, but the k of one "
    "query are correlated: the design effect is the variance of P over queries divided by the binomial one, "
    "P (1 - P) / k. A row with an unknown deviation is assigned the other's. z includes the design effect; p is "
    "two-sided, based on z, and adjusted for all rows by Holm's method. The test treats rows as measured on different "
    "queries; on the same ones a paired comparison is more informative."
)


def by_margin(models: Sequence[ModelScores], score: Score, wanted: ScoredSplit | None = None) -> Layout:
    """Return a layout with a row per configuration and a column per model, with the best value in bold.

    The reference and baselines come first. Scores are those of the tuned encoder after its last rung.

    Raises:
        NoLayoutError: If no configuration has a loss.
    """
    configurations = _with_losses(models)
    split, measured = choose_split(models, [configuration.last_scores for configuration in configurations], wanted)
    naming = Naming(models)
    scored = {naming.name(member.values) for member in configurations if split in member.last_scores}
    names = sorted(scored, key=lambda name: (name.loss, name.order))
    numbers = []  # one column per model
    for model in models:
        cells = {naming.name(member.values): member.last_scores.get(split) for member in model.configurations}
        numbers.append(mark_best([_number(cells.get(name), score) for name in names], DIGITS))

    def row(loss: str, margin: str, others: str, cells: Sequence[Number]) -> Row:
        return (loss, margin, *([others] if naming.others else []), *cells)

    baselines = dict.fromkeys(name for model in models for name in model.baselines)
    first = []
    for baseline in baselines:
        by_model = [model.baselines.get(baseline, {}).get(split) for model in models]
        if any(by_model):
            first.append(row(baseline, ABSENT, ABSENT, [_number(scores, score) for scores in by_model]))
    groups = [tuple(first)] if first else []
    for _, members in groupby(zip(names, zip(*numbers, strict=True), strict=True), key=lambda line: line[0].loss):
        rows = [row(name.loss, name.margin, name.others or ABSENT, cells) for name, cells in members]
        groups.append(tuple(rows))
    columns = [Column("loss", "loss"), Column("margin", "margin")]
    columns += [Column("others", "others")] if naming.others else []
    columns += [Column(name, name, DIGITS, has_spread=True) for name in column_names(models)]
    caption = (
        f"{score.capitalize()} {'P' if score == 'polarity' else 'S'} (x100) by loss, margin and model: mean over queries, "
        f"with its standard deviation over queries in parentheses if known. {measured} Each configuration after its last "
        f"rung.{_describe_endings(models)} In bold the best of each column among the configurations."
    )
    return Layout(f"by_margin_{score}", caption, tuple(columns), tuple(groups))


def _with_losses(models: Sequence[ModelScores]) -> list[Configuration]:
    configurations = all_configurations(models)
    if not any("loss" in configuration.values for configuration in configurations):
        raise NoLayoutError("no configuration has a parameter 'loss'")
    return configurations


def _number(scores: Scores | None, score: Score) -> Number:
    if scores is None:
        return Number(None)
    value, spread = getattr(scores, score), getattr(scores, f"{score}_std")
    return Number(100 * value, None if spread is None else 100 * spread)


def by_examples(models: Sequence[ModelScores], wanted: ScoredSplit | None = None) -> Layout:
    """Return a layout with a row for each number N of examples per rung, and a group for each model and for all.

    Raises:
        NoLayoutError: If there are fewer than two values of N, or one is not a positive integer.
    """
    configurations = [member for member in all_configurations(models) if NUM_EXAMPLES in member.values]
    counts = {member.values[NUM_EXAMPLES] for member in configurations}
    for count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise NoLayoutError(f"{NUM_EXAMPLES} is {count!r}; allowed: whole numbers above 0")
    if len(counts) < 2:
        problem = f"has {NUM_EXAMPLES} {counts.pop():,}" if counts else f"lacks a parameter {NUM_EXAMPLES!r}"
        raise NoLayoutError(f"every configuration {problem}; the layout compares several")
    split, measured = choose_split(models, [member.last_scores for member in configurations], wanted)
    spreads = []
    for name, model in zip(column_names(models), models, strict=True):
        spreads += _spreads(name, model.configurations, split)
    names = list(dict.fromkeys(spread.model for spread in spreads))
    overall = _spreads(ALL_MODELS, configurations, split)
    columns = [Column("N", "num_examples", 0), Column("configurations", "configurations", 0)]
    for symbol, score in (("P", "polarity"), ("S", "similarity")):
        columns += [Column(f"{symbol} {title}", f"{score}_{key}", DIGITS) for title, key in _STATISTICS.items()]
    groups = [tuple(map(_spread_row, spreads))]
    if len(names) > 1:
        columns.insert(0, Column("model", "model"))
        rows = [(spread.model, *_spread_row(spread)) for spread in [*spreads, *overall]]
        groups = [tuple(members) for _, members in groupby(rows, key=lambda row: row[0])]
    caption = (
        "Polarity P and similarity S (x100) by the number N of examples per rung: mean, standard deviation, minimum and "
        f"maximum over configurations. {measured} Each configuration after its last rung.{_describe_endings(models)}"
    )
    return Layout(
        "by_examples", caption, tuple(columns), tuple(groups), lambda: figures.draw_spreads(spreads, overall, names)
    )


def _spreads(model: str, configurations: Sequence[Configuration], split: ScoredSplit) -> list[Spread]:
    """Return the spreads of a model, by increasing N."""
    by_count: dict[int, list[Scores]] = defaultdict(list)
    for configuration in configurations:
        scores = configuration.last_scores.get(split)
        if scores is not None and NUM_EXAMPLES in configuration.values:
            by_count[configuration.values[NUM_EXAMPLES]].append(scores)
    spreads = []
    for count, members in sorted(by_count.items()):
        polarities = [100 * scores.polarity for scores in members]
        spreads.append(Spread(model, count, polarities, [100 * scores.similarity for scores in members]))
    return spreads


def _spread_row(spread: Spread) -> Row:
    cells: list[float | None] = [spread.num_examples, len(spread.polarities)]
    for scores in (spread.polarities, spread.similarities):
        deviation = statistics.stdev(scores) if len(scores) > 1 else None
        cells += [statistics.fmean(scores), deviation, min(scores), max(scores)]
    return tuple(map(Number, cells))


def by_rung(models: Sequence[ModelScores], wanted: ScoredSplit | None = None) -> Layout:
    """Return a layout with the best scores of each loss by rung, and a group for each model and loss.

    Raises:
        NoLayoutError: If no configuration has a second rung, or none has a loss.
    """
    configurations = _with_losses(models)
    if all(len(configuration.rungs) == 1 for configuration in configurations):
        raise NoLayoutError("every configuration has one rung; the layout compares several")
    points = [scores for configuration in configurations for scores in configuration.rungs.values()]
    split, measured = choose_split(models, points, wanted)
    naming = Naming(models)
    curves = []
    for name, model in zip(column_names(models), models, strict=True):
        reference = model.baselines.get("reference", {}).get(split)
        curves.append(Curves(name, _best_by_loss(model, naming, split), reference))
    groups = [_best_rows(model.name, loss, bests) for model in curves for loss, bests in model.losses.items()]
    columns = (
        Column("model", "model"),
        Column("loss", "loss"),
        Column("rung", "rung", 0),
        Column("configurations", "configurations", 0),
        Column("best P", "polarity", DIGITS),
        Column("of", "polarity_of"),
        Column("best S", "similarity", DIGITS),
        Column("of", "similarity_of"),
    )
    caption = (
        "The best polarity P and the best similarity S (x100) of each loss, rung by rung, and the configurations that reach "
        f"them, usually two different ones. Rungs are epochs if the source has epochs. {measured} In bold the best over "
        "rungs."
    )
    return Layout("by_rung", caption, columns, tuple(groups), lambda: figures.draw_curves(curves))


def _best_by_loss(model: ModelScores, naming: Naming, split: ScoredSplit) -> dict[str, list[Best]]:
    """Return the best scores of each loss, by increasing rung."""
    by_place: dict[tuple[str, int], dict[Name, Scores]] = defaultdict(dict)
    for configuration in model.configurations:
        name = naming.name(configuration.values)
        for rung, by_split in configuration.rungs.items():
            if split in by_split:
                by_place[name.loss, rung][name] = by_split[split]
    bests: dict[str, list[Best]] = defaultdict(list)
    for (loss, rung), scores in sorted(by_place.items(), key=lambda item: item[0]):
        first = max(scores, key=lambda name: scores[name].polarity)
        second = max(scores, key=lambda name: scores[name].similarity)
        polarity, similarity = 100 * scores[first].polarity, 100 * scores[second].similarity
        bests[loss].append(Best(rung, len(scores), polarity, first.text, similarity, second.text))
    return bests


def _best_rows(model: str, loss: str, bests: Sequence[Best]) -> tuple[Row, ...]:
    polarities = mark_best([Number(best.polarity) for best in bests], DIGITS)
    similarities = mark_best([Number(best.similarity) for best in bests], DIGITS)
    rows = []
    for best, polarity, similarity in zip(bests, polarities, similarities, strict=True):
        counts = Number(best.rung), Number(best.num_configurations)
        rows.append((model, loss, *counts, polarity, best.polarity_of, similarity, best.similarity_of))
    return tuple(rows)


@dataclass(frozen=True)
class Encoder:
    """An encoder of a model, a row of the z-tests."""

    model: str
    name: str
    scores: Scores

    @property
    def label(self) -> str:
        return f"{self.model}: {self.name}"

    @property
    def proportion(self) -> Proportion | None:
        """P with its counts, or None if they are unknown."""
        scores, counts = self.scores, self.scores.counts
        if counts is None:
            return None
        return Proportion(scores.polarity, counts.num_queries, counts.k, scores.polarity_std)


def z_tests(models: Sequence[ModelScores], against: str, wanted: ScoredSplit | None = None) -> Layout:
    """Return a layout that compares P of each baseline and configuration with that of the row ``against``.

    Raises:
        InputError: If ``against`` does not exist; the message lists the rows.
        NoLayoutError: If nothing can be tested.
    """
    last_scores = [configuration.last_scores for configuration in all_configurations(models)]
    split, measured = choose_split(models, last_scores, wanted)
    encoders = list(_encoders(models, split))
    chosen = _find_encoder(encoders, against)
    tests = [_test(encoder, chosen) for encoder in encoders]
    p_values = [test.p_value for test in tests if test is not None]
    if not p_values:
        raise NoLayoutError(
            f"no row can be tested against {against!r}; required: rows of one k with uniform rank weights, in files the "
            "columns num_queries and k, and a standard deviation over queries of either row"
        )
    adjusted = iter(holm(p_values))
    groups: dict[str, list[Row]] = defaultdict(list)  # by model
    for encoder, test in zip(encoders, tests, strict=True):
        cells: list[float | None] = [None] * 5
        if test is not None:
            cells = [100 * test.difference, test.binomial_z, test.design_effect, test.z, next(adjusted)]
        polarity = _number(encoder.scores, "polarity")
        groups[encoder.model].append((encoder.model, encoder.name, polarity, *map(Number, cells)))
    columns = (
        Column("model", "model"),
        Column("row", "row"),
        Column("P", "polarity", 1, has_spread=True),
        Column("difference", "difference", 1),
        Column("binomial z", "binomial_z", 2),
        Column("design effect", "design_effect", 2),
        Column("z", "z", 2),
        Column("p (Holm)", "p_holm", 4),
    )
    caption = f"{_Z_CAPTION.format(against=chosen.label)} {measured}"
    return Layout("z_tests", caption, columns, tuple(map(tuple, groups.values())))


def _encoders(models: Sequence[ModelScores], split: ScoredSplit) -> Iterator[Encoder]:
    """Yield the baselines of each model, then its configurations after their last rung."""
    naming = Naming(models)
    for column, model in zip(column_names(models), models, strict=True):
        scored = [(name, by_split) for name, by_split in model.baselines.items()]
        names = {naming.name(member.values): member.last_scores for member in model.configurations}
        for name in sorted(names, key=lambda name: (name.loss, name.order)):
            text = name.loss if name.text == ABSENT else f"{name.loss} {name.text}"
            scored.append((text, names[name]))
        for text, by_split in scored:
            if split in by_split:
                yield Encoder(column, text, by_split[split])


def _find_encoder(encoders: Sequence[Encoder], against: str) -> Encoder:
    """Return the encoder with this label, or the only one with this name."""
    matches = [encoder for encoder in encoders if encoder.label == against]
    matches = matches or [encoder for encoder in encoders if encoder.name == against]
    if len(matches) == 1:
        return matches[0]
    problem = "the name of several rows" if matches else "an unknown row"
    allowed = "; ".join(encoder.label for encoder in matches or encoders)
    raise InputError(f"--z-test {against!r} is {problem}; allowed: {allowed}")


def _test(encoder: Encoder, other: Encoder) -> ZTest | None:
    """Return the test, or None for the row itself, and if P is not a known share of sentences at the same k."""
    first, second = encoder.proportion, other.proportion
    if encoder is other or first is None or second is None or first.k != second.k:
        return None
    return z_test(first, second)


def choose_split(
    models: Sequence[ModelScores], points: Sequence[SplitScores], wanted: ScoredSplit | None
) -> tuple[ScoredSplit, str]:
    """Return the split of a layout of these points, and the sentence of its caption on split and retrieval.

    The split is ``wanted``, or else test if all points have it, or dev.

    Raises:
        NoLayoutError: If no point has scores on it.
    """
    num_on_test = sum("test" in scores for scores in points)
    split: ScoredSplit = wanted or ("test" if num_on_test == len(points) else "dev")
    num_scored = sum(split in scores for scores in points)
    if not num_scored:
        reasons = [f"; {model.why_no_test} in {model.origin}" for model in models if model.why_no_test]
        raise NoLayoutError(f"no point has scores on {split}{''.join(reasons)}")
    split_texts = {True: f"on {split}", False: "as recorded"}  # by whether the source has a column split
    present = {model.names_split for model in models}
    parts = [" or ".join(text for is_named, text in split_texts.items() if is_named in present)]
    if num_scored < len(points):
        parts.append(f"which {num_scored} of {len(points)} points have")
    names: dict[str, dict[str, None]] = defaultdict(dict)  # of models, by retrieval settings
    for model in models:
        names[model.retrieval][model.model] = None
    unknown = names.pop("", {})
    for retrieval, members in names.items():
        parts.append(retrieval if len(names) == 1 and not unknown else f"{retrieval} for {', '.join(members)}")
    if names and unknown:
        parts.append(f"which is not recorded for {', '.join(unknown)}")
    return split, f"Scores {', '.join(parts)}."


def _describe_endings(models: Sequence[ModelScores]) -> str:
    """Return a caption's note on configurations with fewer rungs than others of their model, "" without any."""
    num_short = 0
    for model in models:
        last_rungs = [configuration.last_rung for configuration in model.configurations]
        num_short += sum(last < max(last_rungs) for last in last_rungs)
    if not num_short:
        return ""
    return f" {num_short} of {len(all_configurations(models))} configurations ended earlier than others of their model."
