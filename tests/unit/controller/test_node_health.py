"""Nodes that fail trials are excluded or paused; the trials' own errors do not count against nodes."""

from pathlib import Path

import pytest

from raysweep.controller.failures import Blame, Loss, RaisedError
from raysweep.controller.node_health import MAX_PAUSE_SECONDS, NodeHealth, WorkerNode
from raysweep.controller.sweep import Sweep
from raysweep.results.reader import load
from support.sweeps import make, rung

A, B, C = (WorkerNode(name, f"host-{name}") for name in "abc")


def health(*nodes: WorkerNode, max_errors: int = 3) -> NodeHealth:
    return NodeHealth(max_errors, lambda: {node.id for node in nodes})


def raise_on(nodes: NodeHealth, job: int, node: WorkerNode) -> bool:
    """Raise an error of a job on a node, and return whether the job may run again."""
    nodes.count_error(job, node)
    return nodes.may_retry(job, node)


def test_job_is_retried_once_on_another_node() -> None:
    nodes = health(A, B, C)
    assert raise_on(nodes, 0, A)
    assert nodes.nodes_to_avoid(0, 0.0) == ("a",)
    assert nodes.nodes_to_avoid(1, 0.0) == ()
    assert not raise_on(nodes, 0, B)


def test_job_is_not_retried_without_another_node() -> None:
    nodes = health(A)
    assert not raise_on(nodes, 0, A)
    assert nodes.nodes_to_avoid(0, 0.0) == ()


def test_job_may_be_retried_again_after_a_rung() -> None:
    nodes = health(A, B)
    assert raise_on(nodes, 0, A)
    nodes.note_rung(0, B.id)
    assert raise_on(nodes, 0, B)


def test_node_is_excluded_after_errors_in_a_row() -> None:
    nodes = health(A, B)
    assert [nodes.count_error(job, A) for job in range(2)] == [False, False]
    nodes.note_rung(9, A.id)
    assert [nodes.count_error(job, A) for job in range(2, 6)] == [False, False, True, False]
    assert nodes.nodes_to_avoid(9, 0.0) == ("a",)


def test_last_node_is_never_excluded() -> None:
    nodes = health(A, B, max_errors=1)
    assert nodes.count_error(0, A)
    assert not nodes.count_error(1, B)
    assert nodes.excluded == {"a"}


def test_error_that_repeats_elsewhere_does_not_count_against_nodes() -> None:
    nodes = health(A, B, C)
    for job in range(20):
        raise_on(nodes, job, A)
        raise_on(nodes, job, B)
    assert nodes.excluded == set()


def test_second_bad_node_is_excluded_too() -> None:
    nodes = health(A, B, C, max_errors=2)
    for job in range(2):
        raise_on(nodes, job, A)
    for job in range(2):
        raise_on(nodes, job, B)
    assert nodes.excluded == {"a", "b"}


def test_pauses_of_a_node_grow_until_it_works() -> None:
    nodes = health(A, B)
    now, pauses = 0.0, []
    for _ in range(10):
        pauses.append(seconds := nodes.pause(A, now))
        assert seconds is not None
        assert nodes.nodes_to_avoid(0, now) == ("a",)
        now += seconds
        assert nodes.nodes_to_avoid(0, now) == ()
    assert pauses[:4] == [2, 4, 8, 16]
    assert pauses[-1] == MAX_PAUSE_SECONDS
    nodes.note_rung(0, A.id)
    assert nodes.pause(A, now) == 2


def test_storage_that_fails_on_all_nodes_pauses_no_node() -> None:
    nodes = health(A, B)
    assert nodes.pause(A, 0.0) == 2
    assert nodes.pause(B, 1.0) is None
    assert health(A).pause(A, 0.0) is None


def assign(sweep: Sweep) -> int:
    number, _ = sweep.assign() or pytest.fail("no trial")
    sweep.place(number)
    return number


def test_sweep_resumes_a_trial_that_raised_on_a_bad_node(tmp_path: Path) -> None:
    sweep, out = make(tmp_path, resources__max_node_errors="2")
    sweep.nodes.list_usable = lambda: {"a", "b"}
    error = RaisedError("RuntimeError: no GPU", "Traceback", A)
    first, second = assign(sweep), assign(sweep)
    sweep.fail(first, error)
    sweep.fail(second, error)
    assert "node host-a excluded" in out.getvalue()
    assert (assign(sweep), assign(sweep)) == (first, second)
    assert not sweep.record_rung(first, rung(sweep.progress.configs[first], 1))
    sweep.fail(second, RaisedError("ValueError: its own", "Traceback", B))
    results = load(tmp_path)
    assert [str(trial.status) for trial in results.trials] == ["running", "failed"]
    assert results.trials[1].traceback == "Traceback"
    (node,) = results.excluded_nodes
    assert (node.name, node.errors, node.reason) == ("host-a", 2, "RuntimeError: no GPU")


def test_sweep_continues_while_the_disk_of_one_node_is_full(tmp_path: Path) -> None:
    sweep, out = make(tmp_path)
    sweep.nodes.list_usable = lambda: {"a", "b"}
    sweep.lose(assign(sweep), Loss(Blame.STORAGE, "No space left on device", node=A))
    assert not sweep.is_paused
    number = assign(sweep)
    assert sweep.nodes.nodes_to_avoid(number, sweep.seconds) == ("a",)
    sweep.lose(number, Loss(Blame.STORAGE, "No space left on device", node=B))
    assert sweep.is_paused
    assert "node host-a paused" in out.getvalue()
