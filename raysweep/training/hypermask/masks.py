"""Masks computed from a hypernetwork's outputs."""

import math
from typing import Literal

from torch import Tensor

MaskKind = Literal["signed", "absolute"]


def threshold(values: Tensor, percent: float, kind: MaskKind = "absolute") -> Tensor:
    """Return the mask for one tensor, in which the values with the smallest magnitudes are set to 0.

    A value x with |x| > c stays x (``signed``) or becomes |x| (``absolute``); all others become 0. The cutoff c is the
    ``percent``-th percentile of |x| with linear interpolation, as in :func:`numpy.percentile`. At 0 percent, all
    values are kept; at 100, none are. Gradients flow only through values that are kept.

    The paper describes the percentage p both as the share of zeros and as the share of kept weights. Like this function,
    its code sets p percent to 0, but it always takes absolute values and keeps values equal to c.

    Args:
        values: The hypernetwork's outputs for one tensor of the target network, of any shape.
        percent: The percentage of zeros, from 0 to 100.
        kind: Whether the mask keeps signs.
    """
    magnitudes = values.abs()
    mask = magnitudes if kind == "absolute" else values
    if percent == 0:
        return mask
    highest_rank = values.numel() - 1
    # values above this rank exceed the interpolated percentile
    rank = math.floor(percent * highest_rank / 100)
    cutoff = magnitudes.detach().flatten().kthvalue(rank + 1).values
    return mask * (magnitudes > cutoff)


def ramped_percent(percent: float, task: int, iteration: int, num_iterations: int) -> float:
    """Return the percentage of zeros, which rises linearly during task 0; iterations are counted from 1."""
    if task > 0:
        return percent
    return iteration / num_iterations * percent
