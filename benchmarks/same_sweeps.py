"""Check that a sweep on three nodes, three trials at a time, equals the same sweep on one node, one at a time, to the bit.

Trials are random and none is stopped, so that the set of trials does not depend on their order. Each has one CPU and a
fixed precision. All trials' configurations are compared, as are the loss and every point of each rung. A second pair of
sweeps uses the default sampler and early stopping; there, the proposals that they have in common are compared.

``ratio`` is the share of the compared rungs that are equal; only 1 is good.
"""

import argparse
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.chaos import prepares
from benchmarks.chaos.nodes import nodes
from benchmarks.chaos.outcomes import Setting
from benchmarks.chaos.sweeps import Plan, SweepProcess, of_kind

NUM_NODES = 3
PAIRS = {
    "random": ["--sampler=random", "--space.precision=fp32"],
    "default": ["--space.precision=fp32", "--early_stopping.policy=growth"],
}
# of a rung: when and where it was, and its place
UNEQUAL = (
    "at",
    "seconds",
    "node",
    "cost",
    "may_begin",
    "number",
    "after",
)


def main() -> None:
    parser = measure.parser("benchmarks.same_sweeps", __doc__)
    arguments = parser.parse_args()
    with measure.workplace() as temporary:
        machine = measure.machine()
        figures = _run(arguments, temporary)
    measure.finish("same_sweeps", figures, machine, arguments.json)


def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    setting = Setting(folder, str(folder / "prepared" / "artifacts"), 0)
    prepares.prepare(folder / "prepared", ["--resources.num_cpus=2"])
    trials, rungs = (3, 1) if arguments.quick else (8, 3)
    cases: dict[str, Any] = {}
    for name in ["random"] if arguments.quick else PAIRS:
        one = setting.plan(f"{name}-one", trials, rungs, ["--resources.num_cpus=1", *PAIRS[name]])
        _sweep(one)
        with nodes(NUM_NODES) as cluster:
            several = setting.plan(
                f"{name}-three",
                trials,
                rungs,
                [f"--resources.address={cluster.address}", *PAIRS[name]],
            )
            _sweep(several)
        cases[name] = _compared(one, several)
    rows = [[name, *case.values()] for name, case in cases.items()]
    print(measure.table(("sampler", "trials of both", "rungs of both", "equal"), rows))
    num_rungs = sum(case["rungs"] for case in cases.values())
    ratio = sum(case["equal"] for case in cases.values()) / max(num_rungs, 1)
    print(f"\nratio: {ratio:.3f} (rungs on three nodes that are those of one, to the bit)")
    return {
        "ratio": ratio,
        "ratio_of": ["equal rungs", "rungs that both sweeps had"],
        "cases": cases,
    }


def _sweep(plan: Plan) -> None:
    with SweepProcess(plan) as sweep:
        if sweep.end():
            raise SystemExit(f"the sweep failed: {sweep.tail}")


def _compared(one: Plan, other: Plan) -> dict[str, int]:
    rungs, others = _rungs(one), _rungs(other)
    both = rungs.keys() & others.keys()
    equal = sum(rungs[key] == others[key] for key in both)
    return {"trials": len({config for config, _ in both}), "rungs": len(both), "equal": equal}


def _rungs(plan: Plan) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the results of each rung, by its trial's configuration and its step."""
    configs = {
        event["trial"]: str(sorted(event["config"].items())) for event in of_kind(plan.run, "trial")
    }
    return {
        (configs[event["trial"]], event["step"]): {
            name: value for name, value in event.items() if name not in (*UNEQUAL, "trial")
        }
        for event in of_kind(plan.run, "rung")
    }


if __name__ == "__main__":
    main()
