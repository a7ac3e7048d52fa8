"""Metrics that a sweep on Ray Tune exports, and the answers of the dashboard's queries to them."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import ray

from raysweep.cluster.resources import Request
from raysweep.config.sweep import EvaluationConfig
from raysweep.controller.sweep import Sweep
from raysweep.ray_tune import tune
from raysweep.ray_tune.workers import WorkbenchSpec
from raysweep.results.events import Event, RungFinished, TrialInterrupted
from raysweep.results.ledger import read_events
from support.faulty_trials import FaultyTrials
from support.grafana import Sample, answer, queries
from support.metrics_agent import local_ray
from support.paths import TESTS
from support.sweeps import make

NUM_TRIALS = 3  # one completes, one raises, and one completes after its process has died
MAX_SECONDS = 60.0
RUN = "polarity-1"
METADATA = {"raysweep_sweep": "polarity", "raysweep_run": "/runs/a"}


class Swept(NamedTuple):
    """A finished search and the samples that Prometheus would have scraped at its end."""

    sweep: Sweep
    events: Sequence[Event]
    samples: Sequence[Sample]
    metadata: dict[str, str]  # of this process's job


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    folder = tmp_path_factory.mktemp("runs") / RUN
    sweep, _ = make(folder, budget__trials=str(NUM_TRIALS), early_stopping__policy="none")
    unused: Any = None
    spec = WorkbenchSpec(unused, EvaluationConfig(), Request(cpus=1, gpus=0, count=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with local_ray(METADATA) as agent:
            tune.search(sweep, spec, FaultyTrials)
            events = list(read_events(folder / "ledger.jsonl"))
            deadline = time.monotonic() + MAX_SECONDS
            while True:
                samples = agent.scrape()
                if _is_final(sweep, samples) or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            jobs = ray._private.worker.global_worker.gcs_client.get_all_job_info()
            job = next(
                info
                for job, info in jobs.items()
                if job.hex() == ray.get_runtime_context().get_job_id()
            )
            yield Swept(sweep, events, samples, dict(job.config.metadata))


def _is_final(sweep: Sweep, samples: Sequence[Sample]) -> bool:
    """Return whether the samples include those of the search's end."""
    ours = [
        sample
        for sample in samples
        if sample.metric == "ray_raysweep_trials" and sample.labels["run"] == RUN
    ]
    values = {sample.labels["status"]: sample.value for sample in ours}
    return sum(values.get(status, 0.0) for status in ("completed", "failed")) == len(
        sweep.scheduler.trials
    )


def _answer(title: str, samples: Sequence[Sample]) -> dict[tuple[str, ...], float]:
    (query,) = (query for name, query in queries() if name == title)
    return answer(query, samples, RUN)


@pytest.mark.parametrize("query", [query for _, query in queries()])
def test_each_query_returns_values_of_the_run(swept: Swept, query: str) -> None:
    groups = answer(query, swept.samples, RUN)
    assert {run for run, *_ in groups} == {RUN}
    # Ray also exports earlier runs of this process
    assert groups.items() <= answer(query, swept.samples).items()
    assert answer(query, swept.samples, "another-run") == {}


def test_values_match_the_ledger(swept: Swept) -> None:
    kinds = Counter(type(event) for event in swept.events)
    assert _answer("Rungs per second", swept.samples) == {(RUN,): kinds[RungFinished]}
    assert _answer("Interrupted trials", swept.samples) == {(RUN,): kinds[TrialInterrupted]}
    trials = _answer("Trials by status", swept.samples)
    assert {status: count for (_, status), count in trials.items() if count} == {
        "completed": 2,
        "failed": 1,
    }
    hours = _answer("Spend in CPU-hours and GPU-hours", swept.samples)
    cost = swept.sweep.costs.total
    assert cost.cpu_seconds > 0
    assert hours[RUN, "cpu_hours"] == pytest.approx(cost.cpu_seconds / 3600)
    assert hours[RUN, "gpu_hours"] == pytest.approx(cost.gpu_seconds / 3600)
    losses = {
        (event.trial, event.loss) for event in swept.events if isinstance(event, RungFinished)
    }
    for (_, trial), loss in _answer("Training loss", swept.samples).items():
        assert (int(trial), loss) in losses


def test_hypervolume_is_that_of_all_rungs(swept: Swept) -> None:
    goals = swept.sweep.scheduler.objective.goals
    corner_p, corner_s = goals.reference_point((0.6, 0.47))
    points = [
        point.pair(goals)
        for event in swept.events
        if isinstance(event, RungFinished)
        for point in event.points
    ]
    area, top = 0.0, corner_s
    # each point adds the strip above the points to its right
    for p, s in sorted(points, reverse=True):
        area += max(0.0, p - corner_p) * max(0.0, s - top)
        top = max(top, s)
    ((_, hypervolume),) = _answer("Hypervolume", swept.samples).items()
    assert hypervolume == pytest.approx(area)
    assert area > 0


def test_job_has_metadata(swept: Swept) -> None:
    assert swept.metadata == METADATA
