"""Events and their JSON."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import InputError
from raysweep.metrics.measured_value import MeasuredValue
from raysweep.results.events import (
    EVENTS,
    CheckpointsRemoved,
    Event,
    GuardsMeasured,
    NodeExcluded,
    NodesCounted,
    PointsScored,
    ReplicatesAveraged,
    RungFinished,
    RungWatched,
    SessionFinished,
    SessionStarted,
    StageBegan,
    SweepSteered,
    TrialContinued,
    TrialEnded,
    TrialInterrupted,
    TrialPaused,
    TrialResumed,
    TrialStarted,
    read_event,
)
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.scores import Score
from raysweep.results.types import (
    Calibration,
    Cost,
    GuardScore,
    Mean,
    Measure,
    Node,
    NodeTime,
    Point,
    RunInfo,
    TrialStatus,
)
from raysweep.results.watched import TensorChange, Watched, WatchedSet
from support.points import make_scores

INFO = RunInfo(
    "s",
    "0",
    "d",
    "m",
    "r",
    16,
    "uniform",
    0.5,
    "similarity",
    12,
    {"dev": 9},
    {"dev": 9},
    ("0", "1"),
    0,
)
COST = Cost(10.0, 20.0, 5.0, 0.25)
POINT = Point(
    3, 2, "concat", 0.3, "dev", 768, make_scores(0.7, 0.4, retention=0.9, spreads=(0.2, 0.1))
)
REFERENCE = Point(
    None, None, "reference", None, "test", 384, make_scores(0.6, 0.47, spreads=(0.2, 0.1))
)
FIGURES = {
    "cross_entropy_before": 0.377,
    "cross_entropy": 0.203,
    "error_before": 0.08,
    "error": 0.01,
}
ON_DEV = Calibration(3, 2, "dev", 2.9, **FIGURES)
TOLD = Point(
    3, 2, "labeled", 0.3, "dev", 386, make_scores(0.9, 0.4, retention=0.9, spreads=(0.2, 0.1))
)
ON_TEST = Calibration(3, 2, "test", 2.9, **FIGURES)
AREA = Measure(3, 2, "dev", "average_precision", 0.9, curve=(1.0, 0.8))
KL = Measure(None, None, "test", "divergence", 0.3, 0.2, 0.4)
RUNG: dict[str, Any] = {
    "trial": 3,
    "step": 2,
    "examples_seen": 4096,
    "seconds": 8.5,
    "loss": 0.1,
    "points": (POINT,),
}

PND = MeasuredValue("PND", "cosine", 0.2, 0.3, -0.15, -0.05, 400, -3.3)

NAMES = [name for name in vars(INFO) if name not in ("active_sets", "tasks")]
"""Those of the settings of every run."""

# Each kind, with the keys of its JSON object in their order.
EXAMPLES: list[tuple[Event, list[str]]] = [
    (SessionStarted(info=INFO, config_digest="0a"), ["event", *NAMES, "config_digest"]),
    (SessionStarted(info=dataclasses.replace(INFO, tasks=("sst2", "trec")), config_digest="0a"), ["event", *NAMES, "tasks", "config_digest"]),
    (
        SessionStarted(info=dataclasses.replace(INFO, active_sets=(("e", 0.7), ("f", 0.4))), config_digest="0a"),
        ["event", *NAMES, "active_sets", "config_digest"],
    ),
    (TrialStarted(trial=3, config={"loss": "triplet"}, num_rungs=4, at=1.0), ["event", "trial", "config", "num_rungs", "at"]),
    (
        TrialStarted(trial=3, config={}, num_rungs=4, replicate_of=1, run=2, at=1.0),
        ["event", "trial", "config", "num_rungs", "replicate_of", "run", "at"],
    ),
    (
        RungFinished(**RUNG, stop=None, node=Node("big", 8.0, 4.0), may_begin=True, cost=COST, at=9.0),
        ["event", *list(RUNG)[:-1], "stop", "points", "node", "may_begin", "cost", "at"],
    ),
    (RungFinished(**RUNG, stop="idle"), ["event", *list(RUNG)[:-1], "stop", "points"]),
    (RungFinished(**RUNG, stop=None, calibration=ON_DEV), ["event", *list(RUNG)[:-1], "stop", "points", "calibration"]),
    (RungFinished(**RUNG, stop=None, labeled=(TOLD,)), ["event", *list(RUNG)[:-1], "stop", "points", "labeled"]),
    (RungFinished(**RUNG, stop=None, tasks=(TOLD,)), ["event", *list(RUNG)[:-1], "stop", "points", "tasks"]),
    (RungFinished(**RUNG, stop=None, measures=(AREA,)), ["event", *list(RUNG)[:-1], "stop", "points", "measures"]),
    (TrialPaused(trial=3, reason="not among the best", cost=COST, at=9.0), ["event", "trial", "reason", "cost", "at"]),
    (TrialResumed(trial=3, at=9.0), ["event", "trial", "at"]),
    (TrialInterrupted(trial=3, reason="Ctrl-C", cost=COST, at=9.0), ["event", "trial", "reason", "cost", "at"]),
    (TrialContinued(trial=3, at=9.0), ["event", "trial", "at"]),
    (
        TrialEnded(trial=3, status=TrialStatus.STOPPED, reason="idle", cost=COST, at=9.0),
        ["event", "trial", "status", "reason", "cost", "at"],
    ),
    (CheckpointsRemoved(trials=(3, 4), at=9.0), ["event", "trials", "at"]),
    (
        ReplicatesAveraged(trial=3, runs=2, points=(Mean(3, 2, "plain", None, 2, {"polarity": Score(0.7, 0.01), "similarity": Score(0.4, 0.02)}),), at=9.0),
        ["event", "trial", "runs", "points", "at"],
    ),
    (PointsScored(points=(REFERENCE,)), ["event", "points"]),
    (PointsScored(points=(REFERENCE,), calibration=ON_TEST), ["event", "points", "calibration"]),
    (PointsScored(points=(), measures=(AREA, KL)), ["event", "points", "measures"]),
    (PointsScored(points=(), labeled=(TOLD,)), ["event", "points", "labeled"]),
    (PointsScored(points=(), tasks=(TOLD,)), ["event", "points", "tasks"]),
    (StageBegan(stage="guards", count=22, at=9.0), ["event", "stage", "count", "at"]),
    (
        RungWatched(
            trial=3,
            step=2,
            watched=Watched(
                (WatchedSet("sts.tsv", "scored_pairs", 1, 0, 3, 400, (PND,), (PND,)),), None, 2e-5, (TensorChange("w", 0.1),)
            ),
            at=8.5,
        ),
        ["event", "trial", "step", "watched", "at"],
    ),
    (
        GuardsMeasured(scores=(GuardScore(3, 2, "concat", 0.3, "sts-b", "spearman_cosine", 0.8, 0.7),), at=9.0),
        ["event", "scores", "at"],
    ),
    (NodeExcluded(node="n1", errors=3, reason="no driver", at=9.0), ["event", "node", "errors", "reason", "at"]),
    (NodesCounted(nodes=(NodeTime("gpu_spot", 600.0, 90.0, 0.4), NodeTime("head", 0.0, 690.0)), at=9.0), ["event", "nodes", "at"]),
    (SweepSteered(request="1", action="pause", at=9.0), ["event", "request", "action", "at"]),
    (SweepSteered(request="1", action="workers", workers=2, at=9.0), ["event", "request", "action", "workers", "at"]),
    (SweepSteered(request="1", action="stop-trial", trial=0, at=9.0), ["event", "request", "action", "trial", "at"]),
    (SweepSteered(request="1", action="try", config={"loss": "a"}, at=9.0), ["event", "request", "action", "config", "at"]),
    (SessionFinished(status="budget", reason="", seconds=9.0, at=9.0), ["event", "status", "reason", "seconds", "at"]),
    (
        SessionFinished(status="failed", reason="", seconds=9.0, is_final=True, at=9.0),
        ["event", "status", "reason", "seconds", "is_final", "at"],
    ),
    (
        SessionFinished(status="budget", reason="", seconds=9.0, limit={"budget.money": 2.5}, at=9.0),
        ["event", "status", "reason", "seconds", "limit", "at"],
    ),
]  # fmt: skip


def test_every_kind_of_event_is_covered() -> None:
    assert {type(event) for event, _ in EXAMPLES} == set(EVENTS.values())


@pytest.mark.parametrize(("event", "keys"), EXAMPLES, ids=lambda value: getattr(value, "kind", ""))
def test_events_round_trip(event: Event, keys: list[str]) -> None:
    stored = json.dumps(event.to_json(), allow_nan=False)
    assert list(json.loads(stored)) == keys
    assert read_event(json.loads(stored)) == event
    assert read_event({**json.loads(stored), "of_a_later_version": [1]}) == event


def test_points_omit_fields_of_their_event() -> None:
    rung = RungFinished(**RUNG, stop=None, calibration=ON_DEV).to_json()
    (point,) = rung["points"]
    (measure,) = RungFinished(**RUNG, stop=None, measures=(AREA,)).to_json()["measures"]
    assert measure == {
        "split": "dev",
        "name": "average_precision",
        "value": 0.9,
        "curve": (1.0, 0.8),
    }
    assert not {"trial", "step"} & set(point)
    assert not {"trial", "step"} & set(rung["calibration"])
    (reference,) = PointsScored(points=(REFERENCE,)).to_json()["points"]
    assert (reference["trial"], reference["step"]) == (None, None)


def test_optional_fields_have_defaults() -> None:
    rung = json.loads(json.dumps(RungFinished(**RUNG, stop=None).to_json()))
    del rung["stop"]
    assert read_event(rung) == RungFinished(**RUNG, stop=None)
    assert read_event({"event": "trial", "trial": 0, "config": {}}) == TrialStarted(
        trial=0, config={}, num_rungs=0
    )
    assert read_event({"event": "pause", "trial": 0}) == TrialPaused(trial=0, reason="")


def _rung_line(**figures: Any) -> str:
    """A rung's event with a calibration that has other figures."""
    rung = RungFinished(**RUNG, stop=None, calibration=ON_DEV).to_json()
    return json.dumps({**rung, "calibration": {**rung["calibration"], **figures}})


