"""Data frames with the points of several models, and names of configurations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raysweep.output import ABSENT
from raysweep.paper.layout import NoLayoutError
from raysweep.paper.model_scores import (
    NUM_EXAMPLES,
    Configuration,
    ModelScores,
    Scores,
    column_names,
)
from raysweep.report.tables import describe
from raysweep.results.types import ScoredSplit

if TYPE_CHECKING:
    import pandas as pd

_LOSS_PARAMETERS = ("loss", "margin", "scale")

_SCORES = ("polarity", "similarity", "polarity_std", "similarity_std")
# columns of an empty frame
_COLUMNS = (
    "model",
    "position",
    "loss",
    "margin",
    "others",
    "text",
    "split",
    "scores",
    *_SCORES,
)


@dataclass(frozen=True)
class Name:
    """The name of a configuration.

    ``margin`` includes the scale, such as ``scale 20``, if the loss's scales differ. ``others`` may be empty.
    """

    loss: str
    margin: str
    others: str = ""
    order: tuple[Any, ...] = ()  # sort key after the loss

    @property
    def text(self) -> str:
        """Return the name as text, without the loss."""
        margin = f"margin {self.margin}" if self.margin[0].isdigit() else self.margin
        parts = [part for part in (margin, self.others) if part not in ("", ABSENT)]
        return ", ".join(parts) or ABSENT


def name_configurations(models: Sequence[ModelScores]) -> list[Name]:
    """Return the names of all configurations, in order.

    Different configurations have different names, but their texts may be equal. ``others`` lists the parameters, except
    those of the loss, that vary or that only some configurations of a loss have.
    """
    import pandas as pd

    model_numbers = []
    configurations: list[Configuration] = []
    for number, model in enumerate(models):
        model_numbers += [number] * len(model.configurations)
        configurations += model.configurations
    frame = pd.DataFrame([configuration.values for configuration in configurations], dtype=object)
    losses = pd.Series([_loss(configuration.values) for configuration in configurations])
    varied = []
    for parameter in frame.columns.difference(_LOSS_PARAMETERS, sort=False):
        is_known = frame[parameter].notna()
        num_states = is_known.groupby([model_numbers, losses]).nunique()
        if _varies(frame[parameter]) or num_states.gt(1).any():
            varied.append(str(parameter))
    losses_with_scales = set()
    if "scale" in frame:
        losses_with_scales = {
            loss for loss, scales in frame["scale"].groupby(losses) if _varies(scales)
        }
    names = []
    for configuration, loss in zip(configurations, losses, strict=True):
        names.append(_name(configuration.values, varied, has_scale=loss in losses_with_scales))
    return names


def _loss(values: Mapping[str, Any]) -> str:
    return str(values.get("loss", ABSENT))


def _varies(column: "pd.Series[Any]") -> bool:
    return int(column.dropna().map(repr).nunique()) > 1


def _name(values: Mapping[str, Any], varied: Sequence[str], *, has_scale: bool) -> Name:
    margin = values.get("margin")
    scale = values.get("scale") if has_scale else None
    present = {name: values[name] for name in varied if name in values}
    others = describe(present, present) if present else ""
    sort_values = [margin, scale, *(values.get(name) for name in varied)]
    order = tuple(_rank(value) for value in sort_values)
    parts = []
    if margin is not None:
        parts.append(_format(margin))
    if scale is not None:
        parts.append(f"scale {_format(scale)}")
    margin_text = ", ".join(parts) or ABSENT
    return Name(_loss(values), margin_text, others, order)


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _rank(value: Any) -> tuple[int, float, str]:
    """Return a sort key that orders missing values first, then numbers, then text."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, str(value))


