"""The precision of forward passes: fp32 or bf16."""

import functools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


# modules that use NumPy, which does not support bf16
IN_NUMPY = {"HierarchicalTokenPooling"}
MIN_BF16_GAIN = 1.25  # minimum speedup of matrix products for autocast to pay off


def autocast(precision: str, device: str) -> "torch.autocast":
    """Return the autocast context for forward passes, which is disabled for fp32."""
    import torch

    kind = device.split(":")[0]
    return torch.autocast(kind, torch.bfloat16, enabled=resolve(precision, kind) == "bf16")


def resolve(precision: str, device: str, model: "torch.nn.Module | None" = None) -> str:
    """Resolve ``auto`` to ``bf16`` if it is faster and the model supports it, otherwise to ``fp32``."""
    if precision != "auto":
        return precision
    if model is not None and IN_NUMPY.intersection(
        type(module).__name__ for module in model.modules()
    ):
        return "fp32"
    gain = bf16_gain(device.split(":")[0])
    return "bf16" if gain >= MIN_BF16_GAIN else "fp32"


@functools.cache
def bf16_gain(device: str) -> float:
    """Return the speedup of bf16 over fp32 for a matrix product, or 0 if the device does not support bf16.

    On CPUs, the speedup is measured because CPU flags do not predict it: some processors with AVX512-BF16 run bf16 at
    half the speed of fp32. Thread CPU time is used because other load on the machine distorts wall time. On GPUs with
    bf16 support, the result is 2.
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
