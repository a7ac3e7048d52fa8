"""The typed, frozen form of a sweep's YAML file. YAML is turned into it once, at the edge."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from raysweep.config.document import Document, KeyPath
from raysweep.config.guards import Guards
from raysweep.config.strict import Frozen, explain
from raysweep.config.trackers import Trackers, TrackersConfig
from raysweep.storage import location


def _absolute_source(source: str) -> str:
    """Workers have working folders of their own, so a relative path would mean another file there."""
    location.without_null(source)
    if location.is_uri(source):
        return location.without_keys(source)
    if source == "demo" or source.startswith("hub:"):
        return source
    return str(location.expanded(source).absolute())


def _source_or_list(value: Any) -> Any:
    """What is wrong with a value that is neither, in one line where pydantic would have one for each kind."""
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        if not isinstance(entry, str):
            raise ValueError(f"must be a source or a list of sources, which are strings, not {entry!r}")
    if not entries or "" in entries:
        raise ValueError("must be a source or a list of sources; one is empty")
    return value


def _absolute_sources(given: str | list[str]) -> str | list[str]:
    if isinstance(given, str):
        return _absolute_source(given)
    found = [_absolute_source(source) for source in given]
    for source in found:
        if found.count(source) > 1:
            raise ValueError(f"names {source!r} more than once")
    return found


def absolute_model(name: str) -> str:
    if not name:
        raise ValueError("must name an encoder: demo, a folder, or a name on the hub; it is empty")
    location.without_null(name)
    folder = location.expanded(name)
    return str(folder.absolute()) if name != "demo" and location.is_folder(folder) else name


_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _folder_name(name: str) -> str:
    if re.fullmatch(_NAME, name) is None:
        raise ValueError("must be letters, digits, '.', '_' and '-' alone, and begin with a letter or a digit")
    if name == "artifacts":
        raise ValueError("must not be 'artifacts', the name of the folder of artifacts beside the runs")
    return name


Sources = Annotated[str | list[str], BeforeValidator(_source_or_list), AfterValidator(_absolute_sources)]


Location = Annotated[str, AfterValidator(location.absolute)]


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class DataConfig(Frozen):
    """Where labelled sentences come from.

    A source is `demo`, `hub:NAME[:SPLIT]`, or a path or URI of a file, a folder or a glob, or a list of these.
    """

    train: Sources = Field(description="training sentences; also the pool that retrieval searches in")
    dev: Sources | None = Field(None, description="sentences the search selects on; carved from train when not given")
    test: Sources | None = Field(None, description="sentences scored once, for the report")
    subset: str | None = Field(None, description="configuration name of a hub dataset")
    text_column: str = Field("text", description="column that holds the sentences")
    label_column: str = Field(
        "label", description="column that holds the labels: strings, numbers or truth values, any number of classes"
    )
    dev_fraction: float = Field(0.1, gt=0, lt=1, description="share of train carved as dev when dev is not given")
    max_dev: int = Field(1000, ge=1, description="most sentences carved as dev when dev is not given")


class EncoderConfig(Frozen):
    """A sentence-transformers model: `demo`, a folder, or a name on the hub."""

    name: Annotated[str, AfterValidator(absolute_model)] = Field(
        description="demo, a folder, or a name on the hub, such as sentence-transformers/all-MiniLM-L6-v2"
    )
    revision: str | None = Field(None, description="branch, tag or commit on the hub; its default branch if not given")
    prompt: str | None = Field(
        None,
        description="text put before every sentence, such as 'query: ' for e5, or '' for none; the model's own default "
        "prompt if not given",
    )
    max_tokens: int | None = Field(
        None, ge=2, description="longer sentences are cut to so many tokens; the model's own limit if not given"
    )
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="arithmetic in which prepare computes embeddings with this encoder"
    )


Encoder = Annotated[EncoderConfig, BeforeValidator(_named)]

SHORT_FORMS: Mapping[KeyPath, str] = MappingProxyType(
    dict.fromkeys([("model",), ("reference",), ("examples", "encoder"), ("baselines", "setfit")], "name")
)
"""Where a plain name stands for a mapping that has it under this key."""


class ExamplesConfig(Frozen):
    """How training examples are mined from neighbours under an encoder."""

    encoder: Encoder | None = Field(None, description="encoder whose neighbours are mined; the reference if not given")
    neighbours: Literal["per_class", "pooled", "random"] = Field(
        "per_class",
        description="per_class: the k nearest of the own class and the k nearest of the others; pooled: the k nearest of "
        "all, split by label; random: k of the own class and k of the others by chance",
    )
    k: int = Field(16, ge=1, le=1024, description="neighbours per sentence")
    min_similarity: float | None = Field(
        None, ge=-1, lt=1, description="lowest cosine of a neighbour; no limit if not given"
    )
    index: Literal["exact", "inverted_file"] = Field(
        "exact",
        description="exact: each sentence is compared with every other; inverted_file: with those in the nearest cells, for "
        "many millions, at a recall that prepare measures and states",
    )
    anchors_per_class: int | None = Field(
        None,
        ge=1,
        description="sentences of each class, drawn by chance, that examples begin with, and with random neighbours end "
        "with too; all of them if not given",
    )
    target: int = Field(
        250_000, ge=1, description="most examples sampled of each kind that the losses of the space need"
    )
    same_class_cosine: float = Field(1.0, ge=-1, le=1, description="target cosine of a same-class scored pair")
    other_class_cosine: float = Field(0.0, ge=-1, le=1, description="target cosine of an other-class scored pair")

    @model_validator(mode="after")
    def _check_random(self) -> "ExamplesConfig":
        if self.neighbours == "random" and self.min_similarity is not None:
            raise ValueError(f"min_similarity is {self.min_similarity:g}, but neighbours: random looks at no cosine")
        if self.neighbours == "random" and self.index != "exact":
            raise ValueError(f"index is {self.index}, but neighbours: random searches nothing")
        return self


Grid = list[Annotated[float, Field(gt=0, le=100)]]


class PointsConfig(Frozen):
    """The operating points that a rung reports beside the plain one: the values of each kind."""

    concat: Grid = Field(
        [0.1, 0.3, 1.0, 3.0],
        description="weights at which the cosine of the tuned encoder is added to that of the reference",
    )
    class_concat: Grid = Field(
        [0.1, 0.3, 1.0],
        description="weights at which the inner product of class probabilities is added to the reference's cosine; "
        "only trials with the loss softmax have these points",
    )
    interpolate: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [],
        description="places between the base model's weights (0) and the tuned ones (1); each costs another evaluation",
    )
    labelled: Grid = Field(
        [],
        description="weights at which the probability that the query has a sentence's known label is added to the "
        "reference's cosine, for pools of known labels; only trials with the loss softmax have these points, which are "
        "kept apart from the front",
    )
    calibrate: bool = Field(
        True,
        description="divide the logits of softmax heads by the temperature of least log loss on dev: class probabilities "
        "that say how often they are right, which class_concat is best with",
    )


class EvaluationConfig(Frozen):
    """How P and S are computed."""

    k: int = Field(16, ge=1, description="retrieved sentences per query")
    rank_weights: Literal["uniform", "linear"] = Field(
        "uniform", description="weights of the k ranks: all the same, or falling linearly from the nearest"
    )
    num_pool: int | None = Field(
        None, ge=1, description="training sentences that retrieval searches in; min(train, 5 * queries) if not given"
    )
    pool_seed: int = Field(42, ge=0, lt=2**32, description="seed of the sample of train that is the pool")
    points: PointsConfig = Field(
        PointsConfig(), description="operating points that each rung reports beside the tuned encoder itself"
    )


class BaselinesConfig(Frozen):
    """What the report shows beside the front, and no trial made. It changes neither the search nor the front."""

    probe: Grid = Field(
        [0.05, 0.1, 0.3, 1.0, 3.0],
        description="weights g of the points class_concat(g) of the reference encoder itself, with the class probabilities "
        "of a logistic regression on its embeddings; none if empty",
    )
    setfit: Encoder | None = Field(
        None,
        description="model that the setfit package saved, whose body is scored as an encoder: a folder, a name on the hub, "
        "or a mapping",
    )
    published: Literal["sst2"] | None = Field(
        None,
        description="table of published scores to show on the split that they were measured on; none if not given",
    )


class ReportConfig(Frozen):
    """What the report may show of the data."""

    texts: bool = Field(
        True,
        description="whether the run holds texts of the data, for the report: some queries, and what is retrieved for them",
    )


SAMPLERS = ("mfgp", "tpe", "gp", "nsga2", "random", "grid")


Aim = Literal["front", "area", "combined", "parego", "both"]


class ConstraintsConfig(Frozen):
    """What an operating point has to reach, in [0, 1]. Points that do not are worth less than all that do."""

    polarity: float = Field(0.0, ge=0, le=1, description="lowest P, 0 for no limit")
    similarity: float = Field(0.0, ge=0, le=1, description="lowest S, 0 for no limit")
    retention: float = Field(
        0.0, ge=0, le=1, description="lowest S relative to the reference encoder's S, 0 for no limit"
    )


class ObjectiveConfig(Frozen):
    """What a trial is judged by: its best point under polarity_weight * P + (1 - polarity_weight) * S, and its front."""

    polarity_weight: float = Field(0.5, ge=0, le=1, description="weight of P in the weighted sum; S has the rest of 1")
    similarity: Literal["similarity", "retention"] = Field(
        "similarity", description="what stands for S: the score itself, or retention, S over S of the reference"
    )
    constraints: ConstraintsConfig = Field(
        ConstraintsConfig(), description="lowest scores that an operating point has to reach"
    )
    proposals: Aim = Field(
        "front",
        description="what the sampler maximises. front: the hypervolume of all trials' joint front, with samplers other "
        "than mfgp the same as area; area: the hypervolume of a trial's own points; combined: the weighted sum; parego: a "
        "Tchebycheff scalarisation that varies from trial to trial; both: P and S as two objectives",
    )


Policy = Literal["growth", "pareto", "asha", "median", "none"]


class PlateauConfig(Frozen):
    """The sweep ends when the front's hypervolume has not grown by more than a fraction while trials were held or ended."""

    trials: int = Field(
        ge=1,
        description="how many times in a row trials are held or end; under growth a trial is held often",
    )
    growth: float = Field(
        0.01, ge=0, description="growth of the hypervolume that counts, relative; 0.01 is one percent"
    )


