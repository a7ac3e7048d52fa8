"""Going on with a sweep: what its folder holds, and what may be changed about it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.config.load import LoadedSweep, Override
from raysweep.config.load import load as load_sweep
from raysweep.config.space import Choices, Fixed, Parameters, Range, Space
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.results.ledger import Ledger, events
from raysweep.results.reader import load
from raysweep.search.proposer import check_sampler

CHANGEABLE = (
    *("budget.trials", "budget.minutes", "budget.cpu_hours", "budget.gpu_hours", "budget.money", "budget.prices"),
    *("replicates", "resources", "storage.max_gib", "early_stopping.plateau"),
)
"""What a resumed sweep may be given anew. Anything else would make its trials incomparable."""


@dataclass
class Resumed:
    """A run's folder, taken for this process, with the events of its ledger."""

    folder: Path
    space_grew: bool = False
    ledger: Ledger = field(init=False)
    events: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        path = self.folder / "ledger.jsonl"
        for needed in (path, self.folder / "config.yaml", self.folder / "prepared.json"):
            if not needed.is_file():
                raise InputError(f"{self.folder}: cannot be resumed: there is no {needed.name} in it")
        self.ledger = Ledger(self.folder)
        self.ledger.open()
        for trial in load(self.folder).trials:  # so that nothing is written to a run that cannot go on
            try:
                trial_config(dict(trial.config))
            except InputError as error:
                raise InputError(f"{path}: trial {trial.trial}: {error}") from None
        self.events = list(events(path))
        if not any(event["event"] == "points" for event in self.events):
            raise InputError(f"{path}: the sweep ended before it began; run it anew")

    @property
    def num_begun(self) -> int:
        """Trials of the search that have begun, replicates aside."""
        return sum(event["event"] == "trial" and event.get("replicate_of") is None for event in self.events)

    @property
    def reference(self) -> Pair:
        """P and S of the reference encoder on dev."""
        points = (point for event in self.events if event["event"] == "points" for point in event["points"])
        point = next(one for one in points if one["kind"] == "reference" and one["split"] == "dev")
        return point["polarity"], point["similarity"]

    def next_log(self) -> Path:
        """Where this session's chatter goes: each has a file of its own."""
        number = 2
        while (self.folder / f"run-{number}.log").exists():
            number += 1
        return self.folder / f"run-{number}.log"

    def check_data(self, prepared: Prepared) -> None:
        """InputError when what was prepared now is not what the sweep's trials read."""
        before = Prepared.open(self.folder / "prepared.json")
        for name in ("sentences_folder", "tokens_folder", "reference_folder"):
            if getattr(before, name).name != getattr(prepared, name).name:
                raise InputError(
                    f"{self.folder}: the data or the encoder have changed since this sweep ran; start a new one, with "
                    f"--warm-start {self.folder} to learn from it"
                )


def check_changes(before: SweepConfig, after: SweepConfig, folder: Path) -> None:
    """InputError listing what differs, beside the space, and may not."""
    wrong = [
        f"{path} was {old!r} and is {new!r}"
        for path, old, new in _differences(before.model_dump(mode="json"), after.model_dump(mode="json"))
        if not any(path == allowed or path.startswith(f"{allowed}.") for allowed in (*CHANGEABLE, "space"))
    ]
    if wrong:
        raise InputError(
            f"{folder}: cannot be resumed with another configuration: {'; '.join(wrong)}; what may change: "
            f"{', '.join(CHANGEABLE)}, and a space that only adds"
        )


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict) and path != "space":
        for key in before | after:
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield path, before, after


def check_space(before: Space, after: Space, folder: Path) -> None:
    """InputError listing what the new space lacks of the old."""
    if missing := list(_missing(before.parameters, after.parameters, "")):
        raise InputError(f"{folder}: its space may only be added to, but: {'; '.join(missing)}")


def _missing(before: Parameters, after: Parameters, prefix: str) -> Iterator[str]:
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            yield f"{prefix}{name} is gone"
        elif isinstance(old, Choices) and isinstance(new, Choices):
            for option, children in old.options.items():
                if option not in new.options:
                    yield f"{prefix}{name} lacks {option}"
                else:
                    yield from _missing(children, new.options[option], f"{prefix}{name}={option}.")
        elif isinstance(old, Range) and isinstance(new, Range):
            if old.low < new.low or old.high > new.high or old.integer != new.integer:
                yield f"{prefix}{name} was {old.low:g} to {old.high:g} and is {new.low:g} to {new.high:g}"
        elif isinstance(old, Fixed):
            yield from () if _holds(new, old.value) else (f"{prefix}{name} lacks {old.value}",)
        elif isinstance(old, Choices) and isinstance(new, Range):
            yield from (f"{prefix}{name} lacks {option}" for option in old.options if not _holds(new, option))
        else:
            yield f"{prefix}{name} was a range"


def _holds(parameter: Any, value: Any) -> bool:
    if isinstance(parameter, Range):
        return isinstance(value, int | float) and parameter.low <= value <= parameter.high
    return value in parameter.options if isinstance(parameter, Choices) else parameter == Fixed(value)


def load_resumed(
    folder: Path, space: Path | None = None, overrides: Iterable[Override] = ()
) -> tuple[LoadedSweep, Resumed]:
    """The sweep that a run goes on with, and its state. Without ``space``, a file, it has its own, under the overrides.

    The run is taken for this process. InputError where it cannot be resumed, or not with these changes.
    """
    folder = folder.absolute()
    resumed = Resumed(folder)
    own_file = folder / "config.yaml"
    before = load_sweep(own_file)
    after = load_sweep(space or own_file, overrides)
    check_changes(before.config, after.config, folder)
    if after.config.budget.trials < resumed.num_begun:
        reason = f"is {after.config.budget.trials}, but {resumed.num_begun} have begun; allowed: that many or more"
        raise after.document.error(("budget", "trials"), reason)
    check_sampler(after)
    resumed.space_grew = after.config.space != before.config.space
    if resumed.space_grew:
        check_space(before.space, after.space, folder)
    return after, resumed
