"""What a trial costs beside training: raysweep's search against bare Ray Tune, two trials at a time in one Ray session.

Every trial of raysweep's gets its proposal from Optuna, goes through :func:`raysweep.runner.tune.search` with its ledger,
and in the actor takes the model and artifacts, puts the base weights back and makes an optimizer; only training and
evaluating are left out. A second row also writes what a rung of a real trial writes: its weights and a checkpoint.

The peers do nothing at all. ``bare Ray Tune`` is a function that reports once, with Tune's defaults, so that each trial
has a process of its own. ``reused class`` is a Trainable whose actors Tune reuses, as raysweep's are.

Seconds a trial are those of the whole call over its trials; peers take turns. What raysweep's are spent on is in seconds
of a slot (with two trials at a time, a trial has two slot seconds for each second that passes). Peak memory is that of this
process and all below it, Ray's own included, while the peer ran: the sum of proportional set sizes, sampled twice a second.
"""

import argparse
import io
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune

from benchmarks import measure, peers, sst2
from benchmarks.nothing import Nothing, nothing
from benchmarks.untrained import TimedLedger, TimedSweep, Untrained, Written
from raysweep import terminal
from raysweep.cluster import Request, connected
from raysweep.data.prepared import Prepared
from raysweep.runner import tune as search
from raysweep.runner.workers import WorkbenchSpec
from raysweep.search.scheduler import make_scheduler
from raysweep.sweep.budget import CostTracker
from raysweep.sweep.optuna_study import StudyFile
from raysweep.trial_status import TrialStatus

SLOTS = 2
# A space such as people search: proposals cost what they do in a sweep.
SPACE = {
    "loss": {"choices": {"triplet": {"margin": {"low": 0.02, "high": 1.0, "log": True}}}},
    "learning_rate": {"low": 5e-6, "high": 3e-4, "log": True},
    "freezing": {"choices": ["none", "emb", "emb+B0-2"]},
}
PARTS = {
    "start": "actor: first set-up (imports, model, data)",
    "trial": "actor: each trial (base weights, optimizer, answer)",
    "writing": "actor: weights and checkpoint on disk",
    "outside": "outside: processes, scheduling, messages, driver",
    "ledger": "  on the driver meanwhile: ledger",
    "sweep": "  on the driver meanwhile: proposals, front",
}


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        found = measure.machine()
        data = sst2.locate(arguments.data)
        data = sst2.part(data, temporary, 3000, 200)
        prepared = peers.apart(sst2.prepare, data, arguments.artifacts or temporary / "artifacts")
        figures = _run(arguments, data, prepared, temporary)
    measure.finish("trial_overhead", figures, found, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.trial_overhead", __doc__)
    measure.artifacts_option(parser)
    parser.add_argument("--trials", type=int, help="of each peer a turn; 60, with --quick 12")
    parser.add_argument("--repeats", type=int, help="turns of each peer; 3, with --quick 1")
    arguments = parser.parse_args()
    arguments.trials = arguments.trials or (12 if arguments.quick else 60)
    arguments.repeats = arguments.repeats or (1 if arguments.quick else 3)
    return arguments


@dataclass
class Peer:
    """One way to run trials, and what its turns gave: seconds a trial in all (``wall``) and by parts."""

    name: str
    run: Callable[[Path], Mapping[str, float]]
    turns: list[Mapping[str, float]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)  # turns whose round nothing disturbed
    peak: int = 0

    def median(self, key: str = "wall") -> float:
        return statistics.median(self.turns[number][key] for number in self.counted)


def _run(arguments: argparse.Namespace, data: sst2.Data, prepared: Prepared, temporary: Path) -> dict[str, Any]:
    count = arguments.trials
    tried = [
        Peer("bare Ray Tune", lambda folder: _bare(folder, count)),
        Peer("reused class", lambda folder: _bare(folder, count, reused=True)),
        Peer("ours", lambda folder: _ours(folder, count, data, prepared)),
        Peer("ours, a rung written", lambda folder: _ours(folder, count, data, prepared, writes=True)),
    ]
    resources = sst2.sweep(data, temporary)[0].resources.model_copy(
        update={"num_cpus": max(SLOTS, os.cpu_count() or 1)}
    )
    with terminal.quiet(), connected(resources):  # what Ray prints goes to a file
        for repeat in range(arguments.repeats):
            for peer in tried[:: -1 if repeat % 2 else 1]:
                folder = temporary / f"{peer.name}-{repeat}"
                folder.mkdir()
                if arguments.patient:
                    measure.wait_for_quiet()
                before = measure.busy_seconds() - measure.tree_seconds(os.getpid())
                with measure.TreeMemory(os.getpid()) as memory:
                    spent = peer.run(folder)
                after = measure.busy_seconds() - measure.tree_seconds(os.getpid())
                others = (after - before) / spent["wall"] / (os.cpu_count() or 1)
                peer.peak = max(peer.peak, memory.peak)
                peer.turns.append({**{key: value / count for key, value in spent.items()}, "others": others})
                shutil.rmtree(folder)
    return _report(arguments, tried)


def _report(arguments: argparse.Namespace, tried: list[Peer]) -> dict[str, Any]:
    rounds = range(arguments.repeats)
    quiet = [number for number in rounds if all(peer.turns[number]["others"] < peers.MOST_OTHERS for peer in tried)]
    for peer in tried:
        peer.counted = quiet or list(rounds)
    base, ours = tried[0], tried[2]
    print(f"{arguments.trials} trials a turn, {SLOTS} at a time, {arguments.repeats} turns each\n")
    rows = [
        [peer.name, f"{peer.median():.3f}", f"{base.median() / peer.median():.2f}", f"{peer.peak / measure.MIB:,.0f}"]
        for peer in tried
    ]
    print(measure.table(("peer", "seconds a trial", "bare over it", "peak MiB, whole tree"), rows))
    print(peers.describe_rounds(len(quiet), len(rounds)))
    parts = {peer.name: {key: peer.median(key) for key in PARTS} for peer in tried[2:]}
    shown = [[text, *(f"{spent[key]:.3f}" for spent in parts.values())] for key, text in PARTS.items()]
    print("\n" + measure.table(("slot seconds a trial", *parts), shown))
    ratio = base.median() / ours.median()
    print(f"\nratio: {ratio:.2f} (seconds a trial of bare Ray Tune's no-op function over ours)")
    figures = {
        peer.name: {"seconds_per_trial": peer.median(), "turns": peer.turns, "peak_memory_bytes": peer.peak}
        | ({"slot_seconds_per_trial": parts[peer.name]} if peer.name in parts else {})
        for peer in tried
    }
    return {
        "ratio": ratio,
        "ratio_of": ["bare Ray Tune, seconds a trial", "ours, seconds a trial"],
        "ratio_reused_class": tried[1].median() / ours.median(),
        "ratio_with_a_rung_written": base.median() / tried[3].median(),
        "rounds": list(base.counted),
        "trials": arguments.trials,
        "concurrent": SLOTS,
        "rows": figures,
    }


def _bare(folder: Path, count: int, *, reused: bool = False) -> dict[str, float]:
    trial: Any = Nothing if reused else nothing
    # A class must say so where it keeps no checkpoints, as raysweep's does; a function does by not reporting any.
    keeping = tune.CheckpointConfig(checkpoint_at_end=False) if reused else None
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=SLOTS, reuse_actors=reused),
        run_config=tune.RunConfig(name="tune", storage_path=str(folder), verbose=0, checkpoint_config=keeping),
    )
    began = time.perf_counter()
    results = tuner.fit()
    seconds = time.perf_counter() - began
    if results.num_errors or len(results) != count:
        raise RuntimeError(f"{results.num_errors} of {len(results)} trials failed")
    return {"wall": seconds}


