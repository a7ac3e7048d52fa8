"""Training batches: example order and sentence embeddings.

Each distinct sentence in a batch is embedded once. Sentences of similar length form buckets, and buckets form packs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysweep.config.loss_spec import LossExamples
from raysweep.data.prepared import Prepared
from raysweep.encoders import buckets, encoder, packed
from raysweep.encoders.encoder import BatchContext, no_context
from raysweep.encoders.side_encoders import StoredEncoder, WeightContext, own_weights
from raysweep.encoders.tokens import Tokens
from raysweep.errors import InputError
from raysweep.training.block_checkpoints import BlockCheckpoints
from raysweep.training.dropout import RandomStreams

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


Examples: TypeAlias = tuple[npt.NDArray[np.integer], npt.NDArray[Any] | None]
"""Sentence ids (batch, columns), and targets (batch,) or None."""


Pack: TypeAlias = list[npt.NDArray[np.integer]]
"""Buckets of sentence ids for one forward pass; a single bucket if the encoder is not packable."""


class ExampleOrder:
    """Examples of one kind in a seeded random order, reshuffled for each pass.

    ``ids`` (examples, columns) are sentence ids; ``targets`` (examples,) is None for kinds without targets.
    ``remaining`` holds the shuffled positions that have not been taken yet. Checkpoints store ``remaining`` and the
    state of ``rng``.

    With ``no_duplicates``, an example that shares a sentence with the batch is moved to the next batch, as in
    sentence-transformers' ``BatchSamplers.NO_DUPLICATES``. If this pass and the next have too few other examples, the
    batch is filled with duplicates.

    With ``per_class``, each pass is ordered by :func:`interleave_classes`, using the classes of the examples' first
    sentences. ``soft_targets`` is a rule in :data:`raysweep.config.soft_targets.SOFT_TARGETS`, whose targets replace the
    stored ones.

    Raises:
        InputError: If ``per_class`` is set and fewer than two classes have at least two examples.
    """

    def __init__(
        self,
        prepared: Prepared,
        kind: LossExamples,
        seed: int,
        *,
        no_duplicates: bool = False,
        per_class: int | None = None,
        soft_targets: str | None = None,
    ) -> None:
        self.ids, self.targets = prepared.examples(kind)
        if soft_targets is not None:
            self.targets = prepared.soft_targets(soft_targets)
        self.no_duplicates = no_duplicates
        self.per_class = per_class
        self.rng = np.random.default_rng(seed)
        self.remaining = np.empty(0, np.int64)
        if per_class is not None:
            self.labels = np.asarray(prepared.sentences.labels[self.ids[:, 0]])
            check_classes(self.labels)

    @property
    def num_columns(self) -> int:
        """Return the number of sentences per example."""
        return int(self.ids.shape[1])

    def restart(self) -> None:
        """Discard the remaining positions, so that the next example starts a new pass."""
        self.remaining = self.remaining[:0]

    def take(self, count: int) -> Examples:
        """Return the next ``count`` examples."""
        places: slice | list[int]
        if self.no_duplicates:
            self._draw(count + len(self.ids))
            places = self._find_distinct(count)
        else:
            self._draw(count)
            places = slice(count)
        positions = self.remaining[places]
        self.remaining = np.delete(self.remaining, places)
        targets = None if self.targets is None else self.targets[positions]
        return np.asarray(self.ids[positions]), targets

    def _draw(self, count: int) -> None:
        """Append shuffled passes until at least ``count`` positions remain."""
        while len(self.remaining) < count:
            if self.per_class is None:
                next_pass = self.rng.permutation(len(self.ids))
            else:
                next_pass = interleave_classes(self.labels, self.per_class, self.rng)
            self.remaining = np.concatenate([self.remaining, next_pass])

    def _find_distinct(self, count: int) -> list[int]:
        """Return the indices into ``remaining`` of the first ``count`` examples that share no sentences.

        If there are too few, add the first examples that were skipped.
        """
        distinct: list[int] = []
        waiting: list[int] = []
        in_batch: set[int] = set()
        for place, position in enumerate(self.remaining):
            sentences = self.ids[position].tolist()
            if in_batch.isdisjoint(sentences):
                distinct.append(place)
                in_batch.update(sentences)
            else:
                waiting.append(place)
            if len(distinct) == count:
                return distinct
        missing = count - len(distinct)
        return distinct + waiting[:missing]


def check_classes(labels: npt.NDArray[np.integer]) -> None:
    """Raise InputError unless at least two classes have two or more examples."""
    counts = np.unique(labels, return_counts=True)[1]
    num_classes = int((counts >= 2).sum())
    if num_classes < 2:
        raise InputError(
            f"data: only {num_classes} of {len(counts)} classes have two or more training sentences; losses that compare "
            "classes within a batch require at least 2"
        )


def interleave_classes(
    labels: npt.NDArray[np.integer], per_class: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return positions in ``labels`` (examples,) in an order that mixes classes within batches.

    The examples of each class are shuffled and split into groups of ``per_class``; groups of one example are dropped.
    Each round appends one group from each class that has groups left, with the classes in random order. The order ends
    when only one class has groups left. With groups of two, this is the order of sentence-transformers'
    ``BatchSamplers.GROUP_BY_LABEL``.
    """
    groups: dict[int, list[npt.NDArray[np.int64]]] = {}
    for label in np.unique(labels):
        positions = np.flatnonzero(labels == label)
        shuffled = rng.permutation(positions)
        cuts = range(per_class, len(shuffled), per_class)
        of_class = np.split(shuffled, cuts)
        groups[int(label)] = [group for group in of_class if len(group) >= 2]
    order: list[npt.NDArray[np.int64]] = []
    last = None  # the class of the last group
    # after these rounds, only one class has groups left
    *_, num_rounds, _ = sorted(map(len, groups.values()))
    for number in range(num_rounds):
        in_round = [label for label, of_class in groups.items() if len(of_class) > number]
        in_round = rng.permutation(in_round).tolist()
        if in_round[0] == last:  # avoid two adjacent groups of the same class
            in_round[:2] = in_round[1::-1]
        order += [groups[label][number] for label in in_round]
        last = in_round[-1]
    return np.concatenate(order)


