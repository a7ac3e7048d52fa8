"""Lock and validate a run before its sweep is resumed."""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from raysweep.config.data_kind import of_kind
from raysweep.config.load import LoadedSweep, Override
from raysweep.config.load import load as load_sweep
from raysweep.config.space import (
    Choices,
    Fixed,
    Parameter,
    Parameters,
    Range,
    Space,
    branches,
    names_of,
)
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.metrics.scores import Goals, Pair
from raysweep.results.events import Event, PointsScored, TrialStarted
from raysweep.results.ledger import NAME as LEDGER
from raysweep.results.ledger import (
    Ledger,
    checkpoint_folder,
    ledger_location,
    load_events,
    point_folder,
)
from raysweep.results.reader import build_results
from raysweep.results.settings_file import check_settings
from raysweep.results.types import Point, Results
from raysweep.search.proposer import check_sampler
from raysweep.storage import location
from raysweep.storage.folder import Folder, LocalFolder, as_folder, open_folder

FILES = ("config.yaml", "prepared.json")  # the files that a run requires in addition to its ledger
STUDY_LOCK = "study.journal.lock"  # name prefix of the symbolic links that Optuna uses as locks

CHANGEABLE = (
    *(
        "budget.trials",
        "budget.minutes",
        "budget.cpu_hours",
        "budget.gpu_hours",
        "budget.money",
        "budget.prices",
    ),
    *(
        "replicates",
        "resources",
        "storage",
        "early_stopping.plateau",
        "baselines",
        "report",
        "guards",
        "trackers",
    ),
)
"""Settings that may change when a sweep is resumed. With other changes, its trials would not be comparable."""


# see raysweep.training.checkpoint
_CHECKPOINT = re.compile(r"trial-(?P<trial>\d+)/(?P<examples>\d+)/")
_POINT = re.compile(r"trial-(?P<trial>\d+)-step-(?P<rung>\d+)")

READ_BY_TRIALS: Mapping[str, Callable[[Prepared], Iterable[Any]]] = {
    "the data (data.train, data.dev or data.test) have": lambda prepared: [
        prepared.sentences_artifact
    ],
    "the data (data.sequence) have": lambda prepared: [
        task.sentences for task in prepared.tasks.values()
    ],
    "the encoder (model) has": lambda prepared: prepared.tokens_artifacts.distinct,
    "the reference encoder (reference) has": lambda prepared: prepared.reference_artifacts.distinct,
    "the teacher (teacher) has": lambda prepared: [prepared.teacher_artifact],
}
"""Artifacts built from each input that all trials read, in build order. Keys are used in error messages."""


