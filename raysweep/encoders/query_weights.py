"""The weights of the encoder of queries, in trials that tune it separately from the encoder of documents.

Both encoders share one model. Its modules hold the document encoder's parameters, except while queries are embedded, so
frozen parameters, buffers, caches and dropout layers exist only once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import nn

PREFIX = "query."
"""Prefix of these parameters' names in a trial. Names of an encoder's own parameters begin with a digit."""


class QueryWeights:
    """A copy of a model's trained parameters, which are equal at first. ``parameters`` are keyed by name."""

    def __init__(self, model: nn.Module, trained: Mapping[str, nn.Parameter]) -> None:
        self.parameters = {
            name: nn.Parameter(parameter.detach().clone()) for name, parameter in trained.items()
        }
        places = defaultdict(list)  # tied parameters have several
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
        """Use these parameters instead of the model's own within the context."""
        for module, key, _, parameter in self._swaps:
            setattr(module, key, parameter)
        try:
            yield
        finally:
            for module, key, own, _ in self._swaps:
                setattr(module, key, own)
