"""Optuna samplers by short name or import path."""

import importlib
import inspect
import warnings
from collections.abc import Iterator

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from raysweep.config.freezing import check_level, level_depth
from raysweep.config.space import Choices, Parameters, Range, Scalar, Space
from raysweep.config.sweep import SAMPLERS
from raysweep.errors import InputError
from raysweep.metrics.objective import Pair
from raysweep.search.conditional_space import ConditionalSpace, OneOf, Parameter
from raysweep.search.mfgp import MultiFidelitySampler


def make_sampler(
    name: str, seed: int, space: Space, reference_point: Pair | None = None
) -> optuna.samplers.BaseSampler:
    """Return a sampler for the space, by short name or import path, such as ``optuna.samplers:QMCSampler``.

    With a ``reference_point``, ``mfgp`` maximizes the hypervolume above it.
    """
    samplers = optuna.samplers
    if name == "mfgp":
        return MultiFidelitySampler(conditional_space(space), seed=seed, reference_point=reference_point)
    if name == "tpe":
        # Multivariate and grouped: one density for the parameters that exist together under a choice.
        return samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
    if name == "gp":
        return samplers.GPSampler(seed=seed, deterministic_objective=False)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed)
    if name in ("random", "grid"):  # grid points are enqueued
        return samplers.RandomSampler(seed=seed)
    sampler_class = find_sampler(name)
    try:
        arguments = {"seed": seed} if "seed" in inspect.signature(sampler_class).parameters else {}
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            return sampler_class(**arguments)
    except Exception as error:  # missing arguments or packages, or anything else
        raise InputError(f"{name!r} cannot be made: {first_line(error)}") from None


def conditional_space(space: Space) -> ConditionalSpace:
    """Return a sweep's space as samplers see it: without fixed parameters, under the samplers' names."""
    return ConditionalSpace(tuple(_parameters(space.parameters, "", None)))


def _parameters(parameters: Parameters, prefix: str, condition: OneOf | None) -> Iterator[Parameter]:
    for name, parameter in parameters.items():
        full_name = prefix + name
        if isinstance(parameter, Range):
            yield Parameter(full_name, _distribution_of(parameter), condition)
        if isinstance(parameter, Choices):
            options = tuple(parameter.options)
            is_depth = name == "freezing" and all(map(_is_freezing_level, options))
            ordered = tuple(sorted(options, key=lambda level: level_depth(str(level)))) if is_depth else None
            yield Parameter(full_name, CategoricalDistribution(options), condition, ordered)
            for option, children in parameter.options.items():
                yield from _parameters(children, f"{full_name}={option}.", OneOf(full_name, (option,)))


def _distribution_of(parameter: Range) -> FloatDistribution | IntDistribution:
    if parameter.integer:
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)


def _is_freezing_level(option: Scalar) -> bool:
    """Return whether the option is a freezing level; recorded tables may use the name "freezing" for anything."""
    try:
        check_level(str(option))
    except InputError:
        return False
    return True


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def find_sampler(path: str) -> type[optuna.samplers.BaseSampler]:
    """Return the sampler class with import path ``package.module:Class``.

    Raises:
        InputError: If the path cannot be imported or is not a sampler.
    """
    module, colon, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (Exception, SystemExit) as error:  # importing may raise anything
        raise InputError(f"{path!r} cannot be imported: {first_line(error)}") from None
    if not (inspect.isclass(found) and issubclass(found, optuna.samplers.BaseSampler)):
        raise InputError(
            f"{path!r} is no sampler; allowed: {', '.join(SAMPLERS)}, or the import path of one of Optuna's "
            "kind, such as optuna.samplers:QMCSampler"
        )
    return found
