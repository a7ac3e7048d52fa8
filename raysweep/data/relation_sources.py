"""Readers of relations between sentences.

There are four kinds of data:

``retrieval``     one row per query, with ``positives`` and ``negatives``, each a text or a list of texts
``pairs``         one row per pair of sentences, with a label
``scored_pairs``  one row per pair of sentences, with a score; see :mod:`raysweep.data.scored_pairs`
``labeled``       one row per sentence, with a label; converted by :mod:`raysweep.data.labeled_relations`

All sources of :mod:`raysweep.data.sources` are supported. If no kind is given, it is inferred from the columns.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from raysweep.config.sweep import DataConfig
from raysweep.config.watch import MAX_QUERIES, WatchedSource
from raysweep.data import scored_pairs, sources
from raysweep.data.labeled_relations import retrieval_from_labels
from raysweep.data.relations import KINDS, Kind, Relations, RelationsBuilder, sample_groups
from raysweep.data.scored_pairs import PairColumns
from raysweep.data.source_files import without_options
from raysweep.errors import InputError

PAIR_COLUMNS = (("sentence1", "sentence2"), ("text1", "text2"))
"""Default names of the sentence columns of pairs."""

POSITIVE_LABELS = ("1", "true", "entailment")
"""Default labels of positive pairs."""


@dataclass(frozen=True)
class RelationColumns:
    """Column names. If ``pair`` is None, the sentence columns of pairs are the first of PAIR_COLUMNS in the file."""

    query: str = "query"
    positives: str = "positives"
    negatives: str = "negatives"
    pair: tuple[str, str] | None = None
    label: str = "label"
    score: str = "score"
    groups: tuple[str, ...] = ()
    text: str = "text"

    def of_kind(self, kind: Kind, present: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that a file of this kind must have, except for group columns."""
        if kind == "retrieval":
            return self.query, self.positives, self.negatives
        if kind == "labeled":
            return self.text, self.label
        value = self.label if kind == "pairs" else self.score
        return (value, *self.pair_columns(present))

    def pair_columns(self, present: Sequence[str]) -> tuple[str, str]:
        """Return the sentence columns of pairs, given all columns of a file."""
        if self.pair is not None:
            return self.pair
        recognized = [names for names in PAIR_COLUMNS if set(names) <= set(present)]
        return (recognized or PAIR_COLUMNS)[0]


@dataclass(frozen=True)
class Thresholds:
    """Thresholds for scored pairs. Scores >= ``positive`` are positive, and scores <= ``negative`` are negative."""

    positive: float = 4.0
    negative: float = 2.0


@dataclass(frozen=True)
class RelationSettings:
    """Settings for reading sources.

    If ``positive_label`` is None, one of POSITIVE_LABELS must occur in a pair file. With ``joins_labels``, the positives
    are compared with all other labels together instead of with each label separately.

    ``seed`` is used to sample at most ``max_queries`` queries, and to convert labeled sentences.
    """

    kind: Kind | None = None
    columns: RelationColumns = RelationColumns()
    positive_label: str | None = None
    thresholds: Thresholds = Thresholds()
    seed: int = 0
    max_queries: int | None = None
    joins_labels: bool = False

    @classmethod
    def of(cls, data: DataConfig | WatchedSource) -> "RelationSettings":
        """Return the settings of a sweep's data or of a watched source."""
        names = data.columns
        pair = None if names.pair is None else (names.pair[0], names.pair[1])
        columns = RelationColumns(
            query=names.query,
            positives=names.positives,
            negatives=names.negatives,
            pair=pair,
            label=data.label_column,
            score=names.score,
            groups=tuple(names.groups),
            text=data.text_column,
        )
        thresholds = Thresholds(data.thresholds.positive, data.thresholds.negative)
        return cls(data.kind, columns, data.positive_label, thresholds)


def read_all(sources_and_settings: Iterable[tuple[str, RelationSettings]]) -> list[Relations]:
    """Read the relations of several sources like :func:`read`, and make their names unique.

    Raises:
        InputError: If a source cannot be read, or no query or group in it has both positives and negatives.
    """
    all_relations: list[Relations] = []
    for source, settings in sources_and_settings:
        for relations in read(source, settings):
            groups, is_positive = relations.group, relations.is_positive
            groups_with_both = np.intersect1d(groups[is_positive], groups[~is_positive])
            if not len(groups_with_both):
                unit = "query" if relations.kind == "retrieval" else "group"
                raise InputError(
                    f"{relations.name}: no {unit} has both positives and negatives; required: at least one {unit} with both"
                )
            if relations.name in {known.name for known in all_relations}:
                base_name = PurePosixPath(without_options(source)).name
                relations = replace(relations, name=relations.name.replace(base_name, source, 1))
            all_relations.append(relations)
    return all_relations


