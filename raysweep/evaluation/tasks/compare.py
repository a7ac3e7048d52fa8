"""The command ``transfer``, which compares frozen encoders on tasks that they were not tuned for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from raysweep.config import packages
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders.locate import locate
from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError
from raysweep.evaluation.tasks import shared_sentences, tasks
from raysweep.evaluation.tasks.classification import Classifier, Predicted, Rows
from raysweep.evaluation.tasks.embedded import Embedded
from raysweep.evaluation.tasks.scored_pairs import ScoredPairs
from raysweep.evaluation.tasks.scores import Flags, Score, Values, spearman
from raysweep.evaluation.tasks.shared_sentences import TunedOn
from raysweep.evaluation.tasks.tasks import Classification, Columns, Task
from raysweep.storage.location import expanded, is_uri
from raysweep.terminal import Advance, Display


@dataclass(frozen=True)
class Settings:
    """Settings of a comparison. ``prompt`` precedes every sentence; None means each model's default."""

    columns: Columns = field(default_factory=Columns)
    num_folds: int = 10
    seed: int = 0
    prompt: str | None = None
    precision: Literal["fp32", "bf16"] = "fp32"


@dataclass(frozen=True)
class Correlated:
    """Gold scores of pairs and a model's similarities, (pairs,) each."""

    gold: Values
    similarities: Values

    def score(self, rows: Flags | None = None) -> Score:
        """Return Spearman's correlation over all pairs, or some of them."""
        if rows is None:
            return spearman(self.gold, self.similarities)
        return spearman(self.gold[rows], self.similarities[rows])


Outcome = Predicted | Correlated


@dataclass(frozen=True)
class Overlap:
    """The sentences that a task shares with data that models were tuned on.

    ``num_shared`` counts them by the task's parts. ``is_unseen`` marks the tested rows without shared sentences,
    (rows,).
    """

    data: TunedOn
    num_shared: Mapping[str, int]
    is_unseen: Flags

    @classmethod
    def of(cls, data: TunedOn, found: set[str], task: Task) -> "Overlap":
        """Return the overlap, given the keys of the sentences that occur in the data."""

        def is_found(sentences: Sequence[str]) -> Flags:
            return np.array([shared_sentences.key(sentence) in found for sentence in sentences], bool)

        num_shared = {part: int(is_found(sentences).sum()) for part, sentences in task.sentences.items()}
        if isinstance(task, ScoredPairs):
            return cls(data, num_shared, ~(is_found(task.first) | is_found(task.second)))
        return cls(data, num_shared, ~is_found(task.tested.texts))


@dataclass(frozen=True)
class TaskResults:
    """A task, its overlap with each data set, and each model's result."""

    task: Task
    overlaps: Sequence[Overlap]
    outcomes: dict[str, Outcome]  # by model name


@dataclass(frozen=True)
class Comparison:
    """The results of all models on all tasks."""

    settings: Settings
    models: Sequence[str]
    data: Sequence[TunedOn]
    results: Sequence[TaskResults]


def compare(
    models: Sequence[str], spelled: Sequence[str], tuned_on: Sequence[str], settings: Settings, display: Display
) -> Comparison:
    """Score every model on every task, specified as in :mod:`raysweep.evaluation.tasks.tasks`.

    Sentences are looked up in the sources ``tuned_on``, and in those that a model's provenance names.

    Raises:
        InputError: Before anything is embedded, if a task, a source or a model cannot be read.
    """
    configs = _configs(models, settings)
    _check_packages(configs, spelled, tuned_on)
    folders = {name: locate(config).folder for name, config in configs.items()}
    found = tasks.read(spelled, settings.columns, settings.num_folds)
    for task in found:
        _warn(task, settings, display)
    data = _data_of(folders, tuned_on, settings, display)
    overlaps = _overlaps(found, data, display)
    results = [TaskResults(task, overlaps[task.name], {}) for task in found]
    sentences = _all_sentences(found)
    for name, config in configs.items():
        embedded = Embedded.of(config, sentences, display)
        for each in results:
            each.outcomes[name] = _outcome(name, embedded, each.task, settings, display)
    return Comparison(settings, list(models), data, results)


def _check_packages(configs: Mapping[str, EncoderConfig], spelled: Sequence[str], tuned_on: Sequence[str]) -> None:
    needs = [need for config in configs.values() for need in packages.needs_of_encoder("MODEL", config)]
    task_sources = [source for each in spelled for source in tasks.sources_of(each)]
    needs += packages.needs_of_sources("--tasks", task_sources)
    needs += packages.needs_of_sources("--tuned-on", tuned_on)
    packages.check(needs)


