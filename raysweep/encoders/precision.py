"""Which arithmetic a trial trains in."""

import functools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


IN_NUMPY = {"HierarchicalTokenPooling"}  # modules that compute in NumPy, which has no bf16; exported points have one
MIN_BF16_GAIN = 1.25  # how many times faster a bf16 matrix product must be, for autocast's conversions to pay


def autocast(precision: str, device: str) -> "torch.autocast":
    """The context that a trial's forward passes run in: bf16 autocast, or one that does nothing."""
    import torch

    kind = device.split(":")[0]
    return torch.autocast(kind, torch.bfloat16, enabled=resolve(precision, kind) == "bf16")


def resolve(precision: str, device: str, model: "torch.nn.Module | None" = None) -> str:
    """``fp32`` or ``bf16``: what is asked for, and for ``auto`` what is faster on this device, if the model can be in it."""
    if precision != "auto":
        return precision
    if model is not None and IN_NUMPY.intersection(type(module).__name__ for module in model.modules()):
        return "fp32"
    gain = bf16_gain(device.split(":")[0])
    return "bf16" if gain >= MIN_BF16_GAIN else "fp32"


@functools.cache
def bf16_gain(device: str) -> float:
    """How many times faster a matrix product of an encoder's shape is in bf16 than in fp32, measured once a process.

    Only a CPU is measured; for a GPU the gain is 2 where it supports bf16 and 0 where it does not. A processor's flags do
    not tell the gain: with AVX512-BF16 alone some run bf16 at half the rate of fp32, and without it bf16 is emulated. The
    best of several alternate turns counts, in the thread's own time: by the clock, other load makes either look twice as
    fast.
    """
    import torch

    if device == "cuda":
        return 2.0 if torch.cuda.is_bf16_supported(including_emulation=False) else 0.0
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return 0.0
    pairs = [
        (torch.ones(512, 384, dtype=dtype), torch.ones(1536, 384, dtype=dtype))
        for dtype in (torch.float32, torch.bfloat16)
    ]
    best = [float("inf"), float("inf")]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(12):
            for i, (rows, weight) in enumerate(pairs):
                began = time.thread_time()
                torch.nn.functional.linear(rows, weight)
                best[i] = min(best[i], time.thread_time() - began)
    finally:
        torch.set_num_threads(threads)
    return best[0] / best[1]
