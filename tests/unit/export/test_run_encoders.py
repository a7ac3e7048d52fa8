"""Names and licenses of base models, and the license of a model built from several."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import locate as location
from raysweep.encoders.locate import ModelSource
from raysweep.export.run_encoders import UNKNOWN, BaseModel, License, joint_license

CARDS = {
    "---\nlicense: apache-2.0\n---\n# Model\n": License("apache-2.0"),
    "---\r\nlicense: MIT\r\ntags: [a]\r\n---\r\n": License("mit"),
    "---\nlicense: other\nlicense_name: my-own\nlicense_link: LICENSE\n---\n": License(
        "other", "my-own, LICENSE"
    ),
    "---\nlicense: [mit, apache-2.0]\n---\n": License("other", "mit, apache-2.0"),
    "---\nlicense: free for all, <b>ask me</b>\n---\n": License(
        "other", "free for all, <b>ask me</b>"
    ),
    "---\ntags: [a]\n---\n": License(),
    "---\nlicense: 7\n---\n": License(),
    "---\nlicense:\n---\n": License(),
    "---\nlicense: [\n---\n": License(),
    "---\n- a list\n---\n": License(),
    "---\n" + "[" * 1500 + "\n---\n": License(),
    "# Licensed under MIT, according to a heading\nlicense: mit\n": License(),
    "": License(),
}


@pytest.mark.parametrize("card", CARDS, ids=range(len(CARDS)))
def test_license_is_read_from_the_metadata_of_the_card(card: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(card.encode())
    assert License.of(tmp_path) == CARDS[card]


def test_license_is_read_from_the_configuration_without_a_card(tmp_path: Path) -> None:
    assert License.of(tmp_path).identifier == UNKNOWN
    (tmp_path / "config.json").write_text("[]")
    assert License.of(tmp_path).identifier == UNKNOWN
    (tmp_path / "config.json").write_text(json.dumps({"license": "bsd-3-clause"}))
    assert License.of(tmp_path) == License("bsd-3-clause")
    (tmp_path / "README.md").write_bytes(b"\xff\xfe")
    assert License.of(tmp_path) == License("bsd-3-clause")


def test_demo_encoder(demo_package: ModuleType) -> None:
    """Its package has another license than the model in it."""
    model = BaseModel.of(EncoderConfig(name="demo"))
    assert model.hub_name == model.shown == "sentence-transformers/all-MiniLM-L6-v2"
    assert (model.revision, model.license) == (None, License("apache-2.0"))


def test_hub_model_has_its_name_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    monkeypatch.setattr(
        location, "_hub", lambda config: ModelSource(tmp_path, "hub:owner/name@0123abc")
    )
    model = BaseModel.of(EncoderConfig(name="owner/name"))
    assert (model.shown, model.hub_name, model.revision) == ("owner/name", "owner/name", "0123abc")
    assert model.license == License("mit")


def test_folder_is_named_without_its_parents(tiny_encoder: str) -> None:
    model = BaseModel.of(EncoderConfig(name=tiny_encoder))
    assert model == BaseModel("encoder", None, None, License())


def model(license: str) -> BaseModel:
    return BaseModel("m", None, None, License(license))


def test_joint_license_of_two_models() -> None:
    assert joint_license({"base": model("mit"), "reference": model("mit")}) == License("mit")
    several = joint_license({"base": model("mit"), "reference": model("apache-2.0")})
    assert several == License("other", "base: mit, reference: apache-2.0")
    partly = joint_license({"base": model("mit"), "reference": model(UNKNOWN)})
    assert partly == License(UNKNOWN, "base: mit, reference: unknown")
