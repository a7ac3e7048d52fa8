"""The ``transfer`` command, which compares frozen encoders on tasks that they were not tuned for.

Task sentences that also occur in a model's tuning data are counted, and scores are also reported without them. Sentences
are compared by their letters and digits, after NFKC normalization and case folding. If most letters in a sentence are
ASCII, its non-ASCII characters are ignored, because some corpora drop or garble them: ``touché !`` in one corpus is
``Touch`` in another.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import numpy as np

from raysweep.config import packages
from raysweep.config.sides import Side
from raysweep.config.sweep import EncoderConfig, Prompts
from raysweep.data import files, sources
from raysweep.data.scored_pairs import ScoredPairs
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder, locate_evaluated
from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError
from raysweep.evaluation.tasks import tasks
from raysweep.evaluation.tasks.classification import Classifier, Predicted, Rows
from raysweep.evaluation.tasks.scores import Flags, Score, Values, spearman
from raysweep.evaluation.tasks.tasks import Columns, Task
from raysweep.metrics.arrays import Float32Array
from raysweep.storage.location import expand_home, is_uri
from raysweep.terminal import Advance, Display

_NOT_ASCII = re.compile("[^a-z0-9]+")


@dataclass(frozen=True)
class Settings:
    """Settings for a comparison. ``prompt`` is prepended to sentences; None means each model's default."""

    columns: Columns = field(default_factory=Columns)
    num_folds: int = 10
    seed: int = 0
    prompt: str | Prompts | None = None
    precision: Literal["fp32", "bf16"] = "fp32"


@dataclass(frozen=True)
class Embedded:
    """A model's embeddings of distinct sentences, (sentences, width).

    ``embeddings`` contains document embeddings, and ``as_queries`` contains query embeddings. They are the same array
    unless the model has a Router or different prompts for queries and documents. ``rows`` maps sentences to rows.
    ``by_inner_product`` is True if the model's similarity function is ``dot``.
    """

    embeddings: Float32Array
    rows: dict[str, int]
    by_inner_product: bool
    as_queries: Float32Array

    @classmethod
    def of(cls, config: EncoderConfig, sentences: Iterable[str], display: Display) -> "Embedded":
        """Load an encoder and embed each distinct sentence.

        Raises:
            InputError: If the encoder cannot be loaded, or an embedding is not finite.
        """
        distinct = list(dict.fromkeys(sentences))
        rows = {sentence: row for row, sentence in enumerate(distinct)}
        with display.stage(f"transfer: {config.name}") as advance:
            loaded = LoadedEncoder.load(config, device=encoder.best_device())
            embeddings = as_queries = loaded.embed_texts(distinct, unit=False, advance=advance)
            if not loaded.is_symmetric:
                as_queries = loaded.embed_texts(distinct, side="query", unit=False, advance=advance)
        by_inner_product = loaded.traits.similarity == "dot"
        return cls(embeddings, rows, by_inner_product, as_queries)

    def of_sentences(self, sentences: Sequence[str], side: Side = "document") -> Float32Array:
        """Return the embeddings of these sentences, (len(sentences), width)."""
        embeddings = self.as_queries if side == "query" else self.embeddings
        return embeddings[[self.rows[sentence] for sentence in sentences]]

    def similarities(self, first: Sequence[str], second: Sequence[str]) -> Values:
        """Return the similarity of each query-document pair, (pairs,)."""
        left = self.of_sentences(first, "query").astype(np.float64)
        right = self.of_sentences(second).astype(np.float64)
        products: Values = np.einsum("ij,ij->i", left, right)
        if self.by_inner_product:
            return products
        left_lengths = np.linalg.norm(left, axis=1)
        right_lengths = np.linalg.norm(right, axis=1)
        min_divisor = np.finfo(np.float64).tiny
        cosines: Values = products / np.maximum(left_lengths * right_lengths, min_divisor)
        return cosines


@dataclass(frozen=True)
class Correlated:
    """Gold scores of pairs and a model's similarities, (pairs,) each."""

    gold: Values
    similarities: Values

    def score(self, rows: Flags | None = None) -> Score:
        """Return Spearman's correlation over all pairs, or over those in the mask ``rows``."""
        if rows is None:
            return spearman(self.gold, self.similarities)
        return spearman(self.gold[rows], self.similarities[rows])


Outcome = Predicted | Correlated


