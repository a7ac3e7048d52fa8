"""Functions that derive front members, varied parameters and means from a run's results."""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from raysweep.metrics.pairs import MEASURES
from raysweep.metrics.pareto import non_dominated
from raysweep.metrics.scores import GOALS, STANDARD, Goals, spec_of
from raysweep.results.scores import Score, with_means
from raysweep.results.types import Calibration, Measure, Point, Results, Trial, TrialStatus


def averaged(results: Results) -> list[Point]:
    """Return a run's points without replicates. Dev scores are means over each trial and its replicates."""
    replicates = {trial.trial for trial in results.trials if trial.replicate_of is not None}
    means = {(mean.trial, mean.step, mean.kind, mean.value): mean for mean in results.means}
    other_means = _means_of_runs(results)
    points = []
    for point in results.points:
        if point.trial in replicates:
            continue
        if point.split == "dev" and point.trial is not None and point.step is not None:
            place = (point.trial, point.step, *point.key)
            mean = means.get(place)
            if mean is not None:
                scores = with_means(point.scores, {**other_means.get(place, {}), **mean.scores})
                point = dataclasses.replace(point, scores=scores)
        points.append(point)
    return points


def _means_of_runs(
    results: Results,
) -> dict[tuple[int, int | None, str, float | None], dict[str, Score]]:
    """Return the mean scores of each dev point over a trial and its replicates, without ratios."""
    original_of = {}  # the original trial of each included trial
    for trial in results.trials:
        if counts(trial):
            original_of[trial.trial] = (
                trial.trial if trial.replicate_of is None else trial.replicate_of
            )
    values: defaultdict[Any, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in results.points:
        if point.split != "dev" or point.trial not in original_of:
            continue
        original = original_of[point.trial]
        for name, score in point.scores.items():
            if spec_of(name).relative_to is None:
                values[original, point.step, point.kind, point.value][name].append(score.mean)
    means = {}
    for place, by_name in values.items():
        means[place] = {name: Score(statistics.fmean(of_runs)) for name, of_runs in by_name.items()}
    return means


def counts(trial: Trial) -> bool:
    """Return whether means include a trial. Failed trials and unfinished replicates are excluded."""
    has_ended = trial.status in (TrialStatus.COMPLETED, TrialStatus.STOPPED)
    return has_ended or (trial.replicate_of is None and trial.status != TrialStatus.FAILED)


def extra_scores(points: Iterable[Point]) -> list[str]:
    """Return the names of the points' scores that are not standard."""
    names = dict.fromkeys(name for point in points for name in point.scores)
    return [name for name in names if name not in STANDARD]


def score_columns(points: Iterable[Point]) -> tuple[str, ...]:
    """Return the score columns of a table of points, standard scores first."""
    columns = ["polarity", "polarity_std", "similarity", "similarity_std", "retention", "accuracy"]
    for name in extra_scores(points):
        columns += [name, f"{name}_std"]
    return tuple(columns)


MAIN_PARAMETERS = ("loss", "margin", "scale", "learning_rate", "freezing", "batch_size")


def front_points(points: Iterable[Point], goals: Goals = GOALS) -> list[Point]:
    """Return the trials' non-dominated dev points in descending order of S."""
    candidates = [point for point in points if point.split == "dev" and point.trial is not None]
    indices = non_dominated([point.pair(goals) for point in candidates])
    front = [candidates[index] for index in indices]
    return sorted(front, key=lambda point: (-point[goals.s], point[goals.p]))


def calibration_text(calibration: Calibration) -> str:
    """Format a head's temperature, cross-entropy in nats and calibration error multiplied by 100."""
    loss = (
        f"cross-entropy {calibration.cross_entropy_before:.3f} -> {calibration.cross_entropy:.3f}"
    )
    error = (
        f"calibration error {100 * calibration.error_before:.1f} -> {100 * calibration.error:.1f}"
    )
    return f"temperature {calibration.temperature:.2f}, {loss}, {error}"


def measures_text(measures: Iterable[Measure]) -> str:
    """Format measures on a single line, such as ``AP 93.10, KL 0.1234``."""
    texts = []
    for measure in measures:
        spec = MEASURES[measure.name]
        texts.append(f"{spec.heading} {spec.show(measure.value)}")
    return ", ".join(texts)


def varied_parameters(trials: Iterable[Trial], searched: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the parameters that differ between trials or are in ``searched``, main parameters first.

    If there are none, return the trials' main parameters.
    """
    configs = [trial.config for trial in trials]
    names = list(dict.fromkeys(name for config in configs for name in config))
    varied = []
    for name in names:
        first, *later = (config.get(name) for config in configs)
        is_varied = any(value != first for value in later)
        if is_varied or name in searched:
            varied.append(name)
    chosen = varied or names
    main = [name for name in MAIN_PARAMETERS if name in chosen]
    others = [name for name in varied if name not in MAIN_PARAMETERS]
    return (*main, *others)
