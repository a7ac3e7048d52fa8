"""Run sweeps, preparation, reports and exports under faults of processes, nodes, drivers, disks, buckets and clocks.

Each case is a real sweep of real trials (all-MiniLM-L6-v2 on the built-in demo sentences, one CPU per trial) with
faults at random moments, one after the other. Afterwards, its ledger must hold each trial's start and end once, each
rung once, and no event of a trial after its end; the study must hold each proposal once. Nodes are those of
ray.cluster_utils.Cluster.

For faults of workers, the output states the seconds from Ray's report of a death to the trial's next rung, next to the
seconds from a trial's start to its first rung without faults: both contain a rung.

``ratio`` is the share of faults after which every trial was accounted for once.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.chaos import buckets, disks, drivers, fleets, launches, outputs, prepares, workers
from benchmarks.chaos.outcomes import Outcome, Setting

CASES: Mapping[str, Callable[[Setting], Outcome]] = {
    "trial": workers.kill_trials,
    "idle": workers.kill_idle,
    "frozen": workers.freeze_trials,
    "node": workers.kill_nodes,
    "drained": workers.drain_nodes,
    "three-nodes": workers.kill_three_nodes,
    "prepare-worker": prepares.kill_prepare_workers,
    "prepare-node": prepares.kill_prepare_nodes,
    "driver": drivers.kill_drivers,
    "driver-two-objectives": drivers.kill_drivers_of_two_objectives,
    "head": drivers.kill_heads,
    "sigint": drivers.interrupt_drivers,
    "sigterm": drivers.terminate_drivers,
    "disk": disks.fill_disks,
    "read-only": disks.deny_writes,
    "launch": launches.launch_slowly,
    "scarce": launches.lack_nodes,
    "bad-node": fleets.break_nodes,
    "node-disk": fleets.fill_caches,
    "memory": fleets.use_up_memory,
    "outage": buckets.cut_off,
    "gcs": drivers.kill_control_stores,
    "clock": drivers.change_clocks,
    "report": outputs.kill_reports,
    "export": outputs.kill_exports,
}
QUICK = "idle"
HEADER = ("case", "accounted", "to report, s", "to next rung, s", "at most", "a start, s", "notes")


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("chaos", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.chaos", __doc__)
    parser.add_argument(
        "--case",
        action="append",
        choices=list(CASES),
        help="only this case; may be given several times",
    )
    parser.add_argument("--times", type=int, default=10, help="faults of each case; with --quick 1")
    return parser.parse_args()


def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    setting = Setting(
        folder, str(folder / "prepared" / "artifacts"), 1 if arguments.quick else arguments.times
    )
    prepares.prepare(folder / "prepared", prepares.OPTIONS)
    outcomes = {}
    for name in arguments.case or ([QUICK] if arguments.quick else CASES):
        try:
            outcomes[name] = CASES[name](setting)
        except Exception as error:  # of whatever kind: the other cases are to have their turn
            outcomes[name] = Outcome(setting.times, [f"{type(error).__name__}: {error}"])
        print(measure.table(HEADER, [[name, *outcomes[name].row]]), flush=True)
    num_faults = sum(outcome.num_faults for outcome in outcomes.values())
    ratio = sum(outcome.num_accounted for outcome in outcomes.values()) / max(num_faults, 1)
    print(
        "\n" + measure.table(HEADER, [[name, *outcome.row] for name, outcome in outcomes.items()])
    )
    print(
        f"\nratio: {ratio:.3f} (of {num_faults} faults, those after which every trial was accounted for once)"
    )
    cases = {name: outcome.figures for name, outcome in outcomes.items()}
    return {
        "ratio": ratio,
        "ratio_of": ["faults with every trial accounted for", "faults"],
        "cases": cases,
    }


if __name__ == "__main__":
    main()
