"""Functions that load encoders and embed sentences in padded batches."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import precision
from raysweep.encoders.buckets import buckets, tokens_per_batch
from raysweep.encoders.locate import ModelSource, check_loadable, locate
from raysweep.encoders.tokens import Tokens, tokenize
from raysweep.encoders.traits import EncoderTraits, Role, check_files, check_role, has_router
from raysweep.errors import InputError
from raysweep.terminal import Advance

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer


PROBES = (
    "A WARM Room, in Zürich: 21.5 °C!",
    "cold soup",
    "It was the third evening in a row that nobody had lit the stove, so they sat in their coats and told stories.",
)
"""Sentences of different lengths for checking that two implementations return the same embeddings."""

# Maximum relative difference. Rounding errors are far smaller, and different settings cause far larger differences.
MAX_DIFFERENCE = 1e-3
SHORTEST = 1e-12


def load(
    config: EncoderConfig,
    *,
    role: Role = "evaluated",
    device: str = "cpu",
    source: ModelSource | None = None,
) -> "SentenceTransformer":
    """Load an encoder and set it to evaluation mode.

    Weights are loaded in fp32, and only from safetensors files because other formats may execute code. If
    ``config.weights`` is ``bf16``, matrices are then converted to bf16 (:mod:`raysweep.encoders.bf16_weights`).

    Raises:
        InputError: If the encoder is unknown, is not a text encoder, or cannot be used in the role.
    """
    source = source or locate(config)
    check_files(config, role, source)
    check_loadable(config, source)
    from sentence_transformers import SentenceTransformer

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    if device == "cuda":
        import torch

        # cuDNN attention takes 100 ms to plan each new batch shape, and most batches have a new shape.
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with without_progress_bars():
            model = SentenceTransformer(
                str(source.folder),
                device=device
                if config.weights == "fp32"
                else "cpu",  # fp32 weights may not fit on a GPU
                local_files_only=True,
                model_kwargs={"dtype": "float32", "use_safetensors": True},
            )
    except Exception as error:  # loading a damaged or unrelated folder can raise almost any error
        raise InputError(f"model {config.name!r} cannot be loaded: {_reason(error)}") from None
    if model.tokenizer is None:
        raise InputError(f"model {config.name!r}: not a text encoder: it has no tokenizer")
    if config.weights == "bf16":
        from raysweep.encoders import bf16_weights

        bf16_weights.narrow(model)
        model.to(device)
    prompts = source.prompts_of(config).distinct
    for prompt in prompts:
        _check_template(model, config, prompt)
    traits = EncoderTraits.of(model)
    check_role(config, role, traits.limits)
    if config.max_tokens is not None:
        _limit_tokens(model, config, config.max_tokens, traits)
    if traits.embeds_tokens:
        for prompt in prompts:
            _check_agreement(model, config, prompt, traits.padding_side)
    return model.eval()


def _check_template(model: "SentenceTransformer", config: EncoderConfig, prompt: str) -> None:
    """Raise InputError if the tokenizer or its chat template fails with this prompt."""
    route = {"task": "document"} if has_router(model) else {}
    try:
        model.preprocess(["a"], prompt=prompt or None, **route)
    except Exception as error:  # a template may raise any error
        part = "chat template" if "message" in model.modalities else "tokenizer"
        raise InputError(
            f"model {config.name!r}: its {part} fails with prompt {prompt!r}: {_reason(error)}; allowed: a {part} that "
            "can process a sentence, or another prompt"
        ) from None


def _limit_tokens(
    model: "SentenceTransformer", config: EncoderConfig, max_tokens: int, traits: EncoderTraits
) -> None:
    """Set the model's token limit, or raise InputError if the model does not support it."""
    if not (traits.has_attention_mask or traits.has_router):
        raise InputError(
            f"model {config.name!r}: max_tokens is {max_tokens}; allowed for static embeddings: no max_tokens"
        )
    tables = (
        module
        for name, module in model.named_modules()
        if name.endswith(".position_embeddings") and hasattr(module, "num_embeddings")
    )
    table = next(tables, None)
    if table is not None:
        # RoBERTa's positions start after the padding index.
        num_unused = 0 if table.padding_idx is None else table.padding_idx + 1
        num_positions = int(table.num_embeddings) - num_unused
        if max_tokens > num_positions:
            raise InputError(
                f"model {config.name!r}: max_tokens is {max_tokens}; allowed: at most {num_positions}"
            )
    model.max_seq_length = max_tokens


