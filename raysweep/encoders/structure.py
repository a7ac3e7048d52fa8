"""Depths of an encoder's parameters, for freezing, layer decay, adapters and the prefix cache."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from raysweep.config.freezing import (
    BLOCK_DEPTHS,
    EMBEDDING_DEPTHS,
    FIXED_LEVELS,
    check_level,
    level_depth,
)
from raysweep.encoders.families import FAMILIES, Family, family_of
from raysweep.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


_REST = BLOCK_DEPTHS - 1  # depth, within a block, of the remaining parameters

_POOLER = re.compile(r"(?:^|\.)pooler\.")


@dataclass(frozen=True)
class PrefixNames:
    """Names of the modules in an encoder's frozen prefix and of the block after it."""

    embeddings: tuple[str, ...]
    blocks: tuple[str, ...]
    next_block: str


class Structure:
    """The parameters of an encoder and their depths.

    ``names`` are parameter names, which may have a prefix such as ``0.model.``. If ``model_type`` is unknown, only the
    ``none`` level is supported.
    """

    def __init__(self, model_type: str | None, names: Sequence[str]) -> None:
        self.model_type = model_type
        self.names = tuple(names)
        self._family = family_of(model_type)

    @classmethod
    def of(cls, model: "SentenceTransformer") -> "Structure":
        """Return the structure of a loaded encoder."""
        transformer = getattr(model[0], "auto_model", None)
        model_type = getattr(getattr(transformer, "config", None), "model_type", None)
        return cls(model_type, [name for name, _ in model.named_parameters()])

    @property
    def is_complete(self) -> bool:
        """Return whether the names include the lookup tables and all parts of every block.

        Names read from a file may differ from those in memory and may not be recognized.
        """
        if self._family is None:
            return False
        depths = set(self._depths.values())
        in_blocks = range(EMBEDDING_DEPTHS, self._num_depths)
        parts = {depth for depth in in_blocks if (depth - EMBEDDING_DEPTHS) % BLOCK_DEPTHS != _REST}
        has_blocks = bool(parts) or self._family.shares_blocks
        return has_blocks and parts | {0} <= depths

    def levels(self) -> tuple[str, ...]:
        """Return the levels that leave parameters to train, in ascending order of depth.

        Raises:
            InputError: If the encoder's family is unknown.
        """
        deeper = (f"emb+B0-{block}" for block in range(1, self.num_blocks))
        possible = (
            level for level in (*FIXED_LEVELS, *deeper) if level_depth(level) < self._num_depths
        )
        return tuple(level for level in possible if self._is_trainable(self._frozen(level)))

    def frozen_names(self, level: str, *, freeze_output_dense: bool = False) -> frozenset[str]:
        """Return the names of the parameters that ``level`` freezes.

        ``freeze_output_dense`` also freezes the weight of output.dense in every block.

        Raises:
            InputError: If the encoder lacks the level, nothing would be left to train, or the encoder's family is
                unknown.
        """
        check_level(level)
        if level == "none" and not freeze_output_dense:
            return frozenset()
        frozen = self._frozen(level)
        if freeze_output_dense:
            frozen |= self._output_weights()
        if level_depth(level) >= self._num_depths:
            problem = "the encoder lacks it"
        elif not self._is_trainable(frozen):
            problem = "it leaves nothing to train"
        else:
            return frozen
        modifier = " with output.dense frozen in all blocks" if freeze_output_dense else ""
        blocks = f"{self.num_blocks} blocks, B0 to B{self.num_blocks - 1}"
        if self.family.shares_blocks:
            blocks = "blocks that share their weights"
        raise InputError(
            f"freezing level {level!r}{modifier}: {problem}; the encoder has {blocks}, and supports the levels "
            f"{', '.join(self.levels())}; without freezing: --space.freezing none"
        )

    def prefix_names(self, modules: Sequence[str], level: str) -> PrefixNames | None:
        """Return the prefix that ends with the last block that ``level`` freezes completely.

        Return None if no block or every block is completely frozen, or if the family's hidden states cannot be cached.
        """
        num_frozen = _block(level_depth(level) + 1)
        if num_frozen < 1 or num_frozen >= self.num_blocks or not self.family.caches_prefix:
            return None
        blocks = self.block_names(modules)
        frozen = tuple(blocks[number] for number in range(num_frozen))
        patterns = [self.family.embedding_modules, self.family.after_first_block]
        paths = "|".join(pattern for pattern in patterns if pattern)
        hidden_modules = re.compile(rf"(?:^|\.)(?:{paths})$")
        embeddings = tuple(name for name in modules if hidden_modules.search(name))
        return PrefixNames(embeddings, frozen, blocks[num_frozen])

    def block_names(self, modules: Iterable[str]) -> dict[int, str]:
        """Return the module names of the blocks, keyed by block number.

        Raises:
            InputError: If the encoder's family is unknown.
        """
        path = re.compile(rf"(?:^|\.)(?:{self.family.block})\.(\d+)$")
        matches = {name: path.search(name) for name in modules}
        return {int(match[1]): name for name, match in matches.items() if match}

    def adapted_layers(self, linear: Iterable[str], targets: str) -> tuple[str, ...]:
        """Return the names of the ``linear`` layers that an adapter with these targets changes.

        Raises:
            InputError: If the encoder's family is unknown.
        """
        parts = self.family.parts
        patterns = {
            "attention": parts.attention,
            "feed_forward": f"({parts.intermediate}|{parts.output})",
            "all_linear": "",
        }
        layers = []
        for name in linear:
            match = self._match_block(f"{name}.weight")
            if match and re.match(patterns[targets], match["name"]):
                layers.append(name)
        return tuple(layers)

    def heights(self) -> dict[str, int]:
        """Return the height of each parameter: 0 after the last block, 1 in the last block, and so on.

        The height of the embeddings is one more than that of the first block. Blocks that share weights have height 0.

        Raises:
            InputError: If the encoder's family is unknown.
        """
        return {
            name: 0 if depth is None else self.num_blocks - _block(depth)
            for name, depth in self._depths.items()
        }

    def frozen_modules(self, modules: Iterable[str], level: str) -> list[str]:
        """Return the modules in the part of the encoder that ``level`` freezes, including dropout layers."""
        if level == "none":
            return []
        limit = level_depth(level)
        depths = {module: self._depth(f"{module}.weight") for module in modules}
        return [module for module, depth in depths.items() if depth is not None and depth <= limit]

    @property
    def family(self) -> Family:
        """Return the encoder's family, or raise InputError if it is unknown."""
        if self._family is None:
            raise InputError(
                "freezing, layer_decay, lora and gradient_checkpointing are not supported for encoders of type "
                f"{self.model_type!r}; allowed: --space.freezing none, --space.adapter none and "
                f"--resources.gradient_checkpointing false, or encoders of these families: {'; '.join(FAMILIES)}"
            )
        return self._family

    @cached_property
    def num_blocks(self) -> int:
        """Return the number of blocks, or 0 if all blocks share their weights."""
        depths = [depth for depth in self._depths.values() if depth is not None]
        return _block(max(depths, default=0)) + 1

    @property
    def _num_depths(self) -> int:
        return EMBEDDING_DEPTHS + BLOCK_DEPTHS * self.num_blocks

    @cached_property
    def _depths(self) -> dict[str, int | None]:
        """Return the depth of each parameter, or None for parameters that no level freezes, such as poolers."""
        return {name: self._depth(name) for name in self.names}

    def _depth(self, name: str) -> int | None:
        family = self.family
        if _matches_path(family.tables, name):
            return 0
        if _matches_path(family.embeddings, name):
            return 1
        if family.after_first_block and _matches_path(rf"{family.after_first_block}\.", name):
            return EMBEDDING_DEPTHS + _REST
        match = self._match_block(name)
        if match is None or family.shares_blocks:
            return None
        depth = EMBEDDING_DEPTHS + BLOCK_DEPTHS * int(match["number"])
        name_in_block = match["name"]
        for part in (family.parts.attention, family.parts.intermediate, family.parts.output):
            if re.match(part, name_in_block):
                return depth
            depth += 1
        return depth

    def _match_block(self, name: str) -> re.Match[str] | None:
        return re.search(rf"(?:^|\.)(?:{self.family.block})\.(?P<number>\d+)\.(?P<name>.+)", name)

    def _frozen(self, level: str) -> frozenset[str]:
        limit = level_depth(level)
        return frozenset(
            name for name, depth in self._depths.items() if depth is not None and depth <= limit
        )

    def _output_weights(self) -> frozenset[str]:
        """Return the names of the second feed-forward matrices of all blocks."""
        weights = set()
        for name in self.names:
            match = self._match_block(name)
            if (
                match
                and re.match(self.family.parts.output, match["name"])
                and name.endswith(".weight")
            ):
                weights.add(name)
        return frozenset(weights)

    def _is_trainable(self, frozen: frozenset[str]) -> bool:
        """Return whether anything is left to train besides poolers, which do not affect sentence embeddings."""
        return any(name not in frozen and not _POOLER.search(name) for name in self.names)


def _block(depth: int) -> int:
    """Return the number of the block at this depth, or -1 for the embeddings."""
    return (depth - EMBEDDING_DEPTHS) // BLOCK_DEPTHS


def _matches_path(pattern: str, name: str) -> bool:
    return re.search(rf"(?:^|\.)(?:{pattern})", name) is not None
