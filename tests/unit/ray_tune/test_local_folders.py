"""A folder that other nodes may not see is named before a sweep writes to it."""

import pytest

from raysweep.cluster.resources import Capacity, NodeSize
from raysweep.ray_tune.run import warn_of_local_folders
from support.displays import ListDisplay

ONE_NODE = Capacity((NodeSize(2, 0),), num_present=1)
TWO_NODES = Capacity((NodeSize(2, 0),) * 2, num_present=2, num_alive=2)
BUCKET = "s3://bucket/sweeps"


@pytest.mark.parametrize(
    ("places", "capacity", "named"),
    [
        ({"storage.runs": "/runs"}, TWO_NODES, ["storage.runs is /runs"]),
        ({"storage.runs": BUCKET}, TWO_NODES, []),
        ({"storage.runs": "/runs"}, ONE_NODE, []),
        (
            {"storage.runs": BUCKET, "storage.artifacts": "/made"},
            TWO_NODES,
            ["storage.artifacts is /made"],
        ),
        (
            {"storage.runs": "/runs", "storage.artifacts": "/made"},
            TWO_NODES,
            ["storage.runs is /runs", "storage.artifacts is /made"],
        ),
    ],
)
def test_local_folders_on_several_nodes_are_named_in_one_line(
    places: dict[str, str], capacity: Capacity, named: list[str]
) -> None:
    display = ListDisplay()
    warn_of_local_folders(places, capacity, display)
    assert len(display.lines) == bool(named)
    for text in named:
        assert text in display.lines[0]
    assert BUCKET not in "".join(display.lines)
