"""What a base model's files say of it, and what a model made of several may be licensed under."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import locate as location
from raysweep.encoders.locate import ModelSource
from raysweep.export.base_model import UNKNOWN, BaseModel, Licence, joint_licence

CARDS = {
    "---\nlicense: apache-2.0\n---\n# Model\n": Licence("apache-2.0"),
    "---\r\nlicense: MIT\r\ntags: [a]\r\n---\r\n": Licence("mit"),
    "---\nlicense: other\nlicense_name: my-own\nlicense_link: LICENSE\n---\n": Licence("other", "my-own, LICENSE"),
    "---\nlicense: [mit, apache-2.0]\n---\n": Licence("other", "mit, apache-2.0"),
    "---\nlicense: free for all, <b>ask me</b>\n---\n": Licence("other", "free for all, <b>ask me</b>"),
    "---\ntags: [a]\n---\n": Licence(),
    "---\nlicense: 7\n---\n": Licence(),
    "---\nlicense:\n---\n": Licence(),
    "---\nlicense: [\n---\n": Licence(),
    "---\n- a list\n---\n": Licence(),
    "---\n" + "[" * 1500 + "\n---\n": Licence(),
    "# Licensed under MIT, says a heading\nlicense: mit\n": Licence(),
    "": Licence(),
}


@pytest.mark.parametrize("card", CARDS, ids=range(len(CARDS)))
def test_the_licence_is_what_the_cards_metadata_say_and_nothing_else(card: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(card.encode())
    assert Licence.of(tmp_path) == CARDS[card]


def test_without_a_card_the_configuration_may_say_it(tmp_path: Path) -> None:
    assert Licence.of(tmp_path).identifier == UNKNOWN
    (tmp_path / "config.json").write_text("[]")
    assert Licence.of(tmp_path).identifier == UNKNOWN
    (tmp_path / "config.json").write_text(json.dumps({"license": "bsd-3-clause"}))
    assert Licence.of(tmp_path) == Licence("bsd-3-clause")
    (tmp_path / "README.md").write_bytes(b"\xff\xfe")
    assert Licence.of(tmp_path) == Licence("bsd-3-clause")


def test_the_demos_encoder(demo_package: ModuleType) -> None:
    """Its package is under another licence than the model that it holds."""
    found = BaseModel.of(EncoderConfig(name="demo"))
    assert found.hub_name == found.shown == "sentence-transformers/all-MiniLM-L6-v2"
    assert (found.revision, found.licence) == (None, Licence("apache-2.0"))


def test_a_model_of_the_hub_has_its_name_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    monkeypatch.setattr(location, "_hub", lambda config: ModelSource(tmp_path, "hub:owner/name@0123abc"))
    found = BaseModel.of(EncoderConfig(name="owner/name"))
    assert (found.shown, found.hub_name, found.revision) == ("owner/name", "owner/name", "0123abc")
    assert found.licence == Licence("mit")


def test_a_folder_is_named_without_where_it_lies(tiny_encoder: str) -> None:
    found = BaseModel.of(EncoderConfig(name=tiny_encoder))
    assert found == BaseModel("encoder", None, None, Licence())


def model(licence: str) -> BaseModel:
    return BaseModel("m", None, None, Licence(licence))


def test_two_licences_are_neither_of_them() -> None:
    assert joint_licence({"base": model("mit"), "reference": model("mit")}) == Licence("mit")
    several = joint_licence({"base": model("mit"), "reference": model("apache-2.0")})
    assert several == Licence("other", "base: mit, reference: apache-2.0")
    partly = joint_licence({"base": model("mit"), "reference": model(UNKNOWN)})
    assert partly == Licence(UNKNOWN, "base: mit, reference: unknown")
