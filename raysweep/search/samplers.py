"""Optuna's samplers by short name or import path."""

import importlib
import inspect
import warnings
from typing import Any

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
    if name in ("random", "grid", "mfgp"):  # mfgp proposes by itself, what the study is asked for
        return samplers.RandomSampler(seed=seed)
    factory = find_sampler(name)
    try:
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            made: optuna.samplers.BaseSampler = (
                factory(seed=seed) if "seed" in inspect.signature(factory).parameters else factory()
            )
    except Exception as error:  # it needs arguments, or a package that is not installed, or whatever it says
        raise InputError(f"{name!r} cannot be made: {_said(error)}") from None
    return made


def _said(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def find_sampler(path: str) -> Any:
    """What an import path ``package.module:Class`` names. InputError says why it is no sampler."""
    module, colon, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (Exception, SystemExit) as error:  # whatever the module does
        raise InputError(f"{path!r} cannot be imported: {_said(error)}") from None
    if not (inspect.isclass(found) and issubclass(found, optuna.samplers.BaseSampler)):
        raise InputError(
            f"{path!r} is no sampler; allowed: {', '.join(SAMPLERS)}, or the import path of one of Optuna's "
            "kind, such as optuna.samplers:CmaEsSampler"
        )
    return found
