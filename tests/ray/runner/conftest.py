"""The smoke sweep, run twice in one folder; and the artifacts that it left, for sweeps that need not prepare them."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from support.command_line import Done, raysweep, runs


@dataclass(frozen=True)
class Twice:
    """The folder in which the same sweep was run twice, and what its commands printed."""

    folder: Path
    done: tuple[Done, Done]

    @property
    def runs(self) -> list[Path]:
        return runs(self.folder)

    @property
    def artifacts(self) -> Path:
        return self.folder / "raysweep-runs" / "artifacts"


@pytest.fixture(scope="session")
def twice(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Twice:
    """Made by the first process of pytest-xdist that asks for it, for all of them."""
    root = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        root = root.parent
    folder = root / "the-same-twice"
    outputs = folder / "outputs.json"
    with FileLock(root / "the-same-twice.lock"):
        if not outputs.is_file():
            folder.mkdir()
            done = [raysweep(folder, "run", "smoke") for _ in range(2)]
            outputs.write_text(json.dumps([vars(one) for one in done]))
    first, second = (Done(**values) for values in json.loads(outputs.read_text()))
    for one in (first, second):
        assert one.returncode == 0, one.stdout + one.stderr
    return Twice(folder, (first, second))


@pytest.fixture(scope="session")
def prepared_before(twice: Twice) -> tuple[str, str]:
    """The option that has a sweep find what the first one prepared."""
    return "--storage.artifacts", str(twice.artifacts)
