"""What the frozen first part of an encoder gives for each sentence: computed once, kept within a memory budget."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysweep.config.freezing import PrefixNames
from raysweep.encoders import buckets, encoder
from raysweep.encoders.tokens import Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class _Reached(Exception):  # noqa: N818 (it carries a value out of the model, no error)
    """Carries the hidden states at the end of the prefix out of the model's forward pass."""

    def __init__(self, hidden: Tensor) -> None:
        self.hidden = hidden


class Prefix:
    """Hidden states after the frozen blocks, of the base model's weights, which no trial changes.

    Sentences are computed in fixed groups of like length, whole groups as they are first needed: a sum's last bits depend
    on the shape of its batch, so only then do they not depend on what a process did before, and a resumed trial goes on
    to the same bits. Groups beyond the budget, the longest sentences, are not kept but computed each time.
    """

    def __init__(
        self, model: "SentenceTransformer", names: PrefixNames, tokens: Tokens, max_bytes: int, dtype: torch.dtype
    ) -> None:
        modules = dict(model.named_modules())
        self.names = names
        self.dtype = dtype
        self._model = model
        self._tokens = tokens
        self._stem = [modules[name] for name in names.embeddings]
        self._blocks = [modules[name] for name in names.blocks]
        self._next = modules[names.next_block]
        self._wants_tuple = [False] * len(self._blocks)
        self._width = encoder.hidden_width(model)
        lengths = tokens.lengths(np.arange(len(tokens)))
        limit = buckets.TOKENS_PER_BUCKET.get(model.device.type, buckets.TOKENS_PER_BUCKET["cpu"])
        groups = list(buckets.buckets(lengths, limit))[::-1]  # the shortest first
        ends = np.cumsum([lengths[group].sum() for group in groups])
        num_kept = int(np.searchsorted(ends, max_bytes // (self._width * dtype.itemsize), side="right"))
        self.capacity = int(ends[num_kept - 1]) if num_kept else 0  # in tokens
        self._kept = torch.empty(self.capacity, self._width, dtype=dtype, device=model.device)  # pages come with use
        self._groups = groups[:num_kept]
        self._there = np.zeros(num_kept, bool)
        self._group_of = np.full(len(tokens), -1, np.int64)
        self._starts = np.full(len(tokens), -1, np.int64)
        for number, (group, end) in enumerate(zip(self._groups, ends, strict=False)):
            self._group_of[group] = number
            self._starts[group] = end - np.cumsum(lengths[group][::-1])[::-1]

    def hidden(self, ids: npt.NDArray[np.integer]) -> Tensor:
        """Hidden states of the padded batch of these sentences, (sentences, longest, width); beyond a sentence, zeros."""
        groups = np.unique(self._group_of[ids])
        groups = groups[groups >= 0]
        for number in groups[~self._there[groups]]:
            self._fill(int(number))
        lengths = self._tokens.lengths(ids)
        out = torch.zeros(len(ids), int(lengths.max()), self._width, dtype=self.dtype, device=self._model.device)
        starts = self._starts[ids]
        kept = np.flatnonzero(starts >= 0)
        if len(kept):
            rows, columns = np.nonzero(np.arange(lengths.max()) < lengths[kept, None])
            places = torch.from_numpy(starts[kept][rows] + columns).to(out.device)
            out[torch.from_numpy(kept[rows]).to(out.device), torch.from_numpy(columns).to(out.device)] = self._kept[
                places
            ]
        if len(others := np.flatnonzero(starts < 0)):
            computed = self._compute(ids[others])
            out[torch.from_numpy(others).to(out.device), : computed.shape[1]] = computed
        return out

    def _fill(self, number: int) -> None:
        group = self._groups[number]
        hidden, lengths = self._compute(group), self._tokens.lengths(group)
        inside = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None]).to(hidden.device)
        start = int(self._starts[group[0]])
        self._kept[start : start + int(lengths.sum())] = hidden[inside]
        self._there[number] = True

    def _compute(self, ids: npt.NDArray[np.integer]) -> Tensor:
        training = self._model.training
        self._model.eval()

        def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            raise _Reached(args[0] if args else kwargs["hidden_states"])

        def note(index: int) -> Callable[..., None]:
            def look(module: nn.Module, args: Any, output: Any) -> None:
                self._wants_tuple[index] = isinstance(output, tuple)

            return look

        hooks = [self._next.register_forward_pre_hook(stop, with_kwargs=True)]
        hooks += [block.register_forward_hook(note(index)) for index, block in enumerate(self._blocks)]
        try:
            with torch.no_grad():
                encoder.forward(self._model, self._tokens, ids)
        except _Reached as reached:
            return reached.hidden.to(self.dtype)
        finally:
            for hook in hooks:
                hook.remove()
            self._model.train(training)
        raise AssertionError("the encoder's forward pass never came to the block after the prefix")

    @contextmanager
    def replayed(self, ids: npt.NDArray[np.integer]) -> Iterator[None]:
        """Within, the encoder's forward pass over the padded batch of ``ids`` begins with the kept hidden states."""
        hidden = self.hidden(ids)
        parts = [(module, lambda *args, **kwargs: hidden) for module in self._stem]
        for block, wants_tuple in zip(self._blocks, self._wants_tuple, strict=True):
            given = (hidden,) if wants_tuple else hidden
            parts.append((block, lambda *args, given=given, **kwargs: given))
        for module, forward in parts:
            module.forward = forward
        try:
            yield
        finally:
            for module, _ in parts:
                del module.forward
