"""Overhead of raysweep's search on Ray Tune, with trials that do no work.

First, 500 trials run, 16 at a time, on four fake nodes of four CPUs each (``ray.cluster_utils.Cluster``). Each trial
pauses after its first rung and resumes once 16 others have paused, so it is assigned to a worker twice. A trial is lost
if it did not complete, and doubled if the ledger has an event twice that should occur once, or if a worker repeated a
rung or an assignment. Memory is the private memory of the driver process; its growth per assignment is the slope over
the last four fifths of the assignments, including everything that the sweep, the sampler and Ray Tune store per trial.

Then, 200 trials sleep for a second each, in two slots of a local Ray. The floor is 100 s. ``ratio`` is the floor
divided by the search's duration, from the call to its end, including process starts, proposals, the ledger and
messages.
"""

import argparse
import contextlib
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, sst2, workless
from raysweep import terminal
from raysweep.cluster.connection import connected
from raysweep.cluster.resources import Request
from raysweep.config.sweep import EvaluationConfig, ResourcesConfig
from raysweep.results.events import (
    RungFinished,
    TrialEnded,
    TrialPaused,
    TrialResumed,
    TrialStarted,
)
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.types import RunInfo, TrialStatus

SLOTS = 2  # of the trials of a second
NUM_NODES = 4
BAR = 1.28  # times the floor
SETTLED_SHARE = 0.2  # of the assignments, by which the driver has loaded what it needs
OBJECT_STORE_BYTES = 100 * measure.MIB
REFERENCE = (0.6, 0.47)
SPACE = {
    "loss": {"choices": {"triplet": {"margin": {"low": 0.02, "high": 1.0, "log": True}}}},
    "learning_rate": {"low": 5e-6, "high": 3e-4, "log": True},
    "freezing": {"choices": ["none", "emb", "emb+B0-2"]},
}


@dataclass(frozen=True)
class Size:
    """The numbers of trials that pause and resume, of those at a time, and of trials that take a second."""

    paused: int
    concurrent: int
    of_one_second: int
    repeats: int = 1


