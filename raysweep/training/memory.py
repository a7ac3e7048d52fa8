"""How much GPU memory a trial takes, measured by one of its steps."""

from collections.abc import Iterable

import numpy as np
import torch

from raysweep.config.trial import TrialConfig
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench


def peak_bytes(bench: Workbench, trials: Iterable[TrialConfig]) -> int:
    """The most memory that one of these trials takes, as reserved by the GPU's allocator.

    Each trial takes one optimizer step on a batch of the longest sentences. The bench is on a GPU.
    """
    device = bench.model.device
    lengths = bench.tokens.lengths(np.arange(len(bench.tokens)))
    longest_first = np.argsort(-lengths, kind="stable")
    torch.cuda.reset_peak_memory_stats(device)
    for config in trials:
        training = Training(config, bench, seed=0, num_rungs=1)
        training.model.train()  # dropout takes memory too
        ids, targets = training.order.take(config.batch_size)
        # The longest distinct sentences there are: no batch of the trial holds more tokens.
        longest_ids = np.resize(longest_first[: ids.size], ids.shape)
        training.batch_loss(longest_ids, targets).backward()
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=True)
    return int(torch.cuda.max_memory_reserved(device))