def configuration_points(models: Sequence[ModelScores]) -> "pd.DataFrame":
    """Return a frame with one row per configuration, rung and split.

    ``model`` is an ordered categorical of the layout's column names. ``position`` orders configurations by name.
    ``scores`` contains :class:`Scores` objects. The other score columns are x100.
    """
    names = name_configurations(models)
    ordered = sorted(set(names), key=lambda name: (name.loss, name.order))
    positions = {name: position for position, name in enumerate(ordered)}
    remaining = iter(names)
    rows = []
    for title, model in zip(column_names(models), models, strict=True):
        for configuration in model.configurations:
            name = next(remaining)
            cells = {
                "model": title,
                "position": positions[name],
                "loss": name.loss,
                "margin": name.margin,
                "others": name.others or ABSENT,
                "text": name.text,
                NUM_EXAMPLES: configuration.values.get(NUM_EXAMPLES),
            }
            for rung, by_split in configuration.rungs.items():
                place = {"rung": rung, "is_last": rung == configuration.last_rung}
                for split, scores in by_split.items():
                    rows.append({**cells, **place, "split": split, **_score_cells(scores)})
    return _as_frame(rows, models)


def baseline_points(models: Sequence[ModelScores]) -> "pd.DataFrame":
    """Return a frame like :func:`configuration_points` with one row per baseline and split.

    ``loss`` is the baseline's name.
    """
    names = list(dict.fromkeys(name for model in models for name in model.baselines))
    rows = []
    for title, model in zip(column_names(models), models, strict=True):
        for name, by_split in model.baselines.items():
            position = names.index(name) - len(names)  # sorts before the configurations
            cells = {
                "model": title,
                "position": position,
                "loss": name,
                "margin": ABSENT,
                "others": ABSENT,
                "text": ABSENT,
            }
            rows += [
                {**cells, "split": split, **_score_cells(scores)}
                for split, scores in by_split.items()
            ]
    return _as_frame(rows, models)


def _score_cells(scores: Scores) -> dict[str, Any]:
    cells: dict[str, Any] = {"scores": scores}
    for name in _SCORES:
        score = getattr(scores, name)
        cells[name] = float("nan") if score is None else 100 * score
    return cells


def _as_frame(rows: Sequence[Mapping[str, Any]], models: Sequence[ModelScores]) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(rows[0]) if rows else _COLUMNS)
    return frame.assign(model=pd.Categorical(frame["model"], column_names(models), ordered=True))


def choose_split(
    models: Sequence[ModelScores], points: "pd.DataFrame", wanted: ScoredSplit | None
) -> tuple[ScoredSplit, str]:
    """Return the split for a layout, and a sentence for the caption about the split and the retrieval settings.

    If ``wanted`` is None, the split is test if all points have test scores, else dev.

    Raises:
        NoLayoutError: If no point has scores on that split.
    """
    distinct_points = points.drop_duplicates(["model", "position", "rung"])
    num_points = len(distinct_points)
    num_scored_on = Counter(points["split"])
    split = wanted
    if split is None:
        has_test = num_scored_on["test"] == num_points
        split = "test" if has_test else "dev"
    num_scored = num_scored_on[split]
    if not num_scored:
        reasons = [
            f"; {model.why_no_test} in {model.origin}" for model in models if model.why_no_test
        ]
        why = "".join(reasons)
        raise NoLayoutError(f"no point has scores on {split}{why}")
    names_split = [model.names_split for model in models]
    split_texts = []
    if any(names_split):
        split_texts.append(f"on {split}")
    if not all(names_split):
        split_texts.append("as recorded")
    parts = [" or ".join(split_texts)]
    if num_scored < num_points:
        parts[0] += f" (available for {num_scored} of {num_points} points)"
    parts += _describe_retrieval(models)
    described = ", ".join(parts)
    return split, f"Scores {described}."


def _describe_retrieval(models: Sequence[ModelScores]) -> list[str]:
    """Describe the retrieval settings, with the models' names if they differ or some are unknown."""
    names: dict[str, list[str]] = {}  # keyed by retrieval settings
    for model in models:
        members = names.setdefault(model.retrieval, [])
        if model.model not in members:
            members.append(model.model)
    if len(names) == 1:
        return [retrieval for retrieval in names if retrieval]
    unknown = names.pop("", [])
    parts = []
    for retrieval, members in names.items():
        listed = ", ".join(members)
        parts.append(f"{retrieval} for {listed}")
    if unknown:
        parts.append(f"retrieval settings not recorded for {', '.join(unknown)}")
    return parts
