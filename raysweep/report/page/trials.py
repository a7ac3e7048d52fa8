"""Trials, their parameters and their rungs, for the page's charts and table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from raysweep.report.page.scores import Json, scaled
from raysweep.report.page.visible import visible
from raysweep.report.statuses import STATUS_STYLES, standing
from raysweep.report.summary import Summary, TrialSummary
from raysweep.results.types import Point, Trial
from raysweep.results.views import varied_parameters

LOG_RATIO = 50  # parameters whose positive values span a larger ratio get a logarithmic axis

Value = float | int | str | None


def plain_value(value: Any) -> Value:
    """Return a parameter's value as a finite number or as text; None if it does not apply."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and abs(value) < 1e300 and math.isfinite(value):
        return float(f"{value:.6g}") if isinstance(value, float) else int(value)
    return visible(str(value))


def parameters(trials: Sequence[Trial]) -> list[Json]:
    """Return the varied parameters; numeric ones have ``log`` set if their values need a logarithmic axis."""
    return [_parameter(name, [plain_value(trial.config.get(name)) for trial in trials]) for name in _varied(trials)]


def _varied(trials: Sequence[Trial]) -> tuple[str, ...]:
    return varied_parameters(trials) if trials else ()


def _parameter(name: str, values: Sequence[Value]) -> Json:
    given = [value for value in values if value is not None]
    numbers = [value for value in given if not isinstance(value, str)]
    is_numeric = bool(numbers) and len(numbers) == len(given)
    if not is_numeric:
        return {"name": visible(name), "kind": "category", "values": sorted({str(value) for value in given})}
    is_log = min(numbers) > 0 and max(numbers) > LOG_RATIO * min(numbers)
    return {"name": visible(name), "kind": "number", "log": is_log}


def trial_values(summary: Summary, places: Mapping[Point, int]) -> list[Json]:
    """Return all trials; ``rungs`` are lists of examples seen, objective, P, S and retention."""
    names = _varied([each.trial for each in summary.trials])
    return [_trial(each, names, summary, places) for each in summary.trials]


def _trial(each: TrialSummary, names: Sequence[str], summary: Summary, places: Mapping[Point, int]) -> Json:
    trial, best = each.trial, each.best
    values: list[Value] = [plain_value(trial.config.get(name)) for name in names]
    return {
        "trial": trial.trial,
        "values": values,
        "status": str(trial.status),
        "standing": str(standing(trial)),
        "reason": visible(trial.reason),
        "replicate": trial.replicate_of,
        "seconds": round(trial.seconds, 1),
        "feasible": each.is_feasible,
        "objective": None if best is None else scaled(each.objective),
        "best": None if best is None else places.get(best),
        "rungs": _rungs(each, summary),
    }


def _rungs(each: TrialSummary, summary: Summary) -> list[list[float | None]]:
    return [
        [rung.examples_seen, scaled(objective), *_rung_scores(point)]
        for rung, objective, point in zip(each.rungs, each.objectives, each.best_points, strict=True)
    ]


def _rung_scores(point: Point) -> list[float | None]:
    return [scaled(point.polarity), scaled(point.similarity), scaled(point.retention)]


def statuses() -> list[Json]:
    """Return all statuses with their signs and descriptions, in legend order."""
    return [{"standing": str(name), "sign": style.sign, "words": style.legend} for name, style in STATUS_STYLES.items()]


def common_values(trials: Sequence[Trial]) -> Json:
    """Return the parameters that have the same value in all trials."""
    if not trials:
        return {}
    varied = set(_varied(trials))
    first = trials[0].config
    return {
        visible(name): plain_value(value) for name, value in first.items() if name not in varied and value is not None
    }
