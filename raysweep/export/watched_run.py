"""Measures of a run's trials on watched data, computed with the stored weights."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from raysweep.config.sides import Tower
from raysweep.config.sweep import EncoderConfig
from raysweep.config.trial import trial_config
from raysweep.data.relation_sources import RelationSettings
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.traits import EncoderTraits
from raysweep.errors import InputError
from raysweep.evaluation.measures import Embedded, embed_documents, measure_embedded, unnormalized
from raysweep.evaluation.watched import (
    MeasuredRelations,
    WatchedRelations,
    measure_untuned,
    warn_of_untested,
    watched_encoder,
)
from raysweep.export.export import model_of
from raysweep.export.run_encoders import RunEncoders
from raysweep.metrics.closeness import Geometry
from raysweep.report import watched_trials
from raysweep.report.watched_figure import figure
from raysweep.results.ledger import point_folder
from raysweep.results.reader import load
from raysweep.results.types import OWN_KINDS, Point, Results
from raysweep.results.watched import WatchedRung
from raysweep.storage.folder import Folder
from raysweep.terminal import Display

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

JSON_FILE = "report/watch.json"
FIGURE_FILE = "report/watch.png"


def watch_run(
    run: Folder,
    target: str,
    sources: Sequence[str],
    settings: RelationSettings,
    geometry: Geometry,
    display: Display,
) -> list[WatchedRung]:
    """Measure each trial's last rung with stored weights on watched data, and write a JSON file and a figure.

    Raises:
        InputError: If the run, its encoder or a source cannot be read, the target has several sets of relations, a
            source is repeated, or no trial's weights are stored.
    """
    results = load(run)
    encoders = RunEncoders.of(run)
    trials = _tuned_trials(run, results, encoders, display)
    relations = WatchedRelations.read(
        (target, settings), [(source, settings) for source in sources], settings.seed
    )
    base = LoadedEncoder.load(
        encoders.model, identity=encoders.model_identity, device=encoder.best_device()
    )
    rungs = watch(base, trials, relations, display)
    text = json.dumps(watched_trials.as_json(rungs), indent=1)
    run.keep(JSON_FILE, f"{text}\n".encode())
    run.keep(FIGURE_FILE, figure(rungs, geometry))
    return rungs


@dataclass(frozen=True)
class TunedTrial:
    """The rung of a trial to measure. ``load`` returns its exported model.

    With the ``query`` tower, documents are embedded by the base encoder.
    """

    trial: int
    step: int
    learning_rate: float
    tower: Tower
    config: EncoderConfig
    load: Callable[[], "SentenceTransformer"]


def watch(
    base: LoadedEncoder, trials: Sequence[TunedTrial], relations: WatchedRelations, display: Display
) -> list[WatchedRung]:
    """Compare each trial's encoder with the base encoder, using the same prompts."""
    untuned: dict[str, tuple[Embedded, MeasuredRelations]] = {}
    rungs: list[WatchedRung] = []
    for trial in trials:
        prompts = str(trial.config.prompt)
        if prompts not in untuned:
            config = trial.config.model_copy(update={"name": base.config.name})
            untuned[prompts] = measure_untuned(
                replace(base, config=config), relations.relations, display
            )
            if len(untuned) == 1:
                warn_of_untested(relations, untuned[prompts][1], display)
        documents, before = untuned[prompts]
        model = trial.load().to(base.model.device)
        loaded = LoadedEncoder(trial.config, base.source, model, EncoderTraits.of(model))
        with unnormalized(model):
            if trial.tower != "query":
                documents = embed_documents(loaded, relations.relations, display)
            after = measure_embedded(loaded, documents, relations.relations, display)
        watched = replace(relations.compare(after, before), learning_rate=trial.learning_rate)
        rungs.append(WatchedRung(trial.trial, trial.step, watched))
    return rungs


def _tuned_trials(
    run: Folder, results: Results, encoders: RunEncoders, display: Display
) -> list[TunedTrial]:
    """Return each trial's last rung with stored weights, in order of learning rate."""
    last: dict[int, Point] = {}
    of_trials = set()
    for point in results.points:
        if (
            point.split != "dev"
            or point.trial is None
            or point.step is None
            or point.kind not in OWN_KINDS
        ):
            continue
        of_trials.add(point.trial)
        if run.exists(f"{point_folder(point.trial, point.step)}/trained.safetensors"):
            last[point.trial] = point
    if not last:
        raise InputError(
            f"{run.location}: no weights are stored; allowed: a run that stores the weights of its front"
        )
    num_missing = len(of_trials) - len(last)
    if num_missing:
        display.warn(
            f"{num_missing} of {len(of_trials)} trials are not measured, because only the weights of the front are stored"
        )
    configs = {
        trial.trial: trial_config(trial.config) for trial in results.trials if trial.trial in last
    }
    trials = [
        TunedTrial(
            number,
            point.step or 0,
            configs[number].peak_learning_rate,
            configs[number].tower,
            watched_encoder(encoders.model, encoders.reference, configs[number].tower).model_copy(
                update={"name": f"trial {point.name}"}
            ),
            partial(model_of, run, point),
        )
        for number, point in last.items()
    ]
    return sorted(trials, key=lambda trial: trial.learning_rate)
