"""The typed, frozen form of a sweep's YAML file."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from raysweep.config.document import Document, KeyPath
from raysweep.config.guards import Guards
from raysweep.config.sides import Side
from raysweep.config.sources import ColumnsConfig, DataKind, Sources, TaskConfig, ThresholdsConfig
from raysweep.config.strict import StrictModel, explain
from raysweep.config.trackers import Trackers, TrackersConfig
from raysweep.config.watch import Watch
from raysweep.metrics.scores import SCORES, Goals
from raysweep.storage import location


def absolute_model(name: str) -> str:
    if not name:
        raise ValueError("is empty; allowed: demo, a folder, a URI, or a name on the hub")
    location.reject_null(name)
    if location.is_uri(name):
        return location.absolute(name)
    folder = location.expand_home(name)
    return str(folder.absolute()) if name != "demo" and location.is_folder(folder) else name


_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _folder_name(name: str) -> str:
    if re.fullmatch(_NAME, name) is None:
        raise ValueError(
            f"is {name!r}; allowed: letters, digits, '.', '_' and '-', with a letter or a digit first"
        )
    if name == "artifacts":
        raise ValueError(
            "is 'artifacts', which is reserved for the artifacts folder next to the runs; required: another name"
        )
    return name


Location = Annotated[str, AfterValidator(location.absolute)]


def _join_sources(tasks: Any, split: str) -> list[str]:
    """Return the combined sources of a split, or an empty list if any data set lacks the split."""
    joined: list[str] = []
    for task in tasks if isinstance(tasks, list) else []:
        sources = task.get(split) if isinstance(task, dict) else getattr(task, split, None)
        names = [sources] if isinstance(sources, str) else sources
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return []  # invalid sources are reported by the data set's own validation
        joined += names
    return list(dict.fromkeys(joined))


def has_test(task: TaskConfig) -> bool:
    """Return whether a data set has a test split; the demo always has one."""
    return bool(task.test) or task.train == "demo"


def _require_train_or_sequence(schema: dict[str, Any]) -> None:
    schema["if"] = {"not": {"required": ["sequence"]}}
    schema["then"] = {"required": schema.pop("required")}


class DataConfig(StrictModel):
    """Sources of labeled sentences, retrieval data or pairs.

    A source is `demo`, `hub:NAME[:SPLIT]`, the path or URI of a file, folder or glob, or a list of these.
    """

    train: Sources = Field(description="training sentences; also the pool that retrieval searches")
    dev: Sources | None = Field(
        None,
        description="sentences used for selection in the search; split off from train if not given",
    )
    test: Sources | None = Field(None, description="sentences scored once, for the report")
    kind: DataKind | None = Field(
        None,
        description="labeled: a sentence with a label per row; retrieval: a query with positive and negative texts; "
        "pairs: two sentences with a label; scored_pairs: two sentences with a score. If not given, inferred from the "
        "columns of train's first file; labeled for datasets on the hub",
    )
    columns: ColumnsConfig = Field(
        ColumnsConfig(), description="columns of retrieval data and pairs"
    )
    positive_label: str | None = Field(
        None,
        description="label of positive pairs; 1, true or entailment if not given; all other labels are negative",
    )
    thresholds: ThresholdsConfig = Field(
        ThresholdsConfig(), description="score thresholds of positive and negative pairs"
    )
    subset: str | None = Field(None, description="configuration name of a hub dataset")
    text_column: str = Field("text", description="column with the sentences")
    label_column: str = Field(
        "label",
        description="column with the labels: strings, numbers or booleans, any number of classes",
    )
    labels: Literal["classes", "as_is"] = Field(
        "classes",
        description="classes: reject labels that seem to be scores (more than 20 different numbers) or combinations of "
        "other labels, such as 'pos,funny'; as_is: use every label as a class",
    )
    on_bad_row: Literal["error", "drop"] = Field(
        "error",
        description="error: reject files of labeled sentences if any row lacks a text or a label, and report the number of "
        "these rows; drop: leave them out",
    )
    dev_fraction: float = Field(
        0.1, gt=0, lt=1, description="share of train to split off as dev if dev is not given"
    )
    max_dev: int = Field(
        1000, ge=1, description="maximum number of sentences split off as dev if dev is not given"
    )

    sequence: list[TaskConfig] = Field(
        [],
        description="labeled data sets that trials with the hypermask loss learn one after another, in place of train, "
        "dev and test",
    )

    model_config = ConfigDict(json_schema_extra=_require_train_or_sequence)

    @model_validator(mode="before")
    @classmethod
    def _collect_sources(cls, values: Any) -> Any:
        """Set train, dev and test to the combined sources of the sequence's data sets."""
        if not isinstance(values, dict) or not values.get("sequence"):
            return values
        sources_by_split = {}
        for split in ("train", "dev", "test"):
            sources = _join_sources(values["sequence"], split)
            if sources:
                sources_by_split[split] = sources
            value = values.get(split)
            if value is not None and value != sources:
                raise ValueError(
                    f"{split} is {value!r}; allowed with sequence: none, since each data set has its own"
                )
        return {"train": "demo", **values, **sources_by_split}

    @model_validator(mode="after")
    def _check_sequence(self) -> "DataConfig":
        names = [task.name for task in self.sequence]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"sequence contains the name {name!r} more than once; required: different names"
                )
        num_tests = sum(has_test(task) for task in self.sequence)
        if 0 < num_tests < len(names):
            untested = next(task.name for task in self.sequence if not has_test(task))
            raise ValueError(
                f"test is missing for {untested}; allowed in sequence: test for all data sets or for none"
            )
        return self

    @property
    def tasks(self) -> "dict[str, DataConfig]":
        """Return a separate data configuration for each data set in the sequence, keyed by name."""
        shared = ("text_column", "label_column")
        tasks = {}
        for task in self.sequence:
            own = task.model_dump(include={"train", "dev", "test", "subset"})
            own |= {name: getattr(task, name) for name in shared if getattr(task, name) is not None}
            tasks[task.name] = self.model_copy(update={**own, "sequence": [], "kind": "labeled"})
        return tasks

    @property
    def is_related(self) -> bool:
        """Return whether the data is known to be retrieval data or pairs."""
        return self.kind not in (None, "labeled")


