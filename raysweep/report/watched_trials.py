"""Changes in scores on watched data, which a sweep measures but does not optimize for, and the adiabatic learning rates.

The **adiabatic range** (Vasilyev et al., arXiv 2407.00923) is the set of learning rates at which the target improves
significantly and no watched set worsens significantly. Significance is tested with a paired bootstrap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raysweep.metrics.closeness import GEOMETRIES, Geometry
from raysweep.metrics.measured_value import VERDICTS
from raysweep.output import ABSENT, TextTable
from raysweep.results.watched import Watched, WatchedRung, WatchedSet


def last_rungs(rungs: Iterable[WatchedRung]) -> list[WatchedRung]:
    """Return the last measured rung of each trial, sorted by learning rate and then by trial."""
    last = {rung.trial: rung for rung in rungs}
    return sort_rungs(last.values())


def sort_rungs(rungs: Iterable[WatchedRung]) -> list[WatchedRung]:
    return sorted(rungs, key=lambda rung: (rung.watched.learning_rate, rung.trial))


def is_improved(watched: Watched, geometry: Geometry) -> bool:
    """Return whether the target improved significantly."""
    return watched.target is not None and watched.target.whole_by(geometry).verdict == "improved"


def worsened(watched: Watched, geometry: Geometry) -> list[str]:
    """Return the names of the watched sets that worsened significantly as a whole."""
    return [found.name for found in watched.sets if found.whole_by(geometry).verdict == "worsened"]


@dataclass(frozen=True)
class AdiabaticRange:
    """The learning rates in the range and all that were tried, in ascending order.

    ``reason`` explains why the range is empty.
    """

    rates: list[float]
    tried: list[float]
    reason: str = ""

    def __str__(self) -> str:
        if not self.rates:
            return f"the adiabatic range is empty: {self.reason}"
        listed = ", ".join(f"{rate:.3g}" for rate in self.rates)
        return f"the adiabatic range is {listed} ({len(self.rates)} of the {len(self.tried)} learning rates tried)"


def adiabatic_range(rungs: Sequence[WatchedRung], geometry: Geometry) -> AdiabaticRange | None:
    """Return the adiabatic range, or None if there is no target.

    A learning rate is in the range only if all trials at that rate meet the criteria. Watched sets that are too small to
    be tested are ignored.
    """
    by_rate: dict[float, list[Watched]] = {}
    for rung in sort_rungs(rungs):
        by_rate.setdefault(rung.watched.learning_rate, []).append(rung.watched)
    targets = [rung.watched.target for rung in rungs]
    if not targets or targets[0] is None:
        return None
    tried = list(by_rate)
    rates = []
    for rate, at_rate in by_rate.items():
        if all(
            is_improved(watched, geometry) and not worsened(watched, geometry)
            for watched in at_rate
        ):
            rates.append(rate)
    if rates:
        return AdiabaticRange(rates, tried)
    if targets[0].whole_by(geometry).verdict is None:
        return AdiabaticRange([], tried, "the target is too small to be tested")
    for rate, at_rate in by_rate.items():
        names = list(
            dict.fromkeys(name for watched in at_rate for name in worsened(watched, geometry))
        )
        if names:
            reason = f"PND already rises significantly at learning rate {rate:.3g}, on {', '.join(names)}"
            if not any(is_improved(watched, geometry) for watched in at_rate):
                reason += "; the target does not improve significantly at that rate"
            return AdiabaticRange([], tried, reason)
    return AdiabaticRange(
        [], tried, "the target does not improve significantly at any learning rate"
    )


WATCHED_TEXT = (
    "For each trial's last measured rung, the table shows the relative improvement in the target's PND under cosine "
    "similarity. It also shows how many watched sets improve, stay unchanged or worsen as a whole according to a paired "
    "bootstrap, and the lowest improvement among them. PND is the share of (positive, negative) pairs in which the "
    "positive is not closer to the query than the negative. Intervals are not corrected for multiple testing."
)


def sentences(rungs: Sequence[WatchedRung]) -> list[str]:
    """Return an explanation of the table and, if there is a target, the adiabatic range for each geometry."""
    stated = [f"For {geometry}, {found}." for geometry, found in _adiabatic_ranges(rungs).items()]
    return [WATCHED_TEXT, *stated]


def watched_lines(watched: Iterable[WatchedRung]) -> list[str]:
    """Return terminal lines with each geometry's adiabatic range; empty if the run has no watched data."""
    rungs = last_rungs(watched)
    if not rungs:
        return []
    return [f"for {geometry}, {found}" for geometry, found in _adiabatic_ranges(rungs).items()]


