"""Installed versions, and the supported range of Ray."""

import platform
import re
import tomllib

import ray
import torch
from packaging.requirements import Requirement

from raysweep.version import installed
from support.paths import ROOT


def test_installed_versions():
    versions = installed()
    assert versions["Python"] == platform.python_version()
    # PyPI's wheels omit the build
    assert versions["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert versions["ray"] == ray.__version__
    assert any(name.startswith("faiss") for name in versions)


def test_pinned_ray_is_in_the_supported_range() -> None:
    """Ray 2.58.1 lacks a function for tokens that raysweep imports; later versions than the pinned one are not tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = map(Requirement, project["dependencies"])
    allowed = next(
        requirement.specifier for requirement in requirements if requirement.name == "ray"
    )
    (pinned,) = re.findall(
        r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    candidates = ["2.52.0", "2.58.1", "2.59.0", pinned, "2.61.0"]
    assert [allowed.contains(version) for version in candidates] == [
        False,
        False,
        True,
        True,
        False,
    ]
