"""The shipped files are sound; each broken or unsafe variant of one is refused in one line with its place.

A variant is an edit of the shipped file: text that is there, and what takes its place.
"""

from pathlib import Path

import pytest

from raysweep.errors import InputError
from raysweep.lint.cluster_file import lint
from support.paths import ROOT

AWS, GCP, RAY_JOB, SKY = "cluster.yaml", "clusters/gcp.yaml", "clusters/rayjob.yaml", "clusters/skypilot.yaml"
HEAD_PROFILE = "      IamInstanceProfile: {Name: raysweep-head}\n"
WORKER_PROFILE = "      IamInstanceProfile: {Name: raysweep-worker}\n"
HEAD_START = "ray start --head --port=6379 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
SPOT_TASK = "    - {infra: aws, use_spot: true}\n    - {infra: aws, use_spot: false}\n"

Variant = tuple[str, str, str]

ON_AWS: list[Variant] = [
    ("max_workers: 8\nups", "max_wrokers: 8\nups", "Ray refuses it: Additional properties are not allowed"),
    ("min_workers: 0", "min_workers: none", "Ray refuses it: 'none' is not of type 'integer'"),
    ("type: aws", "type: azure", "provider.type: must be aws or gcp, not 'azure'"),
    ("  region: us-east-1\n", "", "provider.region: this key is required: otherwise it is us-west-2"),
    ("region: us-east-1\n", "region: us-east-1a\n", "provider.region: must be a region such as us-east-1, not 'us-east-1a'"),
    ("us-east-1d", "us-west-1d", "provider.availability_zone: must be zones of us-east-1, such as us-east-1a,us-east-1b"),
    ("  cache_stopped_nodes: false\n", "", "cache_stopped_nodes: must be false: a node that is stopped"),
    ("idle_timeout_minutes: 5\n", "", "idle_timeout_minutes: this key is required: it says when an idle node is given back"),
    ("idle_timeout_minutes: 5\n", "idle_timeout_minutes: 600\n", "idle_timeout_minutes: must be above 0 and at most 60"),
    ("max_workers: 8\nups", "ups", "max_workers: this key is required: it bounds the nodes"),
    ("resources: {CPU: 0}", "resources: {}", "available_node_types.head.resources: must be {CPU: 0}: otherwise trials run"),
    ("resources: {}\n    node_config:\n", "resources: {gpu: 1}\n    node_config:\n", "resources.gpu: must be GPU: to Ray gpu is"),
    ("{CPU: 0}", "{CPU: 0, cpu: 2}", "available_node_types.head.resources.cpu: must be CPU: to Ray cpu is"),
    ("    min_workers: 0\n    max_workers: 8\n", "    min_workers: 2\n    max_workers: 8\n", "gpu_spot.min_workers: must be 0, not 2"),
    ("    max_workers: 8\n", "", "gpu_spot.max_workers: this key is required: without it, it is that of the whole cluster"),
    ("    max_workers: 8\n", "    max_workers: 80\n", "gpu_spot.max_workers: must lie between 1 and max_workers of the cluster, 8"),
    ("InstanceType: m6i.large", "1: m6i.large", "head.node_config.1: unknown key; allowed: "),
    ("InstanceType: m6i.large", "InstancType: m6i.large", "node_config.InstancType: unknown key (did you mean InstanceType?)"),
    ("      InstanceType: m6i.large\n", "", "head.node_config.InstanceType: this key is required: it is the machine"),
    ("      InstanceMarketOptions: {", "      InstanceMarketOption: {", "unknown key (did you mean InstanceMarketOptions?)"),
    ("InstanceMarketOptions: {MarketType: spot}", "InstanceMarketOptions: {MarketType: Spot}", "InstanceMarketOptions: must be {MarketType: spot}, or nothing"),
    ("InstanceMarketOptions: {MarketType: spot}", "InstanceMarketOptions: spot", "machines on demand, not 'spot'"),
    ("VolumeSize: 100", "VolumeSise: 100", "Ebs.VolumeSise: unknown key (did you mean VolumeSize?)"),
    (HEAD_PROFILE, "", "head.node_config.IamInstanceProfile: this key is required: its role is how a node reaches the bucket"),
    ("pins it.\n      ImageId: resolve:ssm:", "pins it.\n      ImageId: ssm:", "ImageId: must be an image such as ami-0123456789abcdef0"),
    ("    priority: 1\n", "", "gpu_spot.priority: must be above 0, that of the type on demand"),
    ("    resources: {on_demand: 1}\n", "    resources: {}\n", "gpu_on_demand.resources: must have a resource that no other type has"),
    ("2.60.0-py311-gpu", "latest-gpu", "docker.worker_image: must be pinned by a tag or a digest"),
    ("2.60.0-py311-gpu", "2.59.0-py311-gpu", "docker.worker_image: must have Ray 2.60.0, as this machine has"),
    ("2.60.0-py311-cpu", "2.60.0-cpu", "docker.image: must have Python 3.11 or 3.12"),
    ("  image: rayproject", "  head_image: rayproject", "docker: must name image, the head's, also where head_image and worker_image are there"),
    ("--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0", "--dashboard-host is 0.0.0.0, on every interface"),
    (" --autoscaling-config=~/ray_bootstrap_config.yaml", "", "must have --autoscaling-config=~/ray_bootstrap_config.yaml"),
    (f"  - ulimit -n 65536; {HEAD_START}\n", "", "head_start_ray_commands: must have ray start --head"),
    ("--address=$RAY_HEAD_IP:6379", "--address=10.0.0.4:6379", "--address must be $RAY_HEAD_IP:6379, where the head listens"),
    ("--head --port=6379", "--head --port=6380", "--address must be $RAY_HEAD_IP:6380, where the head listens"),
    ("worker_start_ray_commands:\n  - ray stop\n", "worker_start_ray_commands:\n", "must have ray stop first"),
    ("  - ray stop\n  - ulimit", "  - ray stop 'now\n  - ulimit", "is no command of a shell: no closing quotation"),
    ("    - --env RAY_AUTH_MODE=token\n", "", "docker.run_options: must have --env RAY_AUTH_MODE=token for the head"),
    ("  /home/ray/cluster_token: ~/.ray/auth_token\n", "", "file_mounts: must bring ~/.ray/auth_token to the nodes"),
    ("install -D -m 600", "install -D", "setup_commands: must give /home/ray/cluster_token to the container's user with mode 600"),
    ("--env RAY_USAGE", "--env RAY_AUTH_TOKEN=0123abcd --env RAY_USAGE", "holds an authentication token of Ray as plain text"),
    ("  type: aws\n", "  type: aws\n  aws_credentials: {aws_access_key_id: AKIA}\n", "aws_credentials: holds a secret as plain text"),
    ("      InstanceType: m6i.large\n", "      UserData: AKIAABCDEFGHIJKLMNOP\n", "UserData: holds an AWS access key as plain text"),
    ("pip install --constraint /home/ray/raysweep/constraints.txt -e '/home/ray/raysweep[gpu", "pip install -e '/home/ray/raysweep[gpu", "installs '/home/ray/raysweep[gpu,hub,s3]' in any version"),
    ("{Name: raysweep-head}", "{}", "head.node_config.IamInstanceProfile: must have Name or Arn, not {}"),
    ("worker_setup_commands:\n  - pip install", "worker_setup_commands:\n  - echo install", "worker_setup_commands: must install raysweep, which rayproject/ray:2.60.0-py311-gpu"),
    (
        "  type: aws\n",
        "  type: aws\n  security_group: {IpPermissions: [{FromPort: 22, ToPort: 22, IpProtocol: '-1', IpRanges: [{CidrIp: 0.0.0.0/0}]}]}\n",
        "IpPermissions[0]: must open no port but 22 of tcp, not 22 to 22 of -1",
    ),
    (
        "  type: aws\n",
        "  type: aws\n  security_group: {IpPermissions: [{FromPort: 8265, ToPort: 8265, IpRanges: [{CidrIp: 0.0.0.0/0}]}]}\n",
        "IpPermissions[0]: must open no port but 22 of tcp, not 8265 to 8265",
    ),
]  # fmt: skip