def _ours(folder: Path, count: int, data: sst2.Data, prepared: Prepared, *, writes: bool = False) -> dict[str, float]:
    from rich.console import Console

    config, space = sst2.sweep(data, folder / "none", space=SPACE, budget={"trials": count, "rungs": 1})
    (folder / "points").mkdir()
    ledger = TimedLedger(folder)
    display = terminal.ConsoleDisplay(Console(file=io.StringIO()))
    scheduler = make_scheduler(config, space, (0.5, 0.5))
    study = StudyFile(folder / "study.journal", config.name, scheduler.proposer)
    sweep = TimedSweep(config, scheduler, ledger, display, CostTracker(config.budget, 1, 0), study, 1000)
    before = dict(os.environ)
    bench = WorkbenchSpec(prepared, config.evaluation, Request(cpus=1, gpus=0, count=SLOTS))
    began = time.perf_counter()
    try:
        search.search(sweep, bench, Written if writes else Untrained)
    finally:
        seconds = time.perf_counter() - began
        os.environ.clear()  # what raysweep switches off in Tune stays on for its peers
        os.environ.update(before)
    if sweep.progress.ended[TrialStatus.COMPLETED] != count:
        raise RuntimeError(f"{count} trials ended so: {sweep.progress.ended}")
    sweep.finish("completed", "all trials are done")
    spent = dict.fromkeys(PARTS, 0.0)
    for path in folder.glob("times-*.json"):
        for part, value in json.loads(path.read_text()).items():
            spent[part] += value
    spent["outside"] = SLOTS * seconds - sum(spent.values())
    return {**spent, "ledger": ledger.seconds, "sweep": sweep.times["sweep"] - ledger.seconds, "wall": seconds}


if __name__ == "__main__":
    from benchmarks import trial_overhead

    trial_overhead.main()
