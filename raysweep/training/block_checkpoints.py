"""Gradient checkpointing of an encoder's blocks."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.utils.checkpoint import checkpoint

from raysweep.encoders.side_encoders import WeightContext
from raysweep.encoders.structure import Structure
from raysweep.training.dropout import Dropouts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class BlockCheckpoints:
    """Recomputes each block of an encoder in the backward pass (Chen et al. 2016, arXiv:1604.06174).

    transformers' own checkpointing does not support some encoder families. It would also recompute blocks with new
    dropout masks and without the attention function of a packed pass (:mod:`raysweep.encoders.packed`).

    Raises:
        InputError: If the encoder's family is unknown.
    """

    def __init__(self, model: "SentenceTransformer", dropouts: Dropouts) -> None:
        modules: dict[str, Any] = dict(model.named_modules())
        names = Structure.of(model).block_names(modules)
        self._blocks = [modules[name] for name in names.values()]
        transformer: Any = model[0].auto_model
        self._config = transformer.config
        self._dropouts = dropouts

    @contextmanager
    def added_to(
        self, context: AbstractContextManager[None], weights: WeightContext
    ) -> Iterator[None]:
        """Enter ``context`` and checkpoint all blocks except those that a prefix cache replaces.

        Blocks are recomputed within ``weights()``.
        """
        with context:
            blocks = [block for block in self._blocks if "forward" not in vars(block)]
            for block in blocks:
                block.forward = partial(self._run, block.forward, weights)
            try:
                yield
            finally:
                for block in blocks:
                    del block.forward

    def _run(self, forward: Any, weights: WeightContext, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("past_key_values") is not None:
            # recomputing would append to a decoder's key-value cache
            kwargs["past_key_values"] = None
        contexts = partial(self._contexts, weights)
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    def _contexts(
        self, weights: WeightContext
    ) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts for a block's forward pass and for its recomputation with the same masks."""
        return nullcontext(), self._with(
            self._dropouts.state(), self._config._attn_implementation, weights
        )

    @contextmanager
    def _with(
        self, masks: dict[str, Any], attention: str, weights: WeightContext
    ) -> Iterator[None]:
        own_masks, own_attention = self._dropouts.state(), self._config._attn_implementation
        self._dropouts.restore(masks)
        self._config._attn_implementation = attention
        try:
            with weights():
                yield
        finally:
            self._dropouts.restore(own_masks)
            self._config._attn_implementation = own_attention
