"""Small random models of kinds that a sweep cannot tune, and of decoders and shapes that it can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from support.families import random_transformer

VOCABULARY = 30522


def _write_transformer(model: Any, folder: Path, tokenizer_of: Path) -> str:
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer_of).save_pretrained(folder)
    return str(folder)


def _tiny_bert_config() -> Any:
    from transformers import BertConfig

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    return BertConfig(vocab_size=VOCABULARY, max_position_embeddings=64, num_labels=1, **sizes)


def write_bare(architecture: str, folder: Path, tokenizer_of: Path) -> str:
    """Write a checkpoint of transformers, such as ``BertForSequenceClassification``, without modules."""
    import transformers

    model = getattr(transformers, architecture)(_tiny_bert_config())
    return _write_transformer(model, folder, tokenizer_of)


def write_sparse(folder: Path, tokenizer_of: Path) -> str:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    checkpoint = write_bare("BertForMaskedLM", folder / "checkpoint", tokenizer_of)
    modules = [MLMTransformer(checkpoint), SpladePooling()]
    SparseEncoder(modules=modules, device="cpu").save(
        str(folder / "model"), create_model_card=False
    )
    return str(folder / "model")


def write_multi_vector(folder: Path, tokenizer_of: Path) -> str:
    from sentence_transformers import MultiVectorEncoder

    checkpoint = write_bare("BertModel", folder / "checkpoint", tokenizer_of)
    model = MultiVectorEncoder(checkpoint, device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def write_cross_encoder(folder: Path, tokenizer_of: Path) -> str:
    from sentence_transformers import CrossEncoder

    checkpoint = write_bare("BertForSequenceClassification", folder / "checkpoint", tokenizer_of)
    CrossEncoder(checkpoint, device="cpu").save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def write_bare_cross_encoder(folder: Path, tokenizer_of: Path) -> str:
    return write_bare("BertForSequenceClassification", folder / "model", tokenizer_of)


def write_bare_late_interaction(folder: Path, tokenizer_of: Path) -> str:
    """Write a checkpoint with the architecture of colbert-ir/colbertv2.0."""
    import json

    path = Path(write_bare("BertModel", folder / "model", tokenizer_of)) / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    return str(path.parent)


def write_clip(folder: Path, tokenizer_of: Path) -> str:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer
    from transformers import AutoTokenizer, CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = CLIPConfig(
        text_config={**sizes, "vocab_size": VOCABULARY, "max_position_embeddings": 64},
        vision_config={**sizes, "image_size": 32, "patch_size": 16},
        projection_dim=16,
    )
    checkpoint = folder / "checkpoint"
    CLIPModel(config).save_pretrained(checkpoint)
    images = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    CLIPProcessor(images, AutoTokenizer.from_pretrained(tokenizer_of)).save_pretrained(checkpoint)
    model = SentenceTransformer(modules=[Transformer(str(checkpoint))], device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def write_unpooled(folder: Path, tokenizer_of: Path) -> str:
    """Write a transformer with a dense head and no pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Transformer

    checkpoint = write_bare("BertModel", folder / "checkpoint", tokenizer_of)
    model = SentenceTransformer(modules=[Transformer(checkpoint), Dense(32, 16)], device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


REJECTED: dict[str, Callable[[Path, Path], str]] = {
    "sparse": write_sparse,
    "multi-vector": write_multi_vector,
    "cross-encoder": write_cross_encoder,
    "bare cross-encoder": write_bare_cross_encoder,
    "bare late interaction": write_bare_late_interaction,
    "CLIP": write_clip,
    "without pooling": write_unpooled,
}
"""Functions that write a model without any role into a folder, with the tokenizer of another model."""


def write_static(folder: Path, tokenizer_of: Path) -> str:
    """Write a model of static embeddings of width 16."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(tokenizer_of / "tokenizer.json"))
    static = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu"
    )
    static.save(str(folder), create_model_card=False)
    return str(folder)


def write_router(folder: Path, tokenizer_of: Path, default_route: str | None = None) -> str:
    """Write a model of width 32 with different transformers and prompts for queries and documents."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Router, Transformer
    from transformers import BertModel

    modules = []
    for seed, side in enumerate(("query", "document")):
        config = _tiny_bert_config()
        torch.manual_seed(seed)
        checkpoint = _write_transformer(BertModel(config), folder / side, tokenizer_of)
        modules.append([Transformer(checkpoint), Pooling(32, pooling_mode="mean")])
    router = Router.for_query_document(*modules, default_route=default_route)
    prompts = {"query": "search for: ", "document": "passage: "}
    model = SentenceTransformer(modules=[router], prompts=prompts, device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def write_shape(name: str, folder: Path, tokenizer_of: Path) -> str:
    """Write a random encoder of width 32 in the shape of a model that people tune, one of ``SHAPES``."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Transformer

    model_type, options, change = SHAPES[name]
    checkpoint = _write_transformer(
        random_transformer(model_type, **options), folder / "checkpoint", tokenizer_of
    )
    transformer = Transformer(checkpoint, max_seq_length=64)
    model = SentenceTransformer(modules=[transformer], device="cpu")
    change(model)
    model.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def _as_qwen3_embedding(model: Any) -> None:
    """Pool the last token, pad on the left, and put an instruction before queries."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    model.append(Pooling(32, pooling_mode="lasttoken"))
    model.append(Normalize())
    model.tokenizer.padding_side = "left"
    model.prompts = {"query": "Instruct: Retrieve similar sentences\nQuery: ", "document": ""}
    model.default_prompt_name = "query"


def _as_embedding_gemma(model: Any) -> None:
    """Add mean pooling, two heads, and prompts for tasks."""
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    torch.manual_seed(2)
    model.append(Pooling(32, pooling_mode="mean"))
    for in_width, out_width in ((32, 64), (64, 32)):
        model.append(
            Dense(in_width, out_width, bias=False, activation_function=torch.nn.Identity())
        )
    model.append(Normalize())
    model.prompts = {"query": "task: search result | query: ", "document": "title: none | text: "}
    model.default_prompt_name = "document"


def _as_instructor(model: Any) -> None:
    """Exclude the prompt from mean pooling."""
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    torch.manual_seed(2)
    model.append(Pooling(32, pooling_mode="mean", include_prompt=False))
    model.append(Dense(32, 16, bias=False, activation_function=torch.nn.Identity()))
    model.append(Normalize())
    model.prompts = {"query": "Represent the sentence for retrieval: "}
    model.default_prompt_name = "query"


SHAPES: dict[str, tuple[str, dict[str, Any], Callable[[Any], None]]] = {
    "Qwen3-Embedding": ("qwen3", {}, _as_qwen3_embedding),
    "EmbeddingGemma": ("gemma3_text", {"use_bidirectional_attention": True}, _as_embedding_gemma),
    "INSTRUCTOR": ("t5", {}, _as_instructor),
    "BERT without prompts in pooling": ("bert", {}, _as_instructor),
}
"""The transformer's type and options, and the other parts of a model, by the name of its shape."""

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}[SEP] {{ message['content'] }} {% else %}[CLS] {{ message['content'] }} "
    "{% endif %}{% endfor %}[SEP]"
)
"""A chat template that puts the prompt, the system message, before the sentence."""


def write_with_template(folder: Path, tokenizer_of: Path, template: str = TEMPLATE) -> str:
    """Write a random Qwen3 with last-token pooling and a chat template."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer

    checkpoint = _write_transformer(
        random_transformer("qwen3"), folder / "checkpoint", tokenizer_of
    )
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(checkpoint)
    modules = [Transformer(checkpoint), Pooling(32, pooling_mode="lasttoken")]
    SentenceTransformer(modules=modules, device="cpu").save(
        str(folder / "model"), create_model_card=False
    )
    return str(folder / "model")
