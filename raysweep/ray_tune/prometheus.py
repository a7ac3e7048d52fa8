"""Metrics of a running sweep, which Ray exports to Prometheus.

Metric names get the prefix ``ray_``, and counters also get the suffix ``_total``. Every metric has a ``run`` label, the
name of the run's folder. ``clusters/grafana.json`` is a Grafana dashboard for these metrics.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ray.util.metrics import Counter, Gauge

from raysweep.controller.sweep import Sweep
from raysweep.results.events import Event, RungFinished, TrialInterrupted

# Ray exports every 10 s, and drops any gauge not set since the last export
REFRESH_SECONDS = 5.0
RUN = "run"


class SweepMetrics:
    """The metrics of one session of a sweep.

    Counters start at 0 in each session. Gauges describe the entire run. If an update fails, the metrics are disabled with
    a warning.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._refreshed_at = -math.inf
        self._is_disabled = False
        # loss of each trial's last rung in this session
        self._losses: dict[int, float] = {}
        self._rungs = Counter("raysweep_rungs", "Finished rungs", (RUN,))
        self._interruptions = Counter(
            "raysweep_interruptions", "Trials that left their worker early", (RUN,)
        )
        self._trials = Gauge("raysweep_trials", "Trials with this status", (RUN, "status"))
        self._hypervolume = Gauge("raysweep_hypervolume", "Hypervolume of the front on dev", (RUN,))
        self._spend = Gauge("raysweep_spend", "Cost of the trials in this unit", (RUN, "unit"))
        self._loss = Gauge(
            "raysweep_loss", "Training loss of the trial's last rung", (RUN, "trial")
        )
        run = {RUN: Path(sweep.run.location).name}
        gauges = self._trials, self._hypervolume, self._spend, self._loss
        for metric in (self._rungs, self._interruptions, *gauges):
            metric.set_default_tags(run)

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Update the metrics from the sweep's events within the context, and once more when it ends."""
        listeners = self._sweep.ledger.listeners
        listeners.append(self.take)
        try:
            yield
        finally:
            listeners.remove(self.take)
            self.refresh(at_once=True)

    def take(self, event: Event) -> None:
        match event:
            case RungFinished():
                self._losses[event.trial] = event.loss
                self._record(self._rungs.inc)
                self._record(lambda: self._set_loss(event.trial))
            case TrialInterrupted():
                self._record(self._interruptions.inc)

    def refresh(self, *, at_once: bool = False) -> None:
        """Set the gauges to the sweep's current state if a refresh is due or ``at_once`` is set."""
        now = time.monotonic()
        if at_once or now - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = now
            self._record(self._set_gauges)

    def _set_gauges(self) -> None:
        sweep = self._sweep
        for status, count in sweep.status().counts.items():
            self._trials.set(count, {"status": str(status)})
        if sweep.front:
            objective = sweep.scheduler.objective
            area = objective.area([point.pair(objective.goals) for point in sweep.front])
            self._hypervolume.set(max(0.0, area))  # negative if no point is feasible
        cost = sweep.costs.total
        self._spend.set(cost.cpu_seconds / 3600, {"unit": "cpu_hours"})
        self._spend.set(cost.gpu_seconds / 3600, {"unit": "gpu_hours"})
        self._spend.set(cost.money, {"unit": "money"})
        for trial in sweep.assignments.keys() & self._losses.keys():
            self._set_loss(trial)

    def _set_loss(self, trial: int) -> None:
        self._loss.set(self._losses[trial], {"trial": str(trial)})

    def _record(self, update: Callable[[], None]) -> None:
        if self._is_disabled:
            return
        try:
            update()
        except Exception as error:  # an error in the metrics must not stop the sweep
            self._is_disabled = True
            self._sweep.display.warn(f"metrics: disabled (error={error})")