HALVING = ("asha", "pareto")
"""The policies of successive halving, which have milestones."""


class EarlyStoppingConfig(Frozen):
    """Trials are compared at equal numbers of examples seen; the halving policies revive a trial that proves good later."""

    policy: Policy = Field(
        "growth",
        description="growth: the next rung goes where the front is expected to grow most; pareto: successive "
        "halving on the front; asha: successive halving on the objective; median: the median rule on the objective; none",
    )
    first_examples: int = Field(
        2048, ge=1, description="examples seen before a trial may be stopped; growth does not use it"
    )
    reduction_factor: int = Field(
        2, ge=2, description="one in this many trials goes on at each milestone of the policies pareto and asha"
    )
    plateau: PlateauConfig | None = Field(
        None, description="when to end the sweep because its front no longer grows; never if not given"
    )


class BudgetConfig(Frozen):
    """What a sweep may spend; running trials end at their next rung when a limit is reached, or at once by ``minutes``."""

    trials: int = Field(20, ge=1, description="configurations that the search tries")
    rungs: int = Field(6, ge=1, description="evaluations per trial; a trial sees rungs * examples_per_rung examples")
    examples_per_trial: int | None = Field(
        None, ge=1, description="examples that every trial sees in all, in place of rungs; rungs decides if not given"
    )
    minutes: float | None = Field(None, gt=0, description="wall-clock limit of the search; no limit if not given")
    cpu_hours: float | None = Field(
        None, gt=0, description="limit of the time that trials hold CPUs, in hours of one CPU; no limit if not given"
    )
    gpu_hours: float | None = Field(
        None, gt=0, description="limit of the time that trials hold GPUs, in hours of one GPU; no limit if not given"
    )
    money: float | None = Field(
        None, gt=0, description="limit of what trials cost, in the currency of prices; no limit if not given"
    )
    prices: dict[str, Annotated[float, Field(ge=0)]] = Field(
        {},
        description="price of a node an hour, by node type of the cluster's file; the key default stands for any other",
    )

    @model_validator(mode="after")
    def _check_prices(self) -> "BudgetConfig":
        if self.money is not None and not self.prices:
            raise ValueError("money needs prices, such as {gpu_worker: 3.06, default: 0.1} an hour")
        return self

    def price_per_hour(self, node_type: str) -> float | None:
        """Of a whole node; None where its type has no price."""
        return self.prices.get(node_type, self.prices.get("default"))

    def rungs_of(self, examples_per_rung: int) -> int:
        """How many rungs a trial has that sees so many examples at each."""
        return self.rungs if self.examples_per_trial is None else self.examples_per_trial // examples_per_rung


