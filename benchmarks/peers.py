"""Peers measured side by side: each in its own process, in alternating turns, so that other load affects all alike.

In separate processes, each peer has its own peak memory. Setup and teardown are outside the turns and not timed.
"""

import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks import measure

_context: Any = multiprocessing.get_context("spawn")
MOST_OTHERS = 0.1  # of all CPUs, in a turn that counts
_PRELOAD = ["torch", "sentence_transformers", "raysweep.training.trainer", "raysweep.prepare.build"]


class Turn(NamedTuple):
    """Examples done, seconds taken, the share of all CPUs that other processes used, and the GPU memory's peak so far."""

    amount: float
    seconds: float
    others: float
    device_bytes: int


class Turns:
    """A peer's end of the connection. Its clock runs from :meth:`begin`, or the end of a rest, to the next rest."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self._began = self._others = 0.0

    def begin(self) -> None:
        """Wait for the first turn, after setup."""
        self._pipe.send(("ready",))
        self._wait()

    def rest(self, amount: float) -> None:
        """Report ``amount`` examples of this turn, and wait for the next one."""
        self._pipe.send(("turn", amount, *self._elapsed()))
        self._wait()

    def end(self, amount: float = 0.0) -> None:
        """End the last turn. Later work is not timed and waits until the other peers end theirs."""
        self._pipe.send(("end", amount, *self._elapsed(), measure.peak_resident()))
        self._wait()

    def _elapsed(self) -> tuple[float, float, int]:
        """Return the seconds of this turn and the other values of a :class:`Turn`."""
        _wait_for_device()
        seconds = time.perf_counter() - self._began
        others = (_others() - self._others) / seconds / (os.cpu_count() or 1)
        return seconds, others, _peak_on_device()

    def _wait(self) -> None:
        self._pipe.recv()
        self._others = _others()
        self._began = time.perf_counter()


class Peer:
    """One measured function: ``work(turns, *arguments)`` in its own process. Its return value becomes :attr:`result`.

    If the peer ``waits``, its process imports ``work``'s module and calls it after :meth:`go`.
    """

    def __init__(
        self, name: str, work: Callable[..., Any], *arguments: Any, waits: bool = False
    ) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self.counted: list[
            int
        ] = []  # the turns that no other process disturbed, neither of this peer nor its rivals
        self.peak_bytes = 0
        self.ended = False
        self.result: Any = None
        self._pipe, other = _context.Pipe()
        self._process = _context.Process(
            target=_work, args=(other, work, arguments, waits), daemon=True
        )
        self._process.start()
        other.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def rate(self) -> float:
        """Return examples per second: the median over turns that count."""
        return self.median([turn.amount / turn.seconds for turn in self.turns])

    @property
    def peak_device_bytes(self) -> int:
        """Return the peak of the peer's own GPU memory, 0 without a GPU."""
        return max(turn.device_bytes for turn in self.turns)

    def median(self, by_turn: Sequence[float]) -> float:
        """Return the median of a value over the turns that count."""
        return statistics.median(by_turn[number] for number in self.counted)

    def go(self) -> None:
        self._pipe.send(None)

    def expect(self, *kinds: str) -> None:
        """Receive the peer's next message, one of ``kinds``. Raise RuntimeError with the peer's traceback if it failed."""
        try:
            kind, *values = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"the peer {self.name!r} died") from None
        if kind not in kinds:
            raise RuntimeError(
                f"the peer {self.name!r} failed:\n{values[0]}" if kind == "error" else f"got {kind}"
            )
        if kind in ("turn", "end"):
            self.turns.append(Turn(*values[:4]))
        if kind == "end":
            self.ended = True
            self.peak_bytes = values[4]
        if kind == "result":
            self.result = values[0]
            self._process.join()

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.join()

    def figures(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "examples_per_second": self.rate,
            "turns": [turn._asdict() for turn in self.turns],
            "peak_memory_bytes": self.peak_bytes,
            "peak_device_memory_bytes": self.peak_device_bytes,
        }


def preload(device: str) -> None:
    """Fork peers from a server that has imported the heavy libraries once, unless a GPU's driver prevents it."""
    global _context
    if device == "cpu":
        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload(_PRELOAD)


def side_by_side(peers: Sequence[Peer], *, patient: bool = False) -> str:
    """Alternate the peers' turns, each round in the opposite direction, until all have ended; then collect results.

    A ``patient`` call begins each turn only once the machine is otherwise idle. Returns a note on disturbances.
    """
    for peer in peers:
        peer.expect("ready")
    working = list(peers)
    while working:
        for peer in working:
            if patient:
                measure.wait_for_quiet()
            peer.go()
            peer.expect("turn", "end")
        working = [peer for peer in reversed(working) if not peer.ended]
    _collect(peers)
    rounds = [number for number, turn in enumerate(peers[0].turns) if turn.amount]
    quiet = [
        number
        for number in rounds
        if all(peer.turns[number].others < MOST_OTHERS for peer in peers)
    ]
    for peer in peers:
        peer.counted = quiet or rounds
    return describe_rounds(len(quiet), len(rounds))


def describe_rounds(quiet: int, rounds: int) -> str:
    """Return a note on disturbances for the reader."""
    if quiet:
        return f"{quiet} of {rounds} rounds count: in them other processes took less than {MOST_OTHERS:.0%} of the CPUs"
    return "other processes disturbed every round, so these figures are worth little"


def at_once(peers: Sequence[Peer]) -> float:
    """Let all peers take a turn at the same time and return the seconds until the last one rests."""
    began = time.perf_counter()
    for peer in peers:
        peer.go()
    for peer in peers:
        peer.expect("turn", "end")
    return time.perf_counter() - began


def apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of ``work(*arguments)`` from its own process, which keeps its memory and imports."""
    peer = Peer(work.__name__, _plainly, work, arguments)
    peer.expect("result")
    return peer.result


def _plainly(turns: Turns, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return work(*arguments)


def _collect(peers: Sequence[Peer]) -> None:
    for peer in peers:  # one after the other: what they do now may be heavy
        peer.go()
        peer.expect("result")


def _work(
    pipe: "Connection[Any, Any]", work: Callable[..., Any], arguments: tuple[Any, ...], waits: bool
) -> None:
    try:
        if waits:
            pipe.recv()
        pipe.send(("result", work(Turns(pipe), *arguments)))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))


def _others() -> float:
    """Return the CPU time of all processes except this one and its children."""
    return measure.busy_seconds() - measure.tree_seconds(os.getpid())


def _wait_for_device() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _peak_on_device() -> int:
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0
