"""The configuration of a trial, which is a point in the search space."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from raysweep.config import freezing, matryoshka
from raysweep.config.adapter import DEFAULTS as ADAPTER_DEFAULTS
from raysweep.config.adapter import PARAMETERS as ADAPTER_PARAMETERS
from raysweep.config.adapter import Lora, adapter_defaults
from raysweep.config.document import KeyPath, dotted, join_key, unknown_key
from raysweep.config.loss_spec import EXAMPLES, LossSpec, Value
from raysweep.config.losses import ALL_LOSSES, LOSS_PARAMETERS, LOSSES, SEQUENCE_LOSSES, find_loss
from raysweep.config.sides import Tower
from raysweep.config.strict import StrictModel, explain
from raysweep.errors import InputError

SCHEDULES = ("constant", "linear", "quadratic", "polynomial", "cosine", "exponential")


class TrialConfig(StrictModel):
    """A point in the space. A parameter specific to one optimizer or schedule is None for the others."""

    loss: str = Field(
        description=f"loss to minimize: {', '.join(ALL_LOSSES)}, or the import path of your own, package.module:Class"
    )
    loss_parameters: dict[str, Value] = Field(
        default_factory=dict,
        description="the loss's own parameters; in a space, each is a separate parameter",
    )
    retention_weight: float = Field(
        0.0,
        ge=0,
        description="loss weight of the mean squared distance between tuned and reference cosines",
    )
    matryoshka: str | None = Field(
        None,
        description="shorter widths at which the loss is also computed, on the first coordinates of the embeddings, and "
        f"added to the loss at full width: {' or '.join(matryoshka.FORMS)}; only the full width if not given",
    )
    learning_rate: float = Field(
        gt=0,
        le=1,
        description="maximum learning rate of the schedule, before learning_rate_rule applies",
    )
    learning_rate_rule: Literal["none", "linear", "square_root"] = Field(
        "none",
        description="scaling of the learning rate with the examples per optimizer step, relative to base_batch_size",
    )
    base_batch_size: int = Field(
        64,
        ge=1,
        description="examples per optimizer step at which learning_rate_rule leaves learning_rate unchanged",
    )
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="factor applied to the learning rate from each encoder block to the one below it",
    )
    optimizer: Literal["adamw", "adamax", "adadelta", "sgd"] = Field(
        "adamw", description="PyTorch optimizer"
    )
    momentum: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="for sgd, the momentum, 0 if not given; for adamw and adamax, the first beta, 0.9 if not given "
        "(at 0, the second beta of adamax is 0 too); adadelta has none",
    )
    weight_decay: float = Field(
        0.01, ge=0, description="weight decay of the optimizer; published values reach 100"
    )
    max_gradient_norm: float = Field(
        1.0, gt=0, description="maximum gradient norm; larger gradients are scaled down to it"
    )
    tower: Tower = Field(
        "both",
        description="both: tune one encoder for queries and documents; query: tune only the encoder for queries and "
        "anchors, while documents keep the reference's embeddings, so stored indexes stay valid; separate: tune two "
        "encoders that start out identical",
    )
    freezing: str = Field(
        "none",
        description=f"part of the encoder to freeze, starting at its input: {', '.join(freezing.FORMS)}",
    )
    freeze_output_dense: bool = Field(
        False,
        description="also freeze the weights, but not the biases, of output.dense in every block",
    )
    adapter: Literal["none", "lora"] = Field(
        "none",
        description="lora: train low-rank matrices next to the encoder's linear layers, whose own weights stay "
        "unchanged; none: train the weights themselves",
    )
    lora_rank: int | None = Field(
        None, ge=1, le=1024, description="rank of the LoRA adapter; 8 if not given"
    )
    lora_alpha: float | None = Field(
        None,
        gt=0,
        description="the adapter's update is multiplied by lora_alpha / lora_rank; twice the rank if not given",
    )
    lora_targets: Literal["attention", "feed_forward", "all_linear"] | None = Field(
        None,
        description="linear layers that the adapter changes in each block; all_linear if not given",
    )
    lora_dropout: float | None = Field(
        None, ge=0, lt=1, description="dropout rate for the adapter's inputs; 0 if not given"
    )
    dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="rate of every dropout layer; the encoder's own rates if not given",
    )
    frozen_dropout: bool = Field(
        False,
        description="apply dropout in the frozen part too, which prevents caching its outputs",
    )
    batch_size: int = Field(64, ge=2, le=65536, description="examples per batch")
    no_duplicates: bool = Field(
        False, description="avoid repeating a sentence in a batch, as far as the examples allow"
    )
    accumulation_steps: int = Field(1, ge=1, description="batches per optimizer step")
    examples_per_rung: int = Field(
        2048, ge=1, description="examples that a trial sees between two evaluations"
    )
    schedule: str = Field(
        "linear", description=f"learning rate schedule after warm-up: {', '.join(SCHEDULES)}"
    )
    decay: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="factor applied to the learning rate at each rung; for the exponential schedule only",
    )
    warmup_fraction: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of all steps used for warm-up; not used if warmup_steps is given",
    )
    warmup_steps: int | None = Field(
        None,
        ge=0,
        description="optimizer steps used for warm-up; determined by warmup_fraction if not given",
    )
    restart_each_rung: bool = Field(
        False,
        description="restart the schedule at each rung; exponential keeps the decay reached so far",
    )
    resample_each_rung: bool = Field(
        False,
        description="draw a new sample of all examples at each rung, instead of using those left over from earlier "
        "rungs",
    )
    fresh_optimizer: bool = Field(
        False,
        description="create a new optimizer at each rung, which discards the state of the old one",
    )
    average_decay: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="score and store rungs with an exponential moving average of the weights over optimizer steps, "
        "with this decay per step; off if not given",
    )
    idle_rungs: int | None = Field(
        None,
        ge=1,
        description="end the trial after this many consecutive rungs without improvement; a rung improves if its "
        "validation loss and its number of errors are both below those of the last rung that improved; off if not given",
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="training precision; auto uses bf16 on GPUs, and on CPUs if a measurement shows that it is "
        "faster. Scores are always computed in fp32",
    )

    @model_validator(mode="after")
    def _check_loss(self) -> "TrialConfig":
        parameters = find_loss(self.loss).parameters
        for name, value in self.loss_parameters.items():
            if name not in parameters:
                raise ValueError(f"{name} is {value!r}, but the loss {self.loss} has no {name}")
            parameters[name].check(f"{name} of the loss {self.loss}", value)
        for name in parameters:
            if name not in self.loss_parameters:
                raise ValueError(f"{name} is missing; the loss {self.loss} requires it")
        return self

    @model_validator(mode="after")
    def _check_matryoshka(self) -> "TrialConfig":
        if self.matryoshka is not None:
            matryoshka.check(self.matryoshka)
        return self

    @model_validator(mode="after")
    def _check_tower(self) -> "TrialConfig":
        if self.tower != "both" and not has_documents(self.loss):
            raise ValueError(
                f"tower is {self.tower}, but the loss {self.loss} does not compare anchors with documents; allowed: both"
            )
        return self

    @model_validator(mode="after")
    def _check_freezing(self) -> "TrialConfig":
        freezing.check_level(self.freezing)
        return self

    @model_validator(mode="after")
    def _check_adapter(self) -> "TrialConfig":
        if self.adapter == "none":
            for name in ADAPTER_PARAMETERS:
                value = getattr(self, name)
                if value is not None:
                    raise ValueError(
                        f"{name} is {value!r}, but adapter is none; it requires adapter: lora"
                    )
        else:
            for name, off in (("freezing", "none"), ("freeze_output_dense", False)):
                value = getattr(self, name)
                if value != off:
                    raise ValueError(
                        f"{name} is {value}, but the adapter lora freezes all weights; allowed: {off}"
                    )
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> "TrialConfig":
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule is {self.schedule!r}; allowed: {', '.join(SCHEDULES)}")
        if self.schedule == "exponential" and self.decay is None:
            raise ValueError(
                "decay is missing; the schedule exponential requires a value such as 0.95"
            )
        if self.schedule != "exponential" and self.decay is not None:
            raise ValueError(
                f"decay is {self.decay:g}, but the schedule {self.schedule} has no decay"
            )
        return self

    @model_validator(mode="after")
    def _check_momentum(self) -> "TrialConfig":
        if self.optimizer == "adadelta" and self.momentum is not None:
            raise ValueError(
                f"momentum is {self.momentum:g}, but the optimizer adadelta has no momentum"
            )
        return self

    @property
    def flat(self) -> dict[str, Any]:
        """Return all values as one flat mapping.

        Parameters of other losses are included only if :data:`OFF` has a value for them.
        """
        values = self.model_dump(mode="json")
        own_values = values.pop("loss_parameters")
        return {"loss": values.pop("loss"), **OFF, **own_values, **values}

    def __hash__(self) -> int:
        return hash(frozenset(self.recorded.items()))

    @property
    def recorded(self) -> dict[str, Any]:
        """Return the values in :attr:`flat` that the ledger records, excluding None and the values in ``_USUAL``."""
        return self.record(searched=())

    def record(self, searched: Collection[str]) -> dict[str, Any]:
        """Return :attr:`recorded`, but also include values in ``_USUAL`` if the parameter is in ``searched``."""
        values = {name: value for name, value in self.flat.items() if value is not None}
        if self.loss in SEQUENCE_LOSSES:
            own = ("loss", *find_loss(self.loss).parameters, *SEQUENCE_PARAMETERS)
            return {name: value for name, value in values.items() if name in own}
        return {
            name: value
            for name, value in values.items()
            if name in searched or (name, value) not in _USUAL
        }

    @property
    def identity(self) -> dict[str, Any]:
        """Return the values that differ from their defaults. The trial's seed is derived from them.

        Changing a default would change seeds, so defaults must never change.
        """
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        defaults |= {**OFF, **find_loss(self.loss).defaults, **adapter_defaults(self.adapter)}
        values = self.flat
        return {
            name: value
            for name, value in values.items()
            if value is not None and value != defaults.get(name)
        }

    @property
    def lora(self) -> Lora | None:
        """Return the LoRA settings, or None if the trial trains the encoder's own weights."""
        if self.adapter == "none":
            return None
        given = {
            name: getattr(self, name)
            for name in ADAPTER_PARAMETERS
            if getattr(self, name) is not None
        }
        values = {**ADAPTER_DEFAULTS, **given}
        rank = values["lora_rank"]
        return Lora(
            rank,
            values.get("lora_alpha", 2.0 * rank),
            values["lora_targets"],
            values["lora_dropout"],
        )

    @property
    def peak_learning_rate(self) -> float:
        """Return the schedule's maximum learning rate, after ``learning_rate_rule`` is applied."""
        ratio = self.batch_size * self.accumulation_steps / self.base_batch_size
        powers = {"none": 0.0, "linear": 1.0, "square_root": 0.5}
        return float(self.learning_rate * ratio ** powers[self.learning_rate_rule])


