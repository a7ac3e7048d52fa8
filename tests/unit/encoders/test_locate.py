"""Which encoder a name means, and an identity that changes with the weights."""

from pathlib import Path
from types import ModuleType

import pytest

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate
from raysweep.errors import InputError


def test_identity_changes_with_the_weights(tmp_path: Path, demo_package: ModuleType) -> None:
    model = encoder.load(EncoderConfig(name="demo"))
    first = locate(EncoderConfig(name="demo"))
    assert first.identity == locate(EncoderConfig(name=str(first.folder))).identity, "where it lies does not matter"
    model.save(str(tmp_path / "copy"))
    assert locate(EncoderConfig(name=str(tmp_path / "copy"))).identity != first.identity


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "no such folder"),
        ("/nowhere/model", "no such folder"),
        ("a/b/c", "no such folder"),
        ("nobody/has-this-model", "cannot be reached"),
        ("not a name!", "not a name the hub allows"),
    ],
)
def test_unknown_models_are_refused(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=message) as caught:
        locate(EncoderConfig(name=name))
    assert repr(name) in str(caught.value)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no model"):
        locate(EncoderConfig(name=str(tmp_path)))
