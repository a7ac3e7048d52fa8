"""Sweeps without Ray or an encoder: invented rungs, run sequentially."""

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.space import Space
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import TrialConfig
from raysweep.controller.budget import CostTracker
from raysweep.controller.optuna_study import StudyFile
from raysweep.controller.sweep import Sweep
from raysweep.results.ledger import Ledger, point_name
from raysweep.results.types import RunInfo
from raysweep.search.scheduler import make_scheduler
from raysweep.terminal import ConsoleDisplay
from support.ledgers import start_session
from support.paths import SPACES

REFERENCE = (0.6, 0.47)


def settings(
    tmp_path: Path, space: str = "polarity", **overrides: str
) -> tuple[SweepConfig, Space]:
    document = Document.read(SPACES / f"{space}.yaml")
    for key, value in {
        "first": "[]",
        "budget__trials": "12",
        "budget__rungs": "4",
        "budget__examples_per_trial": "null",
        **(
            {"early_stopping__policy": "asha", "early_stopping__first_examples": "4096"}
            if space == "polarity"
            else {}
        ),
        **overrides,
    }.items():
        document.override(key.replace("__", "."), value)
    config = configuration.parse(document)
    return config, space_parser.parse(document, config)


def make(tmp_path: Path, **overrides: str) -> tuple[Sweep, io.StringIO]:
    config, space = settings(tmp_path, **overrides)
    (tmp_path / "points").mkdir(parents=True, exist_ok=True)
    ledger = Ledger(tmp_path)
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
        12,
        {"dev": 9},
        {"dev": 9},
        ("0", "1"),
        0,
    )
    ledger.append(start_session(tmp_path, info))
    return assemble(config, space, ledger)


def assemble(config: SweepConfig, space: Space, ledger: Ledger) -> tuple[Sweep, io.StringIO]:
    out = io.StringIO()
    scheduler = make_scheduler(config, space, REFERENCE)
    study = StudyFile(ledger.folder / "study.journal", "s", scheduler.proposer)
    costs = CostTracker(config.budget, cpus=2, gpus=0.5)
    return Sweep(
        config, scheduler, ledger, ConsoleDisplay(Console(file=out, width=300)), costs, study, 9
    ), out


def rung(config: TrialConfig, step: int) -> dict[str, Any]:
    """An invented landscape: polarity peaks at a learning rate of 1e-4 and grows with steps, similarity falls."""
    import math

    quality = 1 - abs(math.log10(config.learning_rate) + 4) / 4
    polarity, similarity = 0.6 + 0.08 * step * quality, 0.47 - 0.01 * step * quality
    point = {
        "kind": "plain",
        "value": None,
        "split": "dev",
        "width": 384,
        "polarity_std": 0.1,
        "similarity_std": 0.1,
    }
    point |= {"polarity": polarity, "similarity": similarity, "retention": similarity / 0.47}
    seen = step * config.examples_per_rung
    return {
        "step": step,
        "examples_seen": seen,
        "seconds": 1.0 * step,
        "loss": 0.1,
        "stop": None,
        "points": [point],
    }


def play(sweep: Sweep, finish: bool = True) -> list[TrialConfig]:
    """Run all requested trials sequentially and return the configurations in the order of proposal."""
    while (proposal := sweep.assign()) is not None:
        number, config = proposal
        sweep.place(number)
        for step in range(
            sweep.progress.steps_done(number) + 1,
            sweep.config.budget.rungs_of(config.examples_per_rung) + 1,
        ):
            (sweep.run.path / "points" / point_name(number, step)).mkdir()
            if sweep.record_rung(number, rung(config, step)):
                break
        sweep.release(number)
    if finish:
        sweep.finish("completed", "all trials are done")
    return list(sweep.progress.configs.values())
