"""Trials whose processes raise, die, freeze and hang on Ray Tune: each is accounted for once, and the others continue."""

import gc
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from raysweep.cluster.connection import connected
from raysweep.cluster.ray_internals import drain_node
from raysweep.cluster.resources import Request
from raysweep.config.sweep import EvaluationConfig, ResourcesConfig
from raysweep.controller.node_health import NodeHealth
from raysweep.controller.sweep import Sweep
from raysweep.ray_tune import tune
from raysweep.ray_tune.workers import WorkbenchSpec
from raysweep.report.write import write
from raysweep.results.events import RungFinished, TrialEnded
from raysweep.results.ledger import read_events
from raysweep.results.reader import load
from support.faulty_trials import (
    NUM_RUNGS,
    AlwaysRefusing,
    BrokenOnOneNode,
    FaultyTrials,
    FrozenWhileLoading,
    FullOnOneNode,
    KilledWhenIdle,
    NoRoomForWeights,
    WatchfulTrials,
)
from support.paths import TESTS
from support.sweeps import make

pytestmark = pytest.mark.recovery

NUM_TRIALS = 10
SILENT_SECONDS = 6
STORE_BYTES = 100 << 20


@pytest.fixture(autouse=True)
def free_reserved_cpus() -> Iterator[None]:
    """Free the CPUs that Tune's actors reserve after a search that raised, until they are collected."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Join a head without CPUs and two nodes of one CPU, whose workers can import this package's trials."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
            with connected(ResourcesConfig(address=cluster.address), show_workers=False):
                yield cluster
        finally:
            cluster.shutdown()


def search(
    folder: Path, actor: type[FaultyTrials] = FaultyTrials, **overrides: str
) -> tuple[Sweep, str]:
    """Run a sweep of faulty trials, two at a time, and return it with its output."""
    settings = {"budget__trials": str(NUM_TRIALS), "early_stopping__policy": "none", **overrides}
    gc.collect()  # after a search that raised, Tune's actors live until nothing refers to them
    sweep, out = make(folder, resources__silent_seconds=str(SILENT_SECONDS), **settings)
    unused: Any = None
    spec = WorkbenchSpec(unused, EvaluationConfig(), Request(cpus=1, gpus=0, count=2))
    tune.search(sweep, spec, actor)
    return sweep, out.getvalue()


def test_every_trial_ends_once_despite_process_faults(cluster: Cluster, tmp_path: Path) -> None:
    sweep, printed = search(tmp_path)
    assert sweep.given_up is None
    sweep.finish("completed", "all trials are done")
    results = load(tmp_path)
    statuses = {trial.trial: str(trial.status) for trial in results.trials}
    assert statuses == {
        number: "failed" if number in (1, 3, 7) else "completed" for number in range(NUM_TRIALS)
    }
    events = list(read_events(tmp_path / "ledger.jsonl"))
    ended = Counter(event.trial for event in events if isinstance(event, TrialEnded))
    assert ended == Counter(range(NUM_TRIALS))
    rungs = Counter(
        (event.trial, event.step) for event in events if isinstance(event, RungFinished)
    )
    rungs_of_failed = Counter((number, 1) for number in (1, 3, 7))
    others = [number for number in range(NUM_TRIALS) if number not in (1, 3, 7)]
    rungs_of_others = Counter(
        (number, step) for number in others for step in range(1, NUM_RUNGS + 1)
    )
    assert rungs == rungs_of_failed + rungs_of_others

    reasons = {trial.trial: trial.reason for trial in results.trials}
    assert reasons[1] == "ValueError: this trial raises"
    assert reasons[7] == "this trial cannot be"
    assert reasons[3].startswith("its process died: ")
    assert "lost 3 times" in reasons[3]
    assert "trial 2: its process died: " in printed
    for number in (4, 5):
        assert f"trial {number}: its process made no progress for " in printed
    assert printed.count("No space left on device; it will r") == 2
    assert re.search(r"search: node \S+ \(\w+\) paused for 2 s", printed)
    attempts = {
        number: (tmp_path / f"attempts-{number}").stat().st_size for number in range(NUM_TRIALS)
    }
    assert attempts == {0: 1, 1: 2, 2: 2, 3: 3, 4: 2, 5: 2, 6: 3, 7: 2, 8: 1, 9: 1}

    traceback = results.trials[1].traceback
    assert traceback.endswith("ValueError: this trial raises")
    assert "faulty_trials.py" in traceback
    report = write(tmp_path)
    page = (report.folder / "report.html").read_text()
    assert "faulty_trials.py" in page
    assert "    ValueError: this trial raises" in (report.folder / "front.md").read_text()
    assert not (tmp_path / "tune").exists(), "Tune's files are stored elsewhere"


def test_death_of_an_idle_process_is_not_a_failure_of_the_next_trial(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole sweep is paused, as if storage failed on all nodes, so that the trial returns to the same process."""
    monkeypatch.setattr(NodeHealth, "pause", lambda *arguments: None)
    _, printed = search(
        tmp_path, actor=KilledWhenIdle, budget__trials="1", resources__max_failures="0"
    )
    (trial,) = load(tmp_path).trials
    assert str(trial.status) == "completed"
    assert "trial 0: its worker ended before the trial started; it will r" in printed
    assert (tmp_path / "attempts-0").stat().st_size == 2


