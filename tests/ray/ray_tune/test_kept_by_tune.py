"""What Ray Tune keeps in the driver of each time that a trial was on a worker, which is to the end of the sweep."""

import pickle
from pathlib import Path

from raysweep.control.request_queue import RequestQueue
from raysweep.controller.front_scores import FrontScores
from raysweep.controller.request_handler import RequestHandler
from raysweep.ray_tune import tune
from support.sweeps import make

MOST_BYTES = 1500  # Tune makes several copies


def test_what_all_trials_are_told_alike_is_not_kept_for_each_of_them(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    request_handler = RequestHandler(sweep, RequestQueue(sweep.run), list)
    searcher = tune.TuneSearcher(sweep, FrontScores(sweep, has_test=False), request_handler)
    assert len(pickle.dumps(searcher.suggest("0"))) < MOST_BYTES