class Prompts(StrictModel):
    """Prompts for queries and documents. An omitted prompt defaults to the model's own."""

    query: str | None = Field(
        None,
        description="text added before every query and every example's anchor; the model's own query prompt if not "
        "given",
    )
    document: str | None = Field(
        None,
        description="text added before every other sentence; the model's own document prompt if not given",
    )

    def of(self, side: Side) -> str | None:
        """Return the prompt for a side."""
        return self.query if side == "query" else self.document


def _text_or_prompts(value: Any) -> Any:
    """Check the type before pydantic does, since pydantic would report one error per allowed type."""
    prompts = value if isinstance(value, dict) else {"document": value}
    is_known = prompts.keys() <= Prompts.model_fields.keys()
    if isinstance(value, Prompts) or (
        is_known and all(isinstance(prompt, str | None) for prompt in prompts.values())
    ):
        return value
    raise ValueError(
        f"is {value!r}; allowed: a string, or a mapping of query and document to strings"
    )


class EncoderConfig(StrictModel):
    """A sentence-transformers model: `demo`, a folder, a URI of a folder in a bucket, or a name on the hub."""

    name: Annotated[str, AfterValidator(absolute_model)] = Field(
        description="demo, a folder, a URI such as s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, or a name on the hub, "
        "such as sentence-transformers/all-MiniLM-L6-v2"
    )
    revision: str | None = Field(
        None, description="branch, tag or commit on the hub; its default branch if not given"
    )
    prompt: Annotated[str | Prompts | None, BeforeValidator(_text_or_prompts)] = Field(
        None,
        description="text added before every sentence, such as 'query: ' for e5, or '' for none; or a mapping with "
        "one text for queries and one for documents; the model's default prompt if not given",
    )
    max_tokens: int | None = Field(
        None,
        ge=2,
        description="number of tokens to which longer sentences are truncated; the model's own limit if not given",
    )
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="precision in which prepare computes embeddings with this encoder"
    )
    weights: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="bf16: round the transformer's linear-layer matrices and word embeddings to bf16, and store those "
        "that are not trained in half the memory",
    )

    def prompt_on(self, side: Side) -> str | None:
        """Return the configured prompt for a side, or None for the model's own."""
        return self.prompt.of(side) if isinstance(self.prompt, Prompts) else self.prompt


Encoder = Annotated[
    EncoderConfig,
    BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value),
]