def main() -> None:
    arguments = _arguments()
    chosen = Size(40, 4, 16) if arguments.quick else Size(500, 16, 200)
    size = Size(
        arguments.trials or chosen.paused,
        arguments.concurrent or chosen.concurrent,
        arguments.seconds or chosen.of_one_second,
        arguments.repeats or chosen.repeats,
    )
    with measure.workplace() as temporary:
        machine = measure.machine()
        paused = _held_and_revived(size, arguments, temporary / "paused")
        seconds = [
            _of_one_second(size, arguments, temporary / f"seconds-{turn}")
            for turn in range(size.repeats)
        ]
    floor = size.of_one_second / SLOTS
    measured = statistics.median(turn["seconds"] for turn in seconds)
    rows = [
        [
            "trials",
            f"{size.paused}, {size.concurrent} at a time, {paused['assignments']} assignments",
        ],
        ["lost; doubled", f"{paused['lost']}; {paused['doubled']}"],
        [
            "seconds",
            f"{paused['seconds']:.1f}, {1000 * paused['seconds'] / paused['assignments']:.0f} ms per assignment",
        ],
        ["driver's private memory", f"{paused['driver_bytes'] / measure.MIB:.0f} MiB at the end"],
        ["its growth", f"{paused['kib_per_assignment']:.1f} KiB per assignment"],
        ["CPUs taken by others", f"{paused['others']:.0%}"],
    ]
    print(measure.table(("paused and revived", ""), rows))
    rows = [
        ["trials", f"{size.of_one_second}, {SLOTS} at a time; {size.repeats} turns"],
        ["floor, s", f"{floor:.0f}"],
        ["measured, s", ", ".join(f"{turn['seconds']:.1f}" for turn in seconds)],
        [
            "until the first was on a worker, s",
            ", ".join(f"{turn['start_seconds']:.1f}" for turn in seconds),
        ],
        [
            "lost; doubled",
            f"{sum(turn['lost'] for turn in seconds)}; {sum(turn['doubled'] for turn in seconds)}",
        ],
        ["CPUs taken by others", ", ".join(f"{turn['others']:.0%}" for turn in seconds)],
    ]
    print("\n" + measure.table(("of a second each", ""), rows))
    ratio = floor / measured
    print(
        f"\nratio: {ratio:.3f} (the floor over the time measured, which is {1 / ratio:.3f} times it; the bar is {BAR})"
    )
    figures = {
        "ratio": ratio,
        "ratio_of": ["seconds that the trials themselves take", "seconds of the search"],
        "times_the_floor": 1 / ratio,
        "held_and_revived": paused,
        "of_one_second": seconds,
        "sampler": arguments.sampler,
    }
    measure.finish("control_plane", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.control_plane", __doc__)
    parser.add_argument(
        "--trials", type=int, help="that are paused and revived; 500, with --quick 40"
    )
    parser.add_argument("--concurrent", type=int, help="of them at a time; 16, with --quick 4")
    parser.add_argument("--seconds", type=int, help="trials of a second; 200, with --quick 16")
    parser.add_argument("--repeats", type=int, help="turns of the trials of a second; 1")
    parser.add_argument("--sampler", default="mfgp", help="that proposes trials")
    return parser.parse_args()


def _held_and_revived(size: Size, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sweep = _sweep(folder, size.paused, num_rungs=2, sampler=arguments.sampler)
    sweep.scheduler.early_stopper = workless.HoldOnce(num_waiting=size.concurrent)
    with _fake_nodes(size.concurrent) as resources:
        figures = _search(
            sweep, workless.Workless, resources, size.concurrent, patient=arguments.patient
        )
    settled = [
        (assignments, taken)
        for assignments, taken in sweep.memory
        if assignments >= SETTLED_SHARE * 2 * size.paused
    ]
    assignments, taken = np.array(settled).T
    slope, _ = np.polyfit(assignments, taken, 1)
    return {
        **figures,
        **_accounted(folder, size.paused, num_rungs=2, num_holds=1),
        "assignments": sweep.num_assignments,
        "kib_per_assignment": float(slope) / 1024,
        "driver_bytes": measure.private_bytes(),
        "driver_bytes_by_assignments": sweep.memory,
    }


def _of_one_second(size: Size, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sweep = _sweep(folder, size.of_one_second, num_rungs=1, sampler=arguments.sampler)
    resources = ResourcesConfig(num_cpus=SLOTS)
    figures = _search(sweep, workless.OfOneSecond, resources, SLOTS, patient=arguments.patient)
    return {**figures, **_accounted(folder, size.of_one_second, num_rungs=1, num_holds=0)}


def _sweep(folder: Path, num_trials: int, *, num_rungs: int, sampler: str) -> workless.WatchedSweep:
    """Return a sweep of the real parts, without early stopping."""
    from rich.console import Console

    from raysweep.controller.budget import CostTracker
    from raysweep.controller.optuna_study import StudyFile
    from raysweep.results.events import SessionStarted
    from raysweep.search.scheduler import make_scheduler

    (folder / "points").mkdir(parents=True)
    budget = {"trials": num_trials, "rungs": num_rungs}
    config, space = sst2.sweep(
        sst2.DEMO, folder / "none", space=SPACE, budget=budget, sampler=sampler
    )
    ledger = Ledger(folder)
    info = RunInfo(
        "s",
        "0",
        "d",
        "m",
        "r",
        16,
        "uniform",
        0.5,
        "similarity",
        num_trials,
        {"dev": 9},
        {"dev": 9},
        ("0", "1"),
        0,
    )
    ledger.append(SessionStarted(info=info, config_digest=""))
    scheduler = make_scheduler(config, space, REFERENCE)
    study = StudyFile(folder / "study.journal", config.name, scheduler.proposer)
    display = terminal.ConsoleDisplay(Console(quiet=True))
    return workless.WatchedSweep(
        config, scheduler, ledger, display, CostTracker(config.budget, 1, 0), study, 1000
    )


@contextlib.contextmanager
def _fake_nodes(num_cpus: int) -> Iterator[ResourcesConfig]:
    """Start nodes on one machine with ``num_cpus`` CPUs in all, in addition to a head without CPUs."""
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {
        "num_cpus": 0,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(NUM_NODES):
            cluster.add_node(num_cpus=num_cpus // NUM_NODES, object_store_memory=OBJECT_STORE_BYTES)
        yield ResourcesConfig(address=cluster.address)
    finally:
        cluster.shutdown()


def _search(
    sweep: workless.WatchedSweep,
    actor: type[workless.Workless],
    resources: ResourcesConfig,
    count: int,
    *,
    patient: bool,
) -> dict[str, float]:
    """Run the sweep's trials and return the duration, the time to the first start, and the CPU share of other processes."""
    from raysweep.ray_tune import tune
    from raysweep.ray_tune.workers import WorkbenchSpec

    unused: Any = None
    spec = WorkbenchSpec(unused, EvaluationConfig(), Request(cpus=1, gpus=0, count=count))
    if patient:
        measure.wait_for_quiet()
    with terminal.quiet(), connected(resources):  # what Ray prints goes to a file
        others = measure.busy_seconds() - measure.tree_seconds(os.getpid())
        began = time.monotonic()
        tune.search(sweep, spec, actor)
        seconds = time.monotonic() - began
        others = measure.busy_seconds() - measure.tree_seconds(os.getpid()) - others
    sweep.finish("completed", "all trials are done")
    assert sweep.first_placed_at is not None
    share = others / seconds / (os.cpu_count() or 1)
    return {"seconds": seconds, "start_seconds": sweep.first_placed_at - began, "others": share}


def _accounted(folder: Path, num_trials: int, *, num_rungs: int, num_holds: int) -> dict[str, int]:
    """Return how many trials were lost, and how many trials or rungs occur twice."""
    counts: Counter[tuple[str, int]] = Counter()
    completed = set()
    for event in read_events(folder / "ledger.jsonl"):
        match event:
            case TrialStarted() | TrialPaused() | TrialResumed() | TrialEnded():
                counts[event.kind, event.trial] += 1
            case RungFinished():
                counts[f"rung {event.step}", event.trial] += 1
        if isinstance(event, TrialEnded) and event.status == TrialStatus.COMPLETED:
            completed.add(event.trial)
    twice = {trial for (_, trial), count in counts.items() if count > 1}
    lost = 0
    for number in range(num_trials):
        done = workless.size_of(workless.rungs_file(folder, number))
        assignments = workless.size_of(workless.assignments_file(folder, number))
        lost += number not in completed or done < num_rungs or assignments < num_holds + 1
        if done > num_rungs or assignments > num_holds + 1:
            twice.add(number)
    strangers = {trial for _, trial in counts} - set(range(num_trials))
    return {"lost": lost, "doubled": len(twice | strangers)}


if __name__ == "__main__":
    from benchmarks import control_plane

    control_plane.main()