def _measure_line(**values: Any) -> str:
    """A rung's event with a measure that has other values."""
    rung = RungFinished(**RUNG, stop=None, measures=(AREA,)).to_json()
    return json.dumps({**rung, "measures": [{**rung["measures"][0], **values}]})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2 is not an event"),
        ('["event"]', "line 2 is not an event"),
        ('{"trial": 3}', "line 2 is not an event"),
        ('{"event": "revived", "trial": 3}', "line 2: event is 'revived'; allowed: .*resume"),
        ('{"event": ["end"]}', r"line 2: event is \['end'\]"),
        ('{"event": "resume"}', "line 2: trial is missing"),
        (
            '{"event": "end", "trial": 3, "status": "cut"}',
            "line 2: status is 'cut': input should be 'running'",
        ),
        ('{"event": "rung", "trial": 3}', "line 2: step is missing"),
        ('{"event": "points", "points": "x"}', "line 2: points is 'x'"),
        (_rung_line(temperature=0.0), "line 2: temperature is 0.0; allowed: .*above 0"),
        (_rung_line(cross_entropy=-1.0), r"line 2: cross-entropies are \(0.377, -1.0\)"),
        (_rung_line(error=8.0), r"line 2: calibration errors are \(0.08, 8.0\); allowed: 0 to 1"),
        (_rung_line(error="few"), "line 2: calibration.error is 'few'"),
        (_rung_line(split="train"), "line 2: calibration.split is 'train'"),
        (_measure_line(name="a b"), "line 2: 'a b' is not a measure; allowed: letters"),
        (_measure_line(low=math.inf), "line 2: average_precision .*allowed: finite numbers"),
        (_measure_line(value="few"), "line 2: measures.0.value is 'few'"),
        (
            json.dumps({**RungFinished(**RUNG, stop=None).to_json(), "measures": 3}),
            "line 2: measures is 3",
        ),
        ('{"event": "points", "points": [], "labeled": [7]}', r"line 2: labeled is \[7\]"),
        (
            '{"event": "mean", "trial": 3, "runs": 2, "points": [7]}',
            r"line 2: points is \[7\]; allowed: a list",
        ),
        (
            json.dumps({**SessionStarted(info=INFO, config_digest="0a").to_json(), "schema": 3}),
            r"jsonl: written with schema 3; this version",
        ),
    ],
)
def test_invalid_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(SessionStarted(info=INFO, config_digest="0a"))
    ledger.close()
    with ledger.path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match=problem):
        list(read_events(ledger.path))


def test_non_finite_numbers_are_rejected(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        ledger.append(SessionFinished(status="completed", reason="", seconds=float("nan")))
    ledger.close()
    assert list(read_events(ledger.path)) == []