_ENCODERS: list[KeyPath] = [
    ("model",),
    ("reference",),
    ("examples", "encoder"),
    ("baselines", "setfit"),
]

SHORT_FORMS: Mapping[KeyPath, str] = MappingProxyType(
    {**dict.fromkeys(_ENCODERS, "name"), ("teacher",): "run", ("watch",): "sources"}
)
"""Maps each key that also accepts a plain value to the field that the plain value sets."""


def _reject_repeated(encoders: list[EncoderConfig]) -> list[EncoderConfig]:
    for encoder in encoders:
        if encoders.count(encoder) > 1:
            raise ValueError(
                f"contains {encoder.name!r} more than once; required: different encoders"
            )
    return encoders


def _ranks(ranks: list[int] | None) -> list[int] | None:
    if ranks is not None and not (len(ranks) == 2 and 1 <= ranks[0] <= ranks[1]):
        raise ValueError(f"is {ranks}; allowed: the first and last rank, with 1 <= first <= last")
    return ranks


class ExamplesConfig(StrictModel):
    """Mining of training examples from neighbors under an encoder."""

    encoder: Encoder | None = Field(
        None, description="encoder whose nearest neighbors are mined; the reference if not given"
    )
    neighbors: Literal["per_class", "pooled", "random", "all"] = Field(
        "per_class",
        description="per_class: the k nearest sentences of the same class and the k nearest of other classes; pooled: "
        "the k nearest of all classes, split by label; random: k random sentences of the same class and k of other "
        "classes; all: every sentence of the same class, including the sentence itself, and the same number of random "
        "sentences of other classes, for data with many small classes",
    )
    concatenated: bool = Field(
        False,
        description="with neighbors: all, also concatenate the two sentences of each pair and pair the result with each "
        "of them",
    )
    k: int = Field(16, ge=1, le=1024, description="neighbors per sentence")
    min_similarity: float | None = Field(
        None, ge=-1, lt=1, description="minimum cosine of a neighbor; no limit if not given"
    )
    index: Literal["exact", "inverted_file"] = Field(
        "exact",
        description="exact: compare each sentence with every other; inverted_file: only with those in the nearest "
        "cells, for many millions of sentences; prepare measures and reports the recall",
    )
    anchors_per_class: int | None = Field(
        None,
        ge=1,
        description="number of random sentences per class to use as anchors and, with neighbors: random or all, also "
        "as the other sentences; all sentences if not given",
    )
    target: int = Field(
        250_000,
        ge=1,
        description="maximum number of examples to sample for each kind that the space's losses need",
    )
    negatives: Literal["neighbors", "random"] = Field(
        "neighbors",
        description="source of the sentences of other classes. neighbors: as set by `neighbors`; random: k random ones "
        "for each anchor; the sentences of the anchor's own class are still the nearest ones",
    )
    negative_ranks: Annotated[list[int] | None, AfterValidator(_ranks)] = Field(
        None,
        description="first and last rank, by closeness, of negatives among the sentences of other classes, such as "
        "[1, 1] for only the nearest, or [5, 20]; all k if not given",
    )
    max_similarity: float | None = Field(
        None,
        gt=-1,
        le=1,
        description="maximum cosine between an anchor and a sentence of another class; no limit if not given",
    )
    relative_margin: float | None = Field(
        None,
        ge=0,
        le=1,
        description="minimum gap between a triplet's anchor-positive and anchor-negative cosines, as a share of the "
        "former; no minimum if not given",
    )
    combinations: Literal["all", "first"] = Field(
        "all",
        description="for retrieval data or pairs. all: build examples from all positives and negatives of a query or "
        "group; first: only from its first positive and first negative",
    )
    same_class_cosine: float = Field(
        1.0, ge=-1, le=1, description="target cosine of scored pairs of the same class"
    )
    other_class_cosine: float = Field(
        0.0, ge=-1, le=1, description="target cosine of scored pairs of different classes"
    )
    experts: Annotated[list[Encoder], AfterValidator(_reject_repeated)] = Field(
        [],
        description="frozen encoders whose cosines for scored pairs determine the soft targets of the "
        "cosine_similarity loss",
    )

    @property
    def are_nearest(self) -> bool:
        """Return whether neighbors are the nearest ones under an encoder."""
        return self.neighbors in ("per_class", "pooled")

    @model_validator(mode="after")
    def _check_neighbors(self) -> "ExamplesConfig":
        if self.concatenated and self.neighbors != "all":
            raise ValueError(
                f"concatenated is true; allowed with neighbors: {self.neighbors}: false"
            )
        if self.are_nearest:
            return self
        for name in ("min_similarity", "max_similarity", "relative_margin"):
            value = getattr(self, name)
            if value is not None:
                raise ValueError(
                    f"{name} is {value:g}; allowed with neighbors: {self.neighbors}: null"
                )
        if self.index != "exact":
            raise ValueError(
                f"index is {self.index}; allowed with neighbors: {self.neighbors}: exact"
            )
        return self

    @model_validator(mode="after")
    def _check_negatives(self) -> "ExamplesConfig":
        is_random = self.negatives == "random"
        if is_random and not self.are_nearest:
            raise ValueError(
                f"negatives is random; allowed with neighbors: {self.neighbors}: neighbors"
            )
        if is_random:
            for name in ("max_similarity", "relative_margin"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is {getattr(self, name):g}; allowed with negatives: random: null"
                    )
        ranks = self.negative_ranks
        if ranks is None:
            return self
        if is_random or self.neighbors != "per_class":
            cause = "negatives: random" if is_random else f"neighbors: {self.neighbors}"
            raise ValueError(f"negative_ranks is {ranks}; allowed with {cause}: null")
        if ranks[1] > self.k:
            raise ValueError(f"negative_ranks is {ranks}; allowed: ranks up to k ({self.k})")
        return self

    @model_validator(mode="after")
    def _check_similarities(self) -> "ExamplesConfig":
        lowest, highest = self.min_similarity, self.max_similarity
        if lowest is not None and highest is not None and lowest > highest:
            raise ValueError(
                f"min_similarity is {lowest:g}; allowed: at most max_similarity ({highest:g})"
            )
        return self


