"""Memory that Ray Tune holds in the driver for each assignment of a trial until the sweep ends."""

import pickle
from pathlib import Path

from raysweep.control.request_queue import RequestQueue
from raysweep.controller.front_scores import FrontScores
from raysweep.controller.request_handler import RequestHandler
from raysweep.ray_tune import tune
from support.sweeps import make

MAX_BYTES = 1500  # Tune makes several copies


def test_shared_settings_are_not_stored_per_trial(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    request_handler = RequestHandler(sweep, RequestQueue(sweep.run), list)
    searcher = tune.TuneSearcher(sweep, FrontScores(sweep, has_test=False), request_handler)
    assert len(pickle.dumps(searcher.suggest("0"))) < MAX_BYTES
