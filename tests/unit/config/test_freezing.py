"""The grammar of freezing levels."""

import pytest

from raysweep.config.freezing import FIXED_LEVELS, check_level, level_depth
from raysweep.errors import InputError


@pytest.mark.parametrize("level", [*FIXED_LEVELS, "emb+B0-1", "emb+B0-5", "emb+B0-10"])
def test_valid_levels_are_accepted(level):
    check_level(level)


@pytest.mark.parametrize(
    "level",
    ["", "all", "Emb", "B0", "emb+B1", "emb+B0-0", "emb+B0-", "emb+B0-01", "emb+B0-1 ", "emb+B0o"],
)
def test_invalid_levels_are_rejected(level):
    with pytest.raises(InputError, match=r"emb\.base.*emb\+B0aio.*emb\+B0-n"):
        check_level(level)


def test_levels_are_ordered_by_depth():
    levels = [*FIXED_LEVELS, "emb+B0-1", "emb+B0-2", "emb+B0-10"]
    depths = [level_depth(level) for level in levels]
    assert depths == [-1, 0, 1, 2, 3, 4, 5, 9, 13, 45]