class TeacherConfig(StrictModel):
    """A run whose class probabilities are the targets in trials with `targets: teacher`."""

    run: Location = Field(description="folder or URI of a run with the softmax loss")
    trial: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="number of a trial in that run; the one with the lowest cross-entropy on dev if not given",
    )


Teacher = Annotated[
    TeacherConfig,
    BeforeValidator(lambda value: {"run": value} if isinstance(value, str) else value),
]

Grid = list[Annotated[float, Field(gt=0, le=100)]]


class PointsConfig(StrictModel):
    """Operating points that a rung reports in addition to the tuned encoder itself, as a list of values per kind."""

    concat: Grid = Field(
        [0.1, 0.3, 1.0, 3.0],
        description="weights of the tuned encoder's cosine when added to the reference's cosine",
    )
    class_concat: Grid = Field(
        [0.1, 0.3, 1.0],
        description="weights of the inner product of class probabilities when added to the reference's cosine; only "
        "trials with the softmax loss have these points",
    )
    query_concat: Grid = Field(
        [0.1, 0.3, 1.0, 3.0],
        description="weights of the cosine between the tuned query and the reference's document when added to the "
        "reference's cosine; trials with tower query have only these points and the tuned encoder itself",
    )
    interpolate: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [],
        description="positions between the base model's weights (0) and the tuned weights (1); each requires another "
        "evaluation",
    )
    truncate: list[Annotated[int, Field(ge=1)]] = Field(
        [],
        description="widths, below the full width, to which the tuned encoder's embeddings are truncated; the "
        "parameter matryoshka trains encoders for this use",
    )
    labeled: Grid = Field(
        [],
        description="for pools with known labels: weights of the probability that the query has a sentence's label "
        "when added to the reference's cosine; only trials with the softmax loss have these points, which are never on "
        "the front",
    )
    calibrate: bool = Field(
        True,
        description="divide the logits of softmax heads by the temperature that minimizes log loss on dev; "
        "class_concat works best with calibrated class probabilities",
    )

    @field_validator("truncate")
    @classmethod
    def _check_truncate(cls, widths: list[int]) -> list[int]:
        if len(set(widths)) < len(widths):
            raise ValueError(f"is {widths}; required: different widths")
        return widths


