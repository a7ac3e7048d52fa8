"""The shipped cluster files are safe, cheap when idle, pinned, and valid for readers that run without a cloud."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from raysweep.cli.commands import CODE_VARIABLE
from raysweep.cluster.resources import own_resources
from raysweep.config.sweep import BudgetConfig
from support.paths import ROOT

RAY_UP = ["cluster.yaml", "clusters/gcp.yaml"]
RAY_JOB, RAY_CLUSTER = "clusters/rayjob.yaml", "clusters/raycluster.yaml"
KUBERAY = [RAY_JOB, RAY_CLUSTER]
SKY_TASK, DOCKERFILE = "clusters/skypilot.yaml", "clusters/Dockerfile"
FILES = [*RAY_UP, *KUBERAY, SKY_TASK, DOCKERFILE]
NVIDIA_DRIVER = "580"  # the oldest driver for CUDA 13, for which PyTorch's default wheels are built

SECRET_TEXT = re.compile(
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY|\bhf_\w{20,}|\bgh[pousr]_\w{30,}|[A-Za-z0-9/+]{40}"
)
SECRET_KEY = re.compile(
    r"credential|secret_access|access_key|session_token|auth_token$|hf_token|api_key|password", re.I
)

OPENS_PORTS = re.compile(
    r"\b(?:ports|hostPort|nodePort|hostNetwork|security_group|SecurityGroupIds|tags):|^EXPOSE\b",
    re.MULTILINE,
)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def load(name: str) -> Any:
    return yaml.safe_load(read(name))


def ray_cluster(name: str) -> Any:
    """Return the cluster in a file for KubeRay."""
    spec = load(name)["spec"]
    return spec["rayClusterSpec"] if name == RAY_JOB else spec


def entries(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each scalar with the key that holds it; an environment variable of Kubernetes with its name."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from entries(
                inner, str(value.get("name", name)) if name == "value" else str(name)
            )
    elif isinstance(value, list):
        for item in value:
            yield from entries(item, key)
    else:
        yield key, "" if value is None else str(value)


def secrets_in(value: Any) -> list[str]:
    """Return the keys of entries that look like a secret in plain text."""
    assigned = re.compile(r"(\w+)=(\S*)")
    secret_keys = []
    for key, text in entries(value):
        pairs = [(key, text), *assigned.findall(text)]
        is_secret = any(
            SECRET_KEY.search(name) and value and value[0] not in "/~$" for name, value in pairs
        )
        if is_secret or SECRET_TEXT.search(text):
            secret_keys.append(key)
    return secret_keys


def prices(text: str) -> list[dict[str, float]]:
    """Return every ``--budget.prices`` in a text."""
    return [yaml.safe_load(value) for value in re.findall(r"--budget\.prices '(\{[^']*\})'", text)]


@pytest.mark.parametrize("name", FILES)
def test_nodes_use_token_authentication(name: str) -> None:
    content = load(name) if name.endswith(".yaml") else None
    if name in RAY_UP:
        assert "--env RAY_AUTH_MODE=token" in content["docker"]["run_options"]
        assert not any(
            "docker" in node_type for node_type in content["available_node_types"].values()
        )
        (target,) = (
            path for path, source in content["file_mounts"].items() if source == "~/.ray/auth_token"
        )
        installed = re.compile(rf"install -D (-o ray )?-m 600 {target} /home/ray/\.ray/auth_token")
        assert any(installed.search(command) for command in content["setup_commands"])
    elif name in KUBERAY:
        assert ray_cluster(name)["authOptions"] == {"mode": "token"}
    elif name == SKY_TASK:
        assert content["envs"]["RAY_AUTH_MODE"] == "token"
        assert content["secrets"] == {"RAY_AUTH_TOKEN": None}
    else:
        assert re.search(r"^ENV RAY_AUTH_MODE=token\b", read(name), re.MULTILINE)


@pytest.mark.parametrize("name", FILES)
def test_files_contain_no_secrets(name: str) -> None:
    content = load(name) if name.endswith(".yaml") else read(name).splitlines()
    assert secrets_in(content) == []


@pytest.mark.parametrize(
    "content",
    [
        {"provider": {"aws_credentials": {"aws_access_key_id": "id"}}},
        {"env": [{"name": "RAY_AUTH_TOKEN", "value": "0123abcd"}]},
        {"run_options": ["--env RAY_AUTH_TOKEN=0123abcd"]},
        {"UserData": f"AKIA{'A' * 16}"},
        {"setup": f"huggingface-cli login --token hf_{'a' * 30}"},
    ],
)
def test_secrets_are_detected(content: Any) -> None:
    assert len(secrets_in(content)) == 1


@pytest.mark.parametrize("name", [*RAY_UP, SKY_TASK])
def test_dashboard_is_local_and_ports_match(name: str) -> None:
    heads = re.findall(r"ray start --head .*", read(name))
    workers = re.findall(r"ray start --address=\S*?:(\d+)", read(name))
    assert (len(heads), len(workers)) == (1, 1)
    assert "--dashboard-host=127.0.0.1" in heads[0]
    assert f"--port={workers[0]} " in heads[0]
    assert ("--autoscaling-config=~/ray_bootstrap_config.yaml" in heads[0]) == (name in RAY_UP)


@pytest.mark.parametrize("name", FILES)
def test_files_open_no_ports(name: str) -> None:
    assert OPENS_PORTS.findall(read(name)) == []
    if name in KUBERAY:
        assert ray_cluster(name)["headGroupSpec"]["serviceType"] == "ClusterIP"


@pytest.mark.parametrize("name", RAY_UP)
def test_head_has_no_cpus_and_workers_scale_from_zero(name: str) -> None:
    content = load(name)
    types = content["available_node_types"]
    assert content["head_node_type"] == "head"
    assert types["head"]["resources"] == {"CPU": 0}
    for worker in ("gpu_spot", "gpu_on_demand"):
        assert types[worker]["min_workers"] == 0
        assert 1 <= types[worker]["max_workers"] <= content["max_workers"]
    assert 0 < content["idle_timeout_minutes"] <= 60
    assert content["provider"]["cache_stopped_nodes"] is False, (
        "the disk of a stopped node still costs money"
    )


@pytest.mark.parametrize("name", KUBERAY)
def test_head_of_kuberay_has_no_cpus_and_workers_scale_from_zero(name: str) -> None:
    cluster = ray_cluster(name)
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in cluster["workerGroupSpecs"]:
        assert (group["replicas"], group["minReplicas"]) == (0, 0)
        assert group["maxReplicas"] >= 1


def test_jobs_are_retried_and_clusters_removed() -> None:
    spec = load(RAY_JOB)["spec"]
    assert spec["backoffLimit"] >= 1
    assert spec["shutdownAfterJobFinishes"] is True
    resources = load(SKY_TASK)["resources"]
    assert resources["autostop"]["down"] is True


def test_invalid_input_is_not_retried() -> None:
    assert load(SKY_TASK)["resources"]["job_recovery"] == {
        "recover_on_exit_codes": [os.EX_TEMPFAIL]
    }
    (head,) = ray_cluster(RAY_JOB)["headGroupSpec"]["template"]["spec"]["containers"]
    assert head["env"] == [{"name": CODE_VARIABLE, "value": "0"}]


def test_second_ray_of_sky_task_leaves_the_first_alone() -> None:
    """SkyPilot's own Ray listens on 6380 and 8266, its agents on 52365; see sky_templates/ray in SkyPilot 0.14."""
    run = load(SKY_TASK)["run"].replace("\\\n", " ")
    starts = re.findall(r"ray start .*", run)
    assert len(starts) == 2
    assert all("--dashboard-agent-listen-port=52366" in start for start in starts)
    assert "ray stop" not in run and "sky_templates/ray/stop_cluster" in run
    assert "--resources.address auto" not in run


