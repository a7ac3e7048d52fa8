"""Which encoder a name means, and an identity that changes with the weights."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from raysweep.config.sweep import EncoderConfig
from raysweep.data import hub
from raysweep.encoders import encoder
from raysweep.encoders import locate as module
from raysweep.encoders.locate import ModelSource, locate, locate_same
from raysweep.errors import InputError


def test_identity_changes_with_the_weights(tmp_path: Path, demo_package: ModuleType) -> None:
    model = encoder.load(EncoderConfig(name="demo"))
    first = locate(EncoderConfig(name="demo"))
    assert first.identity == locate(EncoderConfig(name=str(first.folder))).identity, (
        "the place does not matter"
    )
    model.save(str(tmp_path / "copy"))
    assert locate(EncoderConfig(name=str(tmp_path / "copy"))).identity != first.identity


def test_other_weights_under_the_same_name_are_rejected(
    tmp_path: Path, demo_package: ModuleType
) -> None:
    folder = tmp_path / "model"
    encoder.load(EncoderConfig(name="demo")).save(str(folder))
    config = EncoderConfig(name=str(folder))
    source = locate(config)
    assert locate_same(config, source.identity) == source
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(
        InputError, match=r"model on .* is not the sweep's encoder: sha256:.* instead of"
    ):
        locate_same(config, source.identity)


def test_hub_model_is_located_at_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its main branch may have moved since the driver looked."""
    revisions = []

    def find(config: EncoderConfig) -> ModelSource:
        revisions.append(config.revision)
        return ModelSource(tmp_path, f"hub:a/b@{config.revision}")

    monkeypatch.setattr(module, "locate", find)
    assert locate_same(EncoderConfig(name="a/b"), "hub:a/b@0123abc").folder == tmp_path
    assert revisions == ["0123abc"]


class ThrottledError(Exception):
    response = SimpleNamespace(status_code=429, headers={})


def test_throttled_download_from_the_hub_is_retried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    downloads: list[str] = []

    def download(name: str, *, local_files_only: bool = False, **_: Any) -> str:
        if local_files_only:
            raise LocalEntryNotFoundError("not in the cache")
        downloads.append(name)
        if len(downloads) < 3:
            raise LocalEntryNotFoundError("not in the cache either") from ThrottledError()
        return str(tmp_path / "0123abc")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr(hub, "FIRST_PAUSE_SECONDS", 0.0)
    assert locate(EncoderConfig(name="a/b")) == ModelSource(tmp_path / "0123abc", "hub:a/b@0123abc")
    assert downloads == ["a/b"] * 3


def test_weights_that_may_execute_code_are_rejected(
    tmp_path: Path, demo_package: ModuleType
) -> None:
    import torch
    from safetensors.torch import load_file

    encoder.load(EncoderConfig(name="demo")).save(str(tmp_path))
    weights = tmp_path / "model.safetensors"
    torch.save(load_file(weights), tmp_path / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(InputError, match=r"cannot be loaded: .*model\.safetensors"):
        encoder.load(EncoderConfig(name=str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "no such folder"),
        ("/nowhere/model", "no such folder"),
        ("a/b/c", "no such folder"),
        ("nobody/has-this-model", "Hub is unreachable"),
        ("not a name!", "not a valid Hub name"),
    ],
)
def test_unknown_models_are_rejected(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=message) as caught:
        locate(EncoderConfig(name=name))
    assert repr(name) in str(caught.value)


def test_folder_without_a_model_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model in this folder"):
        locate(EncoderConfig(name=str(tmp_path)))
