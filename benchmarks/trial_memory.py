"""GPU memory of a training step: all weights or a LoRA adapter, bf16 weights, and checkpointed blocks.

A step trains on one batch of 128 sentences of 64 tokens (8,192 tokens), with AdamW in bf16, on encoders with random
weights. ``between steps`` is what a trial holds: weights, the base model's copies of them, and AdamW's moments. ``peak`` is
the maximum during the second step, including gradients and activations. GB are 10**9 bytes.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import measure, peers
from benchmarks.chip_share import SHAPES

SENTENCES, TOKENS = 128, 64
HEADER = (
    "shape",
    "trained",
    "weights",
    "checkpointed",
    "between steps, GB",
    "peak, GB",
    "ms a step",
)


class Case(NamedTuple):
    """What a trial trains and how."""

    adapter: str = "none"
    weights: str = "fp32"
    checkpoints: bool = False


CASES = (
    Case(),
    Case(checkpoints=True),
    Case(adapter="lora"),
    Case(adapter="lora", weights="bf16"),
    Case(adapter="lora", weights="bf16", checkpoints=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trial_memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=["bert-base", "qwen3-0.6b", "qwen3-4b"]
    )
    parser.add_argument(
        "--json", action="store_true", help="print every figure as one JSON object on the last line"
    )
    arguments = parser.parse_args()
    rows = []
    with measure.workplace() as temporary:
        machine = measure.machine()
        if machine["device"] == "cpu":
            print("error: benchmarks.trial_memory needs a GPU", file=sys.stderr)
            sys.exit(2)
        for shape in arguments.shapes:
            for case in CASES:
                row = {
                    "shape": shape,
                    **case._asdict(),
                    **peers.apart(step_memory, shape, case, temporary),
                }
                rows.append(row)
                print(*_shown(row), sep="  ", flush=True)
    print(measure.table(HEADER, [_shown(row) for row in rows]))
    measure.finish("trial_memory", {"rows": rows}, machine, arguments.json)


def _shown(row: dict[str, Any]) -> list[object]:
    trained = "all" if row["adapter"] == "none" else "LoRA"
    figures = ["-", "out of memory", "-"]
    if row["peak_bytes"] is not None:
        in_gb = [f"{row[name] / 1e9:.2f}" for name in ("rest_bytes", "peak_bytes")]
        figures = [*in_gb, f"{1000 * row['seconds']:.0f}"]
    return [row["shape"], trained, row["weights"], "yes" if row["checkpoints"] else "no", *figures]


def step_memory(shape: str, case: Case, folder: Path) -> dict[str, Any]:
    """Return the bytes held between steps and at the peak of a step, and a step's seconds; None if memory runs out."""
    import torch

    from raysweep.encoders import bf16_weights
    from raysweep.training.trainable import Trainable

    model = random_model(shape, folder / shape)
    if case.weights == "bf16":
        bf16_weights.narrow(model)
    torch.cuda.empty_cache()
    try:
        return _measure_steps(Trainable(model), case)
    except torch.OutOfMemoryError:
        return {"rest_bytes": None, "peak_bytes": None, "seconds": None}


def _measure_steps(trainable: Any, case: Case) -> dict[str, Any]:
    import numpy as np
    import torch

    from raysweep.config.trial import trial_config
    from raysweep.encoders.tokens import tokenize
    from raysweep.training.batches import TrainedEncoder, embed_columns
    from raysweep.training.block_checkpoints import BlockCheckpoints
    from raysweep.training.dropout import Dropouts
    from raysweep.training.optimization import build_optimizer

    model = trainable.model
    dropouts = Dropouts(model, "cuda")
    config = trial_config({"loss": "contrastive", "learning_rate": 1e-5, "adapter": case.adapter})
    trainable.start(config)
    optimizer = build_optimizer(config, trainable.parameters)
    words = [f"{number} " * TOKENS for number in range(SENTENCES)]
    checkpoints = BlockCheckpoints(model, dropouts) if case.checkpoints else None
    encoder = TrainedEncoder(model, tokenize(model, words), checkpoints)
    pairs = np.arange(SENTENCES).reshape(-1, 2)
    assert encoder.tokens.lengths(np.arange(SENTENCES)).tolist() == [TOKENS] * SENTENCES
    model.train()
    for _ in range(2):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        rest, began = torch.cuda.memory_allocated(), time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            left, right = embed_columns([encoder, encoder], pairs)
        torch.nn.functional.cosine_similarity(left, right).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return {"rest_bytes": rest, "peak_bytes": torch.cuda.max_memory_allocated(), "seconds": seconds}


def random_model(shape: str, folder: Path) -> Any:
    """Return an encoder of a shape with random weights on a GPU, without writing them to a disk."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
    from transformers import AutoModel

    from benchmarks.chip_share import random_encoder, shape_config

    if not folder.exists():
        random_encoder(
            shape,
            folder,
            vocab_size=30522,
            hidden_size=192,
            num_hidden_layers=1,
            intermediate_size=64,
        )
    words: Any = SentenceTransformer(str(folder), device="cpu", local_files_only=True)[0]
    words.max_seq_length = TOKENS
    with torch.device("cuda"):
        words.model = AutoModel.from_config(shape_config(shape))  # type: ignore[no-untyped-call]
    words.model.float()
    width = words.model.config.hidden_size
    return SentenceTransformer(modules=[words, Pooling(width, "mean"), Normalize()], device="cuda")


if __name__ == "__main__":
    main()