def test_trial_resumes_once_a_full_disk_has_room_for_its_weights(
    cluster: Cluster, tmp_path: Path
) -> None:
    _, printed = search(
        tmp_path, actor=NoRoomForWeights, budget__trials="1", resources__max_failures="0"
    )
    (trial,) = load(tmp_path).trials
    assert str(trial.status) == "completed"
    assert "No space left on device; it will r" in printed
    assert (tmp_path / "attempts-0").stat().st_size == 2
    rungs = [
        event.step
        for event in read_events(tmp_path / "ledger.jsonl")
        if isinstance(event, RungFinished)
    ]
    assert rungs == list(range(1, NUM_RUNGS + 1))


def test_process_frozen_while_loading_is_killed_early(cluster: Cluster, tmp_path: Path) -> None:
    _, printed = search(tmp_path, actor=FrozenWhileLoading, budget__trials="1")
    (trial,) = load(tmp_path).trials
    assert str(trial.status) == "completed"
    silence = re.search(r"trial 0: its process made no progress for (\d+) s", printed)
    assert silence is not None
    assert int(silence[1]) < tune.LOADING_SILENCES * SILENT_SECONDS
    assert (tmp_path / "attempts-0").stat().st_size == 2


def test_error_in_the_sweep_itself_ends_it_without_repeating_trials(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Sweep, *_: object) -> None:
        raise ZeroDivisionError("a defect of the sweep")

    monkeypatch.setattr(Sweep, "_print_rung", fail)
    with pytest.raises(ZeroDivisionError, match="a defect of the sweep"):
        search(tmp_path)
    attempts = [(path.name, path.stat().st_size) for path in tmp_path.glob("attempts-*")]
    assert {count for _, count in attempts} == {1}


def test_sweep_whose_trials_all_fail_gives_up(cluster: Cluster, tmp_path: Path) -> None:
    sweep, _ = search(tmp_path, actor=AlwaysRefusing)
    assert sweep.given_up is not None
    assert 3 <= len(load(tmp_path).trials) <= 4


def test_bad_node_is_excluded_and_its_trials_run_on_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    sweep, printed = search(tmp_path, actor=BrokenOnOneNode, resources__max_node_errors="2")
    bad = (tmp_path / "bad-node").read_text()
    sweep.finish("completed", "all trials are done")
    results = load(tmp_path)
    assert [str(trial.status) for trial in results.trials] == ["completed"] * NUM_TRIALS
    (excluded,) = results.excluded_nodes
    assert (bad[:12] in excluded.name, excluded.errors) == (True, 2)
    assert "CUDA" in excluded.reason
    assert f"node {excluded.name} excluded" in printed
    assert (tmp_path / "errors").stat().st_size == 2
    assert sweep.nodes.excluded == {bad}
    assert excluded.name in (write(tmp_path).folder / "front.md").read_text()


def test_full_disk_of_one_node_pauses_only_this_node(cluster: Cluster, tmp_path: Path) -> None:
    _, printed = search(tmp_path, actor=FullOnOneNode, budget__trials="6")
    assert [str(trial.status) for trial in load(tmp_path).trials] == ["completed"] * 6
    bad = (tmp_path / "bad-node").read_text()
    assert f"({bad[:12]}) paused for 2 s" in printed
    assert "assignments paused" not in printed


def test_trials_leave_a_draining_node(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs last, since it leaves only one node."""
    nodes = [
        node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")
    ]
    record_rung = Sweep.record_rung

    def drain_at_first(self: Sweep, *arguments: Any) -> bool:
        if not self.progress.front:
            assert drain_node(nodes[0], 600)
        return record_rung(self, *arguments)

    monkeypatch.setattr(Sweep, "record_rung", drain_at_first)
    sweep, printed = search(tmp_path, actor=WatchfulTrials, budget__trials="3")
    sweep.finish("completed", "all trials are done")
    assert [str(trial.status) for trial in load(tmp_path).trials] == ["completed"] * 3
    assert printed.count("its node is about to be removed; it will r") == 1
    assert "its process died" not in printed
    steps = Counter((rung.trial, rung.step) for rung in load(tmp_path).rungs)
    assert steps == Counter(
        (number, step) for number in range(3) for step in range(1, NUM_RUNGS + 1)
    )
