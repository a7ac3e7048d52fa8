"""Sentences built on a cluster are byte-identical to those built in one process."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysweep.cluster.connection import connected
from raysweep.cluster.resources import Capacity, NodeSize
from raysweep.config.sweep import DataConfig, ResourcesConfig
from raysweep.errors import InputError
from raysweep.prepare import sentences
from raysweep.prepare.stages import Coordinator
from support.sentences import build, stage_of


def write_files(folder: Path) -> None:
    """Write twelve files with duplicates, conflicting labels, and rows contained in others."""
    rng = random.Random(0)
    folder.mkdir()
    for number in range(12):
        texts = [" ".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 8))) for _ in range(40)]
        table = pa.table({"text": texts, "label": rng.choices("xyz", k=40)})
        pq.write_table(table, folder / f"{number:02}.parquet")


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_sentences_do_not_depend_on_the_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "train")
    data = DataConfig(train=str(tmp_path / "train"))
    monkeypatch.setattr(sentences, "ROWS_PER_PARTITION", 100)
    monkeypatch.setattr(sentences, "ROWS_PER_SHARD", 64)
    here = content(build(tmp_path / "here", data).folder)
    assert len(here) > 7
    monkeypatch.setattr(sentences, "FEW_ROWS", 0)
    monkeypatch.setattr(sentences, "FEW_PIECES", 0)
    with connected(ResourcesConfig(num_cpus=4)):
        for count in (1, 4):
            capacity = Capacity((NodeSize(count, 0),))
            on_cluster = content(build(tmp_path / f"of-{count}", data, capacity=capacity).folder)
            assert on_cluster == here
        path = tmp_path / "train" / "05.parquet"
        store, stage = stage_of(tmp_path / "rejected", data)
        os.utime(path, ns=(0, 0))
        with pytest.raises(InputError, match=f"^{path}: .*changed.*prepare again$"):
            Coordinator(store, capacity).build(stage)
        assert not [file for file in (tmp_path / "rejected").rglob("*") if file.is_file()]
