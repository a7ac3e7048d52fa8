"""Going on with a sweep: what its folder holds, and what may be changed about it."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.config.load import LoadedSweep, Override
from raysweep.config.load import load as load_sweep
from raysweep.config.space import Choices, Fixed, Parameter, Parameters, Range, Space
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.results.events import Event, PointsScored, SessionStarted, TrialStarted
from raysweep.results.ledger import Ledger, check_dependences, read_events
from raysweep.results.reader import load
from raysweep.search.proposer import check_sampler

CHANGEABLE = (
    *("budget.trials", "budget.minutes", "budget.cpu_hours", "budget.gpu_hours", "budget.money", "budget.prices"),
    *("replicates", "resources", "storage", "early_stopping.plateau"),
)
"""What a resumed sweep may be given anew. Anything else would make its trials incomparable."""


@dataclass
class Resumed:
    """A run's folder, taken for this process, with the events of its ledger."""

    folder: Path
    space_grew: bool = False
    ledger: Ledger = field(init=False)
    events: list[Event] = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder)
        self._check_files()
        self.ledger.open()
        try:
            self._read()
        except BaseException:
            self.ledger.close()
            raise

    def _read(self) -> None:
        self._check_configurations()
        self.events = list(read_events(self.ledger.path))
        check_dependences(self.folder)
        self._check_config_file()
        if not any(isinstance(event, PointsScored) for event in self.events):
            raise InputError(f"{self.ledger.path}: the sweep ended before it began; run it anew")

    def _check_files(self) -> None:
        for name in ("ledger.jsonl", "config.yaml", "prepared.json"):
            if not (self.folder / name).is_file():
                raise InputError(f"{self.folder}: cannot be resumed: there is no {name} in it")

    def _check_config_file(self) -> None:
        """InputError unless a session of this run had this ``config.yaml``. Older versions did not say which they had."""
        path = self.folder / "config.yaml"
        digests = {event.config_digest for event in self.events if isinstance(event, SessionStarted)} - {None}
        if digests and hashlib.sha256(path.read_bytes()).hexdigest() not in digests:
            raise InputError(
                f"{path}: is not the configuration that this run was started or resumed with; put it back. What may change "
                "is given as options of run --resume"
            )

    def _check_configurations(self) -> None:
        """InputError where a trial has none, so that nothing is written to a run that cannot go on."""
        for trial in load(self.folder).trials:
            try:
                trial_config(dict(trial.config))
            except InputError as error:
                raise InputError(f"{self.ledger.path}: trial {trial.trial}: {error}") from None

    @property
    def num_begun(self) -> int:
        """Trials of the search that have begun, replicates aside."""
        return sum(isinstance(event, TrialStarted) and event.replicate_of is None for event in self.events)

    @property
    def reference(self) -> Pair:
        """P and S of the reference encoder on dev."""
        points = (point for event in self.events if isinstance(event, PointsScored) for point in event.points)
        reference = next(point for point in points if point.kind == "reference" and point.split == "dev")
        return reference.polarity, reference.similarity

    def next_log(self) -> Path:
        """Where this session's chatter goes: each has a file of its own."""
        number = 2
        while (self.folder / f"run-{number}.log").exists():
            number += 1
        return self.folder / f"run-{number}.log"

    @property
    def prepared(self) -> Prepared:
        """What the sweep's trials read."""
        return Prepared.read(self.folder / "prepared.json")

    def check_data(self, prepared: Prepared) -> None:
        """InputError when what was prepared now is not what the sweep's trials read."""
        before = self.prepared
        for name in ("sentences_folder", "tokens_folder", "reference_folder"):
            if getattr(before, name).name != getattr(prepared, name).name:
                raise InputError(
                    f"{self.folder}: the data or the encoder have changed since this sweep ran; start a new one, with "
                    f"--warm-start {self.folder} to learn from it"
                )


