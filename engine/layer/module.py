"""Modules: what has parameters, and how they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from graphtheta.base.wording import HintsAtNames
from graphtheta.errors import ConfigError, UserFunctionError

from ...ops.autodiff.tape import Parameter
from ...ops.functions.norm import RunningStats
from .reached import reached

# with which arguments a module was made, so that ``gt.check`` can make it again
_ARGUMENTS: WeakKeyDictionary[Any, tuple[tuple[Any, ...], dict[str, Any]]] = WeakKeyDictionary()


def _noted(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that notes its arguments."""

    @wraps(init)
    def noted(self: Any, *args: Any, **keys: Any) -> None:
        # an object that compares by value may have no hash
        with suppress(TypeError):
            # the constructor of the class itself comes before those of its bases
            _ARGUMENTS.setdefault(self, (args, keys))
        init(self, *args, **keys)

    return noted


def made_again(module: Module) -> Callable[[], Any] | None:
    """A function that calls the constructor of a module as it was called; None if that is not
    known, as of a copy.
    """
    if type(module).__init__ is object.__init__:
        return type(module)
    try:
        args, keys = _ARGUMENTS[module]
    except (KeyError, TypeError):
        return None
    return lambda: type(module)(*deepcopy(args), **deepcopy(keys))


class Module(HintsAtNames):
    """Anything with parameters, found through its attributes, lists, tuples and dicts."""

    def __init_subclass__(cls, **keys: Any):
        super().__init_subclass__(**keys)
        if "__init__" in vars(cls):
            cls.__init__ = _noted(vars(cls)["__init__"])  # type: ignore[method-assign]

    def named_parameters(self, path: str = "") -> Iterator[tuple[str, Parameter]]:
        """Parameters with their paths, each once, in the order of the attributes."""
        yield from (
            (where, x) for where, x in _inside(self, path, set()) if isinstance(x, Parameter)
        )

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """This module and all inside it, with their paths, each once."""
        yield from ((where, x) for where, x in _inside(self, "", set()) if isinstance(x, Module))

    def named_values(self) -> Iterator[tuple[str, Any]]:
        """All that is in the attributes of this module and of all inside it, with paths, each once;
        also in lists, tuples and dicts.
        """
        yield from _inside(self, "", set())

    def modules(self) -> Iterator[Module]:
        """This module and all inside it."""
        yield from (x for _, x in self.named_modules())

    def parameters(self) -> list[Parameter]:
        """Parameters in order; also sets the name of each."""
        parameters = []
        for name, p in self.named_parameters():
            p.name = name
            parameters.append(p)
        return parameters

    def state(self) -> dict[str, np.ndarray]:
        """Parameters and running statistics by path."""
        arrays = {name: p.value for name, p in self.named_parameters()}
        for name, s in self._statistics():
            arrays[f"{name}.mean"] = s.mean
            arrays[f"{name}.var"] = s.var
        return arrays

    def load_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Load values from ``state()`` of an equal model.

        Raises:
            ConfigError: A name is missing or unknown, or a shape differs.
        """
        current = self.state()
        missing = sorted(set(current) - set(arrays))
        unknown = sorted(set(arrays) - set(current))
        if missing or unknown:
            raise ConfigError(
                f"the weights do not fit the model: missing {missing or 'nothing'}, unknown"
                f" {unknown or 'nothing'}; use the model options the weights were trained with"
            )
        for name, x in current.items():
            if x.shape != arrays[name].shape:
                raise ConfigError(
                    f"the weight {name} has shape {list(arrays[name].shape)}, the model needs"
                    f" {list(x.shape)}; use the model options the weights were trained with"
                )
        for name, p in self.named_parameters():
            p.value = np.array(arrays[name], p.value.dtype)
        for name, s in self._statistics():
            s.mean = np.array(arrays[f"{name}.mean"], s.mean.dtype)
            s.var = np.array(arrays[f"{name}.var"], s.var.dtype)

    def _statistics(self) -> Iterator[tuple[str, RunningStats]]:
        yield from (
            (where, x) for where, x in _inside(self, "", set()) if isinstance(x, RunningStats)
        )


def _inside(x: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """An object and everything that modules, lists, tuples and dicts lead to from it, each once."""
    if id(x) in seen:
        return
    seen.add(id(x))
    yield path, x
    for name, value in _parts(x):
        yield from _inside(value, f"{path}.{name}" if path else str(name), seen)


def _parts(x: Any) -> list[tuple[Any, Any]]:
    if isinstance(x, Module):
        return list(vars(x).items())
    if isinstance(x, (list, tuple)):
        return list(enumerate(x))
    return list(x.items()) if isinstance(x, dict) else []


def lost(model: Module, parameter: Parameter) -> str:
    """Error message for a parameter that a model uses and that is not among its parameters."""
    where = _path_to(model, parameter)
    place = f" (it is {where[0]}, inside a {where[1]})" if where else ""
    return (
        f"{type(model).__name__} uses a parameter {list(parameter.shape)} that is not among its"
        f" parameters{place}, so it would never be trained; parameters are found through"
        " attributes, lists, tuples and dicts of modules: derive the class of the object that"
        " holds it from gt.Module, keep it as an attribute of a layer or the model, and do so"
        " before the trainer is made"
    )


def refuse_parameters(aggregator: Any, owner: str) -> None:
    """Check that an aggregator holds no parameters that are trained; they would have no gradients.

    Args:
        aggregator: The aggregator.
        owner: Name of its layer, for the message.

    Raises:
        UserFunctionError: It holds one, or its methods read one.
    """
    name = type(aggregator).__name__
    classes = [c for c in type(aggregator).__mro__ if not c.__module__.startswith("graphtheta.")]
    methods = [(f"{name}.{key}", value) for c in classes for key, value in vars(c).items()]
    for start, root in [("self", aggregator), *methods]:
        for path, x, _ in reached(root, start):
            if isinstance(x, Parameter) and x.requires_grad:
                raise UserFunctionError(
                    f"{owner}: its aggregator {name} holds a parameter {list(x.shape)} (it is"
                    f" {path}), which would never be trained: its methods compute with arrays;"
                    " derive from gt.Pooling or gt.Recurrent, whose methods compute with functions"
                    " of gt, or use the parameter in gather or apply of the layer"
                )


def refuse_shared(layer: Module, part: Module) -> None:
    """Check that a module with parameters that a layer uses is one of its own.

    Raises:
        UserFunctionError: It is not, as if it is an attribute of the class; parameters are found
            through attributes of objects.
    """
    if any(inner is part for inner in layer.modules()):
        return
    for name, _ in part.named_parameters():
        raise UserFunctionError(
            f"{type(layer).__name__}.sum = {type(part).__name__}(...) is an attribute of the class,"
            f" so its parameter {name} would never be trained; set self.sum in the constructor of"
            " the layer"
        )


def _path_to(model: Module, parameter: Parameter) -> tuple[str, str] | None:
    """Path of a parameter that is reached only through non-modules, and the type of its holder."""
    places = ((path, type(holder).__name__) for path, x, holder in reached(model) if x is parameter)
    return next(places, None)
