"""The version of raysweep, which a run writes into its ledger, and those of what it stands on."""

import platform
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"

# What scores may depend on: torch's kernels, tokens, neighbours, proposals.
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
    """The versions of Python and of those packages that are installed, by name."""
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