def check_changes(before: SweepConfig, after: SweepConfig, folder: Path) -> None:
    """InputError listing what differs, beside the space, and may not."""
    differences = _differences(before.model_dump(mode="json"), after.model_dump(mode="json"))
    wrong = [f"{key} was {old!r} and is {new!r}" for key, old, new in differences if not _may_change(key)]
    if wrong:
        raise InputError(
            f"{folder}: cannot be resumed with another configuration: {'; '.join(wrong)}; what may change: "
            f"{', '.join(CHANGEABLE)}, and a space that only adds"
        )


def _may_change(key: str) -> bool:
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in (*CHANGEABLE, "space"))


def _differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The dotted keys whose values differ, with both values. The space counts as one value."""
    if isinstance(before, dict) and isinstance(after, dict) and key != "space":
        for name in before | after:
            yield from _differences(before.get(name), after.get(name), f"{key}.{name}" if key else name)
    elif before != after:
        yield key, before, after


def check_space(before: Space, after: Space, folder: Path) -> None:
    """InputError listing what the new space lacks of the old."""
    if missing := list(_missing(before.parameters, after.parameters, "")):
        raise InputError(f"{folder}: its space may only be added to, but: {'; '.join(missing)}")


def _missing(before: Parameters, after: Parameters, prefix: str) -> Iterator[str]:
    """What the parameters of the new space lack of the old, one phrase each. ``prefix`` says under which choices."""
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            yield f"{prefix}{name} is gone"
        else:
            yield from _narrowed(old, new, f"{prefix}{name}")


def _narrowed(old: Parameter, new: Parameter, name: str) -> Iterator[str]:
    """What a parameter no longer allows."""
    match old, new:
        case Choices(), Choices():
            yield from _missing_options(old, new, name)
        case Choices(), Range():
            yield from (f"{name} lacks {option}" for option in old.options if not _allows(new, option))
        case Choices(), Fixed():
            yield f"{name} was a choice"
        case Range(), Range():
            if old.low < new.low or old.high > new.high or old.integer != new.integer:
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
    """Whether a parameter may take this value."""
    match parameter:
        case Range():
            return isinstance(value, int | float) and parameter.low <= value <= parameter.high
        case Choices():
            return value in parameter.options
        case Fixed():
            return parameter == Fixed(value)


def load_resumed(
    folder: Path, space: Path | None = None, overrides: Iterable[Override] = ()
) -> tuple[LoadedSweep, Resumed]:
    """The sweep that a run goes on with, and its state. Without ``space``, a file, it has its own, under the overrides.

    The run is taken for this process. Where it was moved, what was prepared is looked for beside it. InputError where it
    cannot be resumed, or not with these changes.
    """
    folder = folder.resolve()
    resumed = Resumed(folder)
    try:
        return _changed(resumed, space, overrides), resumed
    except BaseException:
        resumed.ledger.close()
        raise


def _changed(resumed: Resumed, space: Path | None, overrides: Iterable[Override]) -> LoadedSweep:
    """The run's sweep under the changes. InputError where one of them is not allowed."""
    folder = resumed.folder
    own_file = folder / "config.yaml"
    before = load_sweep(own_file)
    after = load_sweep(space or own_file, [*_moved(before.config, folder), *overrides])
    check_changes(before.config, after.config, folder)
    if after.config.budget.trials < resumed.num_begun:
        reason = f"is {after.config.budget.trials}, but {resumed.num_begun} have begun; allowed: that many or more"
        raise after.document.error(("budget", "trials"), reason)
    check_sampler(after)
    resumed.space_grew = after.config.space != before.config.space
    if resumed.space_grew:
        check_space(before.space, after.space, folder)
    return after


def _moved(before: SweepConfig, folder: Path) -> list[Override]:
    """The folder of runs, where the run now stands in another one and what it read is no longer where it was."""
    if before.storage.artifacts_folder.is_dir() and not (folder.parent / "artifacts").is_dir():
        return []
    return [("storage.runs", json.dumps(str(folder.parent), ensure_ascii=False))]
