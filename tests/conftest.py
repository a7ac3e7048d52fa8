"""Lanes are folders: a test in tests/ray is marked ``ray``, and so on, unless its own mark names another lane."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.s3_server import S3Server, s3_server

settings.register_profile("any machine", deadline=None)  # a busy one takes what it takes
settings.load_profile("any machine")

LANES = {"unit", "quality", "ray", "gpu", "data"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        lane = Path(item.path).relative_to(Path(__file__).parent).parts[0]
        if lane in LANES and not any(mark.name in LANES for mark in item.iter_markers()):
            item.add_marker(getattr(pytest.mark, lane))


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """An S3 server with an empty bucket, which the environment names."""
    with s3_server() as running:
        yield running
