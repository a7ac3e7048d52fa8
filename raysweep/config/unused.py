"""Settings that a sweep gives and that change nothing beside its others: where each stands, and why."""

from collections.abc import Iterator
from typing import Any

from raysweep.config.document import Document, KeyPath
from raysweep.config.space import Space
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import has_classes

HALVING = ("pareto", "asha")


def unused(document: Document, config: SweepConfig, space: Space) -> Iterator[str]:
    """What somebody may take to have an effect. Settings at their defaults, or off, do not count."""
    for path, why in _without_effect(config, space):
        if _is_changed(config, path):
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


def _is_changed(config: SweepConfig, path: KeyPath) -> bool:
    """Whether the setting is on, and not as it is by default."""
    *sections, name = map(str, path)
    section: Any = config
    for key in sections:
        section = getattr(section, key)
    value = getattr(section, name)
    return bool(value) and value != type(section).model_fields[name].get_default()
