"""A run's trials, measured on watched sets: their models, the file in the run's report, and the figure."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from raysweep.config.sweep import EncoderConfig, Prompts
from raysweep.config.trial import trial_config
from raysweep.data.relation_sources import RelationSettings
from raysweep.data.relations import Relations
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.errors import InputError
from raysweep.evaluation import watched
from raysweep.evaluation.measure_tables import Row
from raysweep.evaluation.measures import read_relations
from raysweep.evaluation.watched import TunedTrial, WatchedTrial
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

LINE_STYLES = ("-", "--", ":", "-.")


def watch_run(
    run: Folder, target: str, sources: Sequence[str], settings: RelationSettings, geometry: Geometry, display: Display
) -> list[WatchedTrial]:
    """Measure the last stored rung of each trial on the target and on watched sources, and write JSON and figure.

    Raises:
        InputError: If the run, its encoder or a source cannot be read, the target has several sets of relations, a
            source is repeated, or no trial's weights are stored.
    """
    results = load(run)
    encoders = RunEncoders.of(run)
    trials = _tuned_trials(run, results, encoders, display)
    all_relations = _read_sources(target, sources, settings)
    base = LoadedEncoder.load(encoders.model, identity=encoders.model_identity, device=encoder.best_device())
    measured = watched.watch(base, trials, all_relations, settings.seed, display)
    text = json.dumps(watched.as_json(measured), indent=1)
    run.keep(JSON_FILE, f"{text}\n".encode())
    run.keep(FIGURE_FILE, figure(measured, geometry))
    return measured


def _read_sources(target: str, sources: Sequence[str], settings: RelationSettings) -> list[Relations]:
    """Read the target's relations, and then those of the other sources, with distinct names."""
    all_sources = [target, *sources]
    repeated = [source for source in all_sources if all_sources.count(source) > 1]
    if repeated:
        raise InputError(f"{repeated[0]}: is given twice; allowed: different sources")
    all_relations: list[Relations] = []
    for source in all_sources:
        for relations in read_relations([source], settings):
            is_known = relations.name in {known.name for known in all_relations}
            all_relations.append(replace(relations, name=source) if is_known else relations)
        if source == target and len(all_relations) > 1:
            raise InputError(f"--target {target}: has {len(all_relations)} negative labels; allowed: one")
    return all_relations


def _tuned_trials(run: Folder, results: Results, encoders: RunEncoders, display: Display) -> list[TunedTrial]:
    """Return the last rung of each trial whose weights are stored, by learning rate."""
    last: dict[int, Point] = {}
    of_trials = set()
    for point in results.points:
        if point.split != "dev" or point.trial is None or point.step is None or point.kind not in OWN_KINDS:
            continue
        of_trials.add(point.trial)
        if run.exists(f"{point_folder(point.trial, point.step)}/trained.safetensors"):
            last[point.trial] = point
    if not last:
        raise InputError(f"{run.location}: no weights are stored; allowed: a run with the weights of its front")
    num_missing = len(of_trials) - len(last)
    if num_missing:
        display.warn(
            f"{num_missing} of {len(of_trials)} trials are not measured: only the weights of the front are stored"
        )
    configs = {trial.trial: trial_config(trial.config) for trial in results.trials if trial.trial in last}
    trials = [
        TunedTrial(
            number,
            point.step or 0,
            configs[number].peak_learning_rate,
            configs[number].tower,
            _with_prompts(encoders, f"trial {point.name}", configs[number].tower),
            partial(model_of, run, point),
        )
        for number, point in last.items()
    ]
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

    Insignificant improvements have open markers. The scale is linear up to 10%, and logarithmic beyond.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(7.2, 6.4), layout="constrained")
        upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        _draw_improvements(upper, trials, geometry)
        _draw_counts(lower, trials, geometry)
        add_legend(drawn)
        return png(drawn)


def _draw_improvements(axes: "Axes", trials: Sequence[WatchedTrial], geometry: Geometry) -> None:
    rates = [trial.trial.learning_rate for trial in trials]
    target = [trial.target.whole(geometry) for trial in trials]
    name = f"{trials[0].target.name} (target)"
    _draw_line(axes, rates, target, color=INK, linewidth=1.8, label=name)
    for number, watched_set in enumerate(trials[0].watched):
        rows = [trial.watched[number].whole(geometry) for trial in trials]
        cycle, color = divmod(number, len(PALETTE))
        dashes = LINE_STYLES[cycle % len(LINE_STYLES)]
        _draw_line(axes, rates, rows, color=PALETTE[color], linewidth=0.9, linestyle=dashes, label=watched_set.name)
    adiabatic = watched.adiabatic_range(trials, geometry)
    for rate in adiabatic.rates:
        axes.axvspan(rate / 1.15, rate * 1.15, color=PALETTE[2], alpha=0.15, linewidth=0)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=10)
    axes.yaxis.set_major_formatter("{x:+g}")
    axes.set_ylabel(f"relative improvement of PND by {geometry}, %")
    axes.set_title(str(adiabatic), fontsize=8)


def _draw_line(axes: "Axes", rates: Sequence[float], rows: Sequence[Row], *, color: str, **style: Any) -> None:
    """Draw the improvements of a source at these rates, with closed markers where they are significant."""
    improvements = [100 * (row.improvement or 0.0) for row in rows]
    axes.plot(rates, improvements, color=color, **style)
    markers: dict[str, Any] = {"color": color, "marker": "o", "markersize": 5}
    for rate, improvement, row in zip(rates, improvements, rows, strict=True):
        is_significant = row.verdict in ("improved", "worsened")
        fill = color if is_significant else "white"
        axes.plot(rate, improvement, markerfacecolor=fill, **markers)


def _draw_counts(axes: "Axes", trials: Sequence[WatchedTrial], geometry: Geometry) -> None:
    rates = [trial.trial.learning_rate for trial in trials]
    counts = [_count_verdicts(trial, geometry) for trial in trials]
    improved, worsened = zip(*counts, strict=True)
    axes.plot(rates, improved, color=PALETTE[2], marker="o", label="improved")
    axes.plot(rates, worsened, color=PALETTE[1], marker="s", label="worsened")
    axes.set_ylabel("sets and groups")
    axes.legend()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:.0e}")
    axes.set_xlabel("learning rate")


def _count_verdicts(trial: WatchedTrial, geometry: Geometry) -> tuple[int, int]:
    """Return how many groups of watched sets improve and worsen; a set without groups counts once."""
    verdicts = []
    for watched_set in trial.watched:
        if watched_set.measures.is_retrieval:
            verdicts.append(watched_set.whole(geometry).verdict)
        else:
            verdicts += [row.verdict for row in watched_set.rows if row.geometry == geometry]
    return verdicts.count("improved"), verdicts.count("worsened")
