"""A run's trials, measured on watched sets: their models, the file in the run's report, and the figure."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from raysweep.config.sweep import EncoderConfig, Prompts
from raysweep.config.trial import trial_config
from raysweep.data.relation_sources import RelationSettings
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.errors import InputError
from raysweep.evaluation import watched
from raysweep.evaluation.measures import read_relations
from raysweep.evaluation.watched import TunedTrial, WatchedSet, WatchedTrial
from raysweep.export.export import model_of
from raysweep.export.run_encoders import RunEncoders
from raysweep.metrics.closeness import Geometry
from raysweep.report.style import FAINT, INK, PALETTE, STYLE, add_legend, png
from raysweep.results.ledger import point_folder
from raysweep.results.reader import load
from raysweep.results.types import OWN_KINDS, Point, Results
from raysweep.storage.folder import Folder
from raysweep.terminal import Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

JSON_FILE = "report/watch.json"
FIGURE_FILE = "report/watch.png"


def watch_run(
    run: Folder, target: str, sources: Sequence[str], settings: RelationSettings, seed: int, display: Display
) -> list[WatchedTrial]:
    """Measure the last rung of each trial on the target and on watched sources, and write ``watch.json``.

    Raises:
        InputError: If the run, its encoder or a source cannot be read, the target has several sets of relations, or no
            trial's weights are stored.
    """
    results = load(run)
    encoders = RunEncoders.of(run)
    trials = _tuned_trials(run, results, encoders, display)
    all_relations = read_relations([target], settings)
    if len(all_relations) > 1:
        raise InputError(f"--target {target}: has {len(all_relations)} negative labels; allowed: one")
    all_relations += read_relations(sources, settings)
    base_config = trials[0].config.model_copy(update={"name": encoders.model.name})
    base = LoadedEncoder.load(base_config, identity=encoders.model_identity, device=encoder.best_device())
    measured = watched.watch(base, trials, all_relations, seed, display)
    run.keep(JSON_FILE, (json.dumps(watched.as_json(measured), indent=1) + "\n").encode())
    return measured


def _tuned_trials(run: Folder, results: Results, encoders: RunEncoders, display: Display) -> list[TunedTrial]:
    """Return the trials with a finished rung whose weights are stored, by learning rate."""
    last: dict[int, Point] = {}
    for point in results.points:
        if point.split == "dev" and point.trial is not None and point.kind in OWN_KINDS:
            last[point.trial] = point
    trials, freed = [], []
    for number, point in last.items():
        assert point.step is not None
        if not run.exists(f"{point_folder(number, point.step)}/trained.safetensors"):
            freed.append(number)
            continue
        config = trial_config(results.trials[number].config)
        trials.append(
            TunedTrial(
                number,
                point.step,
                config.peak_learning_rate,
                _with_prompts(encoders, f"trial {number}:{point.step}", config.tower),
                partial(model_of, run, point),
            )
        )
    if not trials:
        raise InputError(f"{run.location}: no trial has stored weights; allowed: a run with a finished rung")
    if freed:
        display.warn(f"the weights of the last rung of {len(freed)} trials are not stored; they are not measured")
    return sorted(trials, key=lambda trial: trial.learning_rate)


def _with_prompts(encoders: RunEncoders, name: str, tower: str) -> EncoderConfig:
    """Return the configuration of the run's model under a name, with the prompts that a trial's model expects."""
    prompts = encoders.prompts
    if tower == "query":
        prompts = replace(prompts, document=encoders.reference_prompts.document)
    both = Prompts(query=prompts.query, document=prompts.document)
    return encoders.model.model_copy(update={"name": name, "prompt": both})


def figure(trials: Sequence[WatchedTrial], geometry: Geometry) -> bytes:
    """Return a PNG of the relative improvement of each source by learning rate, and of the counts of verdicts.

    Insignificant improvements have open markers.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(7.2, 6.4), layout="constrained")
        upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        rates = [trial.trial.learning_rate for trial in trials]
        _draw_line(upper, rates, [trial.target for trial in trials], geometry, INK, is_target=True)
        for number, sets in enumerate(zip(*(trial.watched for trial in trials), strict=True)):
            _draw_line(upper, rates, sets, geometry, PALETTE[number % len(PALETTE)], is_target=False)
        upper.axhline(0, color=FAINT, linewidth=0.8)
        upper.set_ylabel(f"relative improvement of PND by {geometry}, %")
        found = watched.adiabatic_range(trials, geometry)
        for rate in found.rates:
            upper.axvspan(rate / 1.15, rate * 1.15, color=PALETTE[2], alpha=0.15, linewidth=0)
        upper.set_title(str(found), fontsize=8)
        counts = [_count_verdicts(trial, geometry) for trial in trials]
        lower.plot(rates, [better for better, _ in counts], color=PALETTE[2], marker="o", label="improved")
        lower.plot(rates, [worse for _, worse in counts], color=PALETTE[1], marker="s", label="worsened")
        lower.set_ylabel("sets and groups")
        lower.legend()
        lower.set_xscale("log")
        lower.set_xlabel("learning rate")
        add_legend(drawn)
        return png(drawn)


def _draw_line(
    axes: "Axes", rates: Sequence[float], sets: Sequence[WatchedSet], geometry: Geometry, color: str, *, is_target: bool
) -> None:
    rows = [one.whole(geometry) for one in sets]
    improvements = [math.nan if row.improvement is None else 100 * row.improvement for row in rows]
    width = 1.8 if is_target else 0.9
    name = f"{sets[0].name} (target)" if is_target else sets[0].name
    axes.plot(rates, improvements, color=color, linewidth=width, label=name)
    for rate, value, row in zip(rates, improvements, rows, strict=True):
        is_significant = row.verdict in ("improved", "worsened")
        axes.plot(rate, value, "o", color=color, markerfacecolor=color if is_significant else "white", markersize=5)


def _count_verdicts(trial: WatchedTrial, geometry: Geometry) -> tuple[int, int]:
    """Return how many groups of watched sets improve and worsen; a set without groups counts once."""
    verdicts = []
    for one in trial.watched:
        if one.measures.is_retrieval:
            verdicts.append(one.whole(geometry).verdict)
        else:
            verdicts += [row.verdict for row in one.rows if row.geometry == geometry]
    return verdicts.count("improved"), verdicts.count("worsened")
