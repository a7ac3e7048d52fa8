"""Lanes are folders: a test in tests/ray is marked ``ray``, and so on."""

from pathlib import Path

import pytest

LANES = {"unit", "quality", "ray", "gpu", "data"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        lane = Path(item.path).relative_to(Path(__file__).parent).parts[0]
        if lane in LANES:
            item.add_marker(getattr(pytest.mark, lane))
