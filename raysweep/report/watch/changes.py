"""The moments of a running sweep at which there is news, for what is made anew from them."""

import time
from collections.abc import Callable, Iterator

from raysweep.report.watch.moment import Clock, Moment, look
from raysweep.results.ledger import GrowingLedger
from raysweep.storage.folder import Folder


def changes(run: Folder, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[Moment]:
    """Look at a run every so many seconds until nothing drives it any more; what is new, from its first session on.

    How it ended is not among them: a run that has ended has none. InputError where there is no run, or a damaged one.
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