class EvaluationConfig(StrictModel):
    """Computation of the scores P and S."""

    k: int = Field(16, ge=1, description="retrieved sentences per query")
    rank_weights: Literal["uniform", "linear"] = Field(
        "uniform", description="weights of the k ranks: uniform, or decreasing linearly with rank"
    )
    num_pool: int | None = Field(
        None,
        ge=1,
        description="number of training sentences in the retrieval pool; min(train, 5 * queries) if not given",
    )
    pool_seed: int = Field(42, ge=0, lt=2**32, description="seed for sampling the pool from train")
    points: PointsConfig = Field(
        PointsConfig(),
        description="operating points that each rung reports in addition to the tuned encoder itself",
    )


class BaselinesConfig(StrictModel):
    """Baselines shown next to the front in the report. They affect neither the search nor the front."""

    probe: Grid = Field(
        [0.05, 0.1, 0.3, 1.0, 3.0],
        description="weights g of the reference encoder's class_concat(g) points, with class probabilities from a "
        "logistic regression on its embeddings; none if empty",
    )
    setfit: Encoder | None = Field(
        None,
        description="model saved by the setfit package, whose body is scored as an encoder: a folder, a name on the "
        "hub, or a mapping",
    )
    published: Literal["sst2"] | None = Field(
        None,
        description="table of published scores, shown for the split on which they were measured; none if not given",
    )


class ReportConfig(StrictModel):
    """Data that the report may show."""

    texts: bool = Field(
        True,
        description="store texts for the report: some queries and the sentences retrieved for them",
    )


SAMPLERS = ("mfgp", "tpe", "gp", "nsga2", "random", "grid")


Aim = Literal["front", "area", "combined", "parego", "both"]


class ConstraintsConfig(StrictModel):
    """Minimum scores of an operating point, in [0, 1]. Points below any minimum are ranked after all others."""

    polarity: float = Field(0.0, ge=0, le=1, description="minimum P, 0 for no limit")
    similarity: float = Field(0.0, ge=0, le=1, description="minimum S, 0 for no limit")
    retention: float = Field(
        0.0,
        ge=0,
        le=1,
        description="minimum S relative to the reference encoder's S, 0 for no limit",
    )


def goal_names(key: str) -> list[str]:
    """Return the maximized scores allowed for an objective key. Only ``similarity`` may be a ratio."""
    goals = [name for name, spec in SCORES.items() if spec.is_maximized]
    return (
        goals
        if key == "similarity"
        else [name for name in goals if SCORES[name].relative_to is None]
    )


def _enum(key: str) -> dict[str, Any]:
    return {"enum": goal_names(key)}


class ObjectiveConfig(StrictModel):
    """Goals of a sweep. A trial's objective is the maximum of polarity_weight * P + (1 - polarity_weight) * S."""

    polarity_weight: float = Field(
        0.5,
        ge=0,
        le=1,
        description="weight of P in the weighted sum; the weight of S is 1 minus this",
    )
    polarity: str = Field(
        "polarity", description="score used as P", json_schema_extra=_enum("polarity")
    )
    similarity: str = Field(
        "similarity",
        validate_default=True,
        description="score used as S, such as similarity, or retention, which is similarity divided by the reference's",
        json_schema_extra=_enum("similarity"),
    )
    constraints: ConstraintsConfig = Field(
        ConstraintsConfig(), description="minimum scores of an operating point"
    )
    proposals: Aim = Field(
        "front",
        description="what the sampler maximizes. front: the hypervolume of all trials' joint front (same as area with "
        "samplers other than mfgp); area: the hypervolume of a trial's own points; combined: the weighted sum; parego: "
        "a Tchebycheff scalarization that varies from trial to trial; both: P and S as two objectives",
    )

    @property
    def goals(self) -> Goals:
        """Return the two scores that the front trades off."""
        return Goals.of(self.polarity, self.similarity)

    @field_validator("polarity", "similarity")
    @classmethod
    def _check_score(cls, score: str, info: ValidationInfo) -> str:
        allowed = goal_names(str(info.field_name))
        if info.field_name == "similarity":  # must differ from polarity, which is validated first
            polarity = info.data.get("polarity")
            allowed = [name for name in allowed if SCORES[name].goal != polarity]
        if score not in allowed:
            raise ValueError(f"is {score!r}; allowed: {', '.join(allowed)}")
        return score


Policy = Literal["growth", "pareto", "asha", "median", "none"]