ON_GCP: list[Variant] = [
    ("  availability_zone: us-central1-a\n", "", "provider.availability_zone: this key is required: otherwise it is us-west1-a"),
    ("us-central1-a\n", "us-east1-b\n", "provider.availability_zone: must be a zone of us-central1"),
    ("machineType: n2", "machinetype: n2", "node_config.machinetype: unknown key (did you mean machineType?)"),
    ("type: PERSISTENT\n", "type: persistent\n", "disks[0].type: should be 'PERSISTENT', not 'persistent'"),
    ("provisioningModel: SPOT", "provisioningModel: Spot", "provisioningModel: should be 'SPOT' or 'STANDARD', not 'Spot'"),
    ("{CPU: 4, GPU: 1}  #", "{}  #", "resources: must name CPU, and GPU where the machine has one"),
    ("resources: {CPU: 4, GPU: 1, on_demand: 1}\n", "resources: {CPU: 4, on_demand: 1}\n", "gpu_on_demand.resources: must name GPU, which g2-standard-4 has"),
    (", instanceTerminationAction: DELETE", "", "scheduling: must have instanceTerminationAction: DELETE"),
    ("STANDARD, onHostMaintenance: TERMINATE", "STANDARD", "scheduling: must have onHostMaintenance: TERMINATE"),
    ("autoDelete: true\n", "autoDelete: false\n", "autoDelete: should be True, not False"),
]  # fmt: skip

