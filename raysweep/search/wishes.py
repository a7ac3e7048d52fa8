"""Configurations that a person wants tried: those of a sweep's file, under ``first``, and those asked for while it runs."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from raysweep.config.preset import Preset


@dataclass(frozen=True)
class Wish:
    """A preset with a name of its own in the sweep: its place under ``first``, or the request that asked for it."""

    name: str
    preset: Preset


def first_name(index: int) -> str:
    """The name of the wish that stands at this place under ``first``."""
    return f"first[{index}]"


@dataclass
class Wishes:
    """Those that no trial has had yet, in the order in which they come: what was asked for in between comes first."""

    _asked: deque[Wish] = field(default_factory=deque)
    _first: deque[Wish] = field(default_factory=deque)

    @classmethod
    def of(cls, first: Iterable[Preset]) -> "Wishes":
        """The presets of a sweep's file."""
        wishes = [Wish(first_name(index), preset) for index, preset in enumerate(first)]
        return cls(_first=deque(wishes))

    def __len__(self) -> int:
        return len(self._asked) + len(self._first)

    def ask_for(self, wish: Wish) -> None:
        """Have it tried next, after those that were asked for before."""
        self._asked.append(wish)

    def has(self, preset: Preset) -> bool:
        """Whether this very configuration, with nothing left to the sampler, is among them."""
        others = (wish.preset for wish in (*self._asked, *self._first))
        return preset.is_whole and any(other.is_whole and other.params == preset.params for other in others)

    def take(self) -> Wish:
        """The next one, which there must be."""
        return self._asked.popleft() if self._asked else self._first.popleft()

    def drop(self, name: str) -> None:
        """A trial had the wish of this name already."""
        self._asked = deque(wish for wish in self._asked if wish.name != name)
        self._first = deque(wish for wish in self._first if wish.name != name)
