"""Encoder traits, which determine the roles that an encoder may have.

A :class:`Limit` is a trait that excludes some roles. :func:`limits_of_files` finds limits without loading the model, and
:attr:`EncoderTraits.limits` finds them in a loaded model.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders.locate import ADAPTER, MODEL_TYPE, ROUTERS, SETTINGS, ModelSource
from raysweep.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


Role = Literal["tuned", "reference", "expert", "evaluated"]
"""Trials train ``tuned`` encoders. The ``reference`` encoder defines similarity. An ``expert`` mines or scores training
examples. An ``evaluated`` encoder embeds sentences for ``evaluate``, ``transfer`` or a baseline."""

ROLES: frozenset[Role] = frozenset(get_args(Role))
FROZEN = ROLES - {"tuned"}

_AS = {
    "tuned": "tuned",
    "reference": "the reference",
    "expert": "an expert",
    "evaluated": "evaluated",
}
_DENSE = "models that return one dense vector per sentence"


@dataclass(frozen=True)
class Limit:
    """A trait that restricts a model to ``roles``. ``alternative`` describes models without the trait."""

    trait: str
    roles: frozenset[Role] = frozenset()
    alternative: str = _DENSE


CROSS_ENCODER = Limit("it is a cross-encoder, which scores pairs and does not embed sentences")
SPARSE = Limit("it is a sparse encoder, whose vectors have one dimension per word")
MULTI_VECTOR = Limit(
    "it is a multi-vector (late interaction) encoder, which returns one vector per token"
)
MULTIMODAL = Limit(
    "it embeds modalities other than text, such as images (CLIP)",
    alternative="text-only models",
)
UNPOOLED = Limit("it has no pooling module, so it returns one vector per token")
ROUTER = Limit(
    "its Router embeds queries and documents with different modules",
    FROZEN,
    "models that embed both the same way",
)
STATIC = Limit("it has static embeddings and no transformer", FROZEN, "transformers")
PEFT = Limit(
    f"it has a PEFT adapter ({ADAPTER})",
    frozenset({"evaluated"}),
    "a model with all its weights, such as the adapter merged into its base model (merge_and_unload)",
)

_LIMITS_BY_TYPE = {
    "CrossEncoder": CROSS_ENCODER,
    "SparseEncoder": SPARSE,
    "MultiVectorEncoder": MULTI_VECTOR,
    "ColBERT": MULTI_VECTOR,
}
"""Limits by ``model_type`` in the settings of sentence-transformers and PyLate."""

_LIMITS_BY_MODULE = {
    "LogitScore": CROSS_ENCODER,
    "SpladePooling": SPARSE,
    "SparseAutoEncoder": SPARSE,
    "SparseStaticEmbedding": SPARSE,
    "MultiVectorMask": MULTI_VECTOR,
    "CLIPModel": MULTIMODAL,
    **dict.fromkeys(ROUTERS, ROUTER),
    "StaticEmbedding": STATIC,
}
"""Limits by module class name."""

_OF_TOKENS = ("Transformer", "WordEmbeddings", "WordWeights", "CNN", "LSTM", "WeightedLayerPooling")
_WITHOUT_POOLING = frozenset((*_OF_TOKENS, "Dense", "Dropout", "LayerNorm", "Normalize"))
"""Class names of modules that do not reduce token vectors to one sentence vector."""

_CROSS_ENCODER_HEAD = re.compile("For(SequenceClassification|TextRanking)$")
_MULTI_VECTOR_HEAD = re.compile("ColBERT|For(Multimodal)?Retrieval$")
_OTHER_TOWERS = ("vision_config", "audio_config")  # configuration keys of multimodal models


def limits_of_files(source: ModelSource) -> list[Limit]:
    """Return the limits that can be determined from a model's files.

    Raises:
        InputError: If a file is damaged.
    """
    limits = []
    library_type = source.library_type
    if library_type in _LIMITS_BY_TYPE:
        limits.append(_LIMITS_BY_TYPE[library_type])
    elif library_type != MODEL_TYPE:
        limits.append(Limit(f"model_type is {library_type!r} in its {SETTINGS}"))
    names = [name for _, name in source.modules]
    limits += [_LIMITS_BY_MODULE[name] for name in names if name in _LIMITS_BY_MODULE]
    if (
        names
        and _WITHOUT_POOLING.issuperset(names)
        and source.transformer_output != "sentence_embedding"
    ):
        limits.append(UNPOOLED)
    if any(key in source.transformer_config for key in _OTHER_TOWERS):
        limits.append(MULTIMODAL)
    if source.is_bare:  # sentence-transformers would add pooling to these models
        if any(map(_CROSS_ENCODER_HEAD.search, source.architectures)):
            limits.append(CROSS_ENCODER)
        if any(map(_MULTI_VECTOR_HEAD.search, source.architectures)):
            limits.append(MULTI_VECTOR)
    if (width := source.settings.get("truncate_dim")) is not None:
        limits.append(
            Limit(f"truncate_dim is {width} in its {SETTINGS}", FROZEN, "a model without it")
        )
    if source.has_adapter:
        limits.append(PEFT)
    return limits


def check_role(config: EncoderConfig, role: Role, limits: Iterable[Limit]) -> None:
    """Raise InputError if one of the limits excludes the role."""
    for limit in limits:
        if role in limit.roles:
            continue
        raise InputError(
            f"model {config.name!r} cannot be {_AS[role]}: {limit.trait}; allowed: {limit.alternative}"
        )


def check_files(config: EncoderConfig, role: Role, source: ModelSource) -> None:
    """Raise InputError if a model's files show that it cannot have the role."""
    check_role(config, role, limits_of_files(source))


