"""Freezing levels: the parameters that each level freezes, derived from ``model.named_parameters()``.

The levels are named as in the adiabatic-tuning paper. Each is a superset of the previous one:

``none``         nothing
``emb.base``     the word, position (absolute or relative) and token type tables
``emb``          the whole embedding block, including its norm and projection
``emb+B0a``      also the attention of block 0, with its norm
``emb+B0ai``     also its intermediate dense (in ModernBERT with the preceding norm)
``emb+B0aio``    also its output.dense, the second feed-forward matrix
``emb+B0``       also the rest of block 0: output.LayerNorm in post-norm encoders, nothing in pre-norm encoders
``emb+B0-n``     blocks 0 to n, n >= 1

The levels follow the order of computation, so each parameter has one depth, and a level is the maximum depth that it
freezes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from raysweep.errors import InputError

FIXED_LEVELS = ("none", "emb.base", "emb", "emb+B0a", "emb+B0ai", "emb+B0aio", "emb+B0")

FORMS = (*FIXED_LEVELS, "emb+B0-n with n >= 1")

_LAST_BLOCK = re.compile(r"emb\+B0-([1-9][0-9]*)")

_EMBEDDING_DEPTHS = 2

_BLOCK_DEPTHS = 4  # attention, intermediate, output, rest

_OUTPUT = 2

_TABLES = re.compile(
    r"(?:^|\.)(?:embeddings\.(?:word|tok|position|token_type)_embeddings|encoder\.relative_attention_bias)\."
)

_EMBEDDINGS = re.compile(r"(?:^|\.)(?:embeddings|embeddings_project)\.")

_EMBEDDING_MODULES = re.compile(r"(?:^|\.)(?:embeddings|embeddings_project)$")

_FINAL_NORM = re.compile(r"(?:^|\.)encoder\.(?:ln|LayerNorm)\.")

_ENCODER = re.compile(r"(?:^|\.)encoder\.")

_POOLER = re.compile(r"(?:^|\.)pooler\.")


@dataclass(frozen=True)
class Architecture:
    """Regular expressions for the names of an encoder's blocks and, relative to a block, of its parts."""

    block: str
    attention: str
    intermediate: str
    output: str


ARCHITECTURES = {
    "BERT, RoBERTa, XLM-R, ELECTRA, MPNet": Architecture(
        r"encoder\.layer", r"attention\.", r"intermediate\.dense\.", r"output\.dense\."
    ),
    "DistilBERT": Architecture(r"transformer\.layer", r"(attention|sa_layer_norm)\.", r"ffn\.lin1\.", r"ffn\.lin2\."),
    "ModernBERT": Architecture(r"layers", r"(attn|attn_norm)\.", r"(mlp_norm|mlp\.Wi)\.", r"mlp\.Wo\."),
    "NomicBERT": Architecture(
        r"layers", r"(self_attn|post_attention_layernorm)\.", r"mlp\.(gate|up)_proj\.", r"mlp\.down_proj\."
    ),
}


def check_level(level: str) -> None:
    """Raise InputError if ``level`` is malformed; :func:`frozen_names` checks whether an encoder has the level."""
    if level not in FIXED_LEVELS and not _LAST_BLOCK.fullmatch(level):
        raise InputError(f"freezing is {level!r}; allowed: {', '.join(FORMS)}")


def is_recognized(names: Sequence[str]) -> bool:
    """Return whether an encoder with these parameter names has freezing levels."""
    return _known_architecture(names) is not None


def levels(names: Sequence[str]) -> tuple[str, ...]:
    """Return the levels of an encoder that leave something to train, each a superset of the previous one.

    Raises:
        InputError: If the encoder's structure is not recognized.
    """
    depths = _depths(names)
    deeper = (f"emb+B0-{block}" for block in range(1, _num_blocks(depths)))
    return tuple(level for level in (*FIXED_LEVELS, *deeper) if _trainable(depths, _frozen(depths, level)))


def frozen_names(names: Sequence[str], level: str, *, freeze_output_dense: bool = False) -> frozenset[str]:
    """Return the names of the parameters that ``level`` freezes.

    Args:
        names: The encoder's parameter names, with any prefix, such as ``0.model.``.
        level: The freezing level.
        freeze_output_dense: Whether to freeze the weight of output.dense in every block as well.

    Raises:
        InputError: If the encoder lacks the level, nothing would be left to train, or the encoder's structure is not
            recognized (not needed for ``none``).
    """
    check_level(level)
    if level == "none" and not freeze_output_dense:
        return frozenset()
    depths = _depths(names)
    num_blocks = _num_blocks(depths)
    num_depths = _EMBEDDING_DEPTHS + _BLOCK_DEPTHS * num_blocks
    frozen = _frozen(depths, level)
    if freeze_output_dense:
        output_depths = range(_EMBEDDING_DEPTHS + _OUTPUT, num_depths, _BLOCK_DEPTHS)
        frozen |= {name for name, depth in depths.items() if depth in output_depths and name.endswith(".weight")}
    if level_depth(level) >= num_depths:
        problem = "the encoder lacks it"
    elif not _trainable(depths, frozen):
        problem = "it leaves nothing to train"
    else:
        return frozen
    modifier = " with output.dense frozen in all blocks" if freeze_output_dense else ""
    raise InputError(
        f"freezing level {level!r}{modifier}: {problem}; the encoder has {num_blocks} blocks, B0 to B{num_blocks - 1}, "
        f"and the levels {', '.join(levels(names))}"
    )