class ColumnEncoder(Protocol):
    """Encoder for the sentences in one or more columns of examples."""

    def packs(self, ids: npt.NDArray[np.integer]) -> list[Pack]:
        """Group distinct sentences into packs."""
        ...

    def embed(self, packs: Sequence[Pack]) -> list[Tensor]:
        """Return the embeddings of each pack's sentences, (sentences, width)."""
        ...


class TrainedEncoder:
    """The encoder that a trial trains, for the sentences on one side.

    ``tokens`` holds the tokens of all sentences. With ``checkpoints``, blocks are recomputed in the backward pass.
    Within ``weights()``, the model has this side's weights. ``batch_context`` returns the context for the forward pass
    of a pack.
    """

    def __init__(
        self,
        model: "SentenceTransformer",
        tokens: Tokens,
        checkpoints: BlockCheckpoints | None = None,
        weights: WeightContext = own_weights,
    ) -> None:
        self.model, self.tokens = model, tokens
        self._weights = weights
        self.batch_context: BatchContext = no_context
        self._checkpoints = checkpoints
        self._word_table = encoder.word_table(model)
        self._pad_id = encoder.pad_id(model)
        self._width = encoder.hidden_width(model)
        self._is_packable = packed.is_packable(model)

    def packs(self, ids: npt.NDArray[np.integer]) -> list[Pack]:
        """Group distinct sentences of similar length into buckets, and buckets into packs."""
        lengths = self.tokens.lengths(ids)
        device = self.model.device.type
        by_length = buckets.training_buckets(lengths, device, self._width, packed=self._is_packable)
        packs = (
            buckets.packs(by_length, lengths)
            if self._is_packable
            else [[bucket] for bucket in by_length]
        )
        return [[ids[bucket] for bucket in pack] for pack in packs]

    def embed(self, packs: Sequence[Pack]) -> list[Tensor]:
        """Return the embeddings of each pack's sentences, (sentences, width), with gradients if enabled."""
        embeddings = []
        with self._weights(), self._look_up_words(packs):
            for pack in packs:
                context = self.batch_context(*pack)
                if self._checkpoints is not None:
                    context = self._checkpoints.added_to(context, self._weights)
                if len(pack) == 1:
                    rows = encoder.forward(self.model, self.tokens, pack[0], context)
                else:
                    rows = packed.forward(self.model, self.tokens, pack, context)
                embeddings.append(rows)
        return embeddings

    @contextmanager
    def _look_up_words(self, packs: Iterable[Pack]) -> Iterator[None]:
        """Look up the embedding of each distinct token only once within the context.

        In a small encoder, the word embedding table accounts for half of the parameters, and each lookup would
        create a gradient as large as the table.
        """
        table = self._word_table
        if table is None or not table.weight.requires_grad:
            yield
            return
        ids = np.concatenate([bucket for pack in packs for bucket in pack])
        padding = table.padding_idx
        padding_words = [self._pad_id] if padding is None else [self._pad_id, padding]
        tokens = np.append(self.tokens.of_ids(ids), padding_words)
        words = np.unique(tokens).astype(np.int64)
        device = table.weight.device
        word_ids = encoder.on_device(words, device)
        rows = table.weight.index_select(0, word_ids)
        row_of_word = torch.zeros(table.num_embeddings, dtype=torch.int64, device=device)
        row_of_word[word_ids] = torch.arange(len(words), device=device)
        # As in the table, the padding row gets no gradient.
        padding_row = None if padding is None else int(np.searchsorted(words, padding))

        def look_up(input_ids: Tensor) -> Tensor:
            return nn.functional.embedding(row_of_word[input_ids], rows, padding_row)

        table.forward = look_up  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del table.forward


