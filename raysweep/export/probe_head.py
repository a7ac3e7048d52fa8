"""The head of a run's probe, which is not stored and must be refitted on the run's artifacts."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation import probe
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.evaluation.operating_points import Head
from raysweep.evaluation.relation_set import scored_set
from raysweep.results.types import Point
from raysweep.storage.folder import Folder
from raysweep.storage.location import join

PROBE = "probe"  # the kind of the probe's points

MAX_DIFFERENCE = 1e-6  # maximum difference from the stored score; the solver may converge differently on another machine


def fit_again(run: Folder, settings: Mapping[str, Any], point: Point) -> Head:
    """Refit the probe's head, and verify that it reproduces the dev scores of a probe point.

    Raises:
        InputError: If the settings are damaged, artifacts are missing or have changed, or the scores differ.
    """
    try:
        config = EvaluationConfig.model_validate(settings["evaluation"])
        seed = int(settings["seed"])
    except (ValidationError, KeyError, TypeError, ValueError):
        raise InputError(f"{run.location}: its settings are damaged") from None
    prepared = Prepared.open(join(run.location, "prepared.json"))
    dev = scored_set(prepared, "dev", config)
    assert isinstance(dev, EvaluationSet) and point.value is not None
    head = probe.fit_prepared(prepared, seed, dev if config.points.calibrate else None)
    if head is None:
        raise InputError(
            f"{run.location}: its probe cannot be refitted, because the artifacts have changed"
        )
    scores = probe.score(head, dev, [point.value])[point.value]
    for name in ("polarity", "similarity"):
        difference = abs(scores.mean(name) - point[name])
        if not difference <= MAX_DIFFERENCE:
            raise InputError(
                f"{run.location}: {name} of the refitted probe differs by {difference:.2g}; "
                f"allowed: at most {MAX_DIFFERENCE:g}"
            )
    return head
