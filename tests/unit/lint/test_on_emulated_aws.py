"""Ray itself brings up what cluster.yaml says, on an emulated AWS: no more than the calls that it makes, and what they open."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.paths import ROOT

moto = pytest.importorskip("moto", reason="the extra test is not installed")


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An account with the two instance profiles that the guide makes. Ray puts its key into a home of the test's."""
    import boto3

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with moto.mock_aws():
        for profile in ("raysweep-head", "raysweep-worker"):
            boto3.client("iam").create_instance_profile(InstanceProfileName=profile)
        yield boto3.client("ec2", region_name="us-east-1")


def test_nodes_are_as_the_file_says_and_only_ssh_is_open(aws: Any) -> None:
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config

    cluster = prepare_config(yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8")))
    cluster = bootstrap_aws(AWSNodeProvider.fillout_available_node_types_resources(cluster))
    types = cluster["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    assert all(
        types[name]["resources"].items() >= {"CPU": 4, "GPU": 1}.items() for name in ("gpu_spot", "gpu_on_demand")
    )

    provider = AWSNodeProvider(cluster["provider"], cluster["cluster_name"])
    tags = {"ray-node-type": "worker"}
    nodes = {name: provider.create_node(each["node_config"], tags, 1) for name, each in types.items()}
    reservations = aws.describe_instances(InstanceIds=[node for made in nodes.values() for node in made])[
        "Reservations"
    ]
    found = {each["InstanceId"]: each for reservation in reservations for each in reservation["Instances"]}
    started = {name: found[next(iter(made))] for name, made in nodes.items()}
    assert {name for name, each in started.items() if each.get("InstanceLifecycle") == "spot"} == {"gpu_spot"}
    profiles = {name: each["IamInstanceProfile"]["Arn"].rpartition("/")[2] for name, each in started.items()}
    assert profiles == {"head": "raysweep-head", "gpu_spot": "raysweep-worker", "gpu_on_demand": "raysweep-worker"}

    (group,) = {each["GroupId"] for instance in started.values() for each in instance["SecurityGroups"]}
    rules = aws.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"]
    assert [rule["FromPort"] for rule in rules if rule["IpRanges"]] == [22]
