"""Freezing levels, which set how many of an encoder's first layers are frozen.

The names are from Vasilyev et al. 2024 (arXiv:2407.00923). Each level includes the previous one:

``none``         nothing
``emb.base``     the word, position (absolute or relative) and token type tables
``emb``          the whole embedding block, including its norm and projection
``emb+B0a``      also the attention of block 0 and its norm
``emb+B0ai``     also its intermediate.dense and, in pre-norm encoders, the preceding norm
``emb+B0aio``    also its output.dense, the second feed-forward matrix
``emb+B0``       also the rest of block 0: output.LayerNorm in post-norm encoders, usually nothing in pre-norm encoders
``emb+B0-n``     the embedding block and blocks 0 to n, n >= 1

:mod:`raysweep.encoders.structure` maps levels to the parameters of an encoder.
"""

import re

from raysweep.errors import InputError

FIXED_LEVELS = ("none", "emb.base", "emb", "emb+B0a", "emb+B0ai", "emb+B0aio", "emb+B0")

FORMS = (*FIXED_LEVELS, "emb+B0-n with n >= 1")

EMBEDDING_DEPTHS = 2  # the tables and the rest of the embedding block
BLOCK_DEPTHS = 4  # attention, intermediate.dense, output.dense and the rest

_LAST_BLOCK = re.compile(r"emb\+B0-([1-9][0-9]*)")


def check_level(level: str) -> None:
    """Raise InputError if ``level`` is malformed."""
    if level not in FIXED_LEVELS and not _LAST_BLOCK.fullmatch(level):
        raise InputError(f"freezing is {level!r}; allowed: {', '.join(FORMS)}")


def level_depth(level: str) -> int:
    """Return the last depth that a level freezes, or -1 for ``none``.

    Depths count from the input: the embedding block has EMBEDDING_DEPTHS depths, and each encoder block has
    BLOCK_DEPTHS.
    """
    if match := _LAST_BLOCK.fullmatch(level):
        num_blocks = int(match[1]) + 1
        return EMBEDDING_DEPTHS + BLOCK_DEPTHS * num_blocks - 1
    return FIXED_LEVELS.index(level) - 1
