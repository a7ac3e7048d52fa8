"""The shipped files beyond the lint: Ray's own validation of them, versions, and prices that name their node types."""

import json
import re

import pytest
import yaml

from raysweep.config.sweep import BudgetConfig
from raysweep.lint import ec2_keys
from support.paths import ROOT

RAY_UP = ["cluster.yaml", "clusters/gcp.yaml"]
WITH_VERSION = [*RAY_UP, "clusters/rayjob.yaml", "clusters/skypilot.yaml", "clusters/Dockerfile"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prices(text: str) -> list[dict[str, float]]:
    """Every ``--budget.prices`` that stands in a text."""
    return [yaml.safe_load(found) for found in re.findall(r"--budget\.prices '(\{[^']*\})'", text)]


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_accepts_the_files_of_ray_up(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(yaml.safe_load(read(name))))


@pytest.mark.parametrize("name", RAY_UP)
def test_the_autoscaler_finds_images_and_priorities(name: str) -> None:
    """What runs on the head reads the file in its own way, which no validation goes through."""
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

    config = AutoscalingConfig(yaml.safe_load(read(name)), skip_content_hash=True)
    images = {
        each: config.get_docker_config(each)["image"].rpartition("-")[2] for each in config.get_node_type_configs()
    }
    assert images == {"head": "cpu", "gpu_spot": "gpu", "gpu_on_demand": "gpu"}
    types = config.get_node_type_configs()
    assert types["gpu_spot"].priority > types["gpu_on_demand"].priority
    assert [types[each].min_worker_nodes for each in images] == [0, 0, 0]


def test_the_versions_are_those_of_the_constraints() -> None:
    (version,) = re.findall(r"^ray==(.*)$", read("constraints.txt"), re.MULTILINE)
    for name in WITH_VERSION:
        found = re.findall(r"(?:rayproject/ray:|rayVersion: )(\d[\d.]*)", read(name))
        assert set(found) == {version}, name


@pytest.mark.parametrize("name", RAY_UP)
def test_prices_name_the_types_of_the_nodes(name: str) -> None:
    cluster = yaml.safe_load(read(name))
    (found,) = prices(read(name))
    assert set(found) == set(cluster["available_node_types"])
    assert found["gpu_spot"] < found["gpu_on_demand"]


def test_prices_of_the_job_name_its_worker_groups() -> None:
    spec = yaml.safe_load(read("clusters/rayjob.yaml"))["spec"]
    groups = {group["groupName"] for group in spec["rayClusterSpec"]["workerGroupSpecs"]}
    (found,) = prices(spec["entrypoint"])
    assert set(found) == groups
    assert BudgetConfig.model_validate({"money": 20.0, "prices": found}).prices == found


def test_the_guide_has_the_prices_of_the_file_and_adds_the_bill_up() -> None:
    guide = read("docs/guides/cluster.md")
    (found,) = prices(read("cluster.yaml"))
    assert set(map(str, prices(guide))) == {str(found)}
    (block,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    assert yaml.safe_load(block)["budget"]["prices"] == found
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in guide.partition("## The bill")[2].splitlines()
    ]
    bill = [
        (float(row[1]), float(row[2]), float(row[3]))
        for row in rows
        if len(row) == 4 and re.fullmatch(r"[\d.]+", row[1])
    ]
    assert len(bill) == 7
    assert all(hours * price == pytest.approx(cost, abs=0.006) for hours, price, cost in bill)
    assert f"**{sum(cost for *_, cost in bill):.2f}**" in guide


def test_the_autoscaler_reads_the_worker_groups_of_the_job() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr as derive

    spec = yaml.safe_load(read("clusters/rayjob.yaml"))["spec"]["rayClusterSpec"]
    config = derive({"metadata": {"name": "job", "namespace": "default"}, "spec": spec})
    types = config["available_node_types"]
    assert config["idle_timeout_minutes"] == 5
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert types["gpu-spot"]["resources"].items() >= {"CPU": 3, "GPU": 1}.items()
    assert types["gpu-spot"]["priority"] > types["gpu-on-demand"]["priority"]


def test_keys_of_machines_on_aws_are_those_of_botocore() -> None:
    loaders = pytest.importorskip("botocore.loaders", reason="the extra s3 is not installed")
    service = loaders.Loader().load_service_model("ec2", "service-2")
    shapes = json.loads(json.dumps(service["shapes"]))

    def keys(path: tuple[str | int, ...]) -> set[str]:
        shape = shapes["RunInstancesRequest"]
        for key in path:
            shape = shapes[shape["members"][key]["shape"]]
            shape = shapes[shape["member"]["shape"]] if shape["type"] == "list" else shape
        return set(shape["members"])

    set_by_ray = {"MinCount", "MaxCount", "ClientToken", "DryRun"}
    assert keys(()) - set_by_ray | {"SubnetIds"} == ec2_keys.NODE_KEYS
    for path, known in ec2_keys.KEYS_BELOW.items():
        assert keys(path) == known
