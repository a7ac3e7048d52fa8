"""Trial configurations, prepared sentences and encoders of any architecture, for tests that train."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import TrialConfig, trial_config
from raysweep.data.prepared import Prepared
from support.paths import SPACES

EVALUATION = EvaluationConfig(k=8, num_pool=200)


def trial(**values: object) -> TrialConfig:
    """Return a trial with rungs of 20 examples in fp32; ``values`` override its parameters."""
    defaults = {
        "loss": "triplet",
        "learning_rate": 5e-5,
        "batch_size": 8,
        "examples_per_rung": 20,
        "precision": "fp32",
    }
    return trial_config({**defaults, **values})


def prepare_demo(folder: Path, model: str = "demo", rows: int = 700) -> Prepared:
    """Return artifacts of the first demo sentences under ``model``, with examples for every loss."""
    import torch

    from raysweep.config import space_parser
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document
    from raysweep.config.losses import LOSSES
    from raysweep.data import demo
    from raysweep.prepare.build import prepare_here

    sentences = demo.generate()[0][:rows]
    table = pyarrow.table(
        {name: [getattr(row, name) for row in sentences] for name in ("text", "label")}
    )
    pyarrow.parquet.write_table(table, folder / "train.parquet")
    document = Document.read(SPACES / "smoke.yaml")
    document.override("data.train", str(folder / "train.parquet"))
    document.override("model", model)
    document.override("storage.runs", str(folder))
    document.override("space.freezing", "emb")
    document.override(
        "space.loss", "{choices: {" + ", ".join(f"{loss}: {{}}" for loss in LOSSES) + "}}"
    )
    config = configuration.parse(document)
    prepared = prepare_here(config, space_parser.parse(document, config))
    torch.set_num_threads(1)  # preparing raised it
    return prepared


def write_nan_encoder(encoder: str, folder: Path) -> str:
    """Write a copy of an encoder whose weights are all NaN and return its folder."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(encoder, folder, dirs_exist_ok=True)
    path = next(folder.rglob("model.safetensors"))
    weights = load_file(path)
    save_file(
        {name: np.full_like(values, np.nan) for name, values in weights.items()},
        path,
        {"format": "pt"},
    )
    return str(folder)


def write_first_token(encoder: str, folder: Path) -> str:
    """Write a copy of an encoder that is pooled by its first token and return its folder."""
    shutil.copytree(encoder, folder)
    path = next(folder.glob("*_Pooling/config.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "pooling_mode": "cls"}))
    return str(folder)


def tiny_bert(folder: Path, tokenizer_of: Path, num_blocks: int) -> str:
    """Write a random BERT of width 64 and return its folder."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=num_blocks,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    return sentence_encoder(BertModel(config), folder, tokenizer_of)


def sentence_encoder(backbone: Any, folder: Path, tokenizer_of: Path) -> str:
    """Write a transformers model as a mean-pooled sentence encoder with the tokenizer of another one."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoTokenizer

    # If other processes keep the cores busy, threads that spin for each other are a hundred times slower than one.
    torch.set_num_threads(1)
    backbone.save_pretrained(folder / "backbone")
    AutoTokenizer.from_pretrained(tokenizer_of).save_pretrained(folder / "backbone")
    transformer = Transformer(str(folder / "backbone"), max_seq_length=64)
    modules = [transformer, Pooling(transformer.get_embedding_dimension()), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "encoder"))
    return str(folder / "encoder")


PROMPTED: dict[str, tuple[dict[str, str], str | None]] = {
    "default": ({"query": "query: ", "document": "", "sts": "compare: "}, "query"),
    "query and document": ({"query": "query: ", "document": "passage: "}, None),
    "none": ({}, None),
}
"""Kinds of models: their prompts and the name of the default prompt."""


def write_with_prompts(encoder: str, folder: Path, kind: str) -> str:
    """Write a copy of an encoder with the prompts of a kind in PROMPTED and return its folder."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(encoder, device="cpu")
    prompts, default = PROMPTED[kind]
    model.prompts = {**model.prompts, **prompts}
    model.default_prompt_name = default
    model.save(str(folder), create_model_card=False)
    return str(folder)
