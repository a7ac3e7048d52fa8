"""A killed prepare resumes from the stored shards, and builds byte-identical artifacts."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from raysweep.cluster.resources import Request
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.data import demo, examples
from raysweep.data.artifacts import Artifact
from raysweep.data.neighbors import NeighborSearch
from raysweep.data.shards import ShardSet
from raysweep.errors import InputError
from raysweep.prepare import neighbor_shards, stages, workers
from raysweep.prepare.build import prepare_here
from raysweep.prepare.neighbor_shards import SearchJob, TrainVectors
from raysweep.prepare.plan import Plan, make_plan
from raysweep.storage.cache import MANIFEST
from raysweep.storage.lease import turn
from support.paths import SPACES


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "SENTENCES_PER_SHARD", 200)
    monkeypatch.setattr(neighbor_shards, "QUERIES_OF_FEW", 150)
    monkeypatch.setattr(examples, "CHUNK", 170)


def plan(folder: Path, encoder: str, **overrides: str) -> Plan:
    sentences = demo.generate()[0][:700]
    table = pyarrow.table(
        {name: [getattr(row, name) for row in sentences] for name in ("text", "label")}
    )
    pyarrow.parquet.write_table(table, folder / "train.parquet")
    document = Document.read(SPACES / "smoke.yaml")
    document.override("data.train", str(folder / "train.parquet"))
    document.override("model", encoder)
    document.override("space.freezing", "emb")
    document.override("storage.runs", str(folder))
    for key, value in overrides.items():
        document.override(key.replace("__", "."), value)
    config = configuration.parse(document)
    return make_plan(config, space_parser.parse(document, config))


def build(todo: Plan) -> None:
    prepare_here(todo.config, todo.space)


def contents(todo: Plan) -> dict[str, bytes]:
    root = todo.store.root.path
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The kind of each worker and the number of its chunk, as they come."""
    numbers: list[tuple[str, int]] = []
    call = workers.StoringWorker.__call__

    def noting(self: workers.StoringWorker, chunk: workers.Columns) -> workers.Columns:
        numbers.append((type(self.worker).__name__, int(chunk["number"][0])))
        return call(self, chunk)

    monkeypatch.setattr(workers.StoringWorker, "__call__", noting)
    return numbers


def test_killed_prepare_resumes_from_stored_shards(
    tmp_path: Path, tiny_encoder: str, made: list[tuple[str, int]]
) -> None:
    todo = plan(tmp_path, tiny_encoder)
    build(todo)
    whole = contents(todo)
    assert sum(name == "EncodeWorker" for name, _ in made) == 4
    made.clear()
    for stage in todo.stages:
        if stage.kind != "sentences":
            folder = stage.artifact.folder
            (folder / MANIFEST).unlink()
            (folder / f"00001-of-{len(list(folder.iterdir())):05}.arrow").unlink()
    assert [stage.kind for stage in todo.missing] == [stage.kind for stage in todo.stages[1:]]
    build(todo)
    assert contents(todo) == whole
    assert [call for call in made if call[0] == "EncodeWorker"] == [("EncodeWorker", 1)]
    assert {number for _, number in made} == {1}

    # Killed right before the manifests:
    made.clear()
    for stage in todo.stages[1:]:
        (stage.artifact.folder / MANIFEST).unlink()
    build(todo)
    assert contents(todo) == whole
    assert not made


def test_neighbors_of_shards_and_of_one_worker_are_identical(
    tmp_path: Path, tiny_encoder: str
) -> None:
    todo = plan(tmp_path, tiny_encoder)
    build(todo)
    stage = todo.stages[2]
    assert isinstance(stage, stages.NeighborsStage)
    by_shards = {
        path.name: path.read_bytes() for path in Path(stage.artifact.folder).glob("*.arrow")
    }
    vectors = TrainVectors(stage.sentences, stage.encoded)
    job = SearchJob(
        vectors, len(vectors()), NeighborSearch(stage.parameters["k"], stage.parameters["mode"])
    )
    into = ShardSet(Artifact(str(tmp_path), "by-one"), len(by_shards))
    worker = workers.StoringWorker(
        into, workers.NeighborWorker, (job, Request(cpus=1, gpus=0, count=1))
    )
    for number in range(into.count):
        start, stop = job.rows(number)
        worker({"number": np.array([number]), "start": np.array([start]), "stop": np.array([stop])})
    by_one = {path.name: path.read_bytes() for path in Path(tmp_path, "by-one").iterdir()}
    assert by_one == by_shards


def test_progress_counts_stored_shards(tmp_path: Path, tiny_encoder: str) -> None:
    todo = plan(tmp_path, tiny_encoder)
    coordinator = stages.Coordinator(todo.store, None)
    for stage in todo.stages[:2]:
        coordinator.build(stage)
    encoded = todo.stages[1].artifact.folder
    (encoded / MANIFEST).unlink()
    (encoded / "00001-of-00004.arrow").unlink()
    coordinator.build(todo.stages[1])
    expected = stages.StageProgress(done=700, total=700, unit="sentences", reused=500, shards=1)
    assert coordinator.progress() == expected


def test_failed_stage_leaves_no_files(tmp_path: Path, tiny_encoder: str) -> None:
    todo = plan(tmp_path, tiny_encoder, examples__min_similarity="0.9999999")
    with pytest.raises(InputError, match="examples.min_similarity is 0.9999999"):
        build(todo)
    assert sorted({name.partition("-")[0] for name in contents(todo)}) == ["encoded", "sentences"]


def test_artifact_is_built_by_one_of_two_processes(tmp_path: Path, tiny_encoder: str) -> None:
    import threading

    todo = plan(tmp_path, tiny_encoder)
    stage = todo.stages[0]
    coordinator = stages.Coordinator(todo.store, None)
    other: Any = stages.Coordinator(todo.store, None)
    with turn(todo.store.root, stage.artifact.name, lambda text: None):
        waiting = threading.Thread(target=other.build, args=[stage])
        waiting.start()
        while not other.progress().waits_for:
            assert waiting.is_alive()
        assert stage.artifact.name in other.progress().waits_for
        coordinator._write(stage)
        written = {
            name: path.stat().st_mtime_ns
            for name in contents(todo)
            for path in [todo.store.root.path / name]
        }
    waiting.join()
    assert other.progress() == stages.NOTHING_DONE
    unchanged = {name: (todo.store.root.path / name).stat().st_mtime_ns for name in contents(todo)}
    assert unchanged == {
        name: moment for name, moment in written.items() if not name.startswith(".")
    }
