"""Guards: sentence-transformers evaluators that score front members on user-provided files."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from raysweep.config.guards import NEEDED, GuardConfig
from raysweep.data import scored_pairs, sources
from raysweep.errors import InputError
from raysweep.export.export import model_of
from raysweep.results.types import GuardScore, Point
from raysweep.storage.folder import Folder


@dataclass(frozen=True)
class Guard:
    """A guard with its files loaded.

    ``evaluator`` creates a new evaluator for each model, because an evaluator keeps its first model's similarity function.
    ``left_out`` is a message about excluded rows, or empty.
    """

    name: str
    config: GuardConfig
    evaluator: Callable[[], Any]
    left_out: str = ""

    @classmethod
    def open(cls, name: str, config: GuardConfig) -> "Guard":
        """Read the guard's files.

        Raises:
            InputError: If a file is invalid.
        """
        if config.kind == "retrieval":
            return cls(name, config, _retrieval(config))
        from sentence_transformers.sentence_transformer.evaluation import (
            EmbeddingSimilarityEvaluator,
        )

        assert config.pairs is not None
        files = sources.pieces(config.pairs)
        pairs = scored_pairs.read(name, files, scored_pairs.PairColumns())
        gold = pairs.gold.tolist()
        left_out = ""
        if len(gold) < pairs.num_pairs:
            left_out = (
                f"{len(gold)} of {pairs.num_pairs} pairs have a score; the others are left out"
            )
        evaluator = partial(
            EmbeddingSimilarityEvaluator, pairs.first, pairs.second, gold, write_csv=False
        )
        return cls(name, config, evaluator, left_out)

    def score(self, model: Any) -> tuple[str, float]:
        """Return the metric's name and the model's score."""
        evaluator = self.evaluator()
        metrics = evaluator(model)
        return evaluator.primary_metric, float(metrics[evaluator.primary_metric])


def check(guards: Mapping[str, GuardConfig], warn: Callable[[str], None]) -> None:
    """Raise InputError if a guard's file is invalid, and warn about excluded rows."""
    for name, config in guards.items():
        try:
            guard = Guard.open(name, config)
        except InputError as error:
            raise InputError(f"guards.{name}: {_without_name(name, error)}") from None
        if guard.left_out:
            warn(f"guards.{name}: {guard.left_out}")


def measure(
    run: Folder, guards: Mapping[str, GuardConfig], wanted: Mapping[Point, list[str]]
) -> Iterator[GuardScore | InputError]:
    """Yield the score of each point on each of its ``wanted`` guards, or an InputError if scoring fails."""
    opened: dict[str, Guard] = {}
    for name, config in guards.items():
        try:
            opened[name] = Guard.open(name, config)
        except InputError as error:
            yield InputError(f"{name}: {_without_name(name, error)}")
    for point, names in wanted.items():
        assert point.trial is not None and point.step is not None
        try:
            model = model_of(run, point)
        except Exception as error:  # the sweep's results are valid without guards
            yield _as_input_error(point.name, error)
            continue
        for name in names:
            if name not in opened:
                continue
            guard = opened[name]
            try:
                metric, score = guard.score(model)
            except Exception as error:  # the library may raise any exception
                yield _as_input_error(f"{name} for {point.name}", error)
                continue
            if not math.isfinite(score):
                yield InputError(f"{name} for {point.name}: {metric} is {score}")
                continue
            yield GuardScore(
                trial=point.trial,
                step=point.step,
                kind=point.kind,
                value=point.value,
                guard=name,
                metric=metric,
                score=score,
                at_least=guard.config.at_least,
                files=guard.config.files_digest,
            )


def _without_name(name: str, error: InputError) -> str:
    """Return the error's text without a leading guard name."""
    return str(error).removeprefix(f"{name}: ")


def _as_input_error(place: str, error: Exception) -> InputError:
    return (
        error
        if isinstance(error, InputError)
        else InputError(f"{place}: {type(error).__name__}: {error}")
    )


def _retrieval(config: GuardConfig) -> Callable[[], Any]:
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    queries_file, corpus_file, relevant_file = (getattr(config, key) for key in NEEDED["retrieval"])
    queries = _texts(queries_file)
    corpus = _texts(corpus_file)
    relevant: dict[str, set[str]] = {}
    rows = _rows(relevant_file, ("query", "document"))
    for row, (query, document) in enumerate(rows, 1):
        place = f"{relevant_file}: row {row}"
        if query not in queries:
            raise InputError(f"{place}: query is {query!r}; allowed: an id in {queries_file}")
        if document not in corpus:
            raise InputError(f"{place}: document is {document!r}; allowed: an id in {corpus_file}")
        relevant.setdefault(query, set()).add(document)
    evaluator: Any = InformationRetrievalEvaluator
    return partial(evaluator, queries, corpus, relevant, write_csv=False)


def _texts(file: str) -> dict[str, str]:
    """Read texts keyed by id, or raise InputError if an id occurs twice."""
    texts: dict[str, str] = {}
    for row, (key, text) in enumerate(_rows(file, ("id", "text")), 1):
        if key in texts:
            raise InputError(
                f"{file}: row {row}: id is {key!r}, as in an earlier row; required: unique ids"
            )
        texts[key] = text
    return texts


def _rows(file: str, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the rows of two columns as text, or raise InputError if a cell is empty or there are no rows."""
    num_rows = 0
    for piece in sources.pieces(file):
        for block in sources.read_values(piece, columns):
            for cells in zip(*block, strict=True):
                num_rows += 1
                # treat None and NaN (the only value that differs from itself) as empty
                texts = ["" if cell is None or cell != cell else str(cell) for cell in cells]
                for column, text in zip(columns, texts, strict=True):
                    if not text.strip():
                        raise InputError(
                            f"{piece.name}: row {num_rows}: {column} is empty; allowed: non-empty text"
                        )
                yield texts[0], texts[1]
    if not num_rows:
        raise InputError(f"{file}: has no rows")
