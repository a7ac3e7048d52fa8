"""Cache of the hidden states after an encoder's frozen layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysweep.encoders import buckets, encoder
from raysweep.encoders.structure import PrefixNames
from raysweep.encoders.tokens import Tokens

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class _Reached(Exception):  # noqa: N818 (not an error)
    """Raised at the end of the prefix to stop the forward pass and return the hidden states."""

    def __init__(self, hidden: Tensor) -> None:
        self.hidden = hidden


@dataclass(frozen=True)
class CacheLayout:
    """The rows of the cached sentences, one row per token.

    Each array in ``groups`` contains the ids of sentences that are encoded together. ``group_of`` and ``first_row``,
    both (sentences,), contain each sentence's group and first row, or -1 if the sentence is not cached.
    """

    groups: list[npt.NDArray[np.int64]]
    group_of: npt.NDArray[np.int64]
    first_row: npt.NDArray[np.int64]
    num_rows: int

    @classmethod
    def of(
        cls, lengths: npt.NDArray[np.integer], tokens_per_group: int, max_rows: int
    ) -> "CacheLayout":
        """Fill at most ``max_rows`` rows with groups of similar-length sentences, shortest first."""
        shortest_first = list(buckets.buckets(lengths, tokens_per_group))[::-1]
        group_sizes = [lengths[group].sum() for group in shortest_first]
        ends = np.cumsum(group_sizes)
        num_groups = int(np.searchsorted(ends, max_rows, side="right"))
        groups = shortest_first[:num_groups]
        group_of = np.full(lengths.shape, -1)
        first_row = np.full(lengths.shape, -1)
        num_rows = 0
        for number, group in enumerate(groups):
            sentence_lengths = lengths[group]
            ends_in_group = np.cumsum(sentence_lengths)
            group_of[group] = number
            first_row[group] = num_rows + ends_in_group - sentence_lengths
            num_rows += int(ends_in_group[-1])
        return cls(groups, group_of, first_row, num_rows)


class Prefix:
    """Cache of hidden states after the frozen blocks, computed with the base model's weights.

    Sentences are encoded in fixed groups of similar length, because rounding errors depend on the batch and a resumed
    trial must match an uninterrupted one bit for bit. A group is encoded when one of its sentences is first needed. The
    longest sentences, which do not fit into the cache, are encoded again for each batch.
    """

    def __init__(
        self,
        model: "SentenceTransformer",
        names: PrefixNames,
        tokens: Tokens,
        max_bytes: int,
        dtype: torch.dtype,
    ) -> None:
        self.names = names
        self.dtype = dtype
        self._model = model
        self._tokens = tokens
        modules = dict(model.named_modules())
        self._embeddings = [modules[name] for name in names.embeddings]
        self._blocks = [modules[name] for name in names.blocks]
        self._next_block = modules[names.next_block]
        # Length of the tuple that each block returns, or 0 if it returns a tensor. Set by :meth:`_compute`.
        self._tuple_lengths = [0] * len(self._blocks)
        self._width = encoder.hidden_width(model)
        every_sentence = np.arange(len(tokens))
        bytes_per_row = self._width * dtype.itemsize
        self._layout = CacheLayout.of(
            tokens.lengths(every_sentence),
            tokens_per_group=buckets.tokens_per_bucket(model.device.type),
            max_rows=max_bytes // bytes_per_row,
        )
        self._is_filled = np.zeros(len(self._layout.groups), bool)
        # On a CPU, memory pages are allocated when they are first written.
        self._cache = torch.empty(self.capacity, self._width, dtype=dtype, device=model.device)

    @property
    def capacity(self) -> int:
        """Return the number of tokens that fit into the cache."""
        return self._layout.num_rows

    def is_of(self, names: PrefixNames, dtype: torch.dtype) -> bool:
        """Return whether the cache was created for these frozen blocks and this precision."""
        return (self.names, self.dtype) == (names, dtype)

    def hidden(self, ids: npt.NDArray[np.integer]) -> Tensor:
        """Return the hidden states of a batch of sentences, (sentences, longest, width), padded with zeros."""
        self._fill_groups_of(ids)
        lengths = self._tokens.lengths(ids)
        hidden = torch.zeros(
            len(ids),
            int(lengths.max()),
            self._width,
            dtype=self.dtype,
            device=self._model.device,
        )
        is_cached = self._layout.first_row[ids] >= 0
        cached = np.flatnonzero(is_cached)
        if len(cached):
            cached_ids = ids[cached]
            cached_lengths = self._tokens.lengths(cached_ids)
            is_token = np.arange(hidden.shape[1]) < cached_lengths[:, None]
            number, column = np.nonzero(is_token)
            first_rows = self._layout.first_row[cached_ids]
            states = self._cache[self._index(first_rows[number] + column)]
            hidden[self._index(cached[number]), self._index(column)] = states
        others = np.flatnonzero(~is_cached)
        if len(others):
            computed = self._compute(ids[others])
            hidden[self._index(others), : computed.shape[1]] = computed
        return hidden

    def _fill_groups_of(self, ids: npt.NDArray[np.integer]) -> None:
        """Compute and cache the missing groups of these sentences."""
        numbers = np.unique(self._layout.group_of[ids])
        numbers = numbers[numbers >= 0]
        for number in numbers[~self._is_filled[numbers]]:
            group = self._layout.groups[number]
            hidden = self._compute(group)
            lengths = self._tokens.lengths(group)
            is_token = np.arange(lengths.max()) < lengths[:, None]
            start = int(self._layout.first_row[group[0]])
            end = start + int(lengths.sum())
            self._cache[start:end] = hidden[self._index(is_token)]
            self._is_filled[number] = True

    def _index(self, array: npt.NDArray[Any]) -> Tensor:
        return encoder.on_device(array, self._model.device)

    def _compute(self, ids: npt.NDArray[np.integer]) -> Tensor:
        """Run the encoder on a padded batch and return the input of the block after the prefix."""
        was_training = self._model.training
        self._model.eval()

        def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            raise _Reached(hidden)

        def note_kind_of_output(index: int) -> Callable[..., None]:
            def note(module: nn.Module, args: Any, output: Any) -> None:
                self._tuple_lengths[index] = len(output) if isinstance(output, tuple) else 0

            return note

        hooks = [self._next_block.register_forward_pre_hook(stop, with_kwargs=True)]
        for index, block in enumerate(self._blocks):
            hook = block.register_forward_hook(note_kind_of_output(index))
            hooks.append(hook)
        try:
            with torch.no_grad():
                encoder.forward(self._model, self._tokens, ids)
        except _Reached as reached:
            return reached.hidden.to(self.dtype)
        finally:
            for hook in hooks:
                hook.remove()
            self._model.train(was_training)
        raise AssertionError("the encoder's forward pass never reached the block after the prefix")

    @contextmanager
    def replayed(self, *batches: npt.NDArray[np.integer]) -> Iterator[None]:
        """Replace the prefix with the cached hidden states of a batch within the context.

        Several batches must be processed in one packed pass.
        """
        hidden_by_batch = [self.hidden(ids) for ids in batches]
        if len(batches) == 1:
            hidden = hidden_by_batch[0]
        else:
            cells = [states.flatten(0, 1) for states in hidden_by_batch]
            hidden = torch.cat(cells)[None]
        modules = [*self._embeddings, *self._blocks]
        outputs: list[Any] = [hidden] * len(self._embeddings)
        for length in self._tuple_lengths:
            outputs.append((hidden, *[None] * (length - 1)) if length else hidden)
        for module, output in zip(modules, outputs, strict=True):
            module.forward = lambda *args, output=output, **kwargs: output
        try:
            yield
        finally:
            for module in modules:
                del module.forward
