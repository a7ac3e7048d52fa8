"""Metrics of a sweep, recorded by fakes of Ray's classes."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from raysweep.ray_tune import prometheus
from raysweep.ray_tune.prometheus import SweepMetrics
from raysweep.results.events import TrialInterrupted
from support.grafana import Sample, answer, queries
from support.sweeps import make, play, rung

SAMPLES: dict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)


class FakeMetric:
    """Records values under the name that Prometheus sees, and rejects labels that were not declared."""

    suffix = ""

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description
        self._name, self._keys = f"ray_{name}{self.suffix}", set(tag_keys)
        self._default_tags: dict[str, str] = {}

    def set_default_tags(self, tags: dict[str, str]) -> None:
        self._default_tags = tags

    def _key(self, tags: dict[str, str] | None) -> Any:
        labels = {**self._default_tags, **(tags or {})}
        assert labels.keys() == self._keys
        return self._name, tuple(labels.items())


class FakeCounter(FakeMetric):
    suffix = "_total"

    def inc(self, value: float = 1.0, tags: dict[str, str] | None = None) -> None:
        SAMPLES[self._key(tags)] += value


class FakeGauge(FakeMetric):
    def set(self, value: float, tags: dict[str, str] | None = None) -> None:
        SAMPLES[self._key(tags)] = value


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    SAMPLES.clear()
    monkeypatch.setattr(prometheus, "Counter", FakeCounter)
    monkeypatch.setattr(prometheus, "Gauge", FakeGauge)


def ask(title: str) -> dict[tuple[str, ...], float]:
    samples = [Sample(name, dict(labels), value) for (name, labels), value in SAMPLES.items()]
    (query,) = (query for name, query in queries() if name == title)
    return answer(query, samples)


def test_metrics_follow_the_sweep(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path / "a", budget__trials="2", early_stopping__policy="none")
    metrics = SweepMetrics(sweep)
    with metrics.attached():
        proposal = sweep.assign()
        assert proposal is not None
        number, config = proposal
        sweep.place(number)
        sweep.record_rung(number, rung(config, 1) | {"loss": 0.25})
        metrics.refresh()
        assert ask("Trials by status") == {
            ("a", status): status == "running"
            for status in ("running", "paused", "completed", "stopped", "failed")
        }
        assert ask("Training loss") == {("a", "0"): 0.25}
        sweep.ledger.append(TrialInterrupted(trial=number))
        sweep.record_rung(number, rung(config, 2))
        play(sweep, finish=False)
        assert ask("Trials by status")["a", "completed"] == 0, (
            "refreshed more often than every few seconds"
        )
    assert ask("Rungs per second") == {("a",): 2 + 4}  # the second trial has four rungs
    assert ask("Interrupted trials") == {("a",): 1}
    assert ask("Trials by status")["a", "completed"] == 1
    play(sweep)
    assert ask("Rungs per second") == {("a",): 6}, "still attached"


def test_hypervolume_is_zero_without_a_feasible_point(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path / "a", budget__trials="1", objective__constraints__polarity="0.99")
    with SweepMetrics(sweep).attached():
        play(sweep)
    assert ask("Hypervolume") == {("a",): 0.0}


def test_failing_metrics_are_disabled_after_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no agent")

    monkeypatch.setattr(FakeCounter, "inc", fail)
    sweep, out = make(tmp_path, budget__trials="2")
    with SweepMetrics(sweep).attached():
        play(sweep)
    assert out.getvalue().count("no agent") == 1
    assert SAMPLES == {}
    assert len(sweep.scheduler.trials) == 2
