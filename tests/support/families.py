"""Small random encoders of every family in the table of families."""

from pathlib import Path
from typing import Any

from raysweep.encoders.families import FAMILIES
from support.encoders import sentence_encoder

MODEL_TYPES = [model_type for family in FAMILIES.values() for model_type in family.model_types]

SPECIAL_TOKENS = {
    "pad_token_id": 0,
    "bos_token_id": 101,
    "eos_token_id": 102,
    "cls_token_id": 101,
    "sep_token_id": 102,
}

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_T5_SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 4}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
_DISENTANGLED = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}

_OPTIONS: dict[str, dict[str, Any]] = {
    "albert": {**_SIZES, "embedding_size": 16},
    "deberta": {**_SIZES, **_DISENTANGLED},
    "deberta-v2": {
        **_SIZES,
        **_DISENTANGLED,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 3,
    },
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48},
    "electra": {**_SIZES, "embedding_size": 24},
    "rembert": {**_SIZES, "input_embedding_size": 24},
    "ernie": {**_SIZES, "use_task_id": True},
    "modernbert": {**_SIZES, **SPECIAL_TOKENS, "local_attention": 8},
    "eurobert": {**_SIZES, **SPECIAL_TOKENS, "num_key_value_heads": 2},
    "t5": _T5_SIZES,
    "mt5": _T5_SIZES,
    "umt5": _T5_SIZES,
    "llama": {**_SIZES, "num_key_value_heads": 2},
    "mistral": {**_SIZES, **_GROUPED},
    "qwen2": {**_SIZES, "num_key_value_heads": 2},
    "qwen3": {**_SIZES, **_GROUPED},
    "phi3": {**_SIZES, "num_key_value_heads": 2, "pad_token_id": 0},
    "gemma2": {**_SIZES, **_GROUPED, "query_pre_attn_scalar": 8},
    "gemma3_text": {
        **_SIZES,
        **_GROUPED,
        "query_pre_attn_scalar": 8,
        "use_bidirectional_attention": True,
    },
}


def random_transformer(model_type: str, **options: Any) -> Any:
    """Return a random transformer of width 32 with three blocks, and the vocabulary of MiniLM; ``options`` override."""
    import torch
    import transformers

    torch.manual_seed(1)
    sizes = {
        "vocab_size": 30522,
        "max_position_embeddings": 72,
        **_OPTIONS.get(model_type, _SIZES),
        **options,
    }
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    encoders_of_pairs = {
        "t5": "T5EncoderModel",
        "mt5": "MT5EncoderModel",
        "umt5": "UMT5EncoderModel",
    }
    if model_type in encoders_of_pairs:
        return getattr(transformers, encoders_of_pairs[model_type])(config)
    return transformers.AutoModel.from_config(config)


def write_random_encoder(model_type: str, folder: Path, tokenizer_of: Path, **options: Any) -> str:
    """Write a random mean-pooled sentence encoder of this type and return its folder."""
    return sentence_encoder(random_transformer(model_type, **options), folder, tokenizer_of)
