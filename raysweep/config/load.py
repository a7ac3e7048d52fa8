"""Loading and validation of sweep files and command-line overrides."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysweep.config import space_parser
from raysweep.config import sweep as sweep_file
from raysweep.config.data_kind import of_kind
from raysweep.config.document import CHOICES, Document, KeyPath, parse_value
from raysweep.config.guards import find_reserved_name
from raysweep.config.losses import LOSSES, SEQUENCE_LOSSES, find_loss
from raysweep.config.preset import ParameterError, preset_of
from raysweep.config.soft_targets import SOFT_TARGETS
from raysweep.config.space import Space, names_of
from raysweep.config.sweep import PointsConfig, Prompts, SweepConfig
from raysweep.config.trial import SEQUENCE_PARAMETERS
from raysweep.config.unused import warn_of_unused
from raysweep.errors import InputError, did_you_mean
from raysweep.metrics.scores import WATCHED
from raysweep.output import counted
from raysweep.storage.location import is_file

_SOURCES = ("data.train", "data.dev", "data.test")
_PROMPTS = (
    "model.prompt",
    "reference.prompt",
    "examples.encoder.prompt",
    "baselines.setfit.prompt",
)
_PROMPTS_OF_SIDES = tuple(f"{key}.{side}" for key in _PROMPTS for side in Prompts.model_fields)
_COLUMNS = (
    "data.text_column",
    "data.label_column",
    "data.columns.query",
    "data.columns.positives",
    "data.columns.negatives",
    "data.columns.score",
)
_NULLS = ("~", "null", "Null", "NULL")  # YAML's spellings of null

Override = tuple[str, str]
"""The dotted path of a key and its new YAML value."""


@dataclass(frozen=True, repr=False)
class LoadedSweep:
    """A sweep file with overrides applied.

    ``warnings`` lists settings that have no effect and entries of ``first`` that are repeated or left out.
    """

    document: Document
    config: SweepConfig
    space: Space
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        config = self.config
        trials = counted(config.budget.trials, "trial")
        return f"LoadedSweep({config.name!r}): {trials} ({config.sampler}), {self.document.source}"


def load(path: Path, overrides: Iterable[Override] = ()) -> LoadedSweep:
    """Read and check a sweep file.

    If an override changes the space, entries of ``first`` that are not in the new space are left out.

    Raises:
        InputError: If a value is invalid. The message names the file, line, key, value and allowed values.
    """
    document = Document.read(path)
    for key, value in overrides:
        document.override(key, _as_yaml(key, value), sweep_file.SHORT_FORMS)
    config = sweep_file.parse(document)
    _check_combinations(document, config)
    config = _with_points_of_goals(document, config)
    space = space_parser.parse(document, config)
    config = _adapt_to_sequence(document, config, space)
    if config.data.kind is not None:  # otherwise the kind is known only when the sources are opened
        config = of_kind(config, space, config.data.kind)
    _check_targets(document, config, space)
    first, warnings_of_first = _check_first(document, config, space)
    warnings = (*warn_of_unused(document, config, space), *warnings_of_first)
    config = config.model_copy(update={"first": first})
    return LoadedSweep(document, config, space, warnings)


def _as_yaml(key: str, text: str) -> str:
    """Return an override's value as YAML, adding quotes to sources, prompts and columns if needed.

    Unquoted text keeps its leading and trailing spaces. Quoted text, null, lists of sources, and prompts that are
    mappings with ``query`` and ``document`` are returned unchanged.
    """
    is_source = key in _SOURCES
    is_prompt = key in (*_PROMPTS, *_PROMPTS_OF_SIDES)
    is_column = key in _COLUMNS
    if not (is_source or is_prompt or is_column) or text.strip() in _NULLS:
        return text
    try:
        value = parse_value(text)
    except InputError:
        value = None
    start = text.lstrip()
    is_quoted = isinstance(value, str) and start.startswith(("'", '"'))
    is_flow = isinstance(value, list | dict) and start.startswith(("[", "{"))
    is_mapping = (
        key in _PROMPTS and isinstance(value, dict) and value.keys() <= Prompts.model_fields.keys()
    )
    if is_quoted or (is_flow and (is_source or is_mapping)):
        return text
    return json.dumps(text, ensure_ascii=False)


def _check_combinations(document: Document, config: SweepConfig) -> None:
    """Check settings that depend on other settings."""
    k = config.evaluation.k
    num_pool = config.evaluation.num_pool
    if num_pool is not None and k > num_pool:
        problem = f"is {k}; allowed: at most evaluation.num_pool ({num_pool})"
        raise document.error(("evaluation", "k"), problem)
    if problem := find_reserved_name(config.guards):
        raise document.error(("guards",), problem)
    for name, guard in config.guards.items():
        minimum = guard.at_least
        if guard.kind == "retrieval" and minimum is not None and minimum < 0:
            problem = f"is {minimum:g}; allowed: 0 to 1, since nDCG is never below 0"
            raise document.error(("guards", name, "at_least"), problem)


def _with_points_of_goals(document: Document, config: SweepConfig) -> SweepConfig:
    """Remove the kinds of points that lack the ``watched`` score if this score is a goal.

    Raises:
        InputError: If ``watched`` is a goal but is not measured at each rung, or if the file sets points that lack it.
    """
    objective = config.objective
    if WATCHED not in objective.goals:
        return config
    place = ("objective", "polarity" if objective.polarity == WATCHED else "similarity")
    if config.watch is None or config.watch.at != "rung":
        state = "is null" if config.watch is None else f"has at: {config.watch.at}"
        raise document.error(
            place, f"is watched, but watch {state}; allowed: watch with sources and at: rung"
        )
    given = document.values.get("evaluation") or {}
    given_points = given.get("points") or {}
    kinds = [name for name in PointsConfig.model_fields if name != "calibrate"]
    for kind in kinds:
        if given_points.get(kind):
            problem = f"is {given_points[kind]}; allowed if watched is a goal: [], since other points lack this score"
            raise document.error(("evaluation", "points", kind), problem)
    points = config.evaluation.points.model_copy(update={kind: [] for kind in kinds})
    evaluation = config.evaluation.model_copy(update={"points": points})
    return config.model_copy(update={"evaluation": evaluation})


def _adapt_to_sequence(document: Document, config: SweepConfig, space: Space) -> SweepConfig:
    """Set one rung per data set and disable early stopping if ``data.sequence`` is set.

    Raises:
        InputError: If a setting is not allowed with a sequence, or if a loss requires a sequence and there is none.
    """
    if not config.data.sequence:
        for loss in space.values("loss"):
            if loss in SEQUENCE_LOSSES:
                raise document.error(
                    ("space", "loss"), f"is {loss}; allowed without data.sequence: other losses"
                )
        return config
    for path, value, allowed in (
        *_find_unsuitable(config),
        *_find_unsuitable_training(config, space),
    ):
        raise document.error(path, f"is {value}; allowed with data.sequence: {allowed}")
    early_stopping = config.early_stopping.model_copy(update={"policy": "none"})
    budget = config.budget.model_copy(update={"rungs": len(config.data.sequence)})
    return config.model_copy(update={"early_stopping": early_stopping, "budget": budget})


def _find_unsuitable_training(
    config: SweepConfig, space: Space
) -> Iterator[tuple[KeyPath, object, str]]:
    """Yield rung settings, losses and parameters that are not allowed with a sequence."""
    policy = config.early_stopping.policy
    if policy != "none" and "policy" in config.early_stopping.model_fields_set:
        yield ("early_stopping", "policy"), policy, "none"
    num_tasks = len(config.data.sequence)
    rungs = config.budget.rungs
    if rungs != num_tasks and "rungs" in config.budget.model_fields_set:
        yield ("budget", "rungs"), rungs, f"{num_tasks}, one for each data set"
    if config.budget.examples_per_trial is not None:
        yield ("budget", "examples_per_trial"), config.budget.examples_per_trial, "null"
    for loss in space.values("loss"):
        if loss not in SEQUENCE_LOSSES:
            yield ("space", "loss"), loss, ", ".join(SEQUENCE_LOSSES)
        own = ("loss", *find_loss(loss).parameters, *SEQUENCE_PARAMETERS)
        for name in names_of(space.parameters):
            if name not in own:
                yield ("space", name), "given", f"only {', '.join(own)}"


def _find_unsuitable(config: SweepConfig) -> Iterator[tuple[KeyPath, object, str]]:
    """Yield settings that are not allowed with a sequence, with their current and allowed values."""
    if config.data.kind not in (None, "labeled"):
        yield ("data", "kind"), config.data.kind, "labeled"
    if config.resources.gpus_per_trial == "measured":
        yield ("resources", "gpus_per_trial"), "measured", "a number"
    if config.guards:
        yield ("guards",), ", ".join(config.guards), "{}"
    for path in (
        ("reference",),
        ("teacher",),
        ("watch",),
        ("baselines", "setfit"),
        ("baselines", "published"),
    ):
        value: Any = config
        for name in path:
            value = getattr(value, name)
        if value is not None:
            yield path, "given", "null"
    for name in ("interpolate", "truncate", "labeled"):
        values = getattr(config.evaluation.points, name)
        if values:
            yield ("evaluation", "points", name), values, "[]"


def _check_targets(document: Document, config: SweepConfig, space: Space) -> None:
    """Check that soft targets have experts and that margins are distilled from another encoder."""
    soft = [value for value in space.values("targets") if value in SOFT_TARGETS]
    if soft and not config.examples.experts:
        place = (
            ("targets",)
            if "targets" in config.space
            else ("loss", CHOICES, "cosine_similarity", "targets")
        )
        raise document.error(
            ("space", *place), f"is {soft[0]}; allowed without examples.experts: hard"
        )
    reference = config.reference_encoder
    is_model = all(
        getattr(reference, name) == getattr(config.model, name)
        for name in ("name", "revision", "prompt")
    )
    losses = space.values("loss") if is_model else []
    for loss in losses:
        if loss in LOSSES and LOSSES[loss].targets == "reference_margin":
            problem = f"is {reference.name!r}, the model itself; allowed with the loss {loss}: another encoder as teacher"
            raise document.error(("reference",), problem)


def _check_first(
    document: Document, config: SweepConfig, space: Space
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the configurations in ``first``, and warnings about those that are left out or repeated.

    Raises:
        InputError: If there are more configurations than trials, or if one is empty, invalid or a duplicate
            of a complete one.
    """
    num_trials = config.budget.trials
    if len(config.first) > num_trials:
        problem = f"is a list of {len(config.first)} configurations; allowed: at most budget.trials ({num_trials})"
        raise document.error(("first",), problem)
    may_be_outside = document.has_override("space") and not document.has_override("first")
    first: list[dict[str, Any]] = []
    complete: list[Mapping[str, Any]] = []
    warnings = []
    for index, values in enumerate(config.first):
        if not values:
            names = ", ".join(sorted(space.parameters))
            raise document.error(("first", index), f"is empty; allowed: one or more of {names}")
        try:
            preset = preset_of(space, values)
        except ParameterError as error:
            if not may_be_outside:
                raise document.error(("first", index, error.key), error.problem) from None
            warnings.append(
                f"first[{index}] is left out, because it is not in the overridden space: {error}"
            )
            continue
        if not preset.is_complete:
            if values in first:
                warnings.append(
                    f"first[{index}] repeats an earlier entry; the sampler completes each one separately"
                )
        elif preset.params in complete:
            raise document.error(
                ("first", index),
                "is a duplicate; it would have the same scores as the earlier entry",
            )
        else:
            complete.append(preset.params)
        first.append(values)
    return first, warnings


