"""Several trials at once on one GPU: the share of its bf16 peak that they reach, with an encoder of realistic size."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import measure, peers
from benchmarks.peers import Peer

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
HEADER = ("peer", "trials at once", "triplets/s in all", "distinct tokens/s", "share of bf16 peak")


# transformers' model type and sizes of each shape; what is missing is its default.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base": ("bert", {}),
    "qwen3-0.6b": (
        "qwen3",
        {
            "vocab_size": 151669,
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
        },
    ),
}


def random_encoder(shape: str, folder: Path, **sizes: Any) -> str:
    """Save an encoder of a shape with random weights, MiniLM's tokenizer, mean pooling and unit length.

    ``sizes`` override those of the shape.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders.locate import locate

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(locate(EncoderConfig(name="demo")).folder, local_files_only=True)
    inner = folder.with_name(f"{folder.name}-parts")
    model_type, own_sizes = SHAPES[shape]
    config = AutoConfig.for_model(model_type, **{"vocab_size": len(tokenizer), **own_sizes, **sizes})
    model: Any = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(inner)
    tokenizer.save_pretrained(inner)
    words = Transformer(str(inner), max_seq_length=256)
    modules = [words, Pooling(words.get_embedding_dimension(), "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return str(folder)


def report(task: "Task", counts: Sequence[int], device: str) -> list[dict[str, Any]]:
    """Print and return the throughput of several copies of a trial at once.

    FLOPs are 6 for each parameter that multiplies tokens and each token of a batch's distinct sentences, or 4 if its
    gradient is not needed, as with an adapter, without padding and attention's own products: useful work only, counted
    alike for both peers.
    """
    from benchmarks import training_peers

    tokens = training_peers.token_counts(task.prepared, task.triplets)["distinct"]
    parameters = peers.apart(count_parameters, task.prepared.model)
    peak = next((value for name, value in PEAKS.items() if name in device), None)
    flops = 6 if task.adapter == "none" else 4
    results: list[dict[str, Any]] = []
    for name, work in (("stock", training_peers.stock), ("ours", training_peers.ours)):
        for count in counts:
            seconds = peers.at_once([Peer(f"{name} {copy}", work, _restless(task)) for copy in range(count)])
            rate = count * tokens / seconds
            share = flops * parameters * rate / peak if peak else None
            total = count * len(task.triplets) / seconds
            result = {"peer": f"{name} {task.precision}", "trials": count, "examples_per_second": total}
            results.append({**result, "distinct_tokens_per_second": rate, "share_of_bf16_peak": share})
    shown = [
        [
            row["peer"],
            row["trials"],
            f"{row['examples_per_second']:,.0f}",
            f"{row['distinct_tokens_per_second']:,.0f}",
            "unknown" if row["share_of_bf16_peak"] is None else f"{row['share_of_bf16_peak']:.1%}",
        ]
        for row in results
    ]
    print(f"\n{parameters:,} parameters multiply each token\n{measure.table(HEADER, shown)}", flush=True)
    return results


def count_parameters(model: dict[str, Any]) -> int:
    """Return the number of parameters of the encoder of this configuration."""
    from benchmarks.training_peers import working_parameters
    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders import encoder

    loaded = encoder.load(EncoderConfig(**model))
    return working_parameters(loaded)


def _restless(task: "Task") -> "Task":
    """Run without pauses: trials that run at once take no turns."""
    from dataclasses import replace

    return replace(task, per_turn=len(task.triplets) // 64 + 1)
