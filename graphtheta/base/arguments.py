"""Arguments of public functions are compared with their annotations, so that a wrong one is named.

Without it, a dict in the place of a graph fails far inside, with the name of an attribute that
the user has never heard of.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import repeat
from numbers import Real
from operator import index
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from graphtheta.base.other_names import KEYS
from graphtheta.base.wording import did_you_mean, shown
from graphtheta.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])


def is_whole(value: Any) -> bool:
    """Whether a value is one whole number, of Python, NumPy or PyTorch; True and False are none."""
    if isinstance(value, bool):
        return False
    with suppress(TypeError, ValueError, RuntimeError):
        index(value)
        return True
    return False


def _is_real(value: Any) -> bool:
    return is_whole(value) or (isinstance(value, Real) and not isinstance(value, bool))


# what is expected, and how a value is recognised
PLAIN: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", is_whole),
    float: ("a number", _is_real),
    bool: ("True or False", lambda x: isinstance(x, (bool, np.bool_))),
    # no name of a file or a column has this character
    str: ("a text", lambda x: isinstance(x, str) and "\0" not in x),
    os.PathLike: ("a path", lambda x: isinstance(x, os.PathLike)),
    type(None): ("None", lambda x: x is None),
}
LISTS = (Sequence, list, tuple)


def checked(function: F) -> F:
    """Check the arguments of each call of a function against its annotations.

    Arrays, and what is annotated as ``Any``, are left to the function.

    Args:
        function: A function, a method, or the constructor of a class.

    Returns:
        The function, which raises ``ArgumentError`` for arguments that it does not have, or of
        other types.
    """
    names = signature(function)
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*args: Any, **keys: Any) -> Any:
        if not hints:
            # names of annotations may be defined below the function
            hints.update({**get_type_hints(function), "return": Any})
        try:
            given = names.bind(*args, **keys).arguments
        except TypeError as error:
            raise ArgumentError(
                _unbound(function=function, names=names, args=args, keys=keys, problem=str(error))
            ) from None
        for name, value in given.items():
            hint = hints.get(name, Any)
            kind = names.parameters[name].kind
            if kind is Parameter.VAR_KEYWORD:
                continue
            for one in value if kind is Parameter.VAR_POSITIONAL else (value,):
                if not matches(one, hint):
                    raise misfit(_called(function, args), name, one, hint)
        return function(*args, **keys)

    return cast(F, call)


def misfit(called: str, name: str, value: Any, hint: Any) -> ArgumentError:
    """The error about an argument of another type than its annotation.

    Args:
        called: What was called.
        name: The argument.
        value: What was given.
        hint: Its annotation.
    """
    name, value, hint = _culprit(name, value, hint)
    kinds = [kind for kind in get_args(hint) or (hint,) if isinstance(kind, type)]
    wanted = expected(hint)
    if isinstance(value, type) and issubclass(value, tuple(kinds)):
        wanted = f"an object of it, such as {value.__name__}(...)"
    return ArgumentError(f"{called}: {name} is {shown(value)}; expected {wanted}")


def matches(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; True for a type that is not checked."""
    origin = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        return any(matches(value, one) for one in get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if origin in PLAIN:
        return PLAIN[origin][1](value)
    if origin is Callable:
        return callable(value)
    if origin is np.ndarray or not isinstance(origin, type):
        return True
    if origin in LISTS:
        return _is_list(value, origin, get_args(hint))
    if issubclass(origin, Mapping):
        # a message about a name is that of the function
        item = (*get_args(hint), Any)[1]
        return isinstance(value, origin) and all(matches(x, item) for x in value.values())
    try:
        return isinstance(value, origin)
    except TypeError:
        # a protocol whose methods only a type checker compares
        return True


def _is_list(value: Any, kind: type, items: tuple[Any, ...]) -> bool:
    hints = _places(value, kind, items)
    return hints is not None and all(map(matches, value, hints))


def _places(value: Any, kind: type, items: tuple[Any, ...]) -> Iterable[Any] | None:
    """The types annotated for the items of a list; None for what is no such list."""
    listed = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    array = isinstance(value, np.ndarray) and value.ndim == 1 and kind is not tuple
    if listed and kind is tuple and Ellipsis not in items and items:
        # one type for each place
        return items if len(value) == len(items) else None
    if listed or array:
        return repeat(items[0], len(value)) if items else ()
    return None


def _culprit(name: str, value: Any, hint: Any) -> tuple[str, Any, Any]:
    """The item of a list or dict that does not fit, if the list or dict itself does; else the
    argument.
    """
    union = get_origin(hint) in (Union, types.UnionType)
    options = get_args(hint) if union else (hint,)
    for one in options:
        origin = get_origin(one) or one
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, origin):
            item = (*get_args(one), Any)[1]
            wrong = [key for key, x in value.items() if not matches(x, item)]
            if wrong:
                return _culprit(f"{name}[{wrong[0]!r}]", value[wrong[0]], item)
    lists = [
        hints
        for one in options
        if (get_origin(one) or one) in LISTS
        and (hints := _places(value, get_origin(one) or one, get_args(one))) is not None
    ]
    # which of several kinds of list was meant is not known
    if len(lists) == 1:
        for i, (item, of) in enumerate(zip(value, lists[0], strict=False)):
            if not matches(item, of):
                return _culprit(f"{name}[{i}]", item, of)
    return name, value, hint


def expected(hint: Any) -> str:
    """An annotated type in words."""
    origin = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        words = [expected(one) for one in get_args(hint) if one is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if origin in PLAIN:
        return PLAIN[origin][0]
    if origin is tuple and Ellipsis not in get_args(hint):
        return f"a tuple of {len(get_args(hint))} values"
    if origin in LISTS:
        items = get_args(hint)[:1]
        plain = [f", each {expected(items[0])}"] if items and items[0] is not Any else []
        return "".join(["a list", *plain])
    if origin in (Mapping, dict):
        return "a dict by name" if get_args(hint)[:1] == (str,) else "a dict"
    if origin is Callable:
        return "a function"
    if isinstance(origin, type):
        return str(getattr(origin, "as_argument", f"an object of type {origin.__name__}"))
    return "something else"


def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The name by which a user calls a function."""
    owner, _, name = function.__qualname__.rpartition(".")
    if name == "__init__":
        # the class that was called may have inherited its constructor
        return type(args[0]).__name__ if args else owner
    return f"{owner}.{name}" if owner else name


def _unbound(
    function: Callable[..., Any],
    names: Signature,
    args: tuple[Any, ...],
    keys: Mapping[str, Any],
    problem: str,
) -> str:
    """Message about arguments that are missing, unknown or too many."""
    takes = [name for name in names.parameters if name not in ("self", "cls")]
    unknown = [name for name in keys if name not in takes]
    about = (
        f"there is no argument {unknown[0]!r}{did_you_mean(unknown[0], takes)}"
        if unknown
        else problem
    )
    if unknown and unknown[0] in KEYS:
        about += f", which is a key of a job: gt.Trainer(..., {unknown[0]}=...)"
    return f"{_called(function, args)}: {about}; it takes {', '.join(takes)}"
