"""Builds the sentences of a configuration without a sweep."""

from pathlib import Path

from raysweep.cluster.resources import Capacity
from raysweep.config.sweep import DataConfig
from raysweep.data.artifacts import Artifact, Store
from raysweep.prepare import ingest
from raysweep.prepare.plan import SentencesStage
from raysweep.prepare.stages import Coordinator


def stage_of(place: Path | str, data: DataConfig, seed: int = 0) -> tuple[Store, SentencesStage]:
    """Return the stage that builds the sentences in these artifacts; its key differs from a sweep's."""
    store = Store(str(place))
    parameters = {"data": data.model_dump(), "seed": seed}
    artifact = store.artifact("sentences", parameters)
    return store, SentencesStage(artifact, parameters, data, ingest.list_pieces(data))


def build(
    place: Path | str, data: DataConfig, seed: int = 0, capacity: Capacity | None = None
) -> Artifact:
    """Build the sentences in this process without a capacity, even if they exist."""
    store, stage = stage_of(place, data, seed)
    store.remove(stage.artifact)
    Coordinator(store, capacity).build(stage)
    return stage.artifact


SCORED_PAIRS = [
    ("the food was good", "the meal was great", 4.5),
    ("the food was good", "the food was bad", 2.0),
    ("a dog runs", "a cat sleeps", 1.0),
    ("we left early", "we departed early", 4.8),
    ("it rains", "shares fell today", 0.1),
]
"""Sentence pairs and their gold scores from 0 to 5, as in STS."""