class StoredColumns:
    """Encoder for columns with stored embeddings, which get no gradients."""

    def __init__(self, stored: StoredEncoder, device: torch.device) -> None:
        self.stored, self.device = stored, device

    def packs(self, ids: npt.NDArray[np.integer]) -> list[Pack]:
        """Return all sentences in one pack."""
        return [[ids]]

    def embed(self, packs: Sequence[Pack]) -> list[Tensor]:
        """Return the stored embeddings of each pack's sentences, (sentences, width)."""
        return [
            encoder.on_device(self.stored.embed(np.concatenate(pack)), self.device)
            for pack in packs
        ]


def embed_columns(encoders: Sequence[ColumnEncoder], ids: npt.NDArray[np.integer]) -> list[Tensor]:
    """Embed a batch of examples with gradients and return one fp32 tensor (batch, width) per column of ``ids``.

    ``encoders`` has one encoder for each column of ``ids``, (batch, columns). Each encoder embeds the distinct sentences
    of its columns once.
    """
    batch = _Batch.of(encoders, ids)
    embeddings = [pack for part in batch.parts for pack in part.encoder.embed(part.packs)]
    return batch.columns(torch.cat(embeddings).float())


class _Part(NamedTuple):
    """The distinct sentences of columns that share an encoder, in packs."""

    encoder: ColumnEncoder
    packs: list[Pack]


@dataclass(frozen=True)
class _Batch:
    """The distinct sentences of a batch, and each sentence's row in the concatenated packs of all parts."""

    parts: list[_Part]
    rows: npt.NDArray[np.int64]  # (batch, columns)

    @classmethod
    def of(cls, encoders: Sequence[ColumnEncoder], ids: npt.NDArray[np.integer]) -> "_Batch":
        parts = []
        rows = np.empty(ids.shape, np.int64)
        num_rows = 0
        for column_encoder in dict.fromkeys(encoders):
            is_own = [other is column_encoder for other in encoders]
            own_ids = ids[:, is_own]
            unique, inverse = np.unique(own_ids, return_inverse=True)
            packs = column_encoder.packs(unique)
            ids_in_order = np.concatenate([bucket for pack in packs for bucket in pack])
            row_of_sentence = np.argsort(ids_in_order)  # indexed like unique
            rows[:, is_own] = num_rows + row_of_sentence[inverse.reshape(own_ids.shape)]
            num_rows += len(unique)
            parts.append(_Part(column_encoder, packs))
        return cls(parts, rows)

    def columns(self, embeddings: Tensor) -> list[Tensor]:
        """Return one tensor (batch, width) per column, given the embeddings in the order of the packs."""
        rows = encoder.on_device(self.rows, embeddings.device)
        return [embeddings[column] for column in rows.T]


class RecomputedBatch:
    """A batch whose activations are recomputed in the backward pass to save memory.

    ``columns`` holds the same tensors that :func:`embed_columns` returns. After the loss has been backpropagated to them,
    :meth:`backward` recomputes the activations pack by pack, with the same dropout masks, and accumulates the encoder's
    gradients. For any loss, these equal the gradients of the full batch up to rounding (Gao et al. 2021,
    arXiv:2101.06983).
    """

    def __init__(
        self,
        encoders: Sequence[ColumnEncoder],
        ids: npt.NDArray[np.integer],
        streams: RandomStreams,
        precision_context: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._streams = streams
        self._precision_context = precision_context
        batch = _Batch.of(encoders, ids)
        self._packs = [(part.encoder, pack) for part in batch.parts for pack in part.packs]
        self._positions = []  # positions of the random streams before each pack
        embeddings = []
        with torch.no_grad():
            for column_encoder, pack in self._packs:
                self._positions.append(streams.position())
                embeddings.append(self._embed(column_encoder, pack))
        self._embeddings = torch.cat(embeddings).float().requires_grad_()
        self.columns = batch.columns(self._embeddings)

    def backward(self) -> None:
        """Accumulate the encoder's gradients."""
        gradient = self._embeddings.grad
        assert gradient is not None, "the loss must be backpropagated first"
        end = self._streams.position()
        pack_sizes = [sum(map(len, pack)) for _, pack in self._packs]
        gradients = gradient.split(pack_sizes)
        for (column_encoder, pack), position, pack_gradient in zip(
            self._packs, self._positions, gradients, strict=True
        ):
            self._streams.go_to(position)
            embeddings = self._embed(column_encoder, pack).float()
            if embeddings.requires_grad:
                embeddings.backward(pack_gradient)
        self._streams.go_to(end)

    def _embed(self, column_encoder: ColumnEncoder, pack: Pack) -> Tensor:
        with self._precision_context():
            (embeddings,) = column_encoder.embed([pack])
        return embeddings
