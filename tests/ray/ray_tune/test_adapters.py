"""A sweep over adapters of a decoder, with all that saves memory."""

from pathlib import Path
from types import ModuleType

import pytest
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from raysweep.results.ledger import point_name
from raysweep.results.reader import load
from support.command_line import ALONE, raysweep
from support.families import write_random_encoder

pytest.importorskip("peft")

INPUTS_AND_OUTPUTS = {
    "attention": 2 * (32 + 32) + 2 * (32 + 16),
    "all_linear": 2 * 64 + 2 * 48 + 3 * (32 + 48),
}
"""Of a block's adapted layers."""

OPTIONS = {
    "model.weights": "bf16",
    "data.max_dev": "60",
    "evaluation.k": "8",
    "evaluation.num_pool": "200",
    "space.lora_rank": "{choices: [2, 5]}",
    "space.batch_size": "16",
    "space.examples_per_rung": "64",
    "resources.gradient_checkpointing": "true",
    "resources.recompute_activations": "true",
    "budget.trials": "3",
    "budget.rungs": "1",
}


def test_sweep_over_rank_and_targets_of_a_decoder(tmp_path: Path, demo_package: ModuleType) -> None:
    encoder = write_random_encoder("qwen3", tmp_path / "qwen3", demo_package.get_model_path())
    options = [text for key, value in OPTIONS.items() for text in (f"--{key}", value)]
    done = raysweep(tmp_path, "run", "lora", *ALONE, "--model.name", encoder, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "raysweep-runs").glob("lora-*")
    results = load(run)
    configs = {trial.trial: trial.config for trial in results.trials}
    assert (
        len({(config.get("lora_rank"), config["lora_targets"]) for config in configs.values()}) > 1
    )
    stored = [run / "points" / point_name(number, 1) / "trained.safetensors" for number in configs]
    assert any(file.is_file() for file in stored)
    for config, file in zip(configs.values(), stored, strict=True):
        if file.is_file():  # its rung is on the front
            num_values = sum(tensor.numel() for tensor in load_file(file).values())
            assert (
                num_values == 3 * config["lora_rank"] * INPUTS_AND_OUTPUTS[config["lora_targets"]]
            )
    done = raysweep(tmp_path, "export", str(run), "exported", "--point", "best")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        len(SentenceTransformer(str(tmp_path / "exported"), device="cpu").encode("a warm room"))
        >= 32
    )
