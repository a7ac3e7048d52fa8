"""How much memory a trial takes, measured by a step of it."""

import resource
from collections.abc import Iterable

import numpy as np
import torch

from raysweep.engine import Workbench
from raysweep.training import Training
from raysweep.trial import TrialConfig


def peak_bytes(bench: Workbench, trials: Iterable[TrialConfig]) -> int:
    """The most that one of these trials takes: a batch of the longest sentences forth and back, and a step.

    On a GPU what its allocator reserved at most; on a CPU the peak resident memory of this process, which holds all it
    ever did.
    """
    device = bench.model.device
    lengths = bench.tokens.lengths(np.arange(len(bench.tokens)))
    longest = np.argsort(-lengths, kind="stable")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for config in trials:
        training = Training(config, bench, 0, 1)
        ids, targets = training.order.take(config.batch_size)
        # The longest distinct sentences there are: no batch of the trial holds more tokens.
        ids = np.resize(longest[: ids.size], ids.shape)
        training.batch_loss(ids, targets).backward()
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
