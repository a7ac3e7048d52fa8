"""Views of a run's results: members of the front, varied parameters, means over replicates."""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raysweep.metrics.pareto import non_dominated
from raysweep.results.types import Calibration, Mean, Point, Results, Trial, TrialStatus


def resume_options(results: Results) -> str:
    """Return the options that ``raysweep run --resume RUN`` needs, given the status of the sweep, to continue it."""
    more = {"budget": " --budget.KEY TOTAL", "plateau": " --early_stopping.plateau null"}
    return more.get(results.status, "")


def averaged(results: Results) -> list[Point]:
    """Return a run's points without replicates. On dev, scores are means over the runs of each configuration."""
    replicates = {trial.trial for trial in results.trials if trial.replicate_of is not None}
    means = {(mean.trial, mean.step, mean.kind, mean.value): mean for mean in results.means}
    accuracies = _mean_accuracies(results)
    points = []
    for point in results.points:
        if point.trial in replicates:
            continue
        if point.split == "dev" and point.trial is not None and point.step is not None:
            place = (point.trial, point.step, *point.key)
            mean = means.get(place)
            if mean is not None:
                point = _with_mean(point, mean, accuracies.get(place))
        points.append(point)
    return points


def _mean_accuracies(results: Results) -> dict[tuple[int, int | None, str, float | None], float]:
    """Return the mean accuracies, if known, of each trial's points on dev over the counted runs of its configuration."""
    original_of = {}  # original trial of each counted run
    for trial in results.trials:
        if counts(trial):
            original_of[trial.trial] = trial.trial if trial.replicate_of is None else trial.replicate_of
    accuracies = defaultdict(list)
    for point in results.points:
        if point.split != "dev" or point.trial not in original_of or point.accuracy is None:
            continue
        original = original_of[point.trial]
        accuracies[original, point.step, point.kind, point.value].append(point.accuracy)
    return {place: statistics.fmean(accuracies_of_runs) for place, accuracies_of_runs in accuracies.items()}


def counts(trial: Trial) -> bool:
    """Return whether a trial is included in means. Failed trials and replicates that have not ended are excluded."""
    has_ended = trial.status in (TrialStatus.COMPLETED, TrialStatus.STOPPED)
    return has_ended or (trial.replicate_of is None and trial.status != TrialStatus.FAILED)


def _with_mean(point: Point, mean: Mean, accuracy: float | None) -> Point:
    """Return the point with mean scores and the matching retention."""
    retention_of_similarity = point.retention / point.similarity if point.similarity else 0.0
    return dataclasses.replace(
        point,
        polarity=mean.polarity,
        similarity=mean.similarity,
        retention=retention_of_similarity * mean.similarity,
        accuracy=accuracy,
    )


MAIN_PARAMETERS = ("loss", "margin", "scale", "learning_rate", "freezing", "batch_size")


def front_points(points: Iterable[Point]) -> list[Point]:
    """Return the candidates for selection: trials' non-dominated points on dev, in order of decreasing similarity."""
    candidates = [point for point in points if point.split == "dev" and point.trial is not None]
    indices = non_dominated([(point.polarity, point.similarity) for point in candidates])
    front = [candidates[index] for index in indices]
    return sorted(front, key=lambda point: (-point.similarity, point.polarity))


def calibration_text(calibration: Calibration) -> str:
    """Describe a head's temperature and its effect on the cross-entropy in nats and the calibration error x100."""
    loss = f"cross-entropy {calibration.cross_entropy_before:.3f} -> {calibration.cross_entropy:.3f}"
    error = f"calibration error {100 * calibration.error_before:.1f} -> {100 * calibration.error:.1f}"
    return f"temperature {calibration.temperature:.2f}, {loss}, {error}"


def varied_parameters(trials: Iterable[Trial], searched: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the parameters that differ among trials or are ``searched``, the main ones first.

    If no parameter varies, return the main parameters of the trials.
    """
    configs = [trial.config for trial in trials]
    names = list(dict.fromkeys(name for config in configs for name in config))
    varied = [name for name in names if name in searched or _varies(name, configs)]
    chosen = varied or names
    main = [name for name in MAIN_PARAMETERS if name in chosen]
    others = [name for name in varied if name not in MAIN_PARAMETERS]
    return (*main, *others)


def _varies(name: str, configs: Sequence[Mapping[str, Any]]) -> bool:
    first, *others = (config.get(name) for config in configs)
    return any(value != first for value in others)
