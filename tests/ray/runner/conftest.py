"""The smoke sweep, run twice in one folder; and the artifacts that it left, for sweeps that need not prepare them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

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
def twice(tmp_path_factory: pytest.TempPathFactory) -> Twice:
    folder = tmp_path_factory.mktemp("twice")
    first, second = raysweep(folder, "run", "smoke"), raysweep(folder, "run", "smoke")
    for one in (first, second):
        assert one.returncode == 0, one.stdout + one.stderr
    return Twice(folder, (first, second))


@pytest.fixture(scope="session")
def prepared_before(twice: Twice) -> tuple[str, str]:
    """The option that has a sweep find what the first one prepared."""
    return "--storage.artifacts", str(twice.artifacts)