@dataclass(frozen=True)
class PrefixNames:
    """Module names of an encoder's frozen prefix: the embeddings, the frozen blocks, and the block that follows."""

    embeddings: tuple[str, ...]
    blocks: tuple[str, ...]
    next_block: str


def prefix_names(names: Sequence[str], modules: Sequence[str], level: str) -> PrefixNames | None:
    """Return the prefix that ``level`` freezes, up to the end of a block, or None if that is less than a block.

    ``names`` are the parameter names, ``modules`` the module names.
    """
    num_frozen = _block(level_depth(level) + 1)
    if num_frozen < 1 or num_frozen >= _num_blocks(_depths(names)):
        return None
    block_name = re.compile(rf"(?:^|\.){_architecture(names).block}\.(\d+)$")
    blocks = {}
    for name in modules:
        if match := block_name.search(name):
            blocks[int(match[1])] = name
    frozen = tuple(blocks[number] for number in range(num_frozen))
    embeddings = tuple(name for name in modules if _EMBEDDING_MODULES.search(name))
    return PrefixNames(embeddings, frozen, blocks[num_frozen])


def heights(names: Sequence[str]) -> dict[str, int]:
    """Return the height of each parameter: 0 after the last block, 1 in the last block, and so on.

    The height of the embeddings is one more than that of the first block.

    Raises:
        InputError: If the encoder's structure is not recognized.
    """
    depths = _depths(names)
    num_blocks = _num_blocks(depths)
    return {name: 0 if depth is None else num_blocks - _block(depth) for name, depth in depths.items()}


def _block(depth: int) -> int:
    """Return the number of the block at this depth, -1 for the embeddings."""
    return (depth - _EMBEDDING_DEPTHS) // _BLOCK_DEPTHS


def frozen_modules(names: Sequence[str], modules: Sequence[str], level: str) -> list[str]:
    """Return the modules, such as dropout layers, in the part of the encoder that ``level`` freezes."""
    if level == "none":
        return []
    architecture = _architecture(names)
    depths = {module: _depth(f"{module}.weight", architecture) for module in modules}
    return [module for module, depth in depths.items() if depth is not None and depth <= level_depth(level)]


def level_depth(level: str) -> int:
    """Return the maximum depth that a level freezes, -1 for ``none``; levels are ordered by it."""
    if match := _LAST_BLOCK.fullmatch(level):
        return _EMBEDDING_DEPTHS + _BLOCK_DEPTHS * (int(match[1]) + 1) - 1
    return FIXED_LEVELS.index(level) - 1


def _depths(names: Sequence[str]) -> dict[str, int | None]:
    """Return the depth of each parameter, None if no level freezes it, as for poolers, final norms and heads."""
    architecture = _architecture(names)
    return {name: _depth(name, architecture) for name in names}


def _architecture(names: Sequence[str]) -> Architecture:
    if architecture := _known_architecture(names):
        return architecture
    known = "; ".join(ARCHITECTURES)
    first_names = ", ".join(names[:4]) or "nothing"
    raise InputError(
        f"freezing and layer_decay need an encoder built like one of {known}; this one's parameters are named "
        f"{first_names}, ..."
    )


def _known_architecture(names: Sequence[str]) -> Architecture | None:
    return next((architecture for architecture in ARCHITECTURES.values() if _fits(names, architecture)), None)


def _fits(names: Sequence[str], architecture: Architecture) -> bool:
    """Return whether the parameters cover the tables and every block's attention, intermediate and output.

    An encoder with parameters outside its blocks, such as DeBERTa's table of relative positions, does not fit, because
    no level covers them.
    """
    depths = {name: _depth(name, architecture) for name in names}
    for name, depth in depths.items():
        if depth is None and _ENCODER.search(name) and not _FINAL_NORM.search(name):
            return False
    in_blocks = range(_EMBEDDING_DEPTHS, _EMBEDDING_DEPTHS + _BLOCK_DEPTHS * _num_blocks(depths))
    parts = {depth for depth in in_blocks if (depth - _EMBEDDING_DEPTHS) % _BLOCK_DEPTHS <= _OUTPUT}
    return bool(parts) and parts | {0} <= set(depths.values())


def _depth(name: str, architecture: Architecture) -> int | None:
    if _TABLES.search(name):
        return 0
    if _EMBEDDINGS.search(name):
        return 1
    match = re.search(rf"(?:^|\.){architecture.block}\.(\d+)\.(.+)", name)
    if not match:
        return None
    block, name_in_block = int(match[1]), match[2]
    depth = _EMBEDDING_DEPTHS + _BLOCK_DEPTHS * block
    for part in (architecture.attention, architecture.intermediate, architecture.output):
        if re.match(part, name_in_block):
            return depth
        depth += 1
    return depth


def _num_blocks(depths: dict[str, int | None]) -> int:
    deepest = max((depth for depth in depths.values() if depth is not None), default=0)
    return _block(deepest) + 1


def _frozen(depths: dict[str, int | None], level: str) -> frozenset[str]:
    limit = level_depth(level)
    return frozenset(name for name, depth in depths.items() if depth is not None and depth <= limit)


def _trainable(depths: dict[str, int | None], frozen: frozenset[str]) -> bool:
    """Return whether anything is left to train; poolers do not count, since sentence embeddings do not use them."""
    return any(name not in frozen and not _POOLER.search(name) for name in depths)