OF_KUBERAY: list[Variant] = [
    ("  backoffLimit: 3\n", "", "spec.backoffLimit: this key is required"),
    (" --resume-or-start", "", "spec.entrypoint: must have --resume-or-start: without it each attempt begins a new run"),
    ("s3://your-bucket/sweeps", "sweeps", "--storage.runs must be a URI of a bucket"),
    ("shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false", "shutdownAfterJobFinishes: must be true"),
    ("shutdownAfterJobFinishes", "shutdownAfterJobFinish", "unknown key (did you mean shutdownAfterJobFinishes?)"),
    ("rayVersion: 2.60.0", "rayVersion: 2.59.0", "rayVersion: must be 2.60.0, as this machine has, not '2.59.0'"),
    ("enableInTreeAutoscaling: true", "enableInTreeAutoscaling: false", "enableInTreeAutoscaling: must be true"),
    ("mode: token", "mode: disabled", "authOptions.mode: must be token"),
    ("serviceType: ClusterIP", "serviceType: LoadBalancer", "serviceType: must be ClusterIP, not LoadBalancer"),
    ('num-cpus: "0"', "num-cpus: 0", "rayStartParams.num-cpus: should be a valid string, not 0"),
    ('num-cpus: "0"', 'num-cpus: "4"', 'rayStartParams: must be {num-cpus: "0"}: otherwise trials run on the head'),
    ("        minReplicas: 0\n        maxReplicas: 8\n", "        minReplicas: 1\n        maxReplicas: 8\n", "workerGroupSpecs[0].minReplicas: must be 0, not 1"),
    ("        priority: 1\n", "", "workerGroupSpecs[0].priority: must be above 0"),
    (
        "          # No toleration of spot nodes: the attempt ends with its head.\n",
        "          nodeSelector: {karpenter.sh/capacity-type: spot}\n",
        "headGroupSpec.template.spec: must neither tolerate nor select spot nodes",
    ),
    ("memory: 8Gi}\n                limits", "memory: [8]}\n                limits", "must be a quantity such as 4, 500m or 16Gi, not [8]"),
    ("ray-head\n              image: your-registry/raysweep:0.1.0-gpu", "ray-head\n              image: your-registry/raysweep", "image: must be pinned by a tag"),
    ("          serviceAccountName: raysweep\n          # No", "          # No", "spec.serviceAccountName: this key is required"),
    (
        "            - name: ray-head\n",
        "            - name: ray-head\n              env: [{name: RAY_AUTH_TOKEN, value: abc}]\n",
        "env[0].value: holds a secret as plain text",
    ),
]  # fmt: skip

OF_SKYPILOT: list[Variant] = [
    ("num_nodes: 4", "num_node: 4", "num_node: unknown key (did you mean num_nodes?)"),
    (SPOT_TASK, "    - {infra: aws, use_spot: true}\n", "resources: must have a choice without use_spot under ordered"),
    ("2.60.0-py311-gpu", "nightly-gpu", "resources.image_id: must be pinned by a tag or a digest"),
    ("disk_size: 120\n", "disk_size: 120\n  ports: 8265\n", "resources.ports: must not be there"),
    ("down: true", "down: false", "resources.autostop.down: must be true"),
    ("  RAY_AUTH_MODE: token\n", "", "envs: must have RAY_AUTH_MODE: token"),
    ("RAY_AUTH_TOKEN: null", "RAY_AUTH_TOKEN: 0123abcd", "secrets.RAY_AUTH_TOKEN: holds a secret as plain text"),
    (" --resume-or-start", "", "run: must have --resume-or-start"),
    ("--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0", "run: --dashboard-host must be 127.0.0.1"),
    ("  job_recovery: {max_restarts_on_errors: 3}\n", "", "resources.job_recovery: this key is required"),
]  # fmt: skip

VARIANTS = [
    (name, *variant)
    for name, variants in ((AWS, ON_AWS), (GCP, ON_GCP), (RAY_JOB, OF_KUBERAY), (SKY, OF_SKYPILOT))
    for variant in variants
]


def edited(folder: Path, name: str, old: str, new: str) -> Path:
    """A shipped file in which a text, at its last place, is another."""
    text = (ROOT / name).read_text(encoding="utf-8")
    before, found, after = text.rpartition(old)
    assert found, old
    path = folder / "cluster.yaml"
    path.write_text(before + new + after, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", [AWS, GCP, RAY_JOB, SKY])
def test_the_shipped_files_are_sound(name: str) -> None:
    assert lint(ROOT / name).lines == ()


@pytest.mark.parametrize(("name", "old", "new", "message"), VARIANTS, ids=[variant[3] for variant in VARIANTS])
def test_a_broken_or_unsafe_variant_is_refused_in_one_line(
    name: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = edited(tmp_path, name, old, new)
    (line,) = lint(path).lines
    assert message in line
    assert line.startswith(f"{path}: ")
    assert "\n" not in line


def test_a_secret_is_named_alone_and_not_repeated(tmp_path: Path) -> None:
    path = edited(tmp_path, AWS, "min_workers: 0", "min_workers: AKIAABCDEFGHIJKLMNOP")
    (line,) = lint(path).lines
    assert "holds an AWS access key as plain text" in line
    assert "AKIA" not in line


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("image: raysweep\n")
    with pytest.raises(InputError, match="is none of a file of ray up"):
        lint(path)
