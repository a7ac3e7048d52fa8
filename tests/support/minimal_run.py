"""A run with one trial and no data, from which an encoder's weights can be exported."""

from pathlib import Path
from typing import Any

import yaml

from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.sides import Sides
from raysweep.config.sweep import EncoderConfig
from raysweep.data.artifacts import Artifact
from raysweep.data.prepared import Prepared
from raysweep.encoders.locate import locate
from raysweep.results.events import PointsScored, RungFinished, TrialStarted
from raysweep.results.ledger import Ledger, point_name
from raysweep.results.types import Point
from raysweep.training.trainable import TrainedWeights
from raysweep.training.weights import save_point
from support.encoders import trial
from support.ledgers import point, start_session
from support.paths import SPACES


def write_minimal_run(
    folder: Path, encoder: EncoderConfig, weights: TrainedWeights, **values: object
) -> None:
    """Write a run whose front is trial 0 with these weights, at the point ``0:1``; ``values`` are of its trial."""
    folder.mkdir(parents=True)
    identity = locate(encoder).identity
    missing = Artifact(str(folder / "artifacts"), "missing")
    model = encoder.model_dump()
    Prepared(
        model, identity, missing, Sides.same(missing), Sides.same(missing), {}, model, identity
    ).save(folder / "prepared.json")
    document = Document.read(SPACES / "smoke.yaml")
    document.override("model", encoder.name)
    settings = configuration.parse(document).model_dump(mode="json")
    save_point(folder / "points" / point_name(0, 1), weights, None)
    ledger = Ledger(folder)
    ledger.append(start_session(folder, settings=yaml.safe_dump(settings).encode()))
    ledger.append(TrialStarted(trial=0, config=trial(**values).recorded, num_rungs=1))
    tuned = point(0, 1, 0.7, 0.4)
    rung: dict[str, Any] = {
        "trial": 0,
        "step": 1,
        "examples_seen": 20,
        "seconds": 1.0,
        "loss": 0.1,
        "stop": None,
    }
    ledger.append(RungFinished(**rung, points=(tuned,)))
    reference = Point(**{**vars(tuned), "trial": None, "step": None, "kind": "reference"})
    ledger.append(PointsScored(points=(reference,)))
    ledger.close()
