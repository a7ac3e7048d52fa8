"""Optuna's samplers by short name or import path."""

import importlib
import inspect
import warnings

import optuna

from raysweep.config.sweep import SAMPLERS
from raysweep.errors import InputError


def make_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    """A sampler by its short name, or any by its import path, such as ``optuna.samplers:CmaEsSampler``."""
    samplers = optuna.samplers
    if name == "tpe":
        # multivariate and grouped: one density over the parameters that exist together under a choice
        return samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
    if name == "gp":
        return samplers.GPSampler(seed=seed, deterministic_objective=False)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed)
    if name in ("random", "grid", "mfgp"):  # grid and mfgp propose by themselves what the study is asked for
        return samplers.RandomSampler(seed=seed)
    sampler_class = find_sampler(name)
    try:
        arguments = {"seed": seed} if "seed" in inspect.signature(sampler_class).parameters else {}
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            return sampler_class(**arguments)
    except Exception as error:  # it needs other arguments, or a package that is not installed, or anything else
        raise InputError(f"{name!r} cannot be made: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """An error's type, and the first line of what it says."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def find_sampler(path: str) -> type[optuna.samplers.BaseSampler]:
    """The sampler that an import path ``package.module:Class`` names. InputError says why it is none."""
    module, colon, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (Exception, SystemExit) as error:  # the module may raise anything
        raise InputError(f"{path!r} cannot be imported: {first_line(error)}") from None
    if not (inspect.isclass(found) and issubclass(found, optuna.samplers.BaseSampler)):
        raise InputError(
            f"{path!r} is no sampler; allowed: {', '.join(SAMPLERS)}, or the import path of one of Optuna's "
            "kind, such as optuna.samplers:CmaEsSampler"
        )
    return found
