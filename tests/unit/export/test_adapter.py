"""Exports of a LoRA trial: merged into the weights, or as an adapter of the base model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.export.export import export
from raysweep.results.ledger import point_name
from raysweep.training.trainable import Trainable
from raysweep.training.weights import read_point
from raysweep.training.workbench import Workbench
from support.encoders import EVALUATION, trial
from support.minimal_run import write_minimal_run

pytest.importorskip("peft")

TEXTS = ["a warm room", "The soup was cold, and so was the waiter.", "no"]
LORA = {"adapter": "lora", "lora_rank": 3, "lora_alpha": 5.0, "learning_rate": 3e-2}


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str, write_run: Callable[..., Any]
) -> Any:
    folder = tmp_path_factory.mktemp("lora-run")
    return write_run(folder, tiny_encoder, LORA)


def load_and_encode(folder: Path, texts: list[str]) -> Any:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(texts)


@pytest.mark.parametrize(("point", "share"), [("0:1", 1.0), ("1:1:interpolate=0.4", 0.4)])
def test_merged_and_adapter_exports_agree(
    run: Any, tmp_path: Path, all_on_the_front: None, point: str, share: float
) -> None:
    folder, prepared, dev = run
    texts = prepared.sentences.texts(dev.queries)
    export(folder, point, tmp_path / "merged")
    export(folder, point, tmp_path / "adapter", as_adapter=True)
    merged, adapted = (load_and_encode(tmp_path / name, texts) for name in ("merged", "adapter"))
    assert np.abs(merged - adapted).max() < 1e-5
    bench = Workbench(prepared, EVALUATION)
    base = bench.encode(dev).queries
    weights, _ = read_point(folder / "points" / point_name(int(point[0]), 1))
    bench.reset(weights)
    with bench.trainable.interpolated(share):
        scored = bench.encode(dev).queries
    assert np.abs(scored - merged).max() < 1e-5 < 1e-3 < np.abs(scored - base).max()
    assert not list((tmp_path / "merged").rglob("adapter*"))
    (config,) = (tmp_path / "adapter").rglob("adapter_config.json")
    saved = json.loads(config.read_text())
    assert (saved["r"], saved["lora_alpha"]) == (3, 5.0 * share)
    assert not list((tmp_path / "adapter").rglob("model.safetensors"))
    num_bytes = sum(tensor.numel() * 4 for tensor in weights.tensors.values())
    (file,) = (tmp_path / "adapter").rglob("adapter_model.safetensors")
    assert num_bytes < file.stat().st_size < 1.5 * num_bytes + 20_000
    for name in ("merged", "adapter"):
        card = (tmp_path / name / "README.md").read_text()
        assert "- `adapter`: lora" in card and "- `lora_rank`: 3" in card
    assert "pip install peft" in (tmp_path / "adapter" / "README.md").read_text()


@pytest.mark.parametrize("values", [LORA, {"freezing": "emb+B0"}], ids=["lora", "freezing"])
def test_bf16_weights_are_exported_in_fp32(
    values: dict[str, Any], tiny_encoder: str, tmp_path: Path
) -> None:
    config = EncoderConfig(name=tiny_encoder, weights="bf16")
    trainable = Trainable(encoder.load(config, role="tuned"))
    trainable.start(trial(**values))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trainable.parameters.values():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    expected = encoder.embed_texts(trainable.model, TEXTS, "", unit=False)
    write_minimal_run(tmp_path / "run", config, trainable.trained(), **values)
    export(tmp_path / "run", "0:1", tmp_path / "model")
    assert np.abs(load_and_encode(tmp_path / "model", TEXTS) - expected).max() < 1e-5
    (file,) = (tmp_path / "model").rglob("model.safetensors")
    assert {tensor.dtype for tensor in load_file(file).values()} == {torch.float32}


def test_points_without_a_single_adapter_are_rejected(
    run: Any, tmp_path: Path, all_on_the_front: None
) -> None:
    folder, *_ = run
    with pytest.raises(
        InputError, match=r"--adapter: 0:1:class_concat=1 joins two encoders; allowed: "
    ):
        export(folder, "0:1:class_concat=1", tmp_path / "model", as_adapter=True)
    assert not (tmp_path / "model").exists()


def test_joined_points_have_the_merged_encoder(
    run: Any, tmp_path: Path, all_on_the_front: None
) -> None:
    """The export verifies that the saved model returns the vectors of the two encoders."""
    folder, *_ = run
    export(folder, "0:1:class_concat=1", tmp_path / "model")
    assert not list((tmp_path / "model").rglob("adapter*"))
