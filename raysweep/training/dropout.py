"""Dropout rates, and a dropout layer that samples masks ten times as fast as torch's on a CPU."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raysweep.encoders.traits import dropout_sites

# masks use 16 random bits per element, so a rate is accurate to within 1 / 131072
_STEPS = 1 << 16


class Generator:
    """Random bit stream shared by a model's dropout layers."""

    def __init__(self) -> None:
        self.bits = np.random.SFC64(0)

    def seed(self, seed: int) -> None:
        """Restart the stream with a seed."""
        self.bits = np.random.SFC64(seed)

    def mask(self, like: Tensor, rate: float) -> Tensor:
        """Return a mask with the shape and type of ``like``: 0 with probability ``rate``, otherwise 1 / (1 - rate)."""
        dropped = min(_STEPS - 1, round(rate * _STEPS))  # out of 2**16 values
        count = like.numel()
        words = self.bits.random_raw(-(-count // 4))  # 64 bits each
        values = words.view(np.int16)[:count]
        is_kept = torch.from_numpy(values).ge_(dropped - _STEPS // 2)  # 1 or 0, in place
        return is_kept.to(like.dtype).mul_(_STEPS / (_STEPS - dropped)).view_as(like)


class FastDropout(nn.Dropout):
    """``nn.Dropout`` with masks from a :class:`Generator`. On a CPU, torch samples masks one element at a time."""

    def __init__(self, rate: float, generator: Generator) -> None:
        super().__init__(rate)
        self.generator = generator

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return input
        return input * self.generator.mask(input, self.p)


class Dropouts:
    """The dropout layers of an encoder, which are replaced with :class:`FastDropout` layers on a CPU.

    They include attention modules that have a dropout rate, such as T5's, and the identity modules that ModernBERT uses
    instead of dropout layers with rate 0.
    """

    def __init__(self, model: nn.Module, device: str) -> None:
        self.generator = Generator()
        for module in list(model.modules()):
            for name, child in module.named_children():
                is_absent = type(child) is nn.Identity and "drop" in name
                if device == "cpu" and (is_absent or type(child) is nn.Dropout):
                    rate = getattr(child, "p", 0.0)
                    setattr(module, name, FastDropout(rate, self.generator))
                elif is_absent:
                    setattr(module, name, nn.Dropout(0.0))
        self._sites = dropout_sites(model)
        modules = dict(model.named_modules())
        self._modules = {name: modules[name] for name in self._sites}
        self._own_rates = {name: getattr(modules[name], rate) for name, rate in self._sites.items()}

    @property
    def names(self) -> list[str]:
        """Return the names of the modules with dropout."""
        return list(self._own_rates)

    def set(self, rate: float | None, off: Iterable[str] = ()) -> None:
        """Set all modules to ``rate``, or to their original rates if None, and the modules in ``off`` to 0."""
        rates = {name: own if rate is None else rate for name, own in self._own_rates.items()}
        rates |= dict.fromkeys(off, 0.0)
        for name, module in self._modules.items():
            setattr(module, self._sites[name], rates[name])

    def state(self) -> dict[str, Any]:
        """Return the position of the random stream as plain values."""
        state = self.generator.bits.state
        words = [int(word) for word in state["state"]["state"]]
        return {**state, "state": {"state": words}}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a position returned by :meth:`state`."""
        words = np.array(state["state"]["state"], np.uint64)
        restored: Any = {**state, "state": {"state": words}}
        self.generator.bits.state = restored


class RandomStreams:
    """The random streams of dropout masks: :class:`FastDropout`'s, and torch's CPU and GPU streams."""

    def __init__(self, dropouts: Dropouts, device: torch.device) -> None:
        self._dropouts = dropouts
        self._gpu = device if device.type == "cuda" else None

    def position(self) -> tuple[Any, ...]:
        """Return the positions of all streams."""
        on_gpu = None if self._gpu is None else torch.cuda.get_rng_state(self._gpu)
        return self._dropouts.state(), torch.get_rng_state(), on_gpu

    def go_to(self, position: tuple[Any, ...]) -> None:
        """Restore positions returned by :meth:`position`."""
        of_dropouts, on_cpu, on_gpu = position
        self._dropouts.restore(of_dropouts)
        torch.set_rng_state(on_cpu)
        if on_gpu is not None and self._gpu is not None:
            torch.cuda.set_rng_state(on_gpu, self._gpu)