class ReplicatesConfig(Frozen):
    """Noise: when the search is over, configurations near the front run again with other seeds, and count by their means."""

    trials: int = Field(0, ge=0, description="most replicates, in addition to budget.trials; 0 for none")
    runs: int = Field(3, ge=2, description="most runs of one configuration, its first included")


class ResourcesConfig(Frozen):
    """What a sweep runs on. What is not given derives from the cluster that is there."""

    address: str | None = Field(None, description="Ray cluster to join; a local one is started if not given")
    num_cpus: int | None = Field(None, ge=1, description="CPUs of the local cluster; all of this machine if not given")
    cpus_per_trial: float | None = Field(
        None, gt=0, description="CPUs that a trial holds; derived from the cluster if not given"
    )
    gpus_per_trial: Annotated[float, Field(ge=0, le=1)] | Literal["measured"] | None = Field(
        None,
        description="share of a GPU that a trial holds: below 1 packs several trials on one GPU, measured packs as many "
        "as its memory holds; one GPU if the cluster has any and this is not given",
    )
    max_concurrent_trials: int | None = Field(
        None, ge=1, description="most trials that run at once; as many as the cluster holds if not given"
    )
    stall_seconds: float = Field(300, gt=0, description="prepare gives up after so many seconds without progress")
    cache_gib: float = Field(
        2, ge=0, description="memory in GiB in which a running trial caches the outputs of a frozen part of the encoder"
    )
    max_failures: int = Field(
        2,
        ge=0,
        description="how many times in a row, without a rung between, a trial whose process died goes on from its "
        "checkpoint; nodes that went away are not counted",
    )
    max_failed_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="the search ends when more than this share of the trials, and at least 3, have failed, those that "
        "diverged aside",
    )
    silent_seconds: float = Field(
        60,
        gt=0,
        description="a trial whose process is frozen, or whose training does not come on, for so many seconds is killed, "
        "and goes on from its checkpoint; loading may take ten times as long",
    )
    rung_minutes: float | None = Field(
        None,
        gt=0,
        description="a trial whose rung takes more minutes is killed too; if not given, ten times the slowest rung so "
        "far, and half an hour at least",
    )
    checkpoint_seconds: float = Field(
        300, gt=0, description="seconds between checkpoints of a trial, which also saves its state at each rung"
    )

    @property
    def gpus_asked(self) -> float | None:
        """GPUs of a trial before any packing, None where the cluster decides."""
        return 1.0 if self.gpus_per_trial == "measured" else self.gpus_per_trial

    @field_validator("gpus_per_trial", mode="before")
    @classmethod
    def _check_gpus(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value in (None, "measured") or (is_number and 0 <= value <= 1):
            return value
        raise ValueError(f"must be in [0, 1], or measured, not {value}: a trial uses one GPU at most")


class StorageConfig(Frozen):
    """Where runs and artifacts are kept: a folder that every node sees, or `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`."""

    runs: Location = Field(
        "raysweep-runs", validate_default=True, description="folder or URI that holds one folder a run"
    )
    artifacts: Location | None = Field(
        None, description="folder or URI of what prepare makes; artifacts in the folder of runs if not given"
    )
    max_gib: float = Field(
        20,
        gt=0,
        description="limit in GiB of the front's weights, paused trials' checkpoints and per-query scores; beyond it, the "
        "worst paused trials end, then the weights that the front needs least are removed. Checkpoints of running trials "
        "come on top",
    )

    @property
    def artifacts_key(self) -> str:
        """The key that says where artifacts lie."""
        return "storage.artifacts" if self.artifacts else "storage.runs"

    @property
    def artifacts_location(self) -> str:
        return self.artifacts or location.join(self.runs, "artifacts")


class SweepConfig(Frozen):
    """A sweep, as one YAML file describes it."""

    name: Annotated[str, AfterValidator(_folder_name)] = Field(
        "sweep", max_length=200, description="name of the run's folder", json_schema_extra={"pattern": _NAME}
    )
    seed: int = Field(0, ge=0, lt=2**32, description="every random draw of the sweep derives from it")
    sampler: str = Field(
        "mfgp",
        description=f"what proposes configurations: {', '.join(SAMPLERS)}, or an Optuna sampler's import path, "
        "package:Class",
    )
    data: DataConfig = Field(description="where labelled sentences come from")
    model: Encoder = Field(description="the encoder to tune: its name, or a mapping")
    reference: Encoder | None = Field(
        None, description="the frozen encoder that defines similarity; the model if not given"
    )
    examples: ExamplesConfig = Field(ExamplesConfig(), description="how training examples are mined")
    evaluation: EvaluationConfig = Field(EvaluationConfig(), description="how the scores P and S are computed")
    baselines: BaselinesConfig = Field(
        BaselinesConfig(), description="what the report shows beside the front, and no trial made"
    )
    # Plain values here, which raysweep.config.space_parser reads.
    space: dict[str, Any] = Field(
        description="parameters of a trial, each a plain value, a range {low, high, log} or {choices: ...}"
    )
    first: list[dict[str, Any]] = Field(
        [],
        description="configurations to try before any other, such as a baseline: each a mapping of parameters to values of "
        "the space, of which the sampler proposes those that are left out. They count in budget.trials",
    )
    objective: ObjectiveConfig = Field(ObjectiveConfig(), description="what a trial is judged by")
    early_stopping: EarlyStoppingConfig = Field(
        EarlyStoppingConfig(), description="when trials and the sweep end early"
    )
    budget: BudgetConfig = Field(BudgetConfig(), description="what the sweep may spend")
    replicates: ReplicatesConfig = Field(
        ReplicatesConfig(), description="repeated runs of good configurations with other seeds"
    )
    resources: ResourcesConfig = Field(ResourcesConfig(), description="what the sweep runs on")
    report: ReportConfig = Field(ReportConfig(), description="what the report may show of the data")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="where runs and artifacts are kept")
    guards: Guards = Field(
        {}, description="what the front's members are also measured by when the search is over, by names of your own"
    )
    trackers: Trackers = Field(
        TrackersConfig(),
        description="where the sweep is also tracked: a list of names, or a mapping of them to settings",
    )

    @property
    def reference_encoder(self) -> EncoderConfig:
        return self.reference or self.model

    @property
    def limits(self) -> list[str]:
        """What ends the search besides its trials, and what a point has to reach, in the file's words."""
        plateau = self.early_stopping.plateau
        found = {key: getattr(self.budget, key) for key in ("minutes", "cpu_hours", "gpu_hours", "money")}
        found["plateau of trials"] = plateau and plateau.trials
        found |= {f"{key} at least": value or None for key, value in self.objective.constraints}
        return [f"{key} {value:g}" for key, value in found.items() if value is not None]

    @property
    def mining_encoder(self) -> EncoderConfig:
        return self.examples.encoder or self.reference_encoder


def parse(document: Document) -> SweepConfig:
    """Validate a document. InputError names file, line, key, value and what is allowed, for the first thing wrong."""
    try:
        config = SweepConfig.model_validate(document.values)
    except ValidationError as error:
        # Unknown keys first: a misspelt key is also a missing one, and the misspelling is the cause.
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        path: KeyPath = tuple(first["loc"])
        raise document.error(path, explain(dict(first), path, SweepConfig)) from None
    _check_published(document, config)
    return config


def _check_published(document: Document, config: SweepConfig) -> None:
    """InputError where published scores would stand beside scores that are measured in another way."""
    evaluation = config.evaluation
    is_the_same = evaluation.k == 16 and evaluation.rank_weights == "uniform"
    if config.baselines.published and not is_the_same:
        raise document.error(
            ("baselines", "published"),
            f"{config.baselines.published} was measured with k 16 and uniform rank weights, but evaluation has k "
            f"{evaluation.k} and {evaluation.rank_weights} rank weights; allowed: null, or evaluation as it was published",
        )
