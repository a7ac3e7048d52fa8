"""The bill of a sweep on nodes of three types, compared with sums by hand."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from raysweep.controller.failures import Blame, Loss
from raysweep.controller.sweep import Sweep
from raysweep.report.summary import summarize
from raysweep.report.tables import bill_table
from raysweep.report.write import write
from raysweep.results.bill import bill_text, build_bill
from raysweep.results.events import NodesCounted
from raysweep.results.ledger import point_name, read_events
from raysweep.results.reader import load
from raysweep.results.types import NodeTime
from support.sweeps import make, rung

SETTINGS = {
    "budget__trials": "3",
    "budget__rungs": "2",
    "early_stopping__policy": "none",
    "budget__prices": "{head: 0.10, spot: 0.40, on_demand: 0.80}",
}
# A trial of these sweeps holds 2 CPUs and half a GPU.
SPOT = {"type": "spot", "cpus": 4, "gpus": 1}  # of which that is half
ON_DEMAND = {"type": "on_demand", "cpus": 8, "gpus": 4}  # and of which it is a quarter


class Simulated:
    """A sweep and its cluster, by a clock in minutes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.minute = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: 60 * self.minute)
        self.sweep, self.out = make(folder, **SETTINGS)

    def nodes(self, minute: float, booting: Mapping[str, int] | None = None, **up: int) -> None:
        """Set the nodes from this minute on."""
        self.minute = minute
        self.sweep.meter.see(up, booting or {})
        self.sweep.count_nodes()

    def rung(self, number: int, step: int, node: Mapping[str, Any]) -> None:
        config = self.sweep.progress.configs[number]
        (self.sweep.run.path / "points" / point_name(number, step)).mkdir()
        self.sweep.record_rung(number, {**rung(config, step), "node": dict(node)})


def play(cluster: Simulated) -> Sweep:
    """Three trials: two share no spot node, each has its own; the third runs on demand, loses its node and gets another."""
    sweep = cluster.sweep
    cluster.nodes(0, head=1)
    assert [sweep.assign() is not None for _ in range(3)] == [True] * 3  # they wait from here on
    cluster.nodes(2, head=1, booting={"spot": 2})
    cluster.nodes(12, head=1, spot=2, booting={"on_demand": 1})
    sweep.place(0)
    sweep.place(1)
    cluster.nodes(32, head=1, spot=2, on_demand=1)
    sweep.place(2)
    for step, minute in ((1, 32), (2, 52)):
        cluster.minute = minute
        cluster.rung(0, step, SPOT)
        cluster.rung(1, step, SPOT)
    sweep.release(0)
    sweep.release(1)
    cluster.rung(2, 1, ON_DEMAND)
    cluster.nodes(60, head=1, on_demand=1)  # the spot nodes have waited for eight minutes, and go
    cluster.nodes(82, head=1, booting={"on_demand": 1})
    sweep.lose(2, Loss(Blame.NODE, "its node went away"))
    assert sweep.assign() is not None
    cluster.nodes(92, head=1, on_demand=1)
    sweep.place(2)
    cluster.minute = 112
    cluster.rung(2, 2, ON_DEMAND)
    sweep.release(2)
    cluster.nodes(117, head=1)  # the last worker has waited for five minutes
    cluster.nodes(120, head=1)
    sweep.finish("completed", "all trials are done")
    return sweep


def test_bill_matches_sums_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = play(Simulated(tmp_path, monkeypatch))

    # Trials, from when they have a worker: the waiting from 0 to 12, to 32, and from 82 to 92 is nobody's.
    on_spot = 40 / 60 * 0.40 / 2  # each, from 12 to 52
    on_demand = (50 + 20) / 60 * 0.80 / 4  # from 32 to 82 and from 92 to 112
    results = load(tmp_path)
    assert [trial.money for trial in results.trials] == pytest.approx([on_spot, on_spot, on_demand])
    assert [trial.seconds for trial in results.trials] == pytest.approx([40 * 60, 40 * 60, 70 * 60])
    assert sweep.costs.total.money == pytest.approx(0.50)

    nodes = {node.type: node for node in results.nodes}
    minutes = {name: (node.boot_seconds / 60, node.up_seconds / 60) for name, node in nodes.items()}
    assert minutes == {
        "head": pytest.approx((0, 120)),
        "spot": pytest.approx((2 * 10, 2 * 48)),
        "on_demand": pytest.approx((20 + 10, 50 + 25)),
    }

    bill = build_bill(results)
    booting = 20 / 60 * 0.40 + 30 / 60 * 0.80
    head = 120 / 60 * 0.10
    # the other half of each while trials ran, and all of them afterwards
    idle_spot = (2 * 40 / 2 + 2 * 8) / 60 * 0.40
    idle_on_demand = (70 * 3 / 4 + 5) / 60 * 0.80
    assert bill.trials == pytest.approx(0.50)
    assert bill.booting == pytest.approx(booting)
    assert bill.unused == pytest.approx(head + idle_spot + idle_on_demand) == pytest.approx(1.34)
    assert bill.total == pytest.approx(0.50 + booting + head + idle_spot + idle_on_demand)
    assert bill_text(bill) == (
        "nodes cost 2.37: 0.50 for trials, 0.53 for booting nodes, 1.34 for the head and unused nodes"
    )


def test_report_shows_the_bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(Simulated(tmp_path, monkeypatch))
    assert bill_table(summarize(load(tmp_path))).rows == (
        ("head", "0.00", "2.00", "0.1", "0.20"),
        ("spot", "0.33", "1.60", "0.4", "0.77"),
        ("on_demand", "0.50", "1.25", "0.8", "1.40"),
        ("all", "0.83", "4.85", "–", "2.37"),  # noqa: RUF001
    )
    report = write(tmp_path)
    for name in ("front.md", "report.html"):
        assert "Nodes cost 2.37: 0.50 for trials" in (report.folder / name).read_text()


def test_killed_driver_loses_at_most_minutes_of_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Simulated(tmp_path, monkeypatch)
    for minute in range(62):
        cluster.nodes(minute, head=1)
    (head,) = load(tmp_path).nodes
    assert 56 <= head.up_seconds / 60 <= 61
    counted = [
        event for event in read_events(tmp_path / "ledger.jsonl") if isinstance(event, NodesCounted)
    ]
    assert len(counted) == 12


def test_no_bill_without_prices(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    sweep.finish("interrupted", "Ctrl-C")
    results = load(tmp_path)
    assert results.nodes == ()
    assert bill_table(summarize(results)).rows == ()
    assert "## Bill" not in (write(tmp_path).folder / "front.md").read_text()


def test_bill_separates_prices_of_one_node_type(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path)
    for price in (0.5, 1.0, 1.0, None):
        sweep.ledger.append(NodesCounted(nodes=(NodeTime("spot", 360.0, 3600.0, price),)))
    results = load(tmp_path)
    assert results.nodes == (
        NodeTime("spot", 360.0, 3600.0, 0.5),
        NodeTime("spot", 720.0, 7200.0, 1.0),
        NodeTime("spot", 360.0, 3600.0, None),
    )
    assert build_bill(results).total == pytest.approx(0.05 + 0.5 + 0.2 + 2.0)