@pytest.mark.parametrize("name", RAY_UP)
def test_spot_nodes_come_first_and_on_demand_nodes_are_marked(name: str) -> None:
    types = load(name)["available_node_types"]
    assert types["gpu_spot"]["priority"] > types["gpu_on_demand"]["priority"]
    marks = own_resources(
        {type_name: node_type["resources"] for type_name, node_type in types.items()}
    )
    assert marks == {"gpu_on_demand": "on_demand"}
    spot = {
        type_name
        for type_name, node_type in types.items()
        if re.search("spot", str(node_type["node_config"]), re.I)
    }
    assert spot == {"gpu_spot"}


@pytest.mark.parametrize("name", KUBERAY)
def test_kuberay_prefers_spot_workers_with_an_on_demand_head_and_driver(name: str) -> None:
    cluster = ray_cluster(name)
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    spot = groups.pop("gpu-spot")
    assert spot["priority"] > groups["gpu-on-demand"]["priority"]
    assert "gke-spot" in str(spot["template"])
    assert "spot" not in str(groups) + str(cluster["headGroupSpec"])


def test_workers_outlive_a_restart_of_the_head() -> None:
    cluster = ray_cluster(RAY_CLUSTER)
    assert cluster["gcsFaultToleranceOptions"].keys() == {"redisAddress", "redisPassword"}
    for group in cluster["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        (variable,) = container["env"]
        assert variable["name"] == "RAY_gcs_rpc_server_reconnect_timeout_s"
        assert float(variable["value"]) > 60, "Ray's default, after which the head restarts"


def test_sky_task_prefers_spot_nodes() -> None:
    assert [choice["use_spot"] for choice in load(SKY_TASK)["resources"]["ordered"]] == [
        True,
        False,
    ]


def test_ray_and_python_versions_match_the_constraints() -> None:
    (version,) = re.findall(r"^ray==(.*)$", read("constraints.txt"), re.MULTILINE)
    for name in FILES:
        versions = re.findall(r"(?:rayproject/ray:|rayVersion: )(\d[\d.]*)", read(name))
        assert set(versions) == {version}, name
        images = re.findall(r"rayproject/ray:\S+", read(name))
        assert all("-py311-" in image for image in images), name


@pytest.mark.parametrize("name", [*RAY_UP, *KUBERAY, SKY_TASK, "docs/guides/gpu.md"])
def test_files_that_start_gpus_name_the_oldest_driver(name: str) -> None:
    assert re.search(rf"\b{NVIDIA_DRIVER}\b", read(name))


@pytest.mark.parametrize("name", FILES)
def test_images_and_packages_are_pinned(name: str) -> None:
    text = read(name).replace("\\\n", " ")
    images = re.findall(
        r"(?:image|image_id|worker_image|FROM):? (?:docker:)?([\w./-]*/[\w./-]+(?::\S+)?)", text
    )
    assert images or name == DOCKERFILE
    assert all(":" in image and not image.endswith((":latest", ":nightly")) for image in images)
    installs = re.findall(r"pip install .*", text)
    assert installs or name in KUBERAY
    assert all("--constraint " in install or "==" in install for install in installs)


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_up_files_are_valid(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(load(name)))


@pytest.mark.parametrize("name", RAY_UP)
def test_autoscaler_reads_images_and_priorities(name: str) -> None:
    """The autoscaler on the head parses the file itself, which the validation does not cover."""
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

    config = AutoscalingConfig(load(name), skip_content_hash=True)
    types = config.get_node_type_configs()
    images = {name: config.get_docker_config(name)["image"].rpartition("-")[2] for name in types}
    assert images == {"head": "cpu", "gpu_spot": "gpu", "gpu_on_demand": "gpu"}
    assert types["gpu_spot"].priority > types["gpu_on_demand"].priority
    assert [types[name].min_worker_nodes for name in images] == [0, 0, 0]


def schema_of(definition: Any, version: str) -> Any:
    """Return the schema of a Kubernetes resource definition, in which fields that it does not name are errors."""

    def closed(schema: Any) -> Any:
        if isinstance(schema, list):
            return [closed(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        inner = {key: closed(value) for key, value in schema.items()}
        is_open = "additionalProperties" in schema or schema.get(
            "x-kubernetes-preserve-unknown-fields"
        )
        if (
            schema.get("type") == "object"
            and isinstance(schema.get("properties"), dict)
            and not is_open
        ):
            inner["additionalProperties"] = False
        return inner

    (found,) = [each for each in definition["spec"]["versions"] if each["name"] == version]
    schema = closed(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes itself checks it
    return schema


@pytest.mark.parametrize(("name", "kind"), [(RAY_JOB, "rayjobs"), (RAY_CLUSTER, "rayclusters")])
def test_files_of_kuberay_match_its_definitions(name: str, kind: str) -> None:
    """RAYSWEEP_KUBERAY_CRDS is the folder ``ray-operator/config/crd/bases`` of a checkout of KubeRay."""
    folder = os.environ.get("RAYSWEEP_KUBERAY_CRDS")
    if not folder:
        pytest.skip("needs RAYSWEEP_KUBERAY_CRDS")
    definition = yaml.safe_load((Path(folder) / f"ray.io_{kind}.yaml").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(schema_of(definition, "v1"))
    assert [error.message for error in validator.iter_errors(load(name))] == []
    misspelt = load(name)
    misspelt["spec"]["headGroupSpecs"] = {}
    assert len(list(validator.iter_errors(misspelt))) == 1


@pytest.mark.parametrize("name", KUBERAY)
def test_autoscaler_reads_worker_groups_of_kuberay(name: str) -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr as derive,
    )

    config = derive(
        {"metadata": {"name": "job", "namespace": "default"}, "spec": ray_cluster(name)}
    )
    types = config["available_node_types"]
    if name == RAY_CLUSTER:  # the guide submits jobs with this resource
        assert types["driver"]["resources"].items() >= {"CPU": 0, "driver": 1}.items()
    assert config["idle_timeout_minutes"] == 5
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert types["gpu-spot"]["resources"].items() >= {"CPU": 3, "GPU": 1}.items()
    assert types["gpu-spot"]["priority"] > types["gpu-on-demand"]["priority"]


@pytest.mark.parametrize("name", RAY_UP)
def test_prices_name_the_node_types(name: str) -> None:
    (price_by_type,) = prices(read(name))
    assert set(price_by_type) == set(load(name)["available_node_types"])
    assert price_by_type["gpu_spot"] < price_by_type["gpu_on_demand"]


def test_ray_job_prices_name_the_worker_groups() -> None:
    groups = {group["groupName"] for group in ray_cluster(RAY_JOB)["workerGroupSpecs"]}
    (price_by_group,) = prices(load(RAY_JOB)["spec"]["entrypoint"])
    assert set(price_by_group) == groups
    budget = BudgetConfig.model_validate({"money": 20.0, "prices": price_by_group})
    assert budget.prices == price_by_group


def test_prices_and_bill_in_the_guide_are_correct() -> None:
    guide = read("docs/guides/cloud.md")
    (price_by_type,) = prices(read("cluster.yaml"))
    assert set(map(str, prices(guide))) == {str(price_by_type)}
    (block,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    assert yaml.safe_load(block)["budget"]["prices"] == price_by_type
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in guide.partition("## The bill")[2].splitlines()
    ]
    bill = [
        (float(row[1]), float(row[2]), float(row[3]))
        for row in rows
        if len(row) == 4 and re.fullmatch(r"[\d.]+", row[1])
    ]
    assert len(bill) == 7
    assert all(hours * price == pytest.approx(cost, abs=0.006) for hours, price, cost in bill)
    assert f"**{sum(cost for *_, cost in bill):.2f}**" in guide


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An emulated account with the guide's two instance profiles; Ray stores its key in a temporary home."""
    moto = pytest.importorskip("moto", reason="the extra test is not installed")
    import boto3

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with moto.mock_aws():
        for profile in ("raysweep-head", "raysweep-worker"):
            boto3.client("iam").create_instance_profile(InstanceProfileName=profile)
        yield boto3.client("ec2", region_name="us-east-1")


def test_ray_starts_the_configured_nodes_and_opens_only_ssh(aws: Any) -> None:
    """Check Ray's calls on an emulated AWS."""
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config

    cluster = prepare_config(load("cluster.yaml"))
    cluster = bootstrap_aws(AWSNodeProvider.fillout_available_node_types_resources(cluster))
    types = cluster["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    assert all(
        types[name]["resources"].items() >= {"CPU": 4, "GPU": 1}.items()
        for name in ("gpu_spot", "gpu_on_demand")
    )

    provider = AWSNodeProvider(cluster["provider"], cluster["cluster_name"])
    tags = {"ray-node-type": "worker"}
    nodes = {
        name: provider.create_node(node_type["node_config"], tags, 1)
        for name, node_type in types.items()
    }
    ids = {name: next(iter(created)) for name, created in nodes.items()}
    reservations = aws.describe_instances(InstanceIds=list(ids.values()))["Reservations"]
    instances = {}
    for reservation in reservations:
        for instance in reservation["Instances"]:
            instances[instance["InstanceId"]] = instance
    started = {name: instances[instance_id] for name, instance_id in ids.items()}
    assert {name for name, node in started.items() if node.get("InstanceLifecycle") == "spot"} == {
        "gpu_spot"
    }
    profiles = {
        name: node["IamInstanceProfile"]["Arn"].rpartition("/")[2] for name, node in started.items()
    }
    assert profiles == {
        "head": "raysweep-head",
        "gpu_spot": "raysweep-worker",
        "gpu_on_demand": "raysweep-worker",
    }

    (group,) = {group["GroupId"] for node in started.values() for group in node["SecurityGroups"]}
    rules = aws.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"]
    assert [rule["FromPort"] for rule in rules if rule["IpRanges"]] == [22]