@dataclass(frozen=True)
class TunedOn:
    """Sources of tuning data and their text column.

    ``subset`` is the configuration name of a source on the Hub. ``models`` lists the models tuned on this data.
    """

    source: tuple[str, ...]
    text_column: str = "text"
    subset: str | None = None
    models: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return sources.shown(self.source)

    @property
    def pieces(self) -> list[sources.Piece]:
        """Return the pieces of the sources, or raise InputError if a source does not exist."""
        return sources.pieces(self.source, subset=self.subset)

    def check(self) -> None:
        """Raise InputError if a source does not exist or lacks the text column. The Hub is not contacted."""
        for piece in self.pieces:
            if piece.file is not None:
                files.positions(piece.name, sources.column_names(piece), (self.text_column,))

    def with_model(self, model: str) -> "TunedOn":
        return replace(self, models=(*self.models, model))


def sentence_key(sentence: str) -> str:
    """Return the letters and digits by which a sentence is compared; "" matches no sentence."""
    folded = normalize("NFKC", sentence).casefold()
    ascii_only = _NOT_ASCII.sub("", folded)
    if folded.isascii():
        return ascii_only
    letters = list(filter(str.isalpha, folded))
    num_ascii = sum(map(str.isascii, letters))
    if num_ascii > len(letters) / 2:
        return ascii_only
    return "".join(filter(str.isalnum, folded))


def find_shared(
    data: TunedOn, sentences: Iterable[str], advance: Advance = lambda done, total, unit: None
) -> set[str]:
    """Return the keys of the sentences that occur in ``data``.

    Raises:
        InputError: If the data cannot be read.
    """
    keys = set(map(sentence_key, sentences))
    keys.discard("")
    shared: set[str] = set()
    num_rows = 0
    for piece in data.pieces:
        for (texts,) in sources.read_values(piece, (data.text_column,)):
            keys_of_rows = {sentence_key(text) for text in texts if isinstance(text, str)}
            shared |= keys & keys_of_rows
            num_rows += len(texts)
            advance(num_rows, 0, "rows")
    return shared


@dataclass(frozen=True)
class Overlap:
    """The overlap of a task with tuning data.

    ``num_shared`` is the number of shared sentences in each part of the task. ``is_unseen`` (rows,) marks the tested
    rows without shared sentences.
    """

    data: TunedOn
    num_shared: Mapping[str, int]
    is_unseen: Flags

    @classmethod
    def of(cls, data: TunedOn, shared: set[str], task: Task) -> "Overlap":
        """Return a task's overlap with ``data``, given the result of :func:`find_shared`."""

        def is_shared(sentences: Sequence[str]) -> Flags:
            return np.array([sentence_key(sentence) in shared for sentence in sentences], bool)

        num_shared = {
            part: int(is_shared(sentences).sum()) for part, sentences in task.sentences.items()
        }
        if isinstance(task, ScoredPairs):
            return cls(data, num_shared, ~(is_shared(task.first) | is_shared(task.second)))
        return cls(data, num_shared, ~is_shared(task.tested.texts))


@dataclass(frozen=True)
class TaskResults:
    """A task, its overlap with each tuning data set, and each model's result."""

    task: Task
    overlaps: list[Overlap]
    outcomes: dict[str, Outcome]  # by model name


@dataclass(frozen=True)
class Comparison:
    """The results of all models on all tasks."""

    settings: Settings
    models: Sequence[str]
    data: Sequence[TunedOn]
    results: Sequence[TaskResults]


def compare(
    models: Sequence[str],
    specifications: Sequence[str],
    tuned_on: Sequence[str],
    settings: Settings,
    display: Display,
) -> Comparison:
    """Score every model on every task, and find the task sentences that occur in tuning data.

    Tuning data is read from the ``tuned_on`` sources and the sources in the models' provenance files. See
    :mod:`raysweep.evaluation.tasks.tasks` for the format of ``specifications``.

    Raises:
        InputError: If a task, a source or a model cannot be read.
    """
    configs = {}
    for name, count in Counter(models).items():
        if count > 1:
            raise InputError(f"MODEL: {name!r} is given {count} times; list each model only once")
        configs[name] = EncoderConfig(
            name=name, prompt=settings.prompt, precision=settings.precision
        )
    _check_packages(configs, specifications, tuned_on)
    folders = {name: locate_evaluated(config, display).folder for name, config in configs.items()}
    all_tasks = tasks.read(specifications, settings.columns, settings.num_folds)
    for task in all_tasks:
        _warn(task, settings, display)
    tuning_data = _tuning_data(folders, tuned_on, settings, display)
    sentences: list[str] = []
    for task in all_tasks:
        for part in task.sentences.values():
            sentences += part
    results = [TaskResults(task, [], {}) for task in all_tasks]
    for data in tuning_data:
        with display.stage(f"transfer: {data.name}") as advance:
            shared = find_shared(data, sentences, advance)
        for result in results:
            result.overlaps.append(Overlap.of(data, shared, result.task))
    for name, config in configs.items():
        embedded = Embedded.of(config, sentences, display)
        for result in results:
            result.outcomes[name] = _outcome(name, embedded, result.task, settings, display)
    return Comparison(settings, list(models), tuning_data, results)


