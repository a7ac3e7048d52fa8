"""Hyperparameter sweeps on Ray for fine-tuning sentence embeddings.

``raysweep.__all__`` is the public API; subpackages are implementation details. Names are imported
on first use to keep ``import raysweep`` fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raysweep.errors import InputError
from raysweep.version import __version__

if TYPE_CHECKING:
    from raysweep.api.functions import (
        compare_runs,
        control_run,
        evaluate_model,
        export_point,
        load_run,
        load_sweep,
        open_prepared,
        prepare_sweep,
        resume_run,
        run_sweep,
        trial_config,
    )
    from raysweep.api.progress import Progress
    from raysweep.api.run_comparison import RunComparison
    from raysweep.api.run_results import Picture, RunResults
    from raysweep.search.mfgp import MultiFidelitySampler
    from raysweep.training.trial import run_trial

_HOMES = {
    "raysweep.api.functions": (
        "compare_runs",
        "control_run",
        "evaluate_model",
        "export_point",
        "load_run",
        "load_sweep",
        "open_prepared",
        "prepare_sweep",
        "resume_run",
        "run_sweep",
        "trial_config",
    ),
    "raysweep.api.run_comparison": ("RunComparison",),
    "raysweep.api.run_results": ("Picture", "RunResults"),
    "raysweep.api.progress": ("Progress",),
    "raysweep.search.mfgp": ("MultiFidelitySampler",),
    "raysweep.training.trial": ("run_trial",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "InputError",
    "MultiFidelitySampler",
    "Picture",
    "Progress",
    "RunComparison",
    "RunResults",
    "__version__",
    "compare_runs",
    "control_run",
    "evaluate_model",
    "export_point",
    "load_run",
    "load_sweep",
    "open_prepared",
    "prepare_sweep",
    "resume_run",
    "run_sweep",
    "run_trial",
    "trial_config",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