def _check_agreement(
    model: "SentenceTransformer", config: EncoderConfig, prompt: str, padding_side: str | None
) -> None:
    """Raise InputError if :func:`embed` and the model's ``encode`` return different vectors.

    The cause may be a setting that only ``encode`` applies, such as left padding.
    """
    embeddings = embed_texts(model, PROBES, prompt, unit=False)
    own = model.encode(list(PROBES), prompt=prompt, show_progress_bar=False)
    if not np.isfinite(own).all():
        return  # reported by :func:`finite`
    longest = np.linalg.norm(own, axis=1).max().clip(min=SHORTEST)
    difference = float(np.abs(embeddings - own).max() / longest)
    if difference > MAX_DIFFERENCE:
        raise InputError(
            f"model {config.name!r}: its encode returns different vectors than its forward pass on padded batches "
            f"(relative difference: {difference:.2g}, padding side: {padding_side}); allowed: models whose vectors do not "
            "depend on padding"
        )


def names_in_memory(folder: Path) -> list[str]:
    """Return the parameter names of a model created by transformers, or an empty list if it is unsupported.

    These names may differ from those in the model's files.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):  # no weights are loaded
            model = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, KeyError):
        return []
    return [name for name, _ in model.named_parameters()]


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    if "trust_remote_code" in str(error):  # raysweep never sets this argument
        return (
            "it contains custom code, which raysweep never runs; allowed: modules from sentence-transformers and "
            f"architectures from transformers ({text})"
        )
    return text


@contextlib.contextmanager
def without_progress_bars() -> Iterator[None]:
    """Hide transformers' progress bars within the context."""
    from transformers.utils import logging as library

    shown = library.is_progress_bar_enabled()
    library.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            library.enable_progress_bar()  # type: ignore[no-untyped-call]


class BatchContext(Protocol):
    """A function that returns the context for the forward pass of a padded batch, given its sentence ids.

    Several batches share one packed pass (:mod:`raysweep.encoders.packed`). An example is
    :meth:`raysweep.encoders.frozen_prefix.Prefix.replayed`, which skips the encoder's frozen layers.
    """

    def __call__(
        self, *batches: npt.NDArray[np.integer]
    ) -> contextlib.AbstractContextManager[None]: ...


def no_context(*batches: npt.NDArray[np.integer]) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def forward(
    model: "SentenceTransformer",
    tokens: Tokens,
    ids: npt.NDArray[np.integer],
    context: contextlib.AbstractContextManager[None] | None = None,
) -> "torch.Tensor":
    """Run the model on one padded batch, within ``context`` if given, and return the embeddings (len(ids), width)."""
    padded = features(model, tokens, ids)
    with context or contextlib.nullcontext():
        embeddings: torch.Tensor = model(padded)["sentence_embedding"]
    return embeddings


def features(
    model: "SentenceTransformer", tokens: Tokens, ids: npt.NDArray[np.integer]
) -> dict[str, Any]:
    """Return the inputs for a padded batch on the model's device."""
    padded, mask = tokens.padded(ids, pad_id(model))
    inputs = {
        "input_ids": on_device(padded, model.device),
        "attention_mask": on_device(mask, model.device),
    }
    if tokens.prompt_length:
        return {**inputs, "prompt_length": tokens.prompt_length}
    return inputs


