"""The smoke sweep of a tiny encoder, run once to completion, and the options that reuse its artifacts.

These tests start, kill and resume sweeps several times, so they tune a smaller encoder than the demo's.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from filelock import FileLock

from support.command_line import ALONE, Done, raysweep, runs
from support.encoders import tiny_bert

NUM_BLOCKS = 6  # required by the freezing levels of the space; the demo's encoder has as many
LEARNING_RATE = "{low: 1.0e-3, high: 1.0e-2, log: true}"  # high enough for a few batches to change a random encoder


@dataclass(frozen=True)
class Smoke:
    """The working folder of the sweep and the outcome of its command."""

    folder: Path
    done: Done

    @property
    def encoder(self) -> Path:
        return self.folder / "encoder"

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options that make another smoke sweep use the same encoder."""
        return encoder_options(self.encoder)

    @property
    def run(self) -> Path:
        (run,) = runs(self.folder)
        return run

    @property
    def artifacts(self) -> Path:
        return self.folder / "raysweep-runs" / "artifacts"


def encoder_options(encoder: Path) -> tuple[str, ...]:
    encoders = ("--model", str(encoder), "--examples.encoder.name", str(encoder))
    return *encoders, "--space.learning_rate", LEARNING_RATE


@pytest.fixture(scope="session")
def smoke(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str, demo_package: ModuleType
) -> Smoke:
    """Return the finished sweep, which the first pytest-xdist process that requests it runs for all."""
    root = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        root = root.parent
    folder = root / "smoke"
    output = folder / "output.json"
    with FileLock(root / "smoke.lock"):
        if not output.is_file():
            folder.mkdir()
            encoder = Path(tiny_bert(folder, demo_package.get_model_path(), NUM_BLOCKS))
            output.write_text(
                json.dumps(
                    vars(raysweep(folder, "run", "smoke", *ALONE, *encoder_options(encoder)))
                )
            )
    done = Done(**json.loads(output.read_text()))
    assert done.returncode == 0, done.stdout + done.stderr
    return Smoke(folder, done)


@pytest.fixture(scope="session")
def prepared_before(smoke: Smoke) -> tuple[str, ...]:
    """Return the options that make a sweep reuse the artifacts of ``smoke``."""
    return "--storage.artifacts", str(smoke.artifacts), *smoke.options
