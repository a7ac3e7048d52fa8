"""The account of a run: sums of the costs in its ledger."""

import math
import time
from pathlib import Path

import pytest

from raysweep.controller.sweep import Sweep
from raysweep.report.summary import summarize
from raysweep.results.account import build_account, sentence
from raysweep.results.ledger import point_name
from raysweep.results.reader import load
from support.sweeps import make, rung


def play(sweep: Sweep, now: list[float], num_rungs: int) -> None:
    """Play N rungs, each longer than the one before, on a node of 8 CPUs."""
    while num_rungs and (assigned := sweep.assign()) is not None:
        number, config = assigned
        sweep.place(number)
        for step in range(sweep.progress.steps_done(number) + 1, 5):
            num_rungs -= 1
            now[0] += 60 + num_rungs
            (sweep.run.path / "points" / point_name(number, step)).mkdir()
            if sweep.record_rung(
                number, {**rung(config, step), "node": {"type": "big", "cpus": 8, "gpus": 0}}
            ):
                break
            if not num_rungs:
                return
        sweep.release(number)


@pytest.mark.parametrize(("num_rungs", "status"), [(99, "completed"), (18, "interrupted")])
@pytest.mark.parametrize("prices", ["{}", "{big: 7.0}"])
def test_summary_and_report_match_the_costs(
    tmp_path: Path, num_rungs: int, status: str, prices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    halving = {
        "early_stopping__policy": "asha",
        "early_stopping__first_examples": "4096",
        "space__examples_per_rung": "4096",
    }
    sweep, _ = make(tmp_path, budget__prices=prices, **halving)
    play(sweep, now, num_rungs)
    sweep.finish(status, "")
    results = load(tmp_path)
    account = summarize(results).account
    assert account == build_account(results)
    total = sweep.costs.total
    for name in ("seconds", "cpu_seconds", "gpu_seconds", "money"):
        stored = math.fsum(getattr(trial, name) for trial in results.trials)
        assert (
            stored
            == pytest.approx(getattr(total, name))
            == pytest.approx(getattr(account.total.cost, name))
        )
        parts = math.fsum(getattr(entry.cost, name) for entry in account.entries)
        assert parts == pytest.approx(stored)
    assert total.seconds == pytest.approx(now[0])
    steps = {
        n: max((r.step for r in results.rungs if r.trial == n), default=0)
        for n in range(len(results.trials))
    }
    early = [trial for trial in results.trials if trial.status in ("stopped", "paused")]
    assert {trial.status for trial in early} == {"stopped" if status == "completed" else "paused"}
    # what is paused may still go on
    early = [trial for trial in early if trial.status == "stopped"]
    saved = sum(trial.seconds / steps[trial.trial] * (4 - steps[trial.trial]) for trial in early)
    others = sum(trial.seconds for trial in results.trials if trial.status != "completed")
    assert account.total.saved_seconds == pytest.approx(saved) and (saved > 0) == (
        status == "completed"
    )
    money = f", cost {total.money:.2f}" if total.money else ""
    assert sentence(build_account(load(sweep.run.path)), 0) == (
        f"{now[0]:,.0f} trial-seconds, {now[0] * 2 / 3600:.2f} CPU-hours, {now[0] / 2 / 3600:.2f} GPU-hours{money}; "
        f"{others:,.0f} of the trial-seconds were spent on trials that did not complete; early stopping saved about {saved:,.0f} trial-seconds"
    )
    assert bool(money) == (prices != "{}")


def test_failed_and_interrupted_trials_cost_and_save_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sweep, _ = make(tmp_path, early_stopping__policy="none")
    for failure in ("out of memory", None):
        number, config = sweep.assign() or pytest.fail("nothing proposed")
        sweep.place(number)
        now[0] += 60
        sweep.record_rung(number, rung(config, 1))
        if failure:
            sweep.release(number, failure)
    sweep.finish("interrupted", "Ctrl-C")
    account = build_account(load(tmp_path))
    assert [(entry.kind, entry.num_trials, entry.num_rungs) for entry in account.entries] == [
        ("interrupted", 1, 1),
        ("failed", 1, 1),
    ]
    assert [entry.cost.seconds for entry in account.entries] == [60, 60]
    assert account.total.saved_seconds == 0
    assert not account.priced


@pytest.mark.parametrize(
    ("prices", "warned"), [("{gpu: 1}", True), ("{big: 1}", False), ("{gpu: 1, default: 0}", False)]
)
def test_missing_price_under_a_money_limit_warns_once(
    tmp_path: Path, prices: str, warned: bool
) -> None:
    sweep, out = make(tmp_path, budget__prices=prices, budget__money="5")
    play(sweep, [0.0], 4)
    assert out.getvalue().count("budget.prices has no price for the node type 'big'") == warned
