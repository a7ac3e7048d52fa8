"""Faults of workers in a sweep on several nodes: their processes and nodes are killed, frozen or drained."""

import random
import time
from collections.abc import Callable

from benchmarks.chaos.nodes import Actor, Nodes, kill, nodes, stop
from benchmarks.chaos.outcomes import Outcome, Recovery, Setting, outcome
from benchmarks.chaos.sweeps import (
    Plan,
    SweepProcess,
    events,
    find_problems,
    num_rungs,
    of_kind,
    start_seconds,
    wait_for_calm,
    wait_for_rung,
)

SLOTS = 3
RUNGS = 6
MOST_DELAY_SECONDS = 2.0  # so that faults come anywhere within a rung
NOTICE_SECONDS = 30
NODES_LOST_TOGETHER = 3
TRIALS_FOR_A_FAULT = 3  # so that the sweep is not over before its last fault
TRIALS_FOR_A_FREEZE = 15  # others go on for the minute in which it is noticed

Strike = Callable[[Nodes, Actor], None]


def kill_trials(setting: Setting) -> Outcome:
    """Send SIGKILL to the process of a running trial."""
    return _strike_often(setting, "trial", lambda _, actor: kill(actor.pid))


def freeze_trials(setting: Setting) -> Outcome:
    """Send SIGSTOP to the process of a running trial, which the sweep then detects and kills."""
    result = _strike_often(
        setting, "frozen", lambda _, actor: stop(actor.pid), trials_for_each=TRIALS_FOR_A_FREEZE
    )
    result.notes["most_from_freezing"] = round(
        max(recovery.again_at - recovery.struck_at for recovery in result.recoveries), 1
    )
    return result


def kill_nodes(setting: Setting) -> Outcome:
    """Kill a running trial's node without notice. A spare one exists, as an autoscaler would add one."""
    return _strike_often(setting, "node", _lose_node, spare=1)


def _lose_node(cluster: Nodes, actor: Actor) -> None:
    cluster.kill_node(actor.node_id)


def drain_nodes(setting: Setting) -> Outcome:
    """Announce the removal of a running trial's node, and kill it once its trial has left."""
    return _strike_often(setting, "drained", _announce_end, after=_lose_node, spare=1)


def _announce_end(cluster: Nodes, actor: Actor) -> None:
    cluster.drain(actor.node_id, NOTICE_SECONDS)


def _strike_often(
    setting: Setting,
    case: str,
    strike: Strike,
    after: Strike | None = None,
    spare: int = 0,
    trials_for_each: int = TRIALS_FOR_A_FAULT,
) -> Outcome:
    """Run a sweep with ``times`` faults, one after the other; each lost node is replaced."""
    draw = random.Random(case)
    with nodes(SLOTS + spare) as cluster:
        options = (
            f"--resources.address={cluster.address}",
            f"--resources.max_concurrent_trials={SLOTS}",
        )
        plan = setting.plan(case, SLOTS + trials_for_each * setting.times, RUNGS, options)
        recoveries = []
        with SweepProcess(plan) as sweep:
            for _ in range(setting.times):
                wait_for_calm(sweep)
                time.sleep(draw.uniform(0, MOST_DELAY_SECONDS))
                recoveries.append(_strike(cluster, sweep, strike, after))
                if spare:
                    cluster.add()
            code = sweep.end()
        result = outcome(plan, recoveries, start_seconds(plan))
    if code:
        result.problems.append(f"the driver ended with {code}")
    return result


def _strike(cluster: Nodes, sweep: SweepProcess, strike: Strike, after: Strike | None) -> Recovery:
    """Cause a fault and wait for the next rung of the affected trial."""
    run, victim = sweep.plan.run, cluster.some_trial()
    num_before = len(events(run))

    def cut() -> int | None:
        """Return the position of the event that names the affected trial."""
        numbered = enumerate(events(run)[num_before:], num_before)
        return next((place for place, event in numbered if event["event"] == "cut"), None)

    struck_at = time.time()
    strike(cluster, victim)
    sweep.wait_until(lambda: cut() is not None)
    place = cut() or 0
    trial = events(run)[place]["trial"]
    if after is not None:
        after(cluster, victim)
    again_at = sweep.wait_until(lambda: _has_rung(events(run)[place:], trial))
    reported_at = cluster.death_of(victim) or struck_at
    return Recovery(struck_at, reported_at, again_at)


def _has_rung(later: list[dict[str, object]], trial: int) -> bool:
    return any(event["event"] == "rung" and event["trial"] == trial for event in later)


def kill_idle(setting: Setting) -> Outcome:
    """Send SIGKILL to a process whose trial has just ended, before the next one."""
    with nodes(1) as cluster:
        plan = setting.plan(
            "idle", 2 * setting.times + 1, 1, (f"--resources.address={cluster.address}",)
        )
        sign = "its worker ended before the trial started"
        return sweep_with_faults(
            plan, setting.times, lambda sweep: _kill_idle(cluster, sweep), killed_while_idle=sign
        )


def sweep_with_faults(
    plan: Plan, times: int, fault: Callable[[SweepProcess], Recovery], **signs: str
) -> Outcome:
    """Run a sweep with ``times`` faults. The notes count how often its output has each of the ``signs``."""
    with SweepProcess(plan) as sweep:
        recoveries = [fault(sweep) for _ in range(times)]
        code = sweep.end()
    printed = plan.output.read_text()
    counts = {name: printed.count(sign) for name, sign in signs.items()}
    result = outcome(plan, recoveries, start_seconds(plan), **counts)
    if code:
        result.problems.append(f"the driver ended with {code}: {sweep.tail}")
    return result


def _kill_idle(cluster: Nodes, sweep: SweepProcess) -> Recovery:
    run = sweep.plan.run
    num_ended = len(of_kind(run, "end"))
    struck_at = sweep.wait_until(lambda: len(of_kind(run, "end")) > num_ended)
    (victim,) = cluster.trials()
    kill(victim.pid)
    again_at = wait_for_rung(sweep, num_rungs(sweep.plan))
    return Recovery(struck_at, cluster.death_of(victim) or struck_at, again_at)


def kill_three_nodes(setting: Setting) -> Outcome:
    """Kill three of six nodes at once in a sweep of 20 trials; each of ``times`` sweeps counts as one fault."""
    result = Outcome(setting.times, [], notes={"trials_hit": 0})
    for number in range(setting.times):
        with nodes(2 * NODES_LOST_TOGETHER) as cluster:
            options = (
                f"--resources.address={cluster.address}",
                f"--resources.max_concurrent_trials={NODES_LOST_TOGETHER + 1}",
            )
            plan = setting.plan(f"three-nodes-{number}", 20, 2, options)
            code = _sweep_that_loses_three_nodes(plan, cluster)
        result.problems += find_problems(plan)
        result.notes["trials_hit"] += len(of_kind(plan.run, "cut"))
        if code:
            result.problems.append(f"the driver ended with {code}")
    return result


def _sweep_that_loses_three_nodes(plan: Plan, cluster: Nodes) -> int:
    with SweepProcess(plan) as sweep:
        sweep.wait_until(lambda: len(of_kind(plan.run, "rung")) >= NODES_LOST_TOGETHER)
        for actor in cluster.trials()[:NODES_LOST_TOGETHER]:
            cluster.kill_node(actor.node_id)
        return sweep.end()