def _configs(models: Sequence[str], settings: Settings) -> dict[str, EncoderConfig]:
    """Return the models by name, or raise InputError if one is given twice."""
    for name, count in Counter(models).items():
        if count > 1:
            raise InputError(f"MODEL: {name!r} is named more than once")
    return {name: EncoderConfig(name=name, prompt=settings.prompt, precision=settings.precision) for name in models}


def _all_sentences(found: Sequence[Task]) -> list[str]:
    return [sentence for task in found for sentences in task.sentences.values() for sentence in sentences]


def _warn(task: Task, settings: Settings, display: Display) -> None:
    """Warn of merged labels, classes that are too small for the folds, and test labels that train lacks."""
    if isinstance(task, ScoredPairs):
        return
    if task.merged:
        display.warn(f"{task.name}: {task.merged}")
    if not task.is_split:
        counts = Counter(task.tested.labels)
        small = sorted(label for label, count in counts.items() if count < settings.num_folds)
        if small:
            display.warn(f"{task.name}: fewer rows than folds have the labels {', '.join(small)}")
        return
    known = set(task.parts["train"].labels)
    unknown = [label for label in task.tested.labels if label not in known]
    if unknown:
        display.warn(f"{task.name}: {len(unknown)} rows of test have labels that train lacks, such as {unknown[0]!r}")


def _data_of(folders: Mapping[str, Path], given: Sequence[str], settings: Settings, display: Display) -> list[TunedOn]:
    """Return the given sources, and those that models name themselves if available, each once."""
    text_column = settings.columns.text
    found: dict[tuple[str, ...], TunedOn] = {(_absolute(source),): TunedOn((source,), text_column) for source in given}
    for data in found.values():
        data.check()
    for model, folder in folders.items():
        provenance = Provenance.read(folder)
        if provenance is None or not provenance.tuned_on:
            continue
        same = tuple(map(_absolute, provenance.tuned_on))
        if same not in found:
            data = TunedOn(provenance.tuned_on, provenance.text_column, provenance.subset)
            if problem := _problem(data):
                display.warn(f"{model} was tuned on {data.name}, in which nothing is counted: {problem}")
                continue
            found[same] = data
        found[same] = found[same].of_model(model)
    return list(found.values())


def _problem(data: TunedOn) -> str:
    """Return why data that a model names cannot be read, "" if it can."""
    if any(map(_is_elsewhere, data.source)):  # models are untrusted: they must not trigger network requests
        return "it is not on this machine; --tuned-on has it read all the same"
    try:
        data.check()
    except InputError as error:
        return str(error)
    return ""


def _is_elsewhere(source: str) -> bool:
    return source.startswith("hub:") or is_uri(source)


def _absolute(source: str) -> str:
    is_path = source != "demo" and not _is_elsewhere(source)
    return str(expanded(source).absolute()) if is_path else source


def _overlaps(found: Sequence[Task], data: Sequence[TunedOn], display: Display) -> dict[str, list[Overlap]]:
    """Return the overlap of each task with each data set, by task name."""
    overlaps: dict[str, list[Overlap]] = {task.name: [] for task in found}
    sentences = _all_sentences(found)
    for each in data:
        with display.stage(f"transfer: {each.name}") as advance:
            shared = shared_sentences.found_in(each, sentences, advance)
        for task in found:
            overlaps[task.name].append(Overlap.of(each, shared, task))
    return overlaps


def _outcome(model: str, embedded: Embedded, task: Task, settings: Settings, display: Display) -> Outcome:
    if isinstance(task, ScoredPairs):
        return Correlated(task.gold, embedded.similarities(task.first, task.second))
    with display.stage(f"transfer: {model} on {task.name}") as advance:
        return _predicted(_rows_of(task, embedded), settings, advance)


def _rows_of(task: Classification, embedded: Embedded) -> dict[str, Rows]:
    """Return the embeddings of each part of a task, with the same class numbers in all parts."""
    label_names = {label for labeled in task.parts.values() for label in labeled.labels}
    numbers = {label: number for number, label in enumerate(sorted(label_names))}
    rows = {}
    for part, labeled in task.parts.items():
        labels = np.array([numbers[label] for label in labeled.labels])
        rows[part] = Rows(embedded.of_sentences(labeled.texts), labels)
    return rows


def _predicted(parts: Mapping[str, Rows], settings: Settings, advance: Advance) -> Predicted:
    num_done = 0

    def on_fit() -> None:
        nonlocal num_done
        num_done += 1
        advance(num_done, num_fits, "fits")

    classifier = Classifier(settings.num_folds, settings.seed, on_fit)
    num_fits = classifier.num_fits(is_split="test" in parts, has_dev="dev" in parts)
    if "test" in parts:
        return classifier.test(parts["train"], parts.get("dev"), parts["test"])
    return classifier.cross_validate(parts["all"])
