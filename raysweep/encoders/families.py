"""Table of the supported encoder families and the names of their modules and parameters.

Freezing levels, adapter targets, layer decay, the prefix cache and packed passes depend on this table. To support
another family, add an entry here and a row to the tests.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BlockParts:
    """Regular expressions for the names of a block's parameters, relative to the block.

    ``attention`` includes norms. ``intermediate`` is the first feed-forward matrix and any norm before it. ``output``
    is the second feed-forward matrix.
    """

    attention: str
    intermediate: str
    output: str


@dataclass(frozen=True)
class Family:
    """Regular expressions for the names of an encoder's modules and parameters.

    ``model_types`` are values of transformers' ``config.model_type``.
    ``tables`` matches lookup tables, and ``embeddings`` matches the other parameters of the embedding block.
    ``block`` matches the module path before a block's number.
    ``embedding_modules`` matches the modules of the embedding block that return hidden states.
    ``after_first_block`` matches the path of a module that changes the hidden states after block 0.

    If ``shares_blocks`` is True, all blocks use the same weights, and no level freezes a block. If ``caches_prefix`` is
    False, blocks need more than the hidden states of earlier blocks, so the prefix cache is not supported. Position ids
    start at 0 or, if ``positions`` is ``padding_id``, after the id of the padding token. If ``positions`` is None,
    packed passes are not supported.
    """

    model_types: tuple[str, ...]
    tables: str
    embeddings: str
    block: str
    parts: BlockParts
    embedding_modules: str
    after_first_block: str | None = None
    shares_blocks: bool = False
    caches_prefix: bool = True
    positions: Literal["0", "padding_id"] | None = None


_TABLES = r"embeddings\.(word|position|token_type|task_type)_embeddings\."
_BERT_PARTS = BlockParts(r"attention\.", r"intermediate\.dense\.", r"output\.dense\.")
_GATED_OUTPUT = r"mlp\.down_proj\."
_GATED_INTERMEDIATE = r"mlp\.(gate_proj|up_proj|gate_up_proj)\."

FAMILIES = {
    "BERT, ERNIE": Family(
        ("bert", "ernie"),
        _TABLES,
        r"embeddings\.",
        r"encoder\.layer",
        _BERT_PARTS,
        embedding_modules="embeddings",
        positions="0",
    ),
    "RoBERTa, XLM-R, CamemBERT": Family(
        ("roberta", "xlm-roberta", "camembert"),
        _TABLES,
        r"embeddings\.",
        r"encoder\.layer",
        _BERT_PARTS,
        embedding_modules="embeddings",
        positions="padding_id",
    ),
    "ELECTRA": Family(
        ("electra",),
        _TABLES,
        r"(embeddings|embeddings_project)\.",
        r"encoder\.layer",
        _BERT_PARTS,
        embedding_modules="embeddings|embeddings_project",
    ),
    "RemBERT": Family(
        ("rembert",),
        _TABLES,
        r"(embeddings|encoder\.embedding_hidden_mapping_in)\.",
        r"encoder\.layer",
        _BERT_PARTS,
        embedding_modules=r"embeddings|encoder\.embedding_hidden_mapping_in",
    ),
    "MPNet": Family(
        ("mpnet",),
        rf"({_TABLES}|encoder\.relative_attention_bias\.)",
        r"embeddings\.",
        r"encoder\.layer",
        _BERT_PARTS,
        embedding_modules="embeddings",
    ),
    "DeBERTa": Family(
        ("deberta", "deberta-v2"),
        rf"({_TABLES}|encoder\.rel_embeddings\.)",
        r"(embeddings|encoder\.LayerNorm)\.",
        r"encoder\.layer",
        _BERT_PARTS,
        embedding_modules="embeddings",
        after_first_block=r"encoder\.conv",
    ),
    "ALBERT": Family(
        ("albert",),
        _TABLES,
        r"(embeddings|encoder\.embedding_hidden_mapping_in)\.",
        r"encoder\.albert_layer_groups",
        BlockParts(
            r"albert_layers\.\d+\.attention\.",
            r"albert_layers\.\d+\.ffn\.",
            r"albert_layers\.\d+\.ffn_output\.",
        ),
        embedding_modules=r"embeddings|encoder\.embedding_hidden_mapping_in",
        shares_blocks=True,
    ),
    "DistilBERT": Family(
        ("distilbert",),
        _TABLES,
        r"embeddings\.",
        r"transformer\.layer",
        BlockParts(
            r"(attention|sa_layer_norm)\.",
            r"ffn\.lin1\.",
            r"ffn\.lin2\.",
        ),
        embedding_modules="embeddings",
    ),
    "ModernBERT": Family(
        ("modernbert",),
        r"embeddings\.tok_embeddings\.",
        r"embeddings\.",
        "layers",
        BlockParts(
            r"(attn|attn_norm)\.",
            r"(mlp_norm|mlp\.Wi)\.",
            r"mlp\.Wo\.",
        ),
        embedding_modules="embeddings",
    ),
    "NomicBERT": Family(
        ("nomic_bert",),
        _TABLES,
        r"embeddings\.",
        "layers",
        BlockParts(
            r"(self_attn|post_attention_layernorm)\.",
            _GATED_INTERMEDIATE,
            _GATED_OUTPUT,
        ),
        embedding_modules="embeddings",
    ),
    # Block 0 also returns the relative position bias, which the other blocks add to their attention scores.
    "T5, mT5, umT5": Family(
        ("t5", "mt5", "umt5"),
        r"(shared|embed_tokens|encoder\.block\.\d+\.layer\.0\.SelfAttention\.relative_attention_bias)\.",
        r"(shared|embed_tokens)\.",
        r"encoder\.block",
        BlockParts(
            r"layer\.0\.",
            r"layer\.1\.(layer_norm|DenseReluDense\.wi(_\d)?)\.",
            r"layer\.1\.DenseReluDense\.wo\.",
        ),
        embedding_modules="shared|embed_tokens",
        caches_prefix=False,
    ),
    "Llama, Mistral, Qwen2, Qwen3, EuroBERT, Phi-3": Family(
        ("llama", "mistral", "qwen2", "qwen3", "eurobert", "phi3"),
        r"embed_tokens\.",
        r"embed_tokens\.",
        "layers",
        BlockParts(
            r"(input_layernorm|self_attn)\.",
            rf"(post_attention_layernorm\.|{_GATED_INTERMEDIATE})",
            _GATED_OUTPUT,
        ),
        embedding_modules="embed_tokens",
    ),
    "Gemma 2, Gemma 3": Family(
        ("gemma2", "gemma3_text"),
        r"embed_tokens\.",
        r"embed_tokens\.",
        "layers",
        BlockParts(
            r"(input_layernorm|self_attn|post_attention_layernorm)\.",
            rf"(pre_feedforward_layernorm\.|{_GATED_INTERMEDIATE})",
            _GATED_OUTPUT,
        ),
        embedding_modules="embed_tokens",
    ),
}

_FAMILY_OF_TYPE = {
    model_type: family for family in FAMILIES.values() for model_type in family.model_types
}


def family_of(model_type: str | None) -> Family | None:
    """Return the family of a transformers model type, or None if it is not in the table."""
    return None if model_type is None else _FAMILY_OF_TYPE.get(model_type)
