"""A GPU scores like a CPU, and a trial on it improves P."""

from pathlib import Path
from types import ModuleType

import pytest

from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import trial_config
from raysweep.prepare.build import prepare_here
from raysweep.training import trial as engine
from raysweep.training import workbench
from support.paths import SPACES


def test_trial_on_a_gpu(tmp_path: Path, demo_package: ModuleType) -> None:
    document = Document.read(SPACES / "smoke.yaml")
    document.override("storage.runs", str(tmp_path))
    config = configuration.parse(document)
    prepared = prepare_here(config, space_parser.parse(document, config))
    bench = workbench.Workbench(prepared, EvaluationConfig(k=8, num_pool=200), device="cuda")
    bench.reset()
    untrained = bench.measure(bench.dev, [("plain", None)])["plain", None]
    assert untrained["similarity"].mean() == pytest.approx(
        bench.dev.reference_scores["similarity"].mean(), abs=1e-4
    )
    trial = trial_config(
        {
            "loss": "triplet",
            "margin": 0.2,
            "learning_rate": 2e-4,
            "batch_size": 32,
            "examples_per_rung": 400,
        }
    )
    last = list(engine.rungs(trial, bench, seed=0, num_rungs=1))[-1]
    assert last.polarity > untrained["polarity"].mean() + 0.05
