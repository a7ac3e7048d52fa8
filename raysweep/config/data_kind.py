"""Checks that a sweep's settings are valid for its kind of data."""

from collections.abc import Iterator

from raysweep.config.losses import LOSSES, find_loss
from raysweep.config.sources import DataKind
from raysweep.config.space import Space, branches
from raysweep.config.sweep import ExamplesConfig, SweepConfig, goal_names
from raysweep.errors import InputError
from raysweep.metrics.scores import RELATION_GOALS, SCORES, WATCHED

_MINING = (
    *(
        "encoder",
        "neighbors",
        "concatenated",
        "min_similarity",
        "index",
        "anchors_per_class",
        "max_similarity",
    ),
    *("negatives", "negative_ranks", "relative_margin", "experts"),
)
"""Settings for mining examples from labeled sentences. Other kinds of data require the defaults."""


def of_kind(config: SweepConfig, space: Space, kind: DataKind) -> SweepConfig:
    """Check the sweep's settings against a kind of data, and fill in the default goals of this kind.

    Raises:
        InputError: If a setting is not allowed with this kind.
    """
    if kind == "labeled":
        _check_goals(config, kind)
        return config
    data = config.data
    unsuitable: list[tuple[str, str]] = []
    if data.dev is None:
        unsuitable.append(("data.dev is missing", "a source"))
    if data.on_bad_row != "error":
        unsuitable.append((f"data.on_bad_row is {data.on_bad_row}", "error"))
    if data.columns.groups and kind == "retrieval":
        problem = f"data.columns.groups is {data.columns.groups}"
        unsuitable.append((problem, "[], since each query is a group"))
    if data.positive_label is not None and kind != "pairs":
        unsuitable.append((f"data.positive_label is {data.positive_label}", "null"))
    for setting, allowed in (*unsuitable, *_find_unsuitable(config, space)):
        raise InputError(f"{setting}; allowed with data of the kind {kind}: {allowed}")
    objective = config.objective
    of_sentences = {"polarity": RELATION_GOALS.p, "similarity": RELATION_GOALS.s}
    goals = {
        name: goal for name, goal in of_sentences.items() if name not in objective.model_fields_set
    }
    updates = {
        "data": config.data.model_copy(update={"kind": kind}),
        "objective": objective.model_copy(update=goals),
    }
    config = config.model_copy(update=updates)
    _check_goals(config, kind)
    return config


def _check_goals(config: SweepConfig, kind: DataKind) -> None:
    for key in ("polarity", "similarity"):
        name = getattr(config.objective, key)
        is_of_relations = kind != "labeled"
        of_kind = [
            goal for goal in goal_names(key) if SCORES[goal].is_of_relations == is_of_relations
        ]
        allowed = list(dict.fromkeys([*of_kind, WATCHED]))
        if name not in allowed:
            raise InputError(
                f"objective.{key} is {name}; allowed with data of the kind {kind}: {', '.join(allowed)}"
            )


def _find_unsuitable(config: SweepConfig, space: Space) -> Iterator[tuple[str, str]]:
    """Yield settings that require labeled sentences, such as ``space.loss is softmax``, with the allowed values."""
    without_classes = [name for name, loss in LOSSES.items() if loss.examples != "labeled_sentence"]
    for loss in space.values("loss"):
        if find_loss(loss).examples == "labeled_sentence":
            yield f"space.loss is {loss}", ", ".join(without_classes)
    for branch in branches(space.parameters, ("negatives",)):
        negatives = find_loss(branch["loss"]).parameters.get("negatives")
        if negatives is not None and branch.get("negatives", negatives.default) == "other_class":
            yield f"space.negatives is other_class for the loss {branch['loss']}", "all"
    for name in _MINING:
        value = getattr(config.examples, name)
        default = ExamplesConfig.model_fields[name].get_default()
        if value != default:
            shown = (
                value if isinstance(value, str | int | float) else getattr(value, "name", "given")
            )
            yield f"examples.{name} is {shown}", "null" if default is None else f"{default}"
    for name in ("setfit", "published"):
        if getattr(config.baselines, name) is not None:
            yield f"baselines.{name} is given", "null"
