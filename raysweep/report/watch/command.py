"""The ``watch`` command, which shows a run in the terminal until its sweep ends."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.live import Live

from raysweep.report.choice import front_as_json
from raysweep.report.summary import summary_of
from raysweep.report.watch.moment import Clock, ledger_age, look
from raysweep.report.watch.view import View
from raysweep.results.ledger import GrowingLedger
from raysweep.storage.folder import Folder

PIPE_WIDTH = 120  # width of the view if the output is not a terminal

Sleep = Callable[[float], None]


def watch(
    run: Folder,
    console: Console,
    seconds: float,
    sleep: Sleep = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Show a run until its driver exits, refreshing the view every ``seconds`` seconds.

    In a terminal, the view is updated in place. Otherwise, a line is printed for each change. The complete view is
    printed at the end.

    Raises:
        InputError: If the run does not exist or is damaged.
    """
    views = _views(run, seconds, sleep, Clock(now, ledger_age(run)))
    if console.is_terminal:
        with Live(
            console=console, auto_refresh=False, transient=True, vertical_overflow="crop"
        ) as live:
            for view in views:
                live.update(view.render(console.width, console.height), refresh=True)
    else:
        printed_news: tuple[str, ...] = ()
        for view in views:
            if view.news != printed_news and view.moment.is_live:
                printed_news = view.news
                console.print(view.line, markup=False, highlight=False, soft_wrap=True)
    console.print(view.render(console.width), soft_wrap=True)


def watch_once(run: Folder, console: Console) -> None:
    """Show the current state of a run.

    Raises:
        InputError: If the run does not exist or is damaged.
    """
    view = View(look(run, GrowingLedger(run), Clock(first_age=ledger_age(run))))
    console.print(view.render(console.width), soft_wrap=True)


def state_as_json(run: Folder) -> dict[str, Any]:
    """Return a run's state, its trials by status (without replicates), and its front and hypervolume on dev.

    Raises:
        InputError: If the run does not exist or is damaged.
    """
    moment = look(run, GrowingLedger(run), Clock(first_age=ledger_age(run)))
    state: dict[str, Any] = {
        "state": moment.state,
        "reason": None,
        "stage": None,
        "trials": {},
        "budget_trials": None,
    }
    state |= {"hypervolume": None, "front": []}
    results = moment.results
    if results is None:
        return state
    summary = summary_of(run, results)
    stage = results.stage
    if moment.is_live and stage is not None:
        state["stage"] = {"name": stage.name, "done": stage.num_done, "total": stage.count}
    area = summary.areas.get("dev")
    trials = [str(trial.status) for trial in results.trials if trial.replicate_of is None]
    return state | {
        "reason": results.reason or None,
        "trials": dict(Counter(trials)),
        "budget_trials": results.info.num_trials,
        "hypervolume": None if area is None else area.front,
        "front": front_as_json(summary),
    }


def _views(run: Folder, seconds: float, sleep: Sleep, clock: Clock) -> Iterator[View]:
    ledger = GrowingLedger(run)
    view = View(look(run, ledger, clock))
    while True:
        yield view
        if not view.moment.is_live:
            return
        sleep(seconds)
        view = View(look(run, ledger, clock), before=view)


def console_for_output() -> Console:
    """Return a console for standard output, with a fixed width if it is not a terminal."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console