_USUAL = {
    ("adapter", "none"),
    ("tower", "both"),
    ("targets", "hard"),
    ("targets", "labels"),
    ("teacher_temperature", 1.0),
    ("teacher_weight", 1.0),
}


def has_documents(loss: str) -> bool:
    """Return whether a loss compares anchors with documents, as losses for pairs and triplets do."""
    return "query" in EXAMPLES[find_loss(loss).examples].sides


OFF = {
    name: spec.off
    for loss in LOSSES.values()
    for name, spec in loss.parameters.items()
    if spec.off is not None
}
"""Maps parameters to the values that turn them off. These are allowed even if the loss lacks the parameter."""

SEQUENCE_PARAMETERS = ("learning_rate", "batch_size", "examples_per_rung")
"""The shared parameters used by trials on a sequence of data sets."""

SHARED_PARAMETERS = tuple(name for name in TrialConfig.model_fields if name != "loss_parameters")
"""The parameters that do not depend on the loss."""


def parameter_names(losses: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of all parameters, including those of the built-in losses and of ``losses``."""
    own_names = [name for loss in losses for name in find_loss(loss).parameters]
    return tuple(dict.fromkeys(("loss", *LOSS_PARAMETERS, *own_names, *SHARED_PARAMETERS)))


def find_checked_loss(name: str) -> LossSpec:
    """Like :func:`find_loss`, but raise InputError if the loss reuses the name of a shared parameter."""
    loss = find_loss(name)
    for parameter in loss.parameters:
        if parameter in SHARED_PARAMETERS:  # only possible with a user-defined loss
            raise InputError(
                f"{name!r}: every trial has a parameter {parameter}; required: another name for the loss's own parameter"
            )
    return loss


def trial_config(values: Mapping[str, Any]) -> TrialConfig:
    """Validate values in the format of :attr:`TrialConfig.flat`, and return the trial configuration.

    Raises:
        InputError: If a value is invalid.
    """
    shared = {name: value for name, value in values.items() if name in SHARED_PARAMETERS}
    given = {name: value for name, value in values.items() if name not in shared}
    if isinstance(values.get("loss"), str):
        shared["loss_parameters"] = _loss_parameters(values["loss"], given)
    shared = {**adapter_defaults(values.get("adapter")), **shared}
    try:
        return TrialConfig.model_validate(shared)
    except ValidationError as error:
        first = error.errors()[0]
        path: KeyPath = tuple(first["loc"])
        if not path:  # a model validator's error, whose message already names the parameter
            message = first["msg"].removeprefix("Value error, ")
            raise InputError(message) from None
        problem = explain(dict(first), path, TrialConfig)
        raise InputError(join_key(dotted(path), problem)) from None


def _loss_parameters(loss: str, given: Mapping[str, Any]) -> dict[str, Value]:
    """Validate a loss's own parameters, and fill in the defaults of omitted ones."""
    spec = find_checked_loss(loss)
    for name, value in given.items():
        is_off = name in OFF and value == OFF[name]
        if name in spec.parameters or is_off:
            continue
        if name in LOSS_PARAMETERS:
            raise InputError(f"{name} is {value!r}, but the loss {loss} has no {name}")
        raise InputError(join_key(name, unknown_key(name, parameter_names([loss]))))
    values: dict[str, Value] = {}
    for name, value in {**spec.defaults, **given}.items():
        if name in spec.parameters:
            values[name] = spec.parameters[name].check(f"{name} of the loss {loss}", value)
    return values
