"""The smoke sweep, run once to its end; and the artifacts that it left, for sweeps that need not prepare them."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from support.command_line import ALONE, Done, raysweep, runs


@dataclass(frozen=True)
class Smoke:
    """The folder in which the sweep was run, and what its command printed."""

    folder: Path
    done: Done

    @property
    def run(self) -> Path:
        (run,) = runs(self.folder)
        return run

    @property
    def artifacts(self) -> Path:
        return self.folder / "raysweep-runs" / "artifacts"


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Smoke:
    """Made by the first process of pytest-xdist that asks for it, for all of them."""
    root = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        root = root.parent
    folder = root / "smoke"
    output = folder / "output.json"
    with FileLock(root / "smoke.lock"):
        if not output.is_file():
            folder.mkdir()
            output.write_text(json.dumps(vars(raysweep(folder, "run", "smoke", *ALONE))))
    done = Done(**json.loads(output.read_text()))
    assert done.returncode == 0, done.stdout + done.stderr
    return Smoke(folder, done)


@pytest.fixture(scope="session")
def prepared_before(smoke: Smoke) -> tuple[str, str]:
    """The option that has a sweep find what the first one prepared."""
    return "--storage.artifacts", str(smoke.artifacts)
