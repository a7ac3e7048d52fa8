"""What a base model's files say of it, and what a model made of several may be licensed under."""

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
    "---\nlicense: other\nlicense_name: my-own\nlicense_link: LICENSE\n---\n": License("other", "my-own, LICENSE"),
    "---\nlicense: [mit, apache-2.0]\n---\n": License("other", "mit, apache-2.0"),
    "---\nlicense: free for all, <b>ask me</b>\n---\n": License("other", "free for all, <b>ask me</b>"),
    "---\ntags: [a]\n---\n": License(),
    "---\nlicense: 7\n---\n": License(),
    "---\nlicense:\n---\n": License(),
    "---\nlicense: [\n---\n": License(),
    "---\n- a list\n---\n": License(),
    "---\n" + "[" * 1500 + "\n---\n": License(),
    "# Licensed under MIT, says a heading\nlicense: mit\n": License(),
    "": License(),
}


@pytest.mark.parametrize("card", CARDS, ids=range(len(CARDS)))
def test_the_license_is_what_the_cards_metadata_say_and_nothing_else(card: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(card.encode())
    assert License.of(tmp_path) == CARDS[card]


def test_without_a_card_the_configuration_may_say_it(tmp_path: Path) -> None:
    assert License.of(tmp_path).identifier == UNKNOWN
    (tmp_path / "config.json").write_text("[]")
    assert License.of(tmp_path).identifier == UNKNOWN
    (tmp_path / "config.json").write_text(json.dumps({"license": "bsd-3-clause"}))
    assert License.of(tmp_path) == License("bsd-3-clause")
    (tmp_path / "README.md").write_bytes(b"\xff\xfe")
    assert License.of(tmp_path) == License("bsd-3-clause")


def test_the_demos_encoder(demo_package: ModuleType) -> None:
    """Its package is under another license than the model that it holds."""
    found = BaseModel.of(EncoderConfig(name="demo"))
    assert found.hub_name == found.shown == "sentence-transformers/all-MiniLM-L6-v2"
    assert (found.revision, found.license) == (None, License("apache-2.0"))


def test_a_model_of_the_hub_has_its_name_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    monkeypatch.setattr(location, "_hub", lambda config: ModelSource(tmp_path, "hub:owner/name@0123abc"))
    found = BaseModel.of(EncoderConfig(name="owner/name"))
    assert (found.shown, found.hub_name, found.revision) == ("owner/name", "owner/name", "0123abc")
    assert found.license == License("mit")


def test_a_folder_is_named_without_where_it_lies(tiny_encoder: str) -> None:
    found = BaseModel.of(EncoderConfig(name=tiny_encoder))
    assert found == BaseModel("encoder", None, None, License())


def model(license: str) -> BaseModel:
    return BaseModel("m", None, None, License(license))


def test_two_licenses_are_neither_of_them() -> None:
    assert joint_license({"base": model("mit"), "reference": model("mit")}) == License("mit")
    several = joint_license({"base": model("mit"), "reference": model("apache-2.0")})
    assert several == License("other", "base: mit, reference: apache-2.0")
    partly = joint_license({"base": model("mit"), "reference": model(UNKNOWN)})
    assert partly == License(UNKNOWN, "base: mit, reference: unknown")
