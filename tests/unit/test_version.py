"""What a run says that it stood on."""

import platform

import ray
import torch

from raysweep.version import installed


def test_the_versions_are_those_that_are_installed():
    found = installed()
    assert found["Python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert found["ray"] == ray.__version__
    assert any(name.startswith("faiss") for name in found)
