"""Requested configurations: those under ``first`` in a sweep's file, and those requested while it runs."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from raysweep.config.preset import Preset


@dataclass(frozen=True)
class RequestedConfig:
    """A requested configuration: a preset, named by its position under ``first`` or by its request."""

    name: str
    preset: Preset


def first_name(index: int) -> str:
    """Return the name of the requested configuration at this position under ``first``."""
    return f"first[{index}]"


@dataclass
class RequestedConfigs:
    """A queue of requested configurations that no trial has run yet; requests made during the sweep come first."""

    _asked: deque[RequestedConfig] = field(default_factory=deque)
    _first: deque[RequestedConfig] = field(default_factory=deque)

    @classmethod
    def of(cls, first: Iterable[Preset]) -> "RequestedConfigs":
        """Return a queue of the presets from a sweep's file."""
        requested = [RequestedConfig(first_name(index), preset) for index, preset in enumerate(first)]
        return cls(_first=deque(requested))

    def __len__(self) -> int:
        return len(self._asked) + len(self._first)

    def ask_for(self, requested: RequestedConfig) -> None:
        """Append a configuration to the requests made during the sweep, ahead of those under ``first``."""
        self._asked.append(requested)

    def has(self, preset: Preset) -> bool:
        """Return whether this exact configuration, with no parameter left to the sampler, is in the queue."""
        others = (requested.preset for requested in (*self._asked, *self._first))
        return preset.is_whole and any(other.is_whole and other.params == preset.params for other in others)

    def take(self) -> RequestedConfig:
        """Remove and return the next one; the queue must not be empty."""
        return self._asked.popleft() if self._asked else self._first.popleft()

    def drop(self, name: str) -> None:
        """Remove the requested configuration with this name, because a trial already ran it."""
        self._asked = deque(requested for requested in self._asked if requested.name != name)
        self._first = deque(requested for requested in self._first if requested.name != name)
