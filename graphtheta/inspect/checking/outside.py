"""State outside of a model that its methods reach.

It is in attributes of classes, global variables and those of enclosing functions. Searched are the
classes of a model, its layers and their aggregators, and the classes and functions that they refer
to in the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.layer.reached import global_names
from graphtheta.inspect.checking.alike import alike
from graphtheta.ops.edge.aggregator import AGGREGATORS

CACHED = type(lru_cache(int))
# of arrays with more numbers, and of lists, sets and dicts with more items, no copy is made
MOST_COPIED = 1_000_000
MOST_ITEMS = 10_000


class Outside:
    """The variables outside of a model that its methods reach, and the values that they have now.

    Args:
        model: The model.
    """

    def __init__(self, model: Model):
        classes = dict.fromkeys(
            cls
            for x in _parts(model)
            for cls in type(x).__mro__
            if not _of_the_package(cls) and cls.__module__ != "builtins"
        )
        self._files = {cls.__module__ for cls in classes}
        self._searched: set[int] = set()
        self._spaces: list[_Space] = []
        self._caches: list[Any] = []
        for cls in classes:
            self._search(cls)

    def restore(self) -> None:
        """Give variables the values that they had when this object was made; empty caches."""
        for space in self._spaces:
            space.restore()
        for cached in self._caches:
            cached.cache_clear()

    def changed(self) -> list[str]:
        """Names of the variables whose values differ from those when this object was made."""
        full = [
            f"the cache of {cached.__name__}"
            for cached in self._caches
            if cached.cache_info().currsize
        ]
        return [name for space in self._spaces for name in space.changed()] + full

    def _search(self, x: Any) -> None:
        """Note the variables of a class or function, and search those that they lead to."""
        if isinstance(x, CACHED) and x not in self._caches:
            self._caches.append(x)
        for function in _wrapped(x):
            self._search(function)
        if (
            not isinstance(x, (type, FunctionType))
            or x.__module__ not in self._files
            or id(x) in self._searched
        ):
            return
        self._searched.add(id(x))
        places = [_attributes(x)]
        if isinstance(x, FunctionType):
            places += [_globals(x), _closure(x)]
        for variables in places:
            self._spaces.append(_Space(variables, self._files))
            for value in variables.read().values():
                self._search(value)
                self._search(type(value))


def _parts(model: Model) -> Iterator[Any]:
    """The modules of a model, and the aggregators that its layers name."""
    for module in model.modules():
        yield module
        aggregators = module.sum if isinstance(module, Layer) else ()
        several = list(aggregators.values()) if isinstance(aggregators, dict) else aggregators
        for x in several if isinstance(several, (list, tuple)) else [several]:
            # a run refuses what is none
            yield AGGREGATORS.get(x) if isinstance(x, str) else x


def _wrapped(x: Any) -> list[Any]:
    """The functions that a property, a method or a wrapper of another function calls."""
    # by type: another object may run code, or raise, when it is asked for attributes
    if isinstance(x, property):
        return [x.fget, x.fset]
    if isinstance(x, (classmethod, staticmethod, MethodType)):
        return [x.__func__]
    if isinstance(x, (FunctionType, CACHED)):
        return [getattr(x, "__wrapped__", None)]
    return []


def _of_the_package(cls: type) -> bool:
    return f"{cls.__module__}.".startswith("graphtheta.")


@dataclass(frozen=True)
class _Variables:
    """Variables in one place.

    Attributes:
        prefix: Put before a name in messages.
        read: Returns the values by name.
        write: Sets a value.
        remove: Removes a variable.
    """

    prefix: str
    read: Callable[[], dict[str, Any]]
    write: Callable[[str, Any], None]
    remove: Callable[[str], None]


def _attributes(x: Any) -> _Variables:
    """The attributes of a class or function."""

    def read() -> dict[str, Any]:
        return {name: value for name, value in vars(x).items() if not name.startswith("__")}

    return _Variables(f"{x.__name__}.", read, partial(setattr, x), partial(delattr, x))


def _globals(function: FunctionType) -> _Variables:
    """The global variables that a function reads or assigns."""
    variables = function.__globals__
    names = sorted(global_names(function.__code__))

    def read() -> dict[str, Any]:
        return {name: variables[name] for name in names if name in variables}

    return _Variables("the global ", read, variables.__setitem__, variables.__delitem__)


def _closure(function: FunctionType) -> _Variables:
    """The variables of enclosing functions that a function reads or assigns."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def read() -> dict[str, Any]:
        # an empty cell is equal to another one
        return {name: cell.cell_contents for name, cell in cells.items() if cell != CellType()}

    def write(name: str, value: Any) -> None:
        cells[name].cell_contents = value

    def remove(name: str) -> None:
        del cells[name].cell_contents

    return _Variables("the variable ", read, write, remove)


class _Space:
    """Variables in one place, and the values that they have now.

    Args:
        variables: The variables.
        files: Modules of classes of whose objects the attributes belong to the values.
    """

    def __init__(self, variables: _Variables, files: set[str]):
        self._variables = variables
        self._files = files
        self._values = variables.read()
        self._contents = {name: self._content(value) for name, value in self._values.items()}

    def changed(self) -> list[str]:
        now = self._variables.read()
        return [
            self._variables.prefix + name
            for name in sorted(now.keys() | self._values.keys())
            if now.get(name) is not self._values.get(name) or not self._is_unchanged(name)
        ]

    def restore(self) -> None:
        now = self._variables.read()
        for name in now.keys() - self._values.keys():
            self._variables.remove(name)
        for name, value in self._values.items():
            if name not in now or now[name] is not value:
                self._variables.write(name, value)
            # what has not changed stays the same object
            if not self._is_unchanged(name):
                _refill(_changeable(value, self._files), deepcopy(self._contents[name]))

    def _is_unchanged(self, name: str) -> bool:
        """Whether what is inside the value that a variable had is as it was, or was not copied."""
        content = self._contents.get(name)
        now = _changeable(self._values.get(name), self._files)
        return content is None or alike(now, content)

    def _content(self, value: Any) -> Any:
        """A copy of what can be changed inside a value; None if there is no such thing or copy."""
        inside = _changeable(value, self._files)
        if inside is None or _is_large(inside):
            return None
        try:
            return deepcopy(inside)
        except Exception:
            # objects refuse to be copied by errors of all kinds
            return None


def _changeable(value: Any, files: set[str]) -> Any:
    """What can be changed inside a value, such as the attributes of an object; None if nothing."""
    if isinstance(value, (dict, list, set, np.ndarray)):
        return value
    if isinstance(value, (type, FunctionType)) or type(value).__module__ not in files | {"types"}:
        return None
    return getattr(value, "__dict__", None)


def _is_large(inside: Any) -> bool:
    if isinstance(inside, np.ndarray):
        return inside.size > MOST_COPIED
    return len(inside) > MOST_ITEMS


def _refill(x: Any, content: Any) -> None:
    if isinstance(content, np.ndarray):
        x[...] = content
        return
    x.clear()
    if isinstance(content, list):
        x.extend(content)
    else:
        x.update(content)