def _adiabatic_ranges(rungs: Sequence[WatchedRung]) -> dict[Geometry, AdiabaticRange]:
    ranges = {geometry: adiabatic_range(rungs, geometry) for geometry in GEOMETRIES}
    return {geometry: found for geometry, found in ranges.items() if found is not None}


def table(rungs: Sequence[WatchedRung], geometry: Geometry) -> TextTable:
    """Return a table of the changes on watched data in each trial."""
    columns = (
        "trial",
        "learning rate",
        "target",
        "verdict",
        *VERDICTS,
        "not tested",
        "lowest",
        "lowest set",
    )
    rows = []
    for rung in rungs:
        target = rung.watched.target
        target_cells = (ABSENT, ABSENT)
        if target is not None:
            value = target.whole_by(geometry)
            target_cells = value.shown_improvement, value.verdict or "not tested"
        values = [(found.name, found.whole_by(geometry)) for found in rung.watched.sets]
        verdicts = [value.verdict for _, value in values]
        known = {name: value for name, value in values if value.shown_improvement != ABSENT}
        lowest = min(known, key=lambda name: known[name].improvement or 0.0, default=None)
        row = (
            f"{rung.trial}:{rung.step}",
            f"{rung.watched.learning_rate:.3g}",
            *target_cells,
            *(str(verdicts.count(verdict)) for verdict in [*VERDICTS, None]),
            ABSENT if lowest is None else known[lowest].shown_improvement,
            lowest or ABSENT,
        )
        rows.append(row)
    return TextTable(columns, tuple(rows), frozenset({"trial", "verdict", "lowest set"}))


def tensor_table(rungs: Sequence[WatchedRung]) -> TextTable:
    """Return a table of the tensors that changed the most in each trial."""
    rows = []
    for rung in rungs:
        for tensor in rung.watched.tensors:
            relative = ABSENT if tensor.relative is None else f"{tensor.relative:.2e}"
            name = f"{rung.trial}:{rung.step}"
            rows.append(
                (
                    name,
                    f"{rung.watched.learning_rate:.3g}",
                    tensor.name,
                    relative,
                    f"{tensor.maximum:.2e}",
                )
            )
    columns = ("trial", "learning rate", "tensor", "relative L2 change", "largest change")
    return TextTable(columns, tuple(rows), frozenset({"trial", "tensor"}))


def as_json(rungs: Sequence[WatchedRung]) -> dict[str, Any]:
    """Return the content of ``watch.json``, with measures and their changes multiplied by 100."""
    ranges = {geometry: adiabatic_range(rungs, geometry) for geometry in GEOMETRIES}
    trials = []
    for rung in rungs:
        watched = rung.watched
        values = {
            "trial": rung.trial,
            "step": rung.step,
            "learning_rate": watched.learning_rate,
            "target": None if watched.target is None else watched.target.as_json(),
            "watched": [found.as_json() for found in watched.sets],
            "tensors": [asdict(tensor) for tensor in watched.tensors],
        }
        trials.append(values)
    return {
        "adiabatic_range": {
            geometry: {"learning_rates": found.rates, "tried": found.tried, "reason": found.reason}
            for geometry, found in ranges.items()
            if found is not None
        },
        "trials": trials,
    }


def rows(rungs: Iterable[WatchedRung]) -> list[dict[str, Any]]:
    """Return the rows of ``watched.parquet``: one per rung, set and measure. Scores are multiplied by 100."""
    all_rows: list[dict[str, Any]] = []
    for rung in rungs:
        target = rung.watched.target
        sets: list[tuple[str, WatchedSet]] = [] if target is None else [("target", target)]
        sets += [("watched", watched_set) for watched_set in rung.watched.sets]
        for role, measured in sets:
            of_rung = {"trial": rung.trial, "step": rung.step}
            of_set = {"role": role, "data": measured.name, "kind": measured.kind}
            for value in measured.values:
                all_rows.append({**of_rung, **of_set, **value.as_json(), "pairs": value.pairs})
    return all_rows
