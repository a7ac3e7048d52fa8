"""The smoke sweep of a tiny encoder, run once to its end; and the options with which others find what it prepared.

The demo's own encoder is swept by the examples: here each sweep is begun, killed and resumed several times.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from filelock import FileLock

from support.command_line import ALONE, Done, raysweep, runs
from support.encoders import tiny_bert

NUM_BLOCKS = 6  # as many as the levels of freezing of the space need, and as the demo's encoder has
LEARNING_RATE = "{low: 1.0e-3, high: 1.0e-2, log: true}"  # such that a few batches move a random encoder


@dataclass(frozen=True)
class Smoke:
    """The folder in which the sweep was run, and what its command printed."""

    folder: Path
    done: Done

    @property
    def encoder(self) -> Path:
        return self.folder / "encoder"

    @property
    def options(self) -> tuple[str, ...]:
        """What makes another smoke sweep one of the same encoder."""
        return of_encoder(self.encoder)

    @property
    def run(self) -> Path:
        (run,) = runs(self.folder)
        return run

    @property
    def artifacts(self) -> Path:
        return self.folder / "raysweep-runs" / "artifacts"


def of_encoder(encoder: Path) -> tuple[str, ...]:
    of_both = ("--model", str(encoder), "--examples.encoder.name", str(encoder))
    return *of_both, "--space.learning_rate", LEARNING_RATE


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory, worker_id: str, demo_package: ModuleType) -> Smoke:
    """Made by the first process of pytest-xdist that asks for it, for all of them."""
    root = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        root = root.parent
    folder = root / "smoke"
    output = folder / "output.json"
    with FileLock(root / "smoke.lock"):
        if not output.is_file():
            folder.mkdir()
            encoder = Path(tiny_bert(folder, demo_package.get_model_path(), NUM_BLOCKS))
            output.write_text(json.dumps(vars(raysweep(folder, "run", "smoke", *ALONE, *of_encoder(encoder)))))
    done = Done(**json.loads(output.read_text()))
    assert done.returncode == 0, done.stdout + done.stderr
    return Smoke(folder, done)


@pytest.fixture(scope="session")
def prepared_before(smoke: Smoke) -> tuple[str, ...]:
    """The options that have a sweep find what the first one prepared."""
    return "--storage.artifacts", str(smoke.artifacts), *smoke.options
