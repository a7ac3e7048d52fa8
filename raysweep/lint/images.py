"""Images of containers: pinned, and with the Ray of this machine."""

import re
from importlib.metadata import version

EXAMPLE = "rayproject/ray:2.60.0-py311-gpu"
FLOATING = ("latest", "nightly", "master", "main")


def ray_version() -> str:
    """The Ray of this machine, which starts clusters of its own version only."""
    return version("ray")


def image_problem(image: str) -> str | None:
    """What is wrong with the name of an image, None where it is pinned and fits."""
    name, _, tag = image.rpartition("/")[2].partition(":")
    if "@sha256:" in image:
        return None
    if not tag or tag.startswith(FLOATING):
        return f"must be pinned by a tag or a digest, as {EXAMPLE} is, not {image!r}"
    return _ray_problem(image, tag) if name in ("ray", "ray-ml") and "rayproject/" in image else None


def _ray_problem(image: str, tag: str) -> str | None:
    found = re.match(r"(\d+\.\d+\.\d+\w*)(?:-(py\d+))?", tag)
    if found is None or found[1] != ray_version():
        return f"must have Ray {ray_version()}, as this machine has, not {image!r}"
    if found[2] not in ("py311", "py312"):
        return f"must have Python 3.11 or 3.12, as {EXAMPLE} has, not {image!r}"
    return None
