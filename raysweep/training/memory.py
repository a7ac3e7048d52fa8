"""How much memory a trial takes, measured by a step of it."""

from collections.abc import Iterable

import numpy as np
import torch

from raysweep.config.trial import TrialConfig
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench


def peak_bytes(bench: Workbench, trials: Iterable[TrialConfig]) -> int:
    """The most that one of these trials takes: a batch of the longest sentences forth and back, and a step.

    The bench stands on a GPU; it is what its allocator reserved at most.
    """
    device = bench.model.device
    lengths = bench.tokens.lengths(np.arange(len(bench.tokens)))
    longest = np.argsort(-lengths, kind="stable")
    torch.cuda.reset_peak_memory_stats(device)
    for config in trials:
        training = Training(config, bench, 0, 1)
        ids, targets = training.order.take(config.batch_size)
        # The longest distinct sentences there are: no batch of the trial holds more tokens.
        training.model.train()  # dropout takes memory too
        ids = np.resize(longest[: ids.size], ids.shape)
        training.batch_loss(ids, targets).backward()
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
    return int(torch.cuda.max_memory_reserved(device))
