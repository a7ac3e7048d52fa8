"""Prepare on a small cluster and on a busy one."""

import contextlib
import filecmp
import io
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import psutil
import pytest
from rich.console import Console
from sentence_transformers import SentenceTransformer

from raysweep.cluster.connection import connected
from raysweep.cluster.resources import Capacity
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.sweep import ResourcesConfig
from raysweep.data.expert_scores import ExpertScores
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.prepare.build import prepare
from raysweep.prepare.plan import Plan, make_plan
from raysweep.prepare.stages import PAIRS_PER_SHARD, Coordinator
from raysweep.terminal import ConsoleDisplay
from support.encoders import write_first_token
from support.kinds import write_static
from support.paths import SPACES


@pytest.fixture(scope="module")
def one_cpu() -> Iterator[Capacity]:
    """A cluster of one CPU, which both tests use: starting one takes longer than either."""
    with connected(ResourcesConfig(num_cpus=1)) as capacity:
        yield capacity


@dataclass(frozen=True)
class Planned:
    """Plans of the space ``smoke`` for a small encoder."""

    encoder: str

    def __call__(self, folder: Path, **overrides: str) -> Plan:
        document = Document.read(SPACES / "smoke.yaml")
        document.override("storage.runs", str(folder))
        document.override("model", self.encoder)
        document.override("space.loss", "cosine_similarity")
        document.override("space.freezing", "emb")
        for key, value in overrides.items():
            document.override(key.replace("__", "."), value)
        config = configuration.parse(document)
        return make_plan(config, space_parser.parse(document, config))


@pytest.fixture(scope="module")
def plan(tiny_encoder: str) -> Planned:
    return Planned(tiny_encoder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that tests share, so that sentences are embedded once."""
    return tmp_path_factory.mktemp("runs")


def test_one_cpu_is_enough(one_cpu: Capacity, plan: Planned, runs: Path, tmp_path: Path) -> None:
    out = io.StringIO()
    planned = plan(runs)
    assert one_cpu.cpus == 1
    prepare(planned, one_cpu, ConsoleDisplay(Console(file=out, width=200)))
    assert not planned.missing
    planned.prepared.save(tmp_path / "prepared.json")
    assert len(Prepared.open(tmp_path / "prepared.json").examples("scored_pair")[0]) == 2000
    assert "prepare: encoded: 3,200 sentences in" in out.getvalue()


def test_recall_of_an_inverted_file_is_reported(
    one_cpu: Capacity, plan: Planned, runs: Path
) -> None:
    out = io.StringIO()
    planned = plan(runs, examples__index="inverted_file")
    prepare(planned, one_cpu, ConsoleDisplay(Console(file=out, width=200)))
    (stage,) = [stage for stage in planned.stages if stage.kind == "neighbors"]
    summary = stage.artifact.summary
    assert 0.5 < summary["recall"] <= 1
    assert (summary["recall_queries"], summary["num_probes"]) == (1000, 64)
    assert f"the inverted file found {summary['recall']:.1%}" in " ".join(out.getvalue().split())


def test_expert_scores_equal_brute_force(
    one_cpu: Capacity, plan: Planned, runs: Path, tiny_encoder: str, demo_package: ModuleType
) -> None:
    """Several shards of scores, by a transformer, the same one pooled by its first token, and static embeddings."""
    static = write_static(runs / "static", Path(demo_package.get_model_path()))
    experts = [tiny_encoder, write_first_token(tiny_encoder, runs / "first-token"), static]
    settings = {"examples__neighbors": "random", "examples__k": "12", "examples__target": "70000"}
    out = io.StringIO()
    planned = plan(runs, **settings, examples__experts=json.dumps(experts))
    prepared = prepare(planned, one_cpu, ConsoleDisplay(Console(file=out, width=200)))
    assert "prepare: scores: active sets (encoder=" in out.getvalue()
    pairs = {"train": prepared.examples("scored_pair")[0], "dev": prepared.dev_pairs("soft1")[0]}
    assert len(pairs["train"]) > 2 * PAIRS_PER_SHARD
    texts = prepared.sentences.texts(np.arange(len(prepared.sentences)))
    for column, expert in enumerate(experts):
        embeddings = SentenceTransformer(expert, device="cpu").encode(
            texts, normalize_embeddings=True
        )
        for split, ids in pairs.items():
            scores = ExpertScores.open(prepared.scores_artifacts[split].folder)
            cosines = (embeddings[ids[:, 0]] * embeddings[ids[:, 1]]).sum(axis=1)
            np.testing.assert_allclose(scores.cosines[:, column], cosines, atol=2e-6)


def test_dead_coordinator_is_replaced(
    one_cpu: Capacity, plan: Planned, runs: Path, tmp_path: Path
) -> None:
    """A coordinator killed during mining is replaced, and the artifacts are the same."""
    out = io.StringIO()
    expected = plan(runs, examples__k="5")
    prepare(expected, one_cpu, ConsoleDisplay(Console(file=out, width=200)))
    shutil.copytree(
        runs / "artifacts",
        tmp_path / "artifacts",
        ignore=shutil.ignore_patterns("neighbors-*", "examples-*"),
    )
    killed: list[int] = []
    killer = threading.Thread(target=_kill_coordinator, args=(killed, _coordinators()))
    killer.start()
    planned = plan(tmp_path, examples__k="5")
    prepare(planned, one_cpu, ConsoleDisplay(Console(file=out, width=200)))
    killer.join()
    assert killed
    assert "the coordinator process died" in " ".join(out.getvalue().split())
    for expected_stage, stage in zip(expected.stages, planned.stages, strict=True):
        folders = [expected_stage.artifact.folder, stage.artifact.folder]
        names = sorted(path.name for path in folders[0].iterdir())
        assert (
            filecmp.cmpfiles(*folders, names, shallow=False)[1:] == ([], [])
            or stage.kind == "sentences"
        )


def _kill_coordinator(killed: list[int], before: set[int]) -> None:
    """Kill the first new coordinator."""
    until = time.monotonic() + 60
    while not killed and time.monotonic() < until:
        for pid in _coordinators() - before:
            psutil.Process(pid).kill()
            killed.append(pid)
        time.sleep(0.02)


def _coordinators() -> set[int]:
    """Return the coordinators of this test's Ray."""
    pids = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith("ray::Coordinator."):
                pids.add(process.pid)
    return pids


def test_stall_is_reported_and_leaves_no_files(
    one_cpu: Capacity, plan: Planned, tmp_path: Path
) -> None:
    import ray

    @ray.remote(num_cpus=1)
    class Hog:
        def ready(self) -> bool:
            return True

    planned = plan(tmp_path / "runs", resources__stall_seconds="4")
    # the sentences, which may take more than four seconds
    Coordinator(planned.store, None).build(planned.stages[0])
    hog = Hog.remote()
    assert ray.get(hog.ready.remote())
    with pytest.raises(InputError, match="encoded: .*4 s .*CPUs=0 of 1.*GPUs=0 of 0"):
        prepare(planned, one_cpu, ConsoleDisplay(Console(file=io.StringIO())))
    ray.kill(hog)
    left = [
        path.name
        for path in (tmp_path / "runs" / "artifacts").iterdir()
        if not path.name.endswith(".lock")
    ]
    assert [name.split("-")[0] for name in left] == ["sentences"]
