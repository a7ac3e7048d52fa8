"""Lanes are folders: a test in tests/ray is marked ``ray``, and so on, unless its own mark names another lane.

Tests that use the same run, or stand in the same file of the ray lane, go to one process of pytest-xdist.
"""

from pathlib import Path

import pytest

LANES = {"unit", "quality", "ray", "gpu", "data"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, which reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        lane = Path(item.path).relative_to(Path(__file__).parent).parts[0]
        if lane in LANES and not any(mark.name in LANES for mark in item.iter_markers()):
            item.add_marker(getattr(pytest.mark, lane))
        if lane == "ray":
            shares_run = "twice" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("twice" if shares_run else Path(item.path).stem))
