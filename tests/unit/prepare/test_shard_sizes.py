"""Sizes of shards of embeddings, and shards after a power failure."""

from pathlib import Path

import numpy as np
import pytest

from raysweep.data.artifacts import Artifact
from raysweep.data.shards import Shard, ShardSet
from raysweep.encoders.size import EncoderSize
from raysweep.prepare.stages import MIN_PER_SHARD, SENTENCES_PER_SHARD, sentences_per_shard

MINILM = EncoderSize(weights_bytes=0, num_layers=6, width=384)
BASE = EncoderSize(weights_bytes=0, num_layers=12, width=768)


@pytest.mark.parametrize(("size", "num_weights"), [(MINILM, 10.6e6), (BASE, 85e6)])
def test_weights_in_layers_match_bert(size: EncoderSize, num_weights: float) -> None:
    """BERT's blocks have 10,646,784 and 85,054,464 weights."""
    assert size.weights_in_layers == pytest.approx(num_weights, rel=0.02)


def test_shards_are_smaller_for_long_sentences_and_large_encoders() -> None:
    assert sentences_per_shard(MINILM, 30) == SENTENCES_PER_SHARD
    assert 300 < sentences_per_shard(MINILM, 256) < 700
    assert sentences_per_shard(BASE, 256) == MIN_PER_SHARD
    assert sentences_per_shard(EncoderSize(0, 0, 0), 512) == SENTENCES_PER_SHARD


@pytest.mark.parametrize("content", [b"", b"\0" * 4096])
def test_shard_without_content_is_missing(tmp_path: Path, content: bytes) -> None:
    shards = ShardSet(Artifact(str(tmp_path), "encoded-1"), 2)
    for number in range(2):
        shards.write(number, Shard({"row": np.arange(3)}, {}))
    assert sorted(shards.read_reports()) == [0, 1]
    next((tmp_path / "encoded-1").glob("00001-*")).write_bytes(content)
    assert sorted(shards.read_reports()) == [0]