def read(
    source: str, settings: RelationSettings, *, split: str = "test", subset: str | None = None
) -> list[Relations]:
    """Read the relations in a source.

    A pair file yields one item per negative label, unless ``settings.joins_labels`` is True. ``split`` is used for
    ``demo`` and for Hub sources that do not specify a split. ``subset`` is the configuration name on the Hub.

    Raises:
        InputError: If a row is invalid, or if there are no positives or no negatives.
    """
    pieces = sources.pieces(source, subset=subset, split=split)
    kind = settings.kind or _recognize(pieces[0], settings.columns)
    name = PurePosixPath(without_options(source)).name
    if kind == "retrieval":
        relations = _read_retrieval(name, pieces, settings.columns)
        return [sample_groups(relations, settings.max_queries, settings.seed)]
    if kind == "labeled":
        texts: list[str] = []
        labels: list[str] = []
        for batch in sources.read_pieces(pieces, settings.columns.text, settings.columns.label):
            texts += batch.texts
            labels += batch.labels
        limit = settings.max_queries or MAX_QUERIES
        return [retrieval_from_labels(name, texts, labels, seed=settings.seed, max_queries=limit)]
    has_header = not (kind == "scored_pairs" and scored_pairs.is_without_header(pieces[0]))
    if has_header:
        pair = settings.columns.pair_columns(sources.column_names(pieces[0]))
        settings = replace(settings, columns=replace(settings.columns, pair=pair))
    elif settings.columns.groups:
        raise InputError(
            f"{pieces[0].name}: the file has no header; allowed with group columns: a file with a header"
        )
    if kind == "pairs":
        return _read_pairs(name, pieces, settings)
    return [_read_scored(name, pieces, settings)]


def kind_of_sweep(data: DataConfig, first: sources.Piece) -> Kind:
    """Return the kind of a sweep's data, given the first piece of the training data.

    By default, Hub datasets are ``labeled``. Files are ``labeled`` if they have the text and label columns, or if they
    have no columns of another kind.

    Raises:
        InputError: If a file has columns of other kinds, but does not match exactly one kind.
    """
    if data.kind is not None:
        return data.kind
    if first.file is None:
        return "labeled"
    columns = RelationSettings.of(data).columns
    with contextlib.suppress(InputError):  # without a header, reading column names may fail
        if "labeled" in _possible_kinds(columns, sources.column_names(first)):
            return "labeled"
    if scored_pairs.is_without_header(first):
        return "scored_pairs"
    present = sources.column_names(first)
    of_related = {name for kind in KINDS for name in columns.of_kind(kind, present)} - {
        columns.text,
        columns.label,
    }
    return _recognize(first, columns) if of_related.intersection(present) else "labeled"


def columns_to_read(data: DataConfig, kind: Kind, piece: sources.Piece) -> tuple[str, ...]:
    """Return the columns that a sweep reads from a piece with a header."""
    columns = RelationSettings.of(data).columns
    return (*columns.of_kind(kind, sources.column_names(piece)), *columns.groups)


def _possible_kinds(columns: RelationColumns, present: Sequence[str]) -> list[Kind]:
    """Return the kinds whose columns are all present."""
    return [kind for kind in KINDS if set(columns.of_kind(kind, present)).issubset(present)]


def _recognize(piece: sources.Piece, columns: RelationColumns) -> Kind:
    """Return the kind that a piece's columns match. Raises InputError unless exactly one kind matches."""
    if scored_pairs.is_without_header(piece):
        return "scored_pairs"
    present = sources.column_names(piece)
    needed = {kind: columns.of_kind(kind, present) for kind in KINDS}
    recognized = _possible_kinds(columns, present)
    if len(recognized) > 1 and "labeled" in recognized:  # pairs may have additional columns
        recognized.remove("labeled")
    if len(recognized) == 1:
        return recognized[0]
    kinds = " and ".join(recognized)
    problem = f"match the kinds {kinds}" if recognized else "match no known kind"
    listed = ", ".join(map(repr, present)) or "none"
    allowed_kinds = [f"{kind} ({', '.join(names)})" for kind, names in needed.items()]
    allowed = "; ".join(allowed_kinds)
    raise InputError(
        f"{piece.name}: the columns {problem}: {listed}; allowed: the columns of one kind, {allowed}"
    )


def _read_retrieval(
    name: str, pieces: Sequence[sources.Piece], columns: RelationColumns
) -> Relations:
    """Read a query with its documents from each row. Rows with the same query text count as separate queries."""
    builder = RelationsBuilder(name, "retrieval")
    names = (columns.query, columns.positives, columns.negatives)
    for piece in pieces:
        row = 0
        for block in sources.read_values(piece, names):
            for query, positives, negatives in zip(*block, strict=True):
                row += 1
                sources.check_texts(piece.name, row, [query], columns.query)
                group = builder.group((piece.name, row), query)
                documents = _check_documents(piece.name, row, columns.positives, positives)
                builder.add(group, query, documents, is_positive=True)
                documents = _check_documents(piece.name, row, columns.negatives, negatives)
                builder.add(group, query, documents, is_positive=False)
    relations = builder.build()
    is_positive = relations.is_positive
    if not (is_positive.any() and not is_positive.all()):
        lacking = columns.negatives if is_positive.any() else columns.positives
        raise InputError(
            f"{name}: no query has {lacking}; required: at least one query with positives and negatives"
        )
    return relations