@dataclass
class Resumed:
    """A run's folder, locked by this process, and the events in its ledger.

    ``report`` receives messages, for example that another process has locked the run. If ``take_over`` is True, the
    lock is taken from that process.
    """

    place: Path | Folder
    report: Callable[[str], None] = print
    take_over: bool = False
    space_changed: bool = field(default=False, init=False)
    ledger: Ledger = field(init=False)
    events: list[Event] = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.place, self.report, self.take_over)
        if not self.run.exists(LEDGER) and not self.run.exists(f"{LEDGER}.jsonl"):
            raise InputError(
                f"{self.location}: cannot be resumed: it has no ledger, so no sweep started there"
            )
        for name in FILES:
            if not self.run.exists(name):
                raise InputError(f"{self.location}: cannot be resumed: {name} is missing")
        check_links(self.run)
        self.events = self.ledger.open()
        try:
            for name in FILES:  # fetch again: the last lock holder may have changed them
                self.run.fetch(name)
            self._check(build_results(self.events, self.run))
        except BaseException:
            self.ledger.close()
            raise

    @property
    def run(self) -> Folder:
        return self.ledger.run

    @property
    def folder(self) -> Path:
        """Return the local path of the run's files."""
        return self.run.path

    @property
    def location(self) -> str:
        """Return the run's path or URI."""
        return self.run.location

    def _check(self, results: Results) -> None:
        """Raise ``InputError`` if the run cannot be resumed."""
        examples_per_rung = {}
        for trial in results.trials:
            try:
                config = trial_config(dict(trial.config))
            except InputError as error:
                raise InputError(
                    f"{ledger_location(self.run)}: trial {trial.trial}: {error}"
                ) from None
            examples_per_rung[trial.trial] = config.examples_per_rung
        check_rungs(self.run, results, examples_per_rung)
        if results.without_checkpoints:
            numbers = ", ".join(map(str, results.without_checkpoints))
            self.report(
                f"{self.location}: checkpoints were removed, so these trials will not be resumed: {numbers}"
            )
        check_settings(self.run, results.config_digests)
        if not has_begun(self.events):
            raise InputError(
                f"{ledger_location(self.run)}: the sweep did not start, so it cannot be resumed; start a new one"
            )

    @property
    def num_begun(self) -> int:
        """Return the number of trials that have started, excluding replicates."""
        return sum(
            isinstance(event, TrialStarted) and event.replicate_of is None for event in self.events
        )

    @property
    def points(self) -> list[Point]:
        """Return the points of baselines and the points scored on test."""
        return [
            point
            for event in self.events
            if isinstance(event, PointsScored)
            for point in event.points
        ]

    def reference(self, goals: Goals) -> Pair:
        """Return P and S of the reference encoder on dev."""
        reference = next(
            point for point in self.points if point.kind == "reference" and point.split == "dev"
        )
        return reference.pair(goals)

    def next_log(self) -> str:
        """Return an unused name for this session's log file."""
        names = self.run.names()
        number = 2
        while f"run-{number}.log" in names:
            number += 1
        return f"run-{number}.log"

    @property
    def prepared(self) -> Prepared:
        """Return the artifacts that the sweep's trials read."""
        return Prepared.read(self.folder / "prepared.json")

    def check_data(self, before: Prepared, prepared: Prepared) -> None:
        """Raise ``InputError`` if the trials' inputs in ``prepared`` differ from those in ``before``."""
        for inputs, artifacts in READ_BY_TRIALS.items():
            names_before = [artifact and artifact.name for artifact in artifacts(before)]
            names = [artifact and artifact.name for artifact in artifacts(prepared)]
            if names_before != names:
                raise InputError(
                    f"{self.location}: {inputs} changed since this sweep ran; start a new one, with --warm-start "
                    f"{shlex.quote(self.location)} to learn from it"
                )


def check_links(run: Folder) -> None:
    """Raise ``InputError`` if a local run contains symbolic links or special files.

    Links could expose files outside the run.
    """
    if not isinstance(run, LocalFolder):
        return
    for parent, folders, files in os.walk(run.path):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                is_study_lock = path.parent == run.path and name.startswith(STUDY_LOCK)
                if not is_study_lock:
                    raise InputError(
                        f"{path}: is a symbolic link; allowed in a run: files and folders"
                    )
            elif path.exists() and not (path.is_dir() or path.is_file()):
                raise InputError(
                    f"{path}: is neither a file nor a folder; allowed in a run: files and folders"
                )


def check_rungs(run: Folder, results: Results, examples_per_rung: Mapping[int, int]) -> None:
    """Raise ``InputError`` if rungs are missing from the ledger.

    One stored rung per trial may be missing, because a worker stores a rung's files before the driver records the rung.
    ``examples_per_rung`` is keyed by trial.
    """
    ledger = ledger_location(run)
    num_rungs = dict.fromkeys(examples_per_rung, 0)
    for rung in results.rungs:
        num_rungs[rung.trial] = max(num_rungs[rung.trial], rung.step)
    for trial, stored_rung, folder in _stored_rungs(run, examples_per_rung):
        if trial not in num_rungs:
            raise InputError(
                f"{ledger}: trial {trial} is missing, but {folder} exists; restore the missing lines, or remove that folder"
            )
        if stored_rung > num_rungs[trial] + 1:
            raise InputError(
                f"{ledger}: trial {trial} ends at rung {num_rungs[trial]}, but {folder} has rung {stored_rung}; restore the "
                "missing lines, or remove that folder"
            )


