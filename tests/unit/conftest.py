"""Benches that the tests of a process share."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from raysweep.data.prepared import Prepared
from support.encoders import EVALUATION


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is written outlives a killed process all the same; only a crash of the machine would tell the difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def tiny_bench(tiny_prepared: Prepared) -> Any:
    """Shared: a trial begins at the base weights whatever came before."""
    from raysweep.training.workbench import Workbench

    return Workbench(tiny_prepared, EVALUATION)


@pytest.fixture(scope="session")
def demo_bench(demo_prepared: Prepared) -> Any:
    from raysweep.training.workbench import Workbench

    return Workbench(demo_prepared, EVALUATION)