def _check_documents(name: str, row: int, column: str, value: Any) -> list[str]:
    """Return the texts in a cell. Raises InputError unless it contains a text or a list of texts."""
    if isinstance(value, str):
        documents = [value]
    elif isinstance(value, list):
        documents = value
    else:
        raise InputError(
            f"{name}: row {row}: column {column!r} is {value!r}; allowed: a text or a (possibly empty) list of texts"
        )
    for document in documents:
        sources.check_texts(name, row, [document], column)
    return documents


class _LabeledPair(NamedTuple):
    first: str
    second: str
    label: str
    group: tuple[str, ...]


def _read_pairs(
    name: str, pieces: Sequence[sources.Piece], settings: RelationSettings
) -> list[Relations]:
    """Return one item per negative label, or a single item if ``settings.joins_labels`` is True."""
    rows = [row for piece in pieces for row in _labeled_pairs(piece, settings.columns)]
    counts = Counter(row.label for row in rows)
    given_label = settings.positive_label
    candidates = POSITIVE_LABELS if given_label is None else (given_label,)
    occurring = [candidate for candidate in candidates if candidate in counts]
    if len(occurring) != 1 or len(counts) < 2:
        place = f"{name}: column {settings.columns.label!r}"
        present = list(map(repr, sorted(counts)))
        listed = sources.shown(present) or "none"
        raise InputError(
            f"{place} has the labels {listed}; allowed: the label of positive pairs ({' or '.join(candidates)}) and at "
            "least one other; if the labels are scores, set kind to scored_pairs"
        )
    positive_label = occurring[0]
    negative_labels = sorted(set(counts) - {positive_label})
    all_relations = []
    sets_of_labels = (
        [negative_labels] if settings.joins_labels else [[label] for label in negative_labels]
    )
    for labels in sets_of_labels:
        shown = (
            name if len(sets_of_labels) == 1 else f"{name}: {positive_label} against {labels[0]}"
        )
        builder = RelationsBuilder(shown, "pairs")
        included = [row for row in rows if row.label in (positive_label, *labels)]
        for row in included:
            group = builder.group(row.group, ", ".join(row.group))
            is_positive = row.label == positive_label
            builder.add(group, row.first, [row.second], is_positive=is_positive)
        num_left_out = len(rows) - len(included)
        all_relations.append(builder.build(num_left_out))
    return all_relations


def _labeled_pairs(piece: sources.Piece, columns: RelationColumns) -> Iterator[_LabeledPair]:
    assert columns.pair is not None
    first_column, second_column = columns.pair
    names = (columns.label, first_column, second_column, *columns.groups)
    first_row = 1
    for labels, first, second, *groups in sources.read_values(piece, names):
        batch = sources.make_batch(
            piece.name, first_row, first, labels, (first_column, columns.label)
        )
        sources.check_texts(piece.name, first_row, second, second_column)
        rows = zip(first, second, batch.labels, *groups, strict=True)
        for row, values in enumerate(rows, first_row):
            place = f"{piece.name}: row {row}"
            first_text, second_text, label, *group_values = values
            group = scored_pairs.read_group(place, columns.groups, group_values)
            yield _LabeledPair(first_text, second_text, label, group)
        first_row += len(first)


def _read_scored(
    name: str, pieces: Sequence[sources.Piece], settings: RelationSettings
) -> Relations:
    columns, thresholds = settings.columns, settings.thresholds
    first, second = columns.pair or PAIR_COLUMNS[0]
    pairs = scored_pairs.read(
        name, pieces, PairColumns(columns.score, first, second, columns.groups)
    )
    is_positive = pairs.gold >= thresholds.positive
    is_negative = pairs.gold <= thresholds.negative
    low, high = float(pairs.gold.min()), float(pairs.gold.max())
    for is_member, allowed in (
        (is_positive, f"at least {thresholds.positive:g}"),
        (is_negative, f"at most {thresholds.negative:g}"),
    ):
        if not is_member.any():
            raise InputError(
                f"{name}: column {columns.score!r} ranges from {low:g} to {high:g}; allowed: some scores of {allowed}, or "
                "other thresholds"
            )
    builder = RelationsBuilder(name, "scored_pairs")
    rows = np.flatnonzero(is_positive | is_negative).tolist()
    for row in rows:
        group = builder.group(pairs.groups[row], ", ".join(pairs.groups[row]))
        builder.add(
            group, pairs.first[row], [pairs.second[row]], is_positive=bool(is_positive[row])
        )
    return builder.build(pairs.num_pairs - len(rows))
