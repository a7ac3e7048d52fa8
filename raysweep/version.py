"""Versions of raysweep and its dependencies."""

import platform
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"

# Packages whose versions may affect scores.
PACKAGES = (
    "torch",
    "sentence-transformers",
    "transformers",
    "ray",
    "optuna",
    "faiss-cpu",
    "faiss-gpu",
    "numpy",
    "scikit-learn",
)


def installed() -> dict[str, str]:
    """Return the versions of Python and of the installed ``PACKAGES``, keyed by name."""
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