class PlateauConfig(StrictModel):
    """A stopping rule: the sweep ends when the front's hypervolume stops growing."""

    trials: int = Field(
        ge=1,
        description="number of consecutive times that a trial pauses or ends without the minimum growth before the "
        "sweep ends; under the growth policy, trials pause often",
    )
    growth: float = Field(
        0.01,
        ge=0,
        description="minimum relative hypervolume growth that counts; 0.01 is one percent",
    )


HALVING = ("asha", "pareto")
"""The successive-halving policies."""


class EarlyStoppingConfig(StrictModel):
    """Early stopping of trials and of the sweep.

    Trials are compared at equal numbers of examples seen. The halving policies resume a paused trial if it later qualifies.
    """

    policy: Policy = Field(
        "growth",
        description="growth: the next rung goes to the trial with the highest expected gain; pareto: successive "
        "halving on the front; asha: successive halving on the objective; median: the median stopping rule on the "
        "objective; none: no early stopping",
    )
    first_examples: int = Field(
        2048, ge=1, description="examples seen before a trial may be stopped; not used by growth"
    )
    reduction_factor: int = Field(
        2,
        ge=2,
        description="one in this many trials continues at each milestone of pareto and asha",
    )
    plateau: PlateauConfig | None = Field(
        None,
        description="rule for ending the sweep when its front stops growing; off if not given",
    )


class BudgetConfig(StrictModel):
    """Limits of a sweep.

    When a limit is reached, running trials end at their next rung, or immediately if the limit is `minutes`.
    """

    trials: int = Field(20, ge=1, description="number of configurations to try")
    rungs: int = Field(
        6,
        ge=1,
        description="evaluations per trial; a trial sees rungs * examples_per_rung examples",
    )
    examples_per_trial: int | None = Field(
        None,
        ge=1,
        description="total examples per trial, in place of rungs; determined by rungs if not given",
    )
    minutes: float | None = Field(
        None,
        gt=0,
        description="wall-clock limit on the search, excluding preparation and scoring on test; no limit if not given",
    )
    cpu_hours: float | None = Field(
        None,
        gt=0,
        description="limit on the CPU time allocated to trials, in CPU hours; no limit if not given",
    )
    gpu_hours: float | None = Field(
        None,
        gt=0,
        description="limit on the GPU time allocated to trials, in GPU hours; no limit if not given",
    )
    money: float | None = Field(
        None,
        gt=0,
        description="limit on the cost of trials, in the currency of prices; no limit if not given",
    )
    prices: dict[str, Annotated[float, Field(ge=0)]] = Field(
        {},
        description="hourly price of a node, by node type in the cluster file; the key `default` applies to any other "
        "type",
    )

    @model_validator(mode="after")
    def _check_prices(self) -> "BudgetConfig":
        if self.money is not None and not self.prices:
            raise ValueError(
                f"money is {self.money:g}, which requires hourly prices, such as {{gpu_worker: 3.06, default: 0.1}}"
            )
        return self

    def price_per_hour(self, node_type: str) -> float | None:
        """Return the hourly price of a whole node, or None if its type has no price."""
        return self.prices.get(node_type, self.prices.get("default"))

    def rungs_of(self, examples_per_rung: int) -> int:
        """Return the number of rungs for a trial with this number of examples per rung."""
        return (
            self.rungs
            if self.examples_per_trial is None
            else self.examples_per_trial // examples_per_rung
        )


class ReplicatesConfig(StrictModel):
    """Replicates: after the search, configurations near the front are rerun with other seeds to average their scores."""

    trials: int = Field(
        0,
        ge=0,
        description="maximum number of replicates, in addition to budget.trials; 0 for none",
    )
    runs: int = Field(
        3, ge=2, description="maximum number of runs per configuration, including the first"
    )