def _check_packages(
    configs: Mapping[str, EncoderConfig], specifications: Sequence[str], tuned_on: Sequence[str]
) -> None:
    needs: list[packages.Need] = []
    for config in configs.values():
        needs += packages.needs_of_encoder("MODEL", config)
    for specification in specifications:
        needs += packages.needs_of_sources("--tasks", tasks.sources_of(specification))
    needs += packages.needs_of_sources("--tuned-on", tuned_on)
    packages.check(needs)


def _warn(task: Task, settings: Settings, display: Display) -> None:
    """Warn about merged labels, classes that are too small for the folds, and test labels that are missing from train."""
    if isinstance(task, ScoredPairs):
        return
    if task.merged:
        display.warn(f"{task.name}: {task.merged}")
    if not task.is_split:
        counts = Counter(task.tested.labels)
        rare_labels = sorted(label for label, count in counts.items() if count < settings.num_folds)
        if rare_labels:
            listed = ", ".join(rare_labels)
            display.warn(f"{task.name}: labels with fewer rows than folds: {listed}")
        return
    train_labels = set(task.parts["train"].labels)
    unknown_labels = [label for label in task.tested.labels if label not in train_labels]
    if unknown_labels:
        num_rows = len(unknown_labels)
        example = unknown_labels[0]
        display.warn(
            f"{task.name}: {num_rows} of {len(task.tested.labels)} rows in test have labels that are not in train, such as "
            f"{example!r}"
        )


def _tuning_data(
    folders: Mapping[str, Path], tuned_on: Sequence[str], settings: Settings, display: Display
) -> list[TunedOn]:
    """Return the ``tuned_on`` sources and the readable sources in the models' provenance files."""
    data_by_sources: dict[tuple[str, ...], TunedOn] = {}
    for source in tuned_on:
        key: tuple[str, ...] = (_absolute(source),)
        data_by_sources[key] = TunedOn((source,), settings.columns.text)
    for data in data_by_sources.values():
        data.check()
    for model, folder in folders.items():
        provenance = Provenance.read(folder)
        if provenance is None or not provenance.tuned_on:
            continue
        key = tuple(map(_absolute, provenance.tuned_on))
        if key not in data_by_sources:
            data = TunedOn(provenance.tuned_on, provenance.text_column, provenance.subset)
            if problem := _problem(data):
                display.warn(
                    f"{model}: tuned on {data.name}; overlap with the tasks is not checked: {problem}"
                )
                continue
            data_by_sources[key] = data
        data_by_sources[key] = data_by_sources[key].with_model(model)
    return list(data_by_sources.values())


def _problem(data: TunedOn) -> str:
    """Return the reason why a model's tuning data cannot be read, or "" if it can be read."""
    # models are untrusted and must not trigger network requests
    if any(map(_is_remote, data.source)):
        return "not on this machine; to read it anyway, pass --tuned-on"
    try:
        data.check()
    except InputError as error:
        return str(error)
    return ""


def _is_remote(source: str) -> bool:
    return source.startswith("hub:") or is_uri(source)


def _absolute(source: str) -> str:
    is_path = source != "demo" and not _is_remote(source)
    return str(expand_home(source).absolute()) if is_path else source


def _outcome(
    model: str, embedded: Embedded, task: Task, settings: Settings, display: Display
) -> Outcome:
    if isinstance(task, ScoredPairs):
        similarities = embedded.similarities(task.first, task.second)
        return Correlated(task.gold, similarities)
    label_names = {label for labeled in task.parts.values() for label in labeled.labels}
    numbers = {label: number for number, label in enumerate(sorted(label_names))}
    parts = {}
    for part, labeled in task.parts.items():
        labels = np.array([numbers[label] for label in labeled.labels])
        parts[part] = Rows(embedded.of_sentences(labeled.texts), labels)
    num_done = 0
    with display.stage(f"transfer: {model} on {task.name}") as advance:

        def on_fit() -> None:
            nonlocal num_done
            num_done += 1
            advance(num_done, num_fits, "fits")

        classifier = Classifier(settings.num_folds, settings.seed, on_fit)
        num_fits = classifier.num_fits(is_split=task.is_split, has_dev="dev" in parts)
        if task.is_split:
            return classifier.test(parts["train"], parts.get("dev"), parts["test"])
        return classifier.cross_validate(parts["all"])
