"""Detection of settings that have no effect because of the sweep's other settings."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from raysweep.config.document import Document, KeyPath
from raysweep.config.losses import find_loss
from raysweep.config.space import Space, num_configurations
from raysweep.config.space_parser import has_teacher, possible_values
from raysweep.config.sweep import HALVING, ExamplesConfig, SweepConfig
from raysweep.config.trial import TrialConfig

_LIMITS = ("negatives", "negative_ranks", "max_similarity")  # for sentences of other classes
_TARGETS = ("same_class_cosine", "other_class_cosine")  # for scored pairs


class _Unused(NamedTuple):
    """A setting that has no effect, the setting that causes this, and the reason."""

    setting: KeyPath
    cause: KeyPath
    why: str


def warn_of_unused(document: Document, config: SweepConfig, space: Space) -> Iterator[str]:
    """Yield warnings about ineffective settings, oversized batches and spaces that are too small.

    Settings that are off or have their default values are ignored. A setting that an override makes ineffective is
    reported only if it is overridden too.
    """
    unused = [entry for entry in _find_unused(config, space) if _is_changed(config, entry.setting)]
    unused += _find_unused_in_space(space)
    for setting, cause, why in unused:
        is_replaced = document.is_overridden(cause) and not document.is_overridden(setting)
        if not is_replaced:
            yield str(document.error(setting, f"has no effect, since {why}"))
    largest_batch = max(space.values("batch_size"), default=0)
    largest_rung = max(possible_values(space, "examples_per_rung"))
    if largest_batch > largest_rung:
        problem = f"is {largest_batch}, more than examples_per_rung ({largest_rung}), so each rung is a single batch"
        yield str(document.error(("space", "batch_size"), problem))
    num_configs = num_configurations(space.parameters)
    num_trials = config.budget.trials
    if config.sampler != "grid" and num_configs < num_trials:
        noun = "configuration" if num_configs == 1 else "configurations"
        problem = (
            f"has {num_configs:g} {noun}, fewer than budget.trials ({num_trials}), so some are repeated, with the same "
            "scores; sampler: grid tries each once"
        )
        yield str(document.error(("space",), problem))


def _find_unused(config: SweepConfig, space: Space) -> Iterator[_Unused]:
    policy = config.early_stopping.policy
    cause = ("early_stopping", "policy")
    why = f"early_stopping.policy is {policy}"
    if policy not in HALVING:
        yield _Unused(("early_stopping", "reduction_factor"), cause, why)
    if policy not in (*HALVING, "median"):
        yield _Unused(("early_stopping", "first_examples"), cause, why)
    if config.budget.examples_per_trial is not None:
        total = ("budget", "examples_per_trial")
        yield _Unused(("budget", "rungs"), total, "budget.examples_per_trial is given")
    if config.data.dev is not None:
        for name in ("dev_fraction", "max_dev"):
            yield _Unused(("data", name), ("data", "dev"), "data.dev is given")
    if not any(find_loss(loss).has_head for loss in space.values("loss")):
        for kind in ("class_concat", "labeled"):
            yield _Unused(
                ("evaluation", "points", kind), ("space", "loss"), "no loss in the space is softmax"
            )
    if not has_teacher(space):
        yield _Unused(
            ("teacher",), ("space", "targets"), "no trial in the space has targets: teacher"
        )
    yield from _find_unused_points(space)
    yield from _find_unused_of_examples(config, space)


def _find_unused_points(space: Space) -> Iterator[_Unused]:
    """Yield the kinds of operating points that are unavailable with the space's towers."""
    towers = _possible_values(space, "tower")
    if "query" not in towers:
        yield _Unused(
            ("evaluation", "points", "query_concat"), ("space", "tower"), "no trial has tower query"
        )
    if towers == {"query"}:
        for kind in ("concat", "interpolate", "truncate"):
            yield _Unused(
                ("evaluation", "points", kind), ("space", "tower"), "every trial has tower query"
            )


def _find_unused_of_examples(config: SweepConfig, space: Space) -> Iterator[_Unused]:
    if config.examples.neighbors == "all":
        yield _Unused(("examples", "k"), ("examples", "neighbors"), "examples.neighbors is all")
    losses = space.values("loss")
    kinds = {find_loss(loss).examples for loss in losses}
    cause = ("space", "loss")
    for name in ExamplesConfig.model_fields:
        if kinds == {"labeled_sentence"}:
            verb = "do" if len(losses) > 1 else "does"
            yield _Unused(
                ("examples", name), cause, f"{', '.join(losses)} {verb} not mine examples"
            )
        elif name == "experts" and "cosine_similarity" not in losses:
            yield _Unused(("examples", name), cause, "no loss in the space is cosine_similarity")
        elif name in _TARGETS and "scored_pair" not in kinds:
            yield _Unused(("examples", name), cause, "no loss in the space trains on scored pairs")
        elif name == "relative_margin" and "triplet" not in kinds:
            yield _Unused(("examples", name), cause, "no loss in the space trains on triplets")
        elif name in _LIMITS and kinds <= {"positive_pair", "labeled_sentence"}:
            yield _Unused(
                ("examples", name), cause, "no loss in the space mines sentences of other classes"
            )


def _find_unused_in_space(space: Space) -> Iterator[_Unused]:
    """Yield the space's parameters that have no effect because of other parameters."""
    if None not in _possible_values(space, "warmup_steps"):
        yield from _find_unused_parameter(
            space, "warmup_fraction", "warmup_steps", "warmup_steps is given"
        )
    if _possible_values(space, "learning_rate_rule") == {"none"}:
        yield from _find_unused_parameter(
            space, "base_batch_size", "learning_rate_rule", "learning_rate_rule is none"
        )
    if _possible_values(space, "freezing") == {"none"}:
        yield from _find_unused_parameter(space, "frozen_dropout", "freezing", "freezing is none")
    if not has_teacher(space):
        for name in ("teacher_temperature", "teacher_weight"):
            if set(space.values(name)) - {1.0}:
                yield _Unused(
                    ("space", name),
                    ("space", "targets"),
                    "no trial in the space has targets: teacher",
                )


def _find_unused_parameter(space: Space, name: str, cause: str, why: str) -> Iterator[_Unused]:
    if _possible_values(space, name) != {_default(name)}:
        yield _Unused(("space", name), ("space", cause), why)


def _possible_values(space: Space, name: str) -> set[Any]:
    """Return a parameter's possible values, including its default if trials may omit it."""
    left_out = set() if name in space.parameters else {_default(name)}
    return left_out.union(space.values(name))


def _default(name: str) -> Any:
    return TrialConfig.model_fields[name].get_default()


def _is_changed(config: SweepConfig, path: KeyPath) -> bool:
    """Return whether the setting is on and differs from its default."""
    *sections, name = map(str, path)
    section: Any = config
    for key in sections:
        section = getattr(section, key)
    value = getattr(section, name)
    default = type(section).model_fields[name].get_default(call_default_factory=True)
    return bool(value) and value != default
