"""The prompt that goes before every sentence: the configured one, or else the model's own, as its ``encode`` has it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.locate import SETTINGS, locate
from raysweep.errors import InputError
from support.encoders import PROMPTED, write_with_prompts

TEXTS = ["a warm room", "Cold soup, and a spoon of it for everybody who had come late"]


@pytest.mark.parametrize("kind", PROMPTED)
@pytest.mark.parametrize("prompt", [None, "", "review: "])
def test_embeddings_equal_encode_with_prompts(
    tiny_encoder: str, tmp_path: Path, kind: str, prompt: str | None
) -> None:
    folder = write_with_prompts(tiny_encoder, tmp_path / "model", kind)
    model = SentenceTransformer(folder, device="cpu")
    expected = (
        model.encode(TEXTS)
        if prompt is None
        else model.encode([prompt + text for text in TEXTS], prompt="")
    )
    config = EncoderConfig(name=folder, prompt=prompt)
    loaded = LoadedEncoder.load(config, identity=locate(config).identity)
    np.testing.assert_allclose(loaded.embed(loaded.tokenize(TEXTS)), expected, atol=1e-5)


@pytest.mark.parametrize("change", ["another type", "no modules"])
def test_settings_ignored_by_the_library_are_ignored(
    tiny_encoder: str, tmp_path: Path, change: str
) -> None:
    folder = Path(write_with_prompts(tiny_encoder, tmp_path / "model", "default"))
    if change == "no modules":
        (folder / "modules.json").unlink()
    else:
        settings = json.loads((folder / SETTINGS).read_text())
        (folder / SETTINGS).write_text(json.dumps({**settings, "model_type": "SparseEncoder"}))
    model = SentenceTransformer(str(folder), device="cpu")
    assert model.default_prompt_name is None
    assert locate(EncoderConfig(name=str(folder))).own_prompt() == ""


@pytest.mark.parametrize("text", ["[]", "{", "\udcff"])
def test_damaged_settings_are_reported(tiny_encoder: str, tmp_path: Path, text: str) -> None:
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    (folder / SETTINGS).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=SETTINGS):
        _ = locate(EncoderConfig(name=str(folder))).own_prompt()


SETTINGS_OF_A_FOLDER = {
    "lower case": lambda model: setattr(model[0], "do_lower_case", True),
    "fewer tokens": lambda model: setattr(model, "max_seq_length", 6),
    "fewer dimensions": lambda model: setattr(model, "truncate_dim", 16),
    "inner products": lambda model: setattr(model, "similarity_fn_name", "dot"),
    "no unit length": lambda model: model.__delitem__(-1),
    "last token": lambda model: setattr(model[1], "pooling_mode", "lasttoken"),
    "prompts left out, none given": lambda model: model.set_pooling_include_prompt(False),
    "lengths by task": lambda model: setattr(model[0], "query_length", 4),
}


@pytest.mark.parametrize("name", SETTINGS_OF_A_FOLDER)
def test_settings_of_a_folder_are_read(tiny_encoder: str, tmp_path: Path, name: str) -> None:
    model = SentenceTransformer(tiny_encoder, device="cpu")
    SETTINGS_OF_A_FOLDER[name](model)
    model.save(str(tmp_path / "model"), create_model_card=False)
    expected = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    loaded = encoder.load(EncoderConfig(name=str(tmp_path / "model")))
    np.testing.assert_allclose(
        encoder.embed_texts(loaded, TEXTS, "", unit=False), expected, atol=1e-5
    )


def test_model_that_depends_on_padding_is_rejected(tiny_encoder: str, tmp_path: Path) -> None:
    model = SentenceTransformer(tiny_encoder, device="cpu")
    model.tokenizer.padding_side = "left"
    model.save(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(
        InputError, match="its encode returns different vectors.*padding side: left"
    ):
        encoder.load(EncoderConfig(name=str(tmp_path / "model")))