def _stored_rungs(
    run: Folder, examples_per_rung: Mapping[int, int]
) -> Iterator[tuple[int, int, str]]:
    """Yield the trial, rung and folder of each stored checkpoint and point."""
    for name in sorted(run.sizes("checkpoints")):
        match = _CHECKPOINT.match(name)
        if match is None:
            continue
        trial = int(match["trial"])
        rung = 0  # if the trial is unknown
        if trial in examples_per_rung:
            rung = int(match["examples"]) // examples_per_rung[trial]
        folder = location.join(run.location, checkpoint_folder(trial))
        yield trial, rung, folder
    for name in sorted(run.names("points")):
        match = _POINT.fullmatch(name)
        if match is None:
            continue
        trial = int(match["trial"])
        rung = int(match["rung"])
        folder = location.join(run.location, point_folder(trial, rung))
        yield trial, rung, folder


def has_begun(events: Iterable[Event]) -> bool:
    """Return whether the sweep that logged these events has begun and can be resumed."""
    return any(isinstance(event, PointsScored) for event in events)


class RunState(NamedTuple):
    """Whether a run has begun and, if it failed for good, the reason."""

    has_begun: bool
    failure: str | None = None


def read_state(place: str) -> RunState:
    """Return the state of the run at ``place`` without locking the run.

    Raises:
        InputError: If the ledger is invalid.
    """
    run = open_folder(place)
    try:
        events = list(load_events(run))
    except FileNotFoundError:
        return RunState(has_begun=False)
    if not has_begun(events):
        return RunState(has_begun=False)
    results = build_results(events, run)
    return RunState(True, results.reason if results.has_failed_for_good else None)


def check_changes(before: SweepConfig, after: SweepConfig, run: str) -> None:
    """Raise ``InputError`` if settings outside ``CHANGEABLE`` have changed. The space is not checked."""
    old_settings = before.model_dump(mode="json")
    new_settings = after.model_dump(mode="json")
    differences = _differences(old_settings, new_settings)
    changeable = (*CHANGEABLE, "space")
    forbidden = []
    for key, old, new in differences:
        may_change = any(key == allowed or key.startswith(f"{allowed}.") for allowed in changeable)
        if not may_change:
            forbidden.append(f"{key} was {old!r} and is {new!r}")
    if forbidden:
        raise InputError(
            f"{run}: cannot be resumed with a different configuration: {'; '.join(forbidden)}; allowed changes: "
            f"{', '.join(CHANGEABLE)}, additions to the space, and new bounds for its ranges"
        )