def find_space(name: str) -> Path:
    """Return the path of a sweep file, given its path or the name of a shipped space.

    Raises:
        InputError: If neither exists.
    """
    path = Path(name)
    if not path.name:
        raise InputError(f"SPACE is {name!r}; allowed: a YAML file or the name of a shipped space")
    if is_file(path) or path.parent != Path():
        return path
    package = Path(__file__).parents[1]
    # in an installed package or a checkout
    folders = (
        package / "search_spaces",
        package.parent / "search_spaces",
    )
    for folder in folders:
        shipped_file = folder / path.with_suffix(".yaml")
        if is_file(shipped_file):
            return shipped_file
        shipped = sorted(file.stem for file in folder.glob("*.yaml"))
        if shipped:
            hint = did_you_mean(path.stem, shipped)
            raise InputError(
                f"{name}: no such file or shipped space{hint}; shipped: {', '.join(shipped)}"
            )
    raise InputError(f"{name}: no such file")


def parse_overrides(arguments: Sequence[str]) -> list[Override]:
    """Parse command-line overrides of the form ``--KEY VALUE`` or ``--KEY=VALUE``."""
    overrides = []
    remaining = list(arguments)
    while remaining:
        flag = remaining.pop(0)
        if not flag.startswith("--"):
            raise InputError(
                f"unexpected argument {flag!r}; overrides are --KEY VALUE, where KEY is a dotted path"
            )
        key, equals, value = flag[2:].partition("=")
        if not equals:
            if not remaining:
                raise InputError(
                    f"{flag} has no value; overrides are --KEY VALUE, where KEY is a dotted path"
                )
            value = remaining.pop(0)
            if value.startswith("--"):  # an unset shell variable leaves no value
                raise InputError(
                    f"{flag} has no value before {value}; overrides are --KEY VALUE or --KEY=VALUE"
                )
        overrides.append((key, value))
    return overrides
