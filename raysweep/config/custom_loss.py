"""Specifications of user-defined losses.

A loss class is a :class:`torch.nn.Module` that is created as ``Class(model, **parameters)``. It has one of two methods:
``compute_loss(batch)``, which takes a :class:`raysweep.training.batch.Batch`, or sentence-transformers'
``compute_loss_from_embeddings(embeddings, labels)``. The class is imported only if a space or trial names it, because
this also imports torch.

=============== ======================================================================================================
class attribute meaning
=============== ======================================================================================================
``examples``    the kind of examples, a key of :data:`raysweep.config.loss_spec.EXAMPLES`; required
``targets``     the rule for ``labels``, a :data:`raysweep.config.loss_spec.TargetRule`; default ``examples``
``batches``     ``plain`` or ``by_label``; default ``plain``
=============== ======================================================================================================

The arguments of ``__init__`` after the model are parameters of the loss if their type is float, int, bool or a
``Literal`` of strings. The exceptions are ``width`` and ``num_labels``: raysweep passes the embedding width and the
number of classes.
"""

import functools
import importlib
import inspect
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from raysweep.config.loss_spec import (
    EXAMPLES,
    BatchRule,
    Choice,
    LossSpec,
    Number,
    Option,
    Parameter,
    TargetRule,
)
from raysweep.errors import InputError

SUPPLIED = ("width", "num_labels")
"""Arguments that raysweep passes if the loss class accepts them."""

METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"compute_loss": ("batch",), "compute_loss_from_embeddings": ("embeddings", "labels")}
)
"""Loss methods and their arguments; the first one that a class defines is used."""

_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)

_MODULE = "torch.nn.modules.module"  # torch.nn.Module.__init__ declares *args but rejects them


def import_object(path: str) -> Any:
    """Return the object at an import path such as ``package.module:Class.member``.

    Raises:
        InputError: If the object cannot be imported or does not exist.
    """
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # an import can raise any exception
        reason = " ".join(str(error).split())
        raise InputError(f"{path!r} cannot be imported: {type(error).__name__}: {reason}") from None
    for name in names.split("."):
        if not hasattr(found, name):
            raise InputError(f"{path!r} does not exist: {module} has no {names}")
        found = getattr(found, name)
    return found


@functools.cache
def inspect_class(path: str) -> LossSpec:
    """Return the specification of the loss class at an import path.

    Raises:
        InputError: If the class cannot be imported or is not a loss.
    """
    loss = import_object(path)
    is_module = inspect.isclass(loss) and hasattr(loss, "named_parameters")
    if not is_module or not any(callable(getattr(loss, name, None)) for name in METHODS):
        raise InputError(
            f"{path!r} is not a loss; allowed: a torch.nn.Module with the method {' or '.join(METHODS)}"
        )
    examples = _attribute(path, loss, "examples", tuple(EXAMPLES))
    method = next(name for name in METHODS if callable(getattr(loss, name, None)))
    arguments = METHODS[method]
    attribute = inspect.getattr_static(loss, method)
    bound = attribute.__get__(object(), loss) if hasattr(attribute, "__get__") else attribute
    try:
        inspect.signature(bound).bind(*arguments)
    except TypeError as error:
        allowed = f"{method}({', '.join(arguments)})"
        raise InputError(
            f"{path!r}: {method} cannot be called: {error}; allowed: {allowed}"
        ) from None
    parameters = dict(_parameters(path, loss))
    batches: BatchRule = _attribute(path, loss, "batches", get_args(BatchRule), "plain")
    if batches == "by_label":
        parameters["examples_per_class"] = Number(4, at_least=2, at_most=64, is_integer=True)
    return LossSpec(
        examples=examples,
        class_path=path,
        parameters=parameters,
        targets=_attribute(path, loss, "targets", get_args(TargetRule), "examples"),
        batches=batches,
        description=(inspect.getdoc(loss) or "").partition("\n")[0],
    )


def _attribute(
    path: str, loss: type, name: str, allowed: tuple[str, ...], default: str | None = None
) -> Any:
    """Return a class attribute's value; raise InputError if it is not in ``allowed``."""
    value = getattr(loss, name, default)
    if value in allowed:
        return value
    problem = "is missing" if value is None else f"is {value!r}"
    raise InputError(
        f"{path!r}: the class attribute {name} {problem}; allowed: {', '.join(allowed)}"
    )


def _parameters(path: str, loss: Any) -> Iterator[tuple[str, Parameter]]:
    """Yield the name and specification of each parameter after the model.

    Parameters of unsupported types are skipped if they have a default.
    """
    try:
        signature = inspect.signature(loss, eval_str=True)
    except Exception as error:  # evaluating annotations can raise any exception
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path!r}: its parameters cannot be read: {type(error).__name__}: {reason}"
        ) from None
    parameters = list(signature.parameters.values())
    accepts_model = bool(parameters) and parameters[0].kind in _POSITIONAL
    if not accepts_model or loss.__init__.__module__ == _MODULE:
        raise InputError(
            f"{path!r}: __init__ takes no positional argument; allowed: the model as the first argument"
        )
    for parameter in parameters[1:]:
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_variadic or parameter.name in SUPPLIED:
            continue
        is_required = parameter.default is parameter.empty
        default = None if is_required else parameter.default
        specification = _specification(parameter.name, parameter.annotation, default)
        if specification is not None:
            yield parameter.name, specification
        elif is_required:
            annotation = parameter.annotation
            is_missing = annotation is parameter.empty
            shown = "missing" if is_missing else inspect.formatannotation(annotation)
            raise InputError(
                f"{path!r}: the type of the parameter {parameter.name} is {shown}; allowed: float, int, bool or "
                "Literal, or any type with a default"
            )


def _specification(name: str, annotation: Any, default: Any) -> Parameter | None:
    """Return the specification of a parameter, or None if its type is not supported."""
    if annotation is bool:
        return _choice(name, (True, False), default)
    if annotation in (int, float):
        return Number(default, name, is_integer=annotation is int)
    options = get_args(annotation) if get_origin(annotation) is Literal else ()
    if options and all(isinstance(option, str) for option in options):
        return _choice(name, options, default)
    return None


def _choice(name: str, options: tuple[bool | str, ...], default: bool | str | None) -> Choice:
    return Choice({option: Option({name: option}) for option in options}, default)