def notes(config: EncoderConfig, role: Role, source: ModelSource) -> list[str]:
    """Return warnings about unexpected properties of a model."""
    lines = []
    if source.is_bare:
        is_causal = any(name.endswith("ForCausalLM") for name in source.architectures)
        pooling = "last-token" if is_causal else "mean"
        lines.append(
            f"model {config.name!r} is a checkpoint without pooling; {pooling} pooling is added"
        )
    own = source.own_prompts
    if (
        config.prompt is None
        and not source.has_router
        and {own.query, own.document} != {source.own_prompt()}
    ):
        lines.append(
            f"model {config.name!r} has prompts for queries ({own.query!r}) and documents ({own.document!r}), which are "
            "used only if separate prompts for queries and documents are configured"
        )
    similarity = source.settings.get("similarity_fn_name")
    by_cosine = ("cosine", None) if role != "evaluated" else ("cosine", "dot", None)
    if similarity not in by_cosine:
        lines.append(
            f"model {config.name!r} compares embeddings by {similarity}; raysweep uses cosine similarity instead"
        )
    return lines


@dataclass(frozen=True)
class EncoderTraits:
    """Properties of a loaded encoder that determine its roles and how it embeds texts.

    ``modalities`` contains ``message`` if the model has a chat template. ``has_attention_mask`` is False for static
    embeddings and for models with a Router.
    """

    modalities: tuple[str, ...]
    padding_side: str | None
    similarity: str
    truncate_dim: int | None
    has_adapter: bool
    has_router: bool
    has_attention_mask: bool

    @classmethod
    def of(cls, model: "SentenceTransformer") -> "EncoderTraits":
        """Return the traits of a loaded model."""
        is_routed = has_router(model)
        is_adapted = any(
            getattr(module, "_hf_peft_config_loaded", False) or hasattr(module, "peft_config")
            for module in model.modules()
        )
        return cls(
            modalities=tuple(str(modality) for modality in model.modalities),
            padding_side=getattr(model.tokenizer, "padding_side", None),
            similarity=str(model.similarity_fn_name),
            truncate_dim=model.truncate_dim,
            has_adapter=is_adapted,
            has_router=is_routed,
            has_attention_mask=not is_routed and "attention_mask" in model.preprocess(["a"]),
        )

    @property
    def embeds_tokens(self) -> bool:
        """Return whether the model can embed stored token ids; otherwise, texts are embedded with its ``encode``."""
        return self.has_attention_mask

    @property
    def limits(self) -> list[Limit]:
        """Return the traits that exclude roles."""
        limits = []
        if not {"text", "message"}.issuperset(self.modalities):
            limits.append(MULTIMODAL)
        if self.has_router:
            limits.append(ROUTER)
        elif not self.has_attention_mask:
            limits.append(STATIC)
        if self.truncate_dim is not None:
            limits.append(
                Limit(f"truncate_dim is {self.truncate_dim}", FROZEN, "a model without it")
            )
        if self.has_adapter:
            limits.append(PEFT)
        return limits

    @property
    def roles(self) -> frozenset[Role]:
        """Return the roles that the model may have."""
        roles = ROLES
        for limit in self.limits:
            roles &= limit.roles
        return roles


def has_router(model: "nn.Module") -> bool:
    """Return whether a model embeds queries and documents with different modules."""
    return any(type(module).__name__ in ROUTERS for module in model.modules())


def dropout_sites(model: "nn.Module") -> dict[str, str]:
    """Return the name of each dropout module's rate attribute, keyed by module name.

    Some attention modules have a rate instead of a dropout layer: ``attention_dropout`` in ModernBERT, and ``dropout``
    in T5 and CLIP.
    """
    from torch import nn

    sites = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            sites[name] = "p"
            continue
        for attribute in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, attribute, None), int | float):
                sites[name] = attribute
    return sites