class ResourcesConfig(StrictModel):
    """A sweep's resources. Omitted values are derived from the available cluster."""

    address: str | None = Field(
        None, description="Ray cluster to join; a local one is started if not given"
    )
    num_cpus: int | None = Field(
        None, ge=1, description="CPUs of the local cluster; all CPUs of this machine if not given"
    )
    cpus_per_trial: float | None = Field(
        None, gt=0, description="CPUs allocated to a trial; derived from the cluster if not given"
    )
    gpus_per_trial: Annotated[float, Field(ge=0, le=1)] | Literal["measured"] | None = Field(
        None,
        description="share of a GPU allocated to a trial. below 1: several trials share a GPU; measured: as many as fit "
        "in its memory, at most one per CPU; one GPU if not given and the cluster has any",
    )
    max_concurrent_trials: int | None = Field(
        None,
        ge=1,
        description="maximum number of concurrent trials; as many as fit on the cluster if not given",
    )
    max_prepare_workers: int | None = Field(
        None,
        ge=1,
        description="maximum number of concurrent prepare workers; as many as fit on the cluster if not given",
    )
    stall_seconds: float = Field(
        300, gt=0, description="abort prepare after this many seconds without progress"
    )
    cache_gib: float = Field(
        2,
        ge=0,
        description="memory in GiB per running trial for caching the outputs of the encoder's frozen part",
    )
    recompute_activations: bool = Field(
        False,
        description="recompute the encoder's activations for the gradients instead of keeping them, which allows "
        "batches of any size with every loss; steps take about a third longer. Trials that run out of memory switch to "
        "this automatically",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="keep only the inputs of the encoder's blocks for the gradients and recompute one block at a time; "
        "steps take about a third longer. Can be combined with recompute_activations",
    )
    max_failures: int = Field(
        2,
        ge=0,
        description="maximum number of times in a row, with no rung in between, that a trial resumes from its "
        "checkpoint after its process dies; up to 20 lost nodes in a row do not count",
    )
    max_node_errors: int = Field(
        3,
        ge=1,
        description="number of consecutive trial errors on a node after which it is excluded; a trial that raises an "
        "error is retried once on another node",
    )
    max_failed_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="the search ends when more than this share of the trials, and at least 3, have failed, not "
        "counting diverged trials",
    )
    silent_seconds: float = Field(
        60,
        gt=0,
        description="a trial whose process is frozen, or whose training makes no progress, for this many seconds is "
        "killed and resumed from its checkpoint; loading may take ten times as long",
    )
    rung_minutes: float | None = Field(
        None,
        gt=0,
        description="a trial is also killed if a rung takes longer than this many minutes; if not given, ten times the "
        "slowest rung so far, but at least half an hour",
    )
    checkpoint_seconds: float = Field(
        300,
        gt=0,
        description="seconds between a trial's checkpoints; its state is also saved at each rung",
    )

    @property
    def requested_gpus(self) -> float | None:
        """Return the number of GPUs per trial before sharing is measured, or None to derive it from the cluster."""
        return 1.0 if self.gpus_per_trial == "measured" else self.gpus_per_trial

    @field_validator("gpus_per_trial", mode="before")
    @classmethod
    def _check_gpus(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value in (None, "measured") or (is_number and 0 <= value <= 1):
            return value
        raise ValueError(f"is {value}; allowed: 0 to 1, or measured; a trial uses at most one GPU")


class StorageConfig(StrictModel):
    """Storage for runs and artifacts: a folder shared by all nodes, or `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`."""

    runs: Location = Field(
        "raysweep-runs",
        validate_default=True,
        description="folder or URI that holds one folder per run",
    )
    artifacts: Location | None = Field(
        None,
        description="folder or URI for the artifacts that prepare builds; the artifacts subfolder of runs if not given",
    )
    max_gib: float = Field(
        20,
        gt=0,
        description="limit in GiB for the front's weights, paused trials' checkpoints and per-query scores; if it is "
        "exceeded, the worst paused trials end, and then the weights that the front needs least are removed. "
        "Checkpoints of running trials are not counted",
    )
    keep_checkpoints: bool = Field(
        True,
        description="keep the checkpoints of paused and interrupted trials when the sweep ends, so that these trials "
        "can be resumed; if false, these trials stop for good, unless Ctrl-C or an error ended the sweep",
    )

    @property
    def artifacts_key(self) -> str:
        """Return the key that sets the location of artifacts."""
        return "storage.artifacts" if self.artifacts else "storage.runs"

    @property
    def places(self) -> dict[str, str]:
        """Return the locations of runs and artifacts, keyed by setting."""
        return {"storage.runs": self.runs, self.artifacts_key: self.artifacts or self.runs}

    @property
    def artifacts_location(self) -> str:
        return self.artifacts or location.join(self.runs, "artifacts")


class SweepConfig(StrictModel):
    """A sweep, as described by one YAML file."""

    name: Annotated[str, AfterValidator(_folder_name)] = Field(
        "sweep",
        max_length=200,
        description="name of the run's folder",
        json_schema_extra={"pattern": _NAME},
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="seed from which every random draw of the sweep derives"
    )
    sampler: str = Field(
        "mfgp",
        description=f"sampler that proposes configurations: {', '.join(SAMPLERS)}, or an import path, package:Class",
    )
    data: DataConfig = Field(description="sources of labeled sentences, retrieval data or pairs")
    model: Encoder = Field(description="the encoder to tune: its name, or a mapping")
    reference: Encoder | None = Field(
        None, description="the frozen encoder that defines similarity; the model if not given"
    )
    teacher: Teacher | None = Field(
        None,
        description="run whose class probabilities for the training sentences are the targets of trials with targets: "
        "teacher; the run's folder, or a mapping",
    )
    examples: ExamplesConfig = Field(ExamplesConfig(), description="mining of training examples")
    evaluation: EvaluationConfig = Field(
        EvaluationConfig(), description="computation of the scores P and S"
    )
    watch: Watch | None = Field(
        None,
        description="data on which trials are measured but not tuned: a list of sources, or a mapping",
    )
    baselines: BaselinesConfig = Field(
        BaselinesConfig(), description="baselines shown in the report next to the front"
    )
    # parsed by raysweep.config.space_parser
    space: dict[str, Any] = Field(
        description="parameters of a trial, each a plain value, a range {low, high, log} or {choices: ...}"
    )
    first: list[dict[str, Any]] = Field(
        [],
        description="configurations to try before any other, such as a baseline: mappings of parameters to values in "
        "the space; the sampler proposes omitted parameters. They count toward budget.trials",
    )
    objective: ObjectiveConfig = Field(
        ObjectiveConfig(), description="objective by which trials are judged"
    )
    early_stopping: EarlyStoppingConfig = Field(
        EarlyStoppingConfig(), description="rules for ending trials and the sweep early"
    )
    budget: BudgetConfig = Field(BudgetConfig(), description="limits of the sweep")
    replicates: ReplicatesConfig = Field(
        ReplicatesConfig(), description="repeated runs of good configurations with other seeds"
    )
    resources: ResourcesConfig = Field(
        ResourcesConfig(), description="resources on which the sweep runs"
    )
    report: ReportConfig = Field(ReportConfig(), description="data that the report may show")
    storage: StorageConfig = Field(
        default_factory=StorageConfig, description="storage of runs and artifacts"
    )
    guards: Guards = Field(
        {},
        description="additional evaluations of the front's members after the search, keyed by names you choose",
    )
    trackers: Trackers = Field(
        TrackersConfig(),
        description="experiment trackers that also record the sweep: a list of names, or a mapping of names to "
        "settings",
    )

    @property
    def reference_encoder(self) -> EncoderConfig:
        return self.reference or self.model

    @property
    def limits(self) -> list[str]:
        """Return the limits of the search, except ``budget.trials``, and the minimum scores as "key value" strings."""
        plateau = self.early_stopping.plateau
        limits = {
            key: getattr(self.budget, key) for key in ("minutes", "cpu_hours", "gpu_hours", "money")
        }
        limits["plateau trials"] = plateau and plateau.trials
        limits |= {f"{key} at least": value or None for key, value in self.objective.constraints}
        return [f"{key} {value:g}" for key, value in limits.items() if value is not None]

    @property
    def mining_encoder(self) -> EncoderConfig:
        return self.examples.encoder or self.reference_encoder


def parse(document: Document) -> SweepConfig:
    """Validate a document.

    Raises:
        InputError: If a value is invalid. The message describes the first error.
    """
    try:
        config = SweepConfig.model_validate(document.values)
    except ValidationError as error:
        # Report unknown keys first, since a misspelled required key also causes a missing-key error.
        first = min(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
        path: KeyPath = tuple(first["loc"])
        raise document.error(path, explain(dict(first), path, SweepConfig)) from None
    evaluation = config.evaluation
    is_as_published = evaluation.k == 16 and evaluation.rank_weights == "uniform"
    if config.baselines.published and not is_as_published:
        raise document.error(
            ("baselines", "published"),
            f"is {config.baselines.published}, measured with k 16 and uniform rank weights, but evaluation has k "
            f"{evaluation.k} and {evaluation.rank_weights} rank weights; allowed: null, or k 16 with uniform rank weights",
        )
    return config
