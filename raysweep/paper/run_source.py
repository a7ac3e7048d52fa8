"""Recordings from runs."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from raysweep.errors import InputError
from raysweep.paper.file_checks import plain
from raysweep.paper.recording import Configuration, Counts, Recording, Scores, SplitScores, last_part, without_repeats
from raysweep.report.summary import summarize
from raysweep.results.reader import load
from raysweep.results.settings_file import read_settings
from raysweep.results.types import BASELINES, Point, Results, RunInfo, ScoredSplit, key_name
from raysweep.results.views import averaged
from raysweep.storage.folder import Folder

OF_NO_TRIAL = ("reference", *BASELINES)


def recording_of_run(run: Folder) -> Recording:
    """Return the measurements of the run in a folder, averaged over the replicates of a configuration on dev.

    Test scores are left out if only part of the front has them.

    Raises:
        InputError: If the folder holds no run, or no rung is finished.
    """
    results = load(run)
    summary = summarize(results)
    configurations = without_repeats(_configurations(results, summary.complete_splits))
    if not configurations:
        raise InputError(f"{run.location}: no rung is done, so there is nothing to show")
    info = results.info
    return Recording(
        model=last_part(info.model),
        origin=last_part(run.location),
        place=run.location,
        configurations=configurations,
        baselines=_baselines(results),
        dataset=info.dataset,
        reference=last_part(info.reference),
        retrieval=f"k = {info.k}, {info.rank_weights} rank weights",
        setting=_setting(run, results),
        why_no_test=summary.why_partial("test"),
    )


def _configurations(results: Results, splits: Collection[ScoredSplit]) -> list[Configuration]:
    """Return the configurations of trials with a finished rung, with their scores on these splits."""
    rungs_by_trial: dict[int, dict[int, dict[ScoredSplit, Scores]]] = defaultdict(lambda: defaultdict(dict))
    for point in averaged(results):
        if point.split in splits and point.trial is not None and point.step is not None and point.kind == "plain":
            rungs_by_trial[point.trial][point.step][point.split] = _scores(point, results.info)
    configurations = []
    for trial in results.trials:
        rungs = rungs_by_trial.get(trial.trial)
        if rungs:
            configuration = Configuration(_given(trial.config), dict(sorted(rungs.items())))
            configurations.append(configuration)
    return configurations


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in config.items() if value is not None}


def _scores(point: Point, info: RunInfo) -> Scores:
    """Return a point's scores. Deviations of 0 mean that only means are known."""
    num_queries = info.num_queries.get(point.split)
    counts = Counts(num_queries, info.k) if num_queries and info.rank_weights == "uniform" else None
    deviations = point.polarity_std or None, point.similarity_std or None
    return Scores(point.polarity, point.similarity, *deviations, counts)


def _baselines(results: Results) -> Mapping[str, SplitScores]:
    found: dict[str, dict[ScoredSplit, Scores]] = defaultdict(dict)
    for kind in OF_NO_TRIAL:
        for point in results.points:
            if point.kind == kind and point.trial is None:
                name = baseline_name(kind, point.value, point.label)
                found[name][point.split] = _scores(point, results.info)
    return dict(found)


def baseline_name(kind: str, value: float | None, label: str | None) -> str:
    """Return a name such as ``reference``, ``probe=0.3`` or ``setfit LABEL``."""
    name = key_name((kind, value))
    return name if label is None else f"{name} {label}"


def _setting(run: Folder, results: Results) -> str:
    """Return everything that scores depend on, besides the configuration and randomness."""
    info = results.info
    mining = read_settings(run, results).get("examples")
    measured = (info.dataset, info.model, info.reference, info.k, info.rank_weights)
    prompts = (info.prompt, info.reference_prompt)
    sizes = (sorted(info.num_queries.items()), sorted(info.num_pool.items()), info.label_names)
    return repr((*measured, *prompts, *sizes, mining))
