"""Measured values of an encoder and their changes from the base encoder."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from raysweep.metrics.closeness import Geometry
from raysweep.output import ABSENT

Verdict = Literal["improved", "worsened", "unchanged"]
VERDICTS: tuple[Verdict, ...] = ("improved", "unchanged", "worsened")

CRITICAL_Z = 1.96


def relative_improvement(before: float, after: float, *, lower_is_better: bool) -> float:
    """Return (after - before) / before, negated if lower is better; NaN if ``before`` is 0."""
    if not before:
        return math.nan
    change = (after - before) / before
    return -change if lower_is_better else change


@dataclass(frozen=True)
class MeasuredValue:
    """A measure's value in [0, 1] for one geometry, and the base encoder's value, if any.

    ``low`` and ``high`` are the bounds of the 95% bootstrap interval of ``value - base``, or None if the change was not
    tested. If ``value`` is a share of errors among (positive, negative) pairs, ``pairs`` is the number of pairs, and
    ``z`` is the z-statistic of the change.
    """

    measure: str
    geometry: Geometry
    value: float
    base: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int | None = None
    z: float | None = None

    @property
    def lower_is_better(self) -> bool:
        return self.measure.startswith("PND")

    @property
    def improvement(self) -> float | None:
        """Return the relative improvement, NaN if the base is 0, or None if there is no base."""
        if self.base is None:
            return None
        return relative_improvement(self.base, self.value, lower_is_better=self.lower_is_better)

    @property
    def shown_improvement(self) -> str:
        """Return the relative improvement as a percentage, or a dash if it is unknown."""
        improvement = self.improvement
        return ABSENT if improvement is None or math.isnan(improvement) else f"{improvement:+.2%}"

    @property
    def verdict(self) -> Verdict | None:
        """Return the bootstrap's verdict, or None if the change was not tested."""
        if self.low is None or self.high is None:
            return None
        return self._verdict(is_significant=not self.low <= 0 <= self.high)

    @property
    def z_verdict(self) -> Verdict | None:
        """Return the z-test's verdict, or None if the change was not z-tested."""
        return None if self.z is None else self._verdict(is_significant=abs(self.z) > CRITICAL_Z)

    def _verdict(self, *, is_significant: bool) -> Verdict:
        assert self.base is not None
        if not is_significant:
            return "unchanged"
        has_fallen = self.value < self.base
        return "improved" if has_fallen == self.lower_is_better else "worsened"

    def as_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict; values and changes are x100."""
        values: dict[str, Any] = {
            "measure": self.measure,
            "closeness": self.geometry,
            "value": 100 * self.value,
        }
        improvement = self.improvement
        if self.base is None or improvement is None:
            return values
        return {
            **values,
            "base": 100 * self.base,
            "improvement": None if math.isnan(improvement) else 100 * improvement,
            "low": None if self.low is None else 100 * self.low,
            "high": None if self.high is None else 100 * self.high,
            "verdict": self.verdict,
            "z": self.z,
            "z_verdict": self.z_verdict,
        }
