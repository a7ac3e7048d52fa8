"""The command ``watch``: a run in the terminal, again and again until its sweep ends."""

import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.live import Live

from raysweep.report.watch.moment import Clock, look
from raysweep.report.watch.view import View
from raysweep.results.ledger import GrowingLedger
from raysweep.storage.folder import Folder

PIPE_WIDTH = 120  # of the view where it goes into a file or another command

Sleep = Callable[[float], None]


def watch(
    run: Folder, console: Console, seconds: float, sleep: Sleep = time.sleep, now: Callable[[], float] = time.monotonic
) -> None:
    """Show a run every so many seconds until nothing drives it any more.

    In a terminal the view changes in place; elsewhere there is a line for each change, and the whole view at the end.
    InputError where there is no run, or a damaged one.
    """
    views = _views(run, seconds, sleep, Clock(now))
    view = _in_place(views, console) if console.is_terminal else _by_lines(views, console)
    console.print(view.whole(console.width), soft_wrap=True)


def watch_once(run: Folder, console: Console) -> None:
    """Show a run as it is now. InputError as of :func:`watch`."""
    view = View(look(run, GrowingLedger(run), Clock()))
    console.print(view.whole(console.width), soft_wrap=True)


def _views(run: Folder, seconds: float, sleep: Sleep, clock: Clock) -> Iterator[View]:
    """The run every so many seconds, until there can be nothing new."""
    ledger = GrowingLedger(run)
    view = View(look(run, ledger, clock))
    while True:
        yield view
        if not view.moment.is_live:
            return
        sleep(seconds)
        view = View(look(run, ledger, clock), before=view)


def _in_place(views: Iterator[View], console: Console) -> View:
    """Show the views one over the other, as large as the terminal is; the last one."""
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        for view in views:
            live.update(view.whole(console.width, console.height), refresh=True)
    return view


def _by_lines(views: Iterator[View], console: Console) -> View:
    """Print a line for each view that says something new; the last one."""
    last: tuple[str, ...] = ()
    for view in views:
        if view.news != last and view.moment.is_live:
            last = view.news
            console.print(view.line, markup=False, highlight=False, soft_wrap=True)
    return view


def console_for_output() -> Console:
    """Standard output, with lines of one width where that is no terminal."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console
