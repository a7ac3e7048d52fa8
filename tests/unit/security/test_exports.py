"""Exports of runs with hostile weights and heads."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.command_line import raysweep_here
from support.hostile import Canary, check_rejected
from support.ledgers import StoredTrial, write_ledger

POINT = "points/trial-0000-step-001"
CONFIG = {"loss": "triplet", "learning_rate": 1e-5}


def weights_of_other_shapes(point: Path, canary: Canary) -> None:
    write_weights(point, "0.auto_model.embeddings.word_embeddings.weight")


def weights_of_another_model(point: Path, canary: Canary) -> None:
    write_weights(point, "../../outside")


def pickled_weights(point: Path, canary: Canary) -> None:
    (point / "trained.safetensors").write_bytes(canary.pickle)


def missing_weights(point: Path, canary: Canary) -> None:
    (point / "trained.safetensors").unlink()


def pickled_head(point: Path, canary: Canary) -> None:
    (point / "head.npz").write_bytes(canary.pickle)


def head_of_objects(point: Path, canary: Canary) -> None:
    objects = np.array([[canary.object]], object)
    np.savez(point / "head.npz", weight=objects, bias=objects)


def head_of_other_shapes(point: Path, canary: Canary) -> None:
    np.savez(
        point / "head.npz",
        weight=np.zeros(3, np.float32),
        bias=np.zeros(3, np.float32),
        temperature=1.0,
    )


def head_of_texts(point: Path, canary: Canary) -> None:
    np.savez(
        point / "head.npz", weight=np.array([["../.."]]), bias=np.array(["x"]), temperature=1.0
    )


def head_without_weights(point: Path, canary: Canary) -> None:
    np.savez(point / "head.npz", other=np.zeros(3))


def head_in_a_broken_archive(point: Path, canary: Canary) -> None:
    (point / "head.npz").write_bytes(b"PK\x03\x04" + bytes(100))


def head_of_a_terabyte(point: Path, canary: Canary) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": (2**19, 2**19)}
    )
    with zipfile.ZipFile(point / "head.npz", "w") as archive:
        for name in ("weight", "bias"):
            archive.writestr(f"{name}.npy", stream.getvalue())


Tamper = Callable[[Path, Canary], None]

HOSTILE: dict[Tamper, str] = {
    weights_of_other_shapes: "0.auto_model.embeddings.word_embeddings.weight of shape (1,)",
    weights_of_another_model: "../../outside of shape (1,)",
    pickled_weights: f"{POINT}: damaged: trained.safetensors: ",
    missing_weights: f"{POINT}: damaged: ",
    pickled_head: f"{POINT}: damaged: head.npz: ",
    head_of_objects: f"{POINT}: damaged: head.npz: ",
    head_of_other_shapes: f"{POINT}: damaged: head.npz: ",
    head_of_texts: f"{POINT}: damaged: head.npz: ",
    head_without_weights: f"{POINT}: damaged: head.npz: ",
    head_in_a_broken_archive: f"{POINT}: damaged: head.npz: ",
    head_of_a_terabyte: f"{POINT}: damaged: head.npz: ",
}


def write_weights(point: Path, name: str) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({name: torch.zeros(1)}, point / "trained.safetensors")


@pytest.fixture
def run(tmp_path: Path, tiny_encoder: str) -> Path:
    """A run with one point, whose weights equal those of its model."""
    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders.locate import locate

    folder = tmp_path / "run"
    (folder / POINT).mkdir(parents=True)
    write_ledger(folder, [StoredTrial(CONFIG, "completed", "", [(0.7, 0.4)])])
    identity = locate(EncoderConfig(name=tiny_encoder)).identity
    write_prepared(folder, tiny_encoder, identity)
    write_weights(folder / POINT, "0.auto_model.pooler.dense.bias")
    return folder


def write_prepared(run: Path, model: str, identity: str) -> None:
    values = {"model": {"name": model}, "model_identity": identity}
    values |= {
        "reference": {"name": model},
        "reference_identity": identity,
        "sentences": "sentences-0",
    }
    (run / "prepared.json").write_text(json.dumps(values))


@pytest.mark.parametrize("tamper", HOSTILE, ids=lambda tamper: tamper.__name__)
def test_invalid_weights_are_rejected(tamper: Tamper, run: Path, canary: Canary) -> None:
    tamper(run / POINT, canary)
    check_rejected(raysweep_here(run.parent, "export", str(run), "exported"), HOSTILE[tamper])
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_custom_code_in_the_run_is_rejected(run: Path, canary: Canary) -> None:
    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders.locate import locate

    evil = run / "model"
    evil.mkdir()
    (evil / "evil.py").write_text(canary.source + "class Evil: pass\n")
    (evil / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}])
    )
    (evil / "config.json").write_text("{}")
    write_prepared(run, str(evil), locate(EncoderConfig(name=str(evil))).identity)
    check_rejected(
        raysweep_here(run.parent, "export", str(run), "exported"),
        f"model '{evil}' cannot be loaded: ",
        "evil.Evil",
    )


@pytest.mark.parametrize("point", ["../../outside", "0:1/../..", "\0"])
def test_paths_as_point_names_are_rejected(point: str, run: Path, canary: Canary) -> None:
    done = raysweep_here(run.parent, "export", str(run), "exported", "--point", point)
    check_rejected(done, "allowed: knee, best, 0:1")
