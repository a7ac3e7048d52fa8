"""The GPU memory that a trial needs, measured on one of its steps."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from raysweep.config.trial import TrialConfig
from raysweep.training.trainer import Training
from raysweep.training.workbench import Workbench


def peak_bytes(bench: Workbench, trials: Iterable[TrialConfig]) -> int:
    """Return the maximum memory that the GPU's allocator reserves for any of these trials.

    Each trial takes one optimizer step on a batch of the longest sentences. The bench must be on a GPU.
    """
    device = bench.model.device
    every_sentence = np.arange(len(bench.tokens))
    lengths = bench.tokens.lengths(every_sentence)
    longest_first = np.argsort(-lengths, kind="stable")
    torch.cuda.reset_peak_memory_stats(device)
    for config in trials:
        training = Training(config, bench, seed=0, num_rungs=1)
        _take_largest_step(training, longest_first)
    return int(torch.cuda.max_memory_reserved(device))


def _take_largest_step(training: Training, longest_first: npt.NDArray[np.integer]) -> None:
    """Take one optimizer step on the longest distinct sentences: no batch of the trial holds more tokens."""
    training.model.train()  # dropout takes memory too
    ids, targets = training.order.take(training.config.batch_size)
    longest_ids = np.resize(longest_first[: ids.size], ids.shape)
    loss = training.batch_loss(longest_ids, targets)
    loss.backward()
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)
