"""Rules for `ray up` on AWS: the region, keys of EC2's RunInstances, instance profiles, open ports, spot machines."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from raysweep.config.document import KeyPath, unknown_key
from raysweep.lint.ec2_keys import KEYS_BELOW, NODE_KEYS
from raysweep.lint.launcher_file import LauncherFile, NodeType, mapping
from raysweep.lint.problem import Problem, required
from raysweep.lint.spot import fallback_problems

REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
IMAGE = re.compile(r"ami-[0-9a-f]{8,17}|resolve:ssm:/[\w./-]+")

REQUIRED = {
    "InstanceType": "it is the machine",
    "ImageId": "Ray's default is an Ubuntu of 2018 whose driver is too old for today's CUDA",
    "IamInstanceProfile": "its role is how a node reaches the bucket without keys",
}

MARKETS = ("spot", "capacity-block")  # of EC2's, other than on demand


def problems(file: LauncherFile) -> Iterator[Problem]:
    """What is wrong with the parts of a file that AWS reads."""
    yield from _region(file.provider)
    yield from _open_ports(file.provider)
    for each in file.types:
        yield from _node_config(each)
    yield from fallback_problems(file, is_spot)


def is_spot(worker: NodeType) -> bool:
    """Whether machines of a type may be taken back at any time."""
    return mapping(worker.node_config.get("InstanceMarketOptions")).get("MarketType") == "spot"


def _region(provider: Mapping[str, Any]) -> Iterator[Problem]:
    yield from required(provider, {"region": "otherwise it is us-west-2"}, ("provider",))
    region = provider.get("region")
    if region is None:
        return
    if not REGION.fullmatch(region):
        yield Problem(("provider", "region"), f"must be a region such as us-east-1, not {region!r}")
        return
    for zone in (provider.get("availability_zone") or "").split(","):
        if zone and not re.fullmatch(rf"{region}[a-z]", zone.strip()):
            message = f"must be zones of {region}, such as {region}a,{region}b, not {zone.strip()!r}"
            yield Problem(("provider", "availability_zone"), message)


def _open_ports(provider: Mapping[str, Any]) -> Iterator[Problem]:
    """Ray itself opens port 22; the file may open no other."""
    rules = (provider.get("security_group") or {}).get("IpPermissions") or []
    for index, rule in enumerate(map(mapping, rules)):
        ports = (rule.get("FromPort"), rule.get("ToPort"))
        protocol = str(rule.get("IpProtocol", "tcp"))
        is_ssh = ports == (22, 22) and protocol in ("tcp", "6")
        if not is_ssh and (rule.get("IpRanges") or rule.get("Ipv6Ranges")):
            path = ("provider", "security_group", "IpPermissions", index)
            yield Problem(
                path,
                f"must open no port but 22 of tcp, not {ports[0]} to {ports[1]} of {protocol} (-1 is every port): "
                "`ray dashboard` goes through SSH",
            )


def _node_config(node_type: NodeType) -> Iterator[Problem]:
    at: KeyPath = (*node_type.path, "node_config")
    misspelt = list(_unknown(node_type.node_config, NODE_KEYS, at))
    yield from misspelt or required(node_type.node_config, REQUIRED, at)
    for path, allowed in KEYS_BELOW.items():
        for where, values in _below(node_type.node_config, path):
            yield from _unknown(values, allowed, (*at, *where))
    yield from _values(node_type.node_config, at)


def _values(node_config: Mapping[str, Any], at: KeyPath) -> Iterator[Problem]:
    profile = node_config.get("IamInstanceProfile")
    if profile is not None and not {"Name", "Arn"} & set(mapping(profile)):
        yield Problem((*at, "IamInstanceProfile"), f"must have Name or Arn, not {profile!r}")
    market = node_config.get("InstanceMarketOptions")
    if market is not None and mapping(market).get("MarketType") not in MARKETS:
        message = f"must be {{MarketType: spot}}, or nothing for machines on demand, not {market!r}"
        yield Problem((*at, "InstanceMarketOptions"), message)
    image = node_config.get("ImageId")
    if image is not None and not IMAGE.fullmatch(str(image)):
        message = f"must be an image such as ami-0123456789abcdef0, or resolve:ssm:/PARAMETER, not {image!r}"
        yield Problem((*at, "ImageId"), message)


def _unknown(values: Mapping[str, Any], allowed: Iterable[str], at: KeyPath) -> Iterator[Problem]:
    known = set(allowed)
    yield from (Problem((*at, key), unknown_key(str(key), known)) for key in values if key not in known)


def _below(values: Any, path: KeyPath, at: KeyPath = ()) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """The mappings that stand at a path, through every item of the lists on the way."""
    if isinstance(values, list):
        for index, item in enumerate(values):
            yield from _below(item, path, (*at, index))
    elif isinstance(values, dict) and path:
        yield from _below(values.get(str(path[0])), path[1:], (*at, path[0]))
    elif isinstance(values, dict):
        yield at, values
