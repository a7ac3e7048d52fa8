"""The moments at which the results of a running sweep change."""

import time
from collections.abc import Callable, Iterator

from raysweep.report.watch.moment import Clock, Moment, look
from raysweep.results.ledger import GrowingLedger
from raysweep.storage.folder import Folder


def changes(run: Folder, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[Moment]:
    """Look at a run every ``seconds`` until it has no driver, and yield each moment with new results.

    Nothing is yielded before the first session starts, or for a run that has ended.

    Raises:
        InputError: If there is no run, or if it is damaged.
    """
    ledger, clock = GrowingLedger(run), Clock()
    last = None
    while True:
        moment = look(run, ledger, clock)
        if not moment.is_live:
            return
        if moment.results is not None and moment.results != last:
            last = moment.results
            yield moment
        sleep(seconds)
