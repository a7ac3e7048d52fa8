"""Learning rate schedules: the factor on the learning rate at each optimizer step."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from raysweep.config.trial import TrialConfig

# Factors after warm-up, by progress: 0 right after warm-up, 1 at the end.
_BY_PROGRESS: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "constant": lambda progress: 1.0,
        "linear": lambda progress: 1.0 - progress,
        "quadratic": lambda progress: 1.0 - progress**2,
        "polynomial": lambda progress: (1.0 - progress) ** 2,
        "cosine": lambda progress: 0.5 * (1.0 + math.cos(math.pi * progress)),
    }
)


def multiplier(
    kind: str, step: int, num_steps: int, warmup_steps: int, *, rung: int = 0, decay: float | None = None
) -> float:
    """Return the factor in [0, 1] at optimizer step ``step`` of ``num_steps``, counted from 0.

    It rises linearly from 0 over ``warmup_steps`` (which may exceed ``num_steps``, so that the rate never reaches its
    full value), then follows the schedule. Values equal those of transformers' schedulers of the same names;
    ``constant`` is ``constant_with_warmup``, and ``polynomial`` has power 2 and ends at 0. ``quadratic`` is
    ``1 - progress ** 2`` (Vasilyev et al. 2024, Table 19). To restart a schedule, count steps from the restart.

    ``exponential`` is ``decay ** rung``, with rungs counted from 0, like torch's ``ExponentialLR`` stepped at the end
    of each epoch. Table 19 reads as if the exponent were the optimizer step; the rate would then vanish after some
    hundred steps, which contradicts the numbers of epochs in Table 17.
    """
    if step < warmup_steps:
        return step / warmup_steps
    if kind == "exponential":
        assert decay is not None
        return float(decay**rung)
    progress = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    return _BY_PROGRESS[kind](min(1.0, progress))


class LearningRates:
    """The learning rate of a trial at each optimizer step."""

    def __init__(self, config: TrialConfig, num_rungs: int) -> None:
        self._config = config
        examples_per_step = config.batch_size * config.accumulation_steps
        steps_per_rung = -(-config.examples_per_rung // examples_per_step)
        self._steps_per_rung = steps_per_rung
        self._num_steps = steps_per_rung
        if not config.restart_each_rung:
            self._num_steps *= num_rungs
        if config.warmup_steps is None:
            self._warmup_steps = round(config.warmup_fraction * self._num_steps)
        else:
            self._warmup_steps = config.warmup_steps

    def at(self, rung: int, step_in_rung: int) -> float:
        """Return the learning rate of a step; rungs and the steps of each rung are counted from 0."""
        config = self._config
        step = step_in_rung
        if not config.restart_each_rung:
            step += rung * self._steps_per_rung
        factor = multiplier(config.schedule, step, self._num_steps, self._warmup_steps, rung=rung, decay=config.decay)
        return config.peak_learning_rate * factor
