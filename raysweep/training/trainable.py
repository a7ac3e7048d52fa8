"""The part of an encoder that a trial trains: all weights, those above a freezing level, or a LoRA adapter."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from raysweep.config.adapter import Lora
from raysweep.config.sides import Side, Sides
from raysweep.config.trial import TrialConfig
from raysweep.encoders import adapter, bf16_weights
from raysweep.encoders.side_encoders import WeightContext, own_weights
from raysweep.encoders.structure import Structure

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

V = TypeVar("V")

QUERY_PREFIX = "query."
"""Prefix of a separate query encoder's parameter names. All other parameter names start with a digit."""


@dataclass(frozen=True)
class TrainedWeights:
    """A trial's trained weights by parameter name, with the LoRA settings if they belong to an adapter.

    If queries have a separate encoder, the names of its weights begin with ``query.``.
    """

    tensors: Mapping[str, Tensor]
    lora: Lora | None = None

    @property
    def is_separate(self) -> bool:
        """Return whether queries and documents have separate encoders."""
        return any(name.startswith(QUERY_PREFIX) for name in self.tensors)

    def on(self, side: Side) -> "TrainedWeights":
        """Return the weights of the query encoder or of the document encoder."""
        if not self.is_separate:
            return self
        tensors = {
            name.removeprefix(QUERY_PREFIX): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(QUERY_PREFIX) == (side == "query")
        }
        return TrainedWeights(tensors, self.lora)


class QueryWeights:
    """The weights of a query encoder that is tuned separately from the document encoder.

    Both encoders share one model, so frozen parameters and buffers are stored only once. The model holds the document
    encoder's parameters, except within :meth:`used`. The query encoder's ``parameters`` are initialized from them.
    """

    def __init__(self, model: torch.nn.Module, trained: Mapping[str, torch.nn.Parameter]) -> None:
        self.parameters = {
            name: torch.nn.Parameter(parameter.detach().clone())
            for name, parameter in trained.items()
        }
        places = defaultdict(list)  # tied parameters occur several times
        for module in model.modules():
            for key, parameter in module.named_parameters(recurse=False):
                places[id(parameter)].append((module, key))
        self._swaps = [
            (module, key, trained[name], parameter)
            for name, parameter in self.parameters.items()
            for module, key in places[id(trained[name])]
        ]

    @contextmanager
    def used(self) -> Iterator[None]:
        """Swap these parameters into the model within the context."""
        for module, key, _, parameter in self._swaps:
            setattr(module, key, parameter)
        try:
            yield
        finally:
            for module, key, own, _ in self._swaps:
                setattr(module, key, own)


