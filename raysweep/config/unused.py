"""Settings that a sweep gives and that change nothing beside its others: where each stands, and why."""

from collections.abc import Iterator
from typing import Any

from raysweep.config.document import Document, KeyPath
from raysweep.config.space import Space
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import has_classes

HALVING = ("pareto", "asha")


def unused(document: Document, config: SweepConfig, space: Space) -> Iterator[str]:
    """What somebody may take to have an effect. Settings that are left to their defaults, or off, do not count."""
    for path, why in _without_effect(config, space):
        if _given(document.values, path):
            yield str(document.error(path, f"has no effect, since {why}"))


def _without_effect(config: SweepConfig, space: Space) -> Iterator[tuple[KeyPath, str]]:
    policy = config.early_stopping.policy
    if policy not in HALVING:
        yield ("early_stopping", "reduction_factor"), f"the policy is {policy}"
    if policy not in (*HALVING, "median"):
        yield ("early_stopping", "first_examples"), f"the policy is {policy}"
    if config.budget.examples_per_trial is not None:
        yield ("budget", "rungs"), "budget.examples_per_trial is given"
    if config.data.dev is not None:
        yield ("data", "dev_fraction"), "data.dev is given"
        yield ("data", "max_dev"), "data.dev is given"
    if not any(map(has_classes, space.values("loss"))):
        for kind in ("class_concat", "labelled"):
            yield ("evaluation", "points", kind), "no loss of the space is softmax"


def _given(values: Any, path: KeyPath) -> bool:
    """Whether the file or an override has something at this path."""
    for key in path:
        if not isinstance(values, dict) or not values.get(key):
            return False
        values = values[key]
    return True
