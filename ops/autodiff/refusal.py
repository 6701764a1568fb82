"""Names the argument for which an operation failed, where it is no value that operations take."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.errors import ArgumentError, GraphThetaError

from .expr import Expr
from .tape import Parameter, Var

F = TypeVar("F", bound=Callable[..., Any])
# what Python, NumPy and PyTorch raise for arguments of other types
FAILURES = (AttributeError, IndexError, OverflowError, RuntimeError, TypeError, ValueError)
INTEGER_BITS = 64


def operation(function: F) -> F:
    """Let a function of values of nodes and edges say which of its arguments is none.

    Arguments are looked at only after a failure, so that calls cost nothing.

    Args:
        function: The function, on plain arrays, variables or symbols.

    Returns:
        The function, which raises ``ArgumentError`` in place of errors of Python and NumPy.
    """

    @wraps(function)
    def call(*args: Any, **keys: Any) -> Any:
        try:
            return function(*args, **keys)
        except GraphThetaError:
            raise
        except FAILURES as error:
            refuse(function.__name__, (*args, *keys.values()), error, lists=True)
            raise ArgumentError(f"{function.__name__}: {error}; check its arguments") from error

    return cast(F, call)


def refuse(name: str, args: tuple[Any, ...], error: Exception, lists: bool = False) -> None:
    """Raise an error about the first argument that is no value; do nothing without one.

    Args:
        name: The operation.
        args: Its arguments.
        error: What it raised.
        lists: Whether an argument may be a list of values.

    Raises:
        ArgumentError: There is one.
    """
    for x in args:
        several = isinstance(x, (list, tuple)) and lists
        if not all(map(is_value, x if several else (x,))):
            raise ArgumentError(
                f"{name} cannot take {shown(x)}; give values of nodes or edges, parameters, "
                "NumPy arrays or numbers"
            ) from error


def is_value(x: Any) -> bool:
    """Whether something is what operations compute with: a value of nodes or edges, an array of
    numbers, or a number.
    """
    if isinstance(x, int):
        return x.bit_length() < INTEGER_BITS
    if isinstance(x, (Var, Expr, Parameter, Real)):
        return True
    dtype = getattr(x, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"