def on_device(array: npt.NDArray[Any], device: "torch.device") -> "torch.Tensor":
    """Copy an array to a device, asynchronously if the device is a GPU."""
    import torch

    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def embed(
    model: "SentenceTransformer",
    tokens: Tokens,
    ids: npt.NDArray[np.integer],
    *,
    arithmetic: str = "fp32",
    unit: bool = True,
    batch_context: BatchContext = no_context,
) -> npt.NDArray[np.float32]:
    """Return fp32 embeddings (len(ids), width) of the sentences with these ids, computed in evaluation mode.

    The embeddings are normalized unless ``unit`` is False. ``arithmetic`` is ``fp32`` or ``bf16``.
    """
    import torch

    model.eval()
    width = embedding_width(model)
    embeddings = np.empty((len(ids), width), np.float32)
    max_tokens = tokens_per_batch(model.device.type, arithmetic)
    with torch.inference_mode(), precision.autocast(arithmetic, model.device.type):
        for bucket in buckets(tokens.lengths(ids), max_tokens):
            bucket_ids = ids[bucket]
            context = batch_context(bucket_ids)
            # truncate_dim may limit the width
            rows = forward(model, tokens, bucket_ids, context).float()[:, :width]
            if unit:
                rows = torch.nn.functional.normalize(rows, dim=-1)
            embeddings[bucket] = rows.cpu().numpy()
    return embeddings


def embed_texts(
    model: "SentenceTransformer",
    texts: Sequence[str],
    prompt: str,
    *,
    arithmetic: str = "fp32",
    unit: bool = True,
    advance: Advance = lambda done, total, unit: None,
) -> npt.NDArray[np.float32]:
    """Return fp32 embeddings (len(texts), width) of texts, each prefixed with ``prompt``; see :func:`embed`."""
    num_done = 0

    @contextlib.contextmanager
    def counted(*batches: npt.NDArray[np.integer]) -> Iterator[None]:
        nonlocal num_done
        yield
        num_done += sum(map(len, batches))
        advance(num_done, len(texts), "sentences")

    tokens = tokenize(model, texts, prompt)
    everything = np.arange(len(texts))
    return embed(model, tokens, everything, arithmetic=arithmetic, unit=unit, batch_context=counted)


def finite(embeddings: npt.NDArray[np.float32], config: EncoderConfig) -> npt.NDArray[np.float32]:
    """Return the embeddings, or raise InputError if a value is not finite."""
    if not np.isfinite(embeddings).all():
        raise InputError(f"model {config.name!r}: its embeddings contain NaN or infinity")
    return embeddings


def word_table(model: "SentenceTransformer") -> "torch.nn.Embedding | None":
    """Return the word embedding table, or None if it is not a plain ``nn.Embedding`` or is tied to the output layer."""
    import torch

    inner = getattr(model[0], "auto_model", None)
    if inner is None:
        return None
    table = inner.get_input_embeddings()
    is_plain = (
        type(table) is torch.nn.Embedding
        and table.max_norm is None
        and not table.scale_grad_by_freq
    )
    is_tied = getattr(inner.get_output_embeddings(), "weight", None) is table.weight
    return table if is_plain and not is_tied else None


def embedding_width(model: "SentenceTransformer") -> int:
    """Return the dimension of the encoder's embeddings."""
    return int(model.get_embedding_dimension() or 0)


def hidden_width(model: "SentenceTransformer") -> int:
    """Return the dimension of the encoder's hidden states, which may differ from that of its embeddings."""
    return int(model[0].auto_model.config.hidden_size)  # type: ignore[union-attr, arg-type]


def pad_id(model: "SentenceTransformer") -> int:
    """Return the id of the padding token, or 0 if the tokenizer does not define one."""
    pad = getattr(model.tokenizer, "pad_token_id", None)
    return 0 if pad is None else int(pad)


def use_threads(num_threads: int) -> None:
    import torch

    torch.set_num_threads(num_threads)


def best_device() -> str:
    """Return ``cuda`` if available, otherwise ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