def _differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each dotted key whose values differ, with both values. The space counts as a single value."""
    if isinstance(before, dict) and isinstance(after, dict) and key != "space":
        for name in before | after:
            yield from _differences(
                before.get(name), after.get(name), f"{key}.{name}" if key else name
            )
    elif before != after:
        yield key, before, after


def check_space(before: Space, after: Space, run: str) -> None:
    """Raise ``InputError`` if parts of the old space are missing from the new one.

    Ranges may become wider or narrower. Trials outside the new range are kept.
    """
    if missing := list(_missing(before.parameters, after.parameters, "")):
        raise InputError(f"{run}: the new space must contain the old one: {'; '.join(missing)}")


def check_defaults(before: Space, after: Space, run: str) -> None:
    """Raise ``InputError`` if the new space excludes the default of an added parameter.

    Trials from the old space use this default.
    """
    known = set(names_of(before.parameters))
    for values in branches(before.parameters):
        trial = trial_config(values)
        try:
            after.suggest_fixed(trial.flat, widened=known)
        except ValueError as error:
            raise InputError(
                f"{run}: the new space must include the default of each added parameter: {error}"
            ) from None


def _missing(before: Parameters, after: Parameters, prefix: str) -> Iterator[str]:
    """Yield a message for each old parameter or value that the new parameters lack."""
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            yield f"{prefix}{name} is missing"
        else:
            yield from _narrowed(old, new, f"{prefix}{name}")


def _narrowed(old: Parameter, new: Parameter, name: str) -> Iterator[str]:
    """Yield a message for each value that a parameter no longer allows."""
    match old, new:
        case Choices(), Choices():
            yield from _missing_options(old, new, name)
        case Choices(), Range():
            missing = [option for option in old.options if not _allows(new, option)]
            yield from (f"{name} lacks {option}" for option in missing)
        case Choices(), Fixed():
            yield f"{name} was a choice"
        case Range(), Range():
            if old.integer != new.integer:
                yield f"{name} was {old.low:g} to {old.high:g} and is {new.low:g} to {new.high:g}"
        case Range(), _:
            yield f"{name} was a range"
        case Fixed(), _:
            if not _allows(new, old.value):
                yield f"{name} lacks {old.value}"


def _missing_options(old: Choices, new: Choices, name: str) -> Iterator[str]:
    for option, parameters in old.options.items():
        if option in new.options:
            yield from _missing(parameters, new.options[option], f"{name}={option}.")
        else:
            yield f"{name} lacks {option}"


def _allows(parameter: Parameter, value: Any) -> bool:
    match parameter:
        case Range():
            return isinstance(value, int | float) and parameter.low <= value <= parameter.high
        case Choices():
            return value in parameter.options
        case Fixed():
            return parameter == Fixed(value)


def load_resumed(
    place: Path | Folder,
    space: Path | None = None,
    overrides: Iterable[Override] = (),
    report: Callable[[str], None] = print,
    *,
    take_over: bool = False,
) -> tuple[LoadedSweep, Resumed]:
    """Lock a run for this process, and return its sweep and the state to resume from.

    The settings are read from the file ``space``, by default the run's own, and changed by ``overrides``. ``report`` and
    ``take_over`` are passed to :class:`Resumed`.

    Raises:
        InputError: If the run cannot be resumed with these settings.
    """
    run = as_folder(place)
    if isinstance(run, LocalFolder):  # the path may contain a link
        run = LocalFolder(run.path.resolve())
    resumed = Resumed(run, report, take_over)
    try:
        return _changed(resumed, space, list(overrides)), resumed
    except BaseException:
        resumed.ledger.close()
        raise


def _changed(resumed: Resumed, space: Path | None, overrides: Sequence[Override]) -> LoadedSweep:
    """Return the run's sweep with the changes applied. Raise ``InputError`` if a change is not allowed."""
    own_file = resumed.folder / "config.yaml"
    before = load_sweep(own_file)
    override_of_runs = _override_runs(before.config, resumed.location, overrides)
    after = load_sweep(space or own_file, [*override_of_runs, *overrides])
    kind = before.config.data.kind
    # reuse the run's kind if the file does not set one
    if kind is not None and after.config.data.kind is None:
        after = replace(after, config=of_kind(after.config, after.space, kind))
    check_changes(before.config, after.config, resumed.location)
    num_trials = after.config.budget.trials
    num_begun = resumed.num_begun
    if num_trials < num_begun:
        reason = (
            f"is {num_trials}, but {num_begun} trials have started; allowed: at least {num_begun}"
        )
        raise after.document.error(("budget", "trials"), reason)
    sampler = after.config.sampler
    is_imported = ":" in sampler and not sampler.startswith("optuna.samplers:")
    # Anyone with write access to the run could have put an import path into the run's file.
    if is_imported and space is None and "sampler" not in dict(overrides):
        raise InputError(
            f"{resumed.location}: sampler is {sampler!r} in the run's own file; resuming would execute its code; to "
            f"allow this: --sampler {sampler}"
        )
    check_sampler(after)
    resumed.space_changed = after.config.space != before.config.space
    if resumed.space_changed:
        check_space(before.space, after.space, resumed.location)
        check_defaults(before.space, after.space, resumed.location)
    return after


def _override_runs(
    before: SweepConfig, place: str, overrides: Sequence[Override]
) -> list[Override]:
    """Return an override of ``storage.runs`` if the run was moved, unless its artifacts were not moved with it.

    The old location may be unreachable, so it is not read if ``overrides`` sets ``storage.artifacts``.
    """
    runs = location.parent(place)
    if runs == before.storage.runs:
        return []
    if "storage.artifacts" not in dict(overrides):
        old_artifacts = open_folder(before.storage.artifacts_location).names()
        new_artifacts = open_folder(runs).names("artifacts")
        if old_artifacts and not new_artifacts:
            return []
    return [("storage.runs", json.dumps(runs, ensure_ascii=False))]