class Trainable:
    """An encoder whose trainable part is selected for each trial.

    Only this part's base weights are copied, so that :meth:`reset` can restore them. If the encoder was loaded in bf16,
    the trained matrices are converted to fp32.
    """

    def __init__(self, model: "SentenceTransformer") -> None:
        self.model = model
        self.structure = Structure.of(model)
        self.lora: Lora | None = None
        self._query: QueryWeights | None = None
        self._base: dict[str, Tensor] = {}  # copies of the trained parameters' base weights
        stored = model.state_dict().keys()
        self._stores_bf16 = bf16_weights.is_narrow(model)
        self._buffers = {
            name: buffer.clone() for name, buffer in model.named_buffers() if name in stored
        }

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the trained parameters by name, including those of a separate query encoder."""
        return {
            **self._own_parameters,
            **_prefixed({} if self._query is None else self._query.parameters),
        }

    @property
    def _own_parameters(self) -> dict[str, torch.nn.Parameter]:
        return {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }

    @property
    def weight_contexts(self) -> Sides[WeightContext]:
        """Return the weight contexts for query and document forward passes."""
        if self._query is None:
            return Sides.same(own_weights)
        return Sides(self._query.used, own_weights)

    @property
    def base(self) -> dict[str, Tensor]:
        """Return the base model's parameters by name, without copying."""
        parameters = {name: parameter.detach() for name, parameter in self.model.named_parameters()}
        return {**parameters, **self._base}

    def reset(self) -> None:
        """Restore the base model, with all parameters trainable."""
        adapter.remove(self.model)
        self.lora = self._query = None
        with torch.no_grad():
            for name, value in self._base.items():
                self.model.get_parameter(name).copy_(value)
            for name, value in self._buffers.items():
                self.model.get_buffer(name).copy_(value)
        self.model.requires_grad_(True)
        for parameter in self.model.parameters():
            parameter.grad = None

    def start(self, config: TrialConfig) -> None:
        """Restore the base model and make the part that ``config`` selects trainable.

        LoRA adapters are initialized with torch's global random generator.
        """
        self.reset()
        if config.lora is not None:
            self._attach(config.lora)
        else:
            frozen = self.structure.frozen_names(
                config.freezing, freeze_output_dense=config.freeze_output_dense
            )
            trained = [name for name, _ in self.model.named_parameters() if name not in frozen]
            self._train(trained)
        if config.tower == "separate":
            self._separate()

    def load(self, weights: TrainedWeights) -> None:
        """Restore the base model, then load a trial's weights and make them trainable.

        Raises:
            ValueError: If the encoder has no parameter with the name and shape of a weight.
        """
        self.reset()
        of_documents = weights.on("document")
        if weights.lora is None:
            self._check(of_documents)
            self._train(of_documents.tensors)
        else:
            self._attach(weights.lora)
            self._check(of_documents)
        _copy(of_documents, dict(self.model.named_parameters()))
        if weights.is_separate:
            of_queries = weights.on("query")
            self._check(of_queries)
            _copy(of_queries, self._separate().parameters)

    def trained(self) -> TrainedWeights:
        """Return the current weights of the trainable part, without copying."""
        return TrainedWeights(
            {name: value.detach() for name, value in self.parameters.items()}, self.lora
        )

    def changes(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield (name, base weights, change) for each trained parameter or each weight updated by an adapter."""
        if self.lora is not None:
            yield from adapter.updates(self.model)
            if self._query is not None:
                with self._query.used():
                    for name, base, update in adapter.updates(self.model):
                        yield f"{QUERY_PREFIX}{name}", base, update
            return
        for name, parameter in self.parameters.items():
            base = self._base[name.removeprefix(QUERY_PREFIX)]
            yield name, base, parameter.detach() - base

    def heights(self) -> dict[str, int]:
        """Return :meth:`Structure.heights` for all parameters, including those of a separate query encoder."""
        heights = Structure.of(self.model).heights()
        return heights | _prefixed(heights)

    @contextmanager
    def interpolated(self, share: float) -> Iterator[None]:
        """Use the weights ``(1 - share) * base + share * trained`` within the context."""
        if self.lora is not None:
            with adapter.scaled(self.model, share):
                yield
            return
        trained = self.parameters
        own = {name: parameter.data for name, parameter in trained.items()}
        for name, parameter in trained.items():
            parameter.data = self._base[name.removeprefix(QUERY_PREFIX)].lerp(own[name], share)
        try:
            yield
        finally:
            for name, parameter in trained.items():
                parameter.data = own[name]

    def finish(self, share: float = 1.0) -> None:
        """Set the weights to ``(1 - share) * base + share * trained`` in fp32 and merge any adapter.

        Queries must not have a separate encoder.
        """
        assert self._query is None
        bf16_weights.widen(self.model)
        if self.lora is not None:
            adapter.merge(self.model, share)
            self.lora = None
        elif share != 1:
            with torch.no_grad():
                for name, parameter in self.parameters.items():
                    parameter.copy_(self._base[name].lerp(parameter, share))

    def _train(self, names: "list[str] | Mapping[str, Tensor]") -> None:
        """Make only these parameters trainable."""
        trained = set(names)
        if self._stores_bf16:
            bf16_weights.narrow(self.model, trained)
        base = {}
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in trained)
            if name in trained:
                base[name] = self._base[name] if name in self._base else parameter.detach().clone()
        self._base = base

    def _attach(self, lora: Lora) -> None:
        self._base = {}
        if self._stores_bf16:
            bf16_weights.narrow(self.model)
        adapter.attach(self.model, self.structure, lora)
        self.lora = lora

    def _separate(self) -> QueryWeights:
        """Create a separate query encoder with the model's current weights."""
        self._query = QueryWeights(self.model, self._own_parameters)
        return self._query

    def _check(self, weights: TrainedWeights) -> None:
        """Raise ValueError unless the encoder has parameters with these names and shapes."""
        shapes = {name: parameter.shape for name, parameter in self.model.named_parameters()}
        for name, tensor in weights.tensors.items():
            if shapes.get(name) != tensor.shape:
                raise ValueError(f"the run's model has no {name} of shape {tuple(tensor.shape)}")


def _prefixed(values: Mapping[str, V]) -> dict[str, V]:
    return {QUERY_PREFIX + name: value for name, value in values.items()}


def _copy(weights: TrainedWeights, parameters: Mapping[str, torch.nn.Parameter]) -> None:
    with torch.no_grad():
        for name, tensor in weights.tensors.items():
            parameters[name].copy_(tensor)
