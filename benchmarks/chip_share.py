"""Measure the share of a GPU's bf16 peak that concurrent trials reach with an encoder of realistic size."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import measure, peers
from benchmarks.peers import Peer, Turn

if TYPE_CHECKING:
    from benchmarks.training_peers import Task

# Dense bf16 FLOP/s by a part of the device's name, the more special first.
PEAKS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
}
HEADER = (
    "peer",
    "trials at once",
    "triplets/s in all",
    "distinct tokens/s",
    "share of bf16 peak",
    "GB a trial",
)


_BASE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
_QWEN3_06B = {
    "vocab_size": 151669,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
}

# transformers' model type and sizes of each shape; what is missing is its default.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("bert", {}),
    "mpnet-base": ("mpnet", {}),
    "distilbert": ("distilbert", {}),
    "xlm-roberta-base": ("xlm-roberta", {"vocab_size": 250002}),
    "modernbert-base": ("modernbert", {"vocab_size": 50368}),
    "electra-base": ("electra", {**_BASE, "embedding_size": 768}),
    "deberta-v3-small": (
        "deberta-v2",
        {
            **_BASE,
            "num_hidden_layers": 6,
            "vocab_size": 128100,
            "relative_attention": True,
            "position_buckets": 256,
            "position_biased_input": False,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
        },
    ),
    "albert-base": ("albert", _BASE),
    "rembert-8-layers": ("rembert", {"vocab_size": 250300, "num_hidden_layers": 8}),
    "nomic-bert": ("nomic_bert", {}),
    "t5-base": (
        "t5",
        {"vocab_size": 32128, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    "gemma3-8-layers": (
        "gemma3_text",
        {
            "vocab_size": 262144,
            "hidden_size": 768,
            "num_hidden_layers": 8,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "intermediate_size": 1152,
        },
    ),
    "llama-2-layers": (
        "llama",
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "num_hidden_layers": 2,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 8192,
        },
    ),
    "mistral-1-layer": ("mistral", {"num_hidden_layers": 1}),
    "qwen3-6-layers": ("qwen3", {**_QWEN3_06B, "num_hidden_layers": 6}),
    "qwen3-0.6b": ("qwen3", _QWEN3_06B),
    "qwen3-4b": (
        "qwen3",
        {
            "vocab_size": 151665,
            "hidden_size": 2560,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 9728,
        },
    ),
}


def shape_config(shape: str, **sizes: Any) -> Any:
    """Return transformers' configuration of a shape. ``sizes`` override the shape's."""
    from transformers import AutoConfig

    model_type, own_sizes = SHAPES[shape]
    return AutoConfig.for_model(model_type, **{**own_sizes, **sizes})


def random_encoder(shape: str, folder: Path, **sizes: Any) -> str:
    """Save an encoder of a shape with random weights, MiniLM's tokenizer, mean pooling and unit length.

    ``sizes`` override those of the shape.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoModel, AutoTokenizer

    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders.locate import locate

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(
        locate(EncoderConfig(name="demo")).folder, local_files_only=True
    )
    inner = folder.with_name(f"{folder.name}-parts")
    config = shape_config(shape, **{"vocab_size": len(tokenizer), **SHAPES[shape][1], **sizes})
    model: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(inner)
    tokenizer.save_pretrained(inner)
    words = Transformer(str(inner), max_seq_length=256)
    modules = [words, Pooling(words.get_embedding_dimension(), "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return str(folder)


def report(task: "Task", counts: Sequence[int], device: str) -> list[dict[str, Any]]:
    """Print and return the throughput and memory of several copies of a trial at once.

    The stock trainer's copies and raysweep's take one turn for each of ``counts``, in ascending order. FLOPs are 6 for
    each parameter that multiplies tokens and each token of a batch's distinct sentences, or 4 if its gradient is not
    needed, as with an adapter, without padding and attention's own products: useful work only, counted alike for both.
    """
    from benchmarks import training_peers

    counts = sorted(counts)
    batches = len(task.triplets) // training_peers.BATCH // len(counts)
    num_examples = batches * training_peers.BATCH
    task = replace(task, triplets=task.triplets[: num_examples * len(counts)], per_turn=batches)
    tokens = training_peers.token_counts(task.prepared, task.triplets)["distinct"] / len(counts)
    peak = next((value for name, value in PEAKS.items() if name in device), None)
    flops = 6 if task.adapter == "none" else 4
    results: list[dict[str, Any]] = []
    work = {"stock": training_peers.stock, "ours": training_peers.ours}
    # All processes start at once, since importing takes longer than the turns.
    copies = {
        name: [Peer(f"{name} {copy}", work[name], task, waits=True) for copy in range(max(counts))]
        for name in work
    }
    parameters = count_parameters(task.prepared.model)
    for name in work:
        for count, taken in zip(counts, _turns(copies[name], counts), strict=True):
            result: dict[str, Any] = {"peer": f"{name} {task.precision}", "trials": count}
            if taken is not None:
                rate = count * tokens / taken.seconds
                result |= {
                    "examples_per_second": count * num_examples / taken.seconds,
                    "distinct_tokens_per_second": rate,
                    "share_of_bf16_peak": flops * parameters * rate / peak if peak else None,
                    "bytes_per_trial": taken.device_bytes,
                }
            results.append(result)
    print(
        f"\n{parameters:,} parameters multiply each token\n{measure.table(HEADER, [_shown(row) for row in results])}"
    )
    return results


def _turns(copies: Sequence[Peer], counts: Sequence[int]) -> list[Turn | None]:
    """Return a turn of 1, 2 and so on of the copies at once, with the time until all rest; None if memory ran out."""
    turns: list[Turn | None] = []
    ready: list[Peer] = []
    try:
        for count in counts:
            more = copies[len(ready) : count]
            for peer in more:
                peer.go()
            for peer in more:
                peer.expect("ready")
            ready += more
            seconds = peers.at_once(ready)
            most = max(peer.peak_device_bytes for peer in ready)
            turns.append(Turn(0, seconds, 0, most))
    except RuntimeError as error:
        if "OutOfMemoryError" not in str(error):
            raise
        turns += [None] * (len(counts) - len(turns))
    finally:
        for peer in copies:
            peer.stop()
    return turns


def _shown(row: dict[str, Any]) -> list[object]:
    """Return the cells of a row of the table."""
    start = [row["peer"], row["trials"]]
    if "examples_per_second" not in row:
        return [*start, "out of memory", "", "", ""]
    share = row["share_of_bf16_peak"]
    rates = [f"{row[name]:,.0f}" for name in ("examples_per_second", "distinct_tokens_per_second")]
    return [
        *start,
        *rates,
        "unknown" if share is None else f"{share:.1%}",
        f"{row['bytes_per_trial'] / 1e9:.2f}",
    ]


def count_parameters(model: dict[str, Any]) -> int:
    """Return the number of parameters of the encoder of this configuration."""
    from benchmarks.training_peers import working_parameters
    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders import encoder

    loaded = encoder.load(EncoderConfig(**model), device="cpu")
    return working_parameters(loaded)
