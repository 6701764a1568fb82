"""What an object leads to: its attributes and items, and the variables that functions read."""

from __future__ import annotations

from collections.abc import Iterator
from dis import get_instructions
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

# largest number of objects that a search looks into
MOST_SEARCHED = 100_000
# what leads to nothing, or to more than an object's own
ENDS = (np.ndarray, str, bytes, int, float, complex, type(None), type, ModuleType)


def reached(root: Any, path: str = "self") -> Iterator[tuple[str, Any, Any]]:
    """An object and what it leads to, the nearest first, without arrays, numbers and texts.

    Yields the path of each, the object, and the one that leads to it.

    Args:
        root: The object.
        path: Its name.
    """
    queue: list[tuple[str, Any, Any]] = [(path, root, None)]
    seen: set[int] = set()
    for where, x, holder in queue:
        yield where, x, holder
        if id(x) in seen or isinstance(x, ENDS):
            continue
        seen.add(id(x))
        if len(seen) > MOST_SEARCHED:
            return
        inside = [(name, value) for name, value in parts(x) if not isinstance(value, ENDS)]
        queue += [(f"{where}.{name}", value, x) for name, value in inside]


def parts(x: Any) -> list[tuple[Any, Any]]:
    """Attributes of an object, items of a list, tuple or dict, and variables of a function."""
    if isinstance(x, (list, tuple)):
        return list(enumerate(x))
    if isinstance(x, dict):
        return list(x.items())
    slots = [(name, getattr(x, name, None)) for cls in type(x).__mro__ for name in _slots(cls)]
    # not by getattr, which runs code of the object
    function = x.__func__ if isinstance(x, (MethodType, classmethod, staticmethod)) else x
    return [
        *getattr(x, "__dict__", {}).items(),
        *slots,
        *(variables(function).items() if isinstance(function, FunctionType) else ()),
    ]


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def variables(function: FunctionType) -> dict[str, Any]:
    """Variables of enclosing functions, and global ones, that a function reads and that are set."""
    globals_ = function.__globals__
    values = {name: globals_[name] for name in global_names(function.__code__) if name in globals_}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            # it has no value yet
            continue
    return values


def global_names(code: CodeType) -> set[str]:
    """Names of global variables that code reads or assigns, functions inside it included."""
    names = {step.argval for step in get_instructions(code) if step.opname.endswith("_GLOBAL")}
    return names.union(
        *(global_names(inner) for inner in code.co_consts if isinstance(inner, CodeType))
    )
