"""A canary for each test, checked when the test ends."""

from collections.abc import Iterator

import pytest

from support.hostile import Canary


@pytest.fixture
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    made = Canary.make(tmp_path_factory.mktemp("canary"))
    yield made
    made.check()
