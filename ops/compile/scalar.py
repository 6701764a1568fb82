"""The scalar form of an elementwise operation: its value and gradients as text for kernels.

A scalar form is declared with its operation:

    @primitive("exp", scalar=Scalar("exp({0})", ("{g} * {y}",), costly=True))

Its value must equal the NumPy function and propagate NaN; tests compare the two. Its gradients are
the gradient rules too: NumPy evaluates the same texts. A form names each argument once if it can,
by calls of functions, because text would double with every step.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from string import Formatter
from typing import Any

import numpy as np

from graphtheta.errors import UserFunctionError

from .elementary import FUNCTIONS

Rule = str | None
_NUMBER = re.compile(r"np\.nan|-?(np\.inf|[0-9][0-9.]*(e[+-]?[0-9]+)?)")
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub)


@dataclass(frozen=True)
class Scalar:
    """The code of an elementwise operation for single numbers.

    It is text of + - * / and parentheses over ``{0}``, ``{1}`` (arguments), ``T(number)`` (a
    constant in the type of the kernel) and calls of the functions in
    ``graphtheta.ops.compile.elementary.FUNCTIONS``.

    Args:
        value: The result.
        grads: The gradient of each argument, also over ``{g}`` (gradient of the result) and ``{y}``
            (the result); None where an argument has no gradient.
        costly: Whether computing it takes more than reading its arguments, so that it is computed
            once and saved.

    Raises:
        UserFunctionError: A text is not of this form, or reads an argument that has no gradient
            entry.

    Example:
        ``Scalar("{0} / (T(1) + absolute({0}))", ("{g} / square(T(1) + absolute({0}))",))`` is
        softsign.
    """

    value: str
    grads: tuple[Rule, ...]
    costly: bool = False
    functions: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        called = _called(self.value, len(self.grads), False)
        for rule in self.grads:
            called |= _called(rule, len(self.grads), True) if rule is not None else set()
        object.__setattr__(self, "functions", called)

    @property
    def lazy(self) -> bool:
        """Whether lazy elementwise fusion can run it: all its functions are lazy."""
        return all(FUNCTIONS[name].lazy for name in self.functions)

    def gradient(self, position: int, g: Any, y: Any, args: tuple[Any, ...]) -> Any:
        """The gradient of an argument by NumPy, in the shape of the result.

        Args:
            position: Of the argument.
            g, y: Gradient of the result and the result, arrays.
            args: Arrays and numbers.
        """
        text = self.grads[position]
        if text is None:
            return np.zeros_like(g)
        number = g.dtype.type
        # functions of numbers alone may give another type
        return np.asarray(_on_arrays(text, len(args))(number, number(1), g, y, *args), g.dtype)


def constant(x: float) -> str:
    """A number as it stands in a scalar form."""
    if math.isfinite(x):
        return f"T({float(x)!r})"
    return "T(np.nan)" if math.isnan(x) else "T(np.inf)" if x > 0 else "T(-np.inf)"


@lru_cache(maxsize=1024)
def _on_arrays(text: str, arguments: int) -> Callable[..., Any]:
    """A gradient text as a function of T, ONE, g, y and the arguments."""
    names = [f"_{i}" for i in range(arguments)]
    source = f"lambda {', '.join(['T', 'ONE', 'g', 'y', *names])}: " + text.format(
        *names, g="g", y="y"
    )
    function: Callable[..., Any] = eval(source, {"np": np, **FUNCTIONS})
    return function


@lru_cache(maxsize=1024)
def _called(text: str, arguments: int, gradient: bool) -> frozenset[str]:
    """The functions that a text calls, after a check of the form that ``Scalar`` describes."""
    what = f"Scalar: {text!r}"
    readable = {str(i) for i in range(arguments)} | ({"g", "y"} if gradient else set())
    try:
        read = {name for _, name, _, _ in Formatter().parse(text) if name is not None}
        if read - readable:
            raise UserFunctionError(
                f"{what} reads {_shown(read - readable)}; it may read {_shown(readable)}"
            )
        tree = ast.parse(
            text.format(*(f"_{i}" for i in range(arguments)), g="_g", y="_y"), mode="eval"
        )
    except (ValueError, SyntaxError) as error:
        raise UserFunctionError(
            f"{what} is not an expression over {_shown(readable)}: {error}"
        ) from error
    called: set[str] = set()
    for part in _parts(tree.body):
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and not part.keywords
            and not _wrong_number(part)
        ):
            called.add(part.func.id)
        elif not (
            isinstance(part, (ast.BinOp, ast.UnaryOp)) and isinstance(part.op, _SIGNS)
        ) and not _named(part):
            raise UserFunctionError(
                f"{what} holds {_read(part)}; write it with + - * /, T(number) and functions"
            )
    called -= {"T"}
    unknown = sorted(called - FUNCTIONS.keys())
    if unknown:
        raise UserFunctionError(
            f"{what} calls {unknown[0]}, which kernels do not support; they support"
            f" {', '.join(sorted(FUNCTIONS))}"
        )
    return frozenset(called)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """An expression and all below it, without the names of functions and what T is called with."""
    yield node
    below = (
        (node.args if not _is_t(node) else [])
        if isinstance(node, ast.Call)
        else ast.iter_child_nodes(node)
    )
    for part in below:
        if isinstance(part, ast.expr):
            yield from _parts(part)


def _is_t(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "T"


def _wrong_number(node: ast.Call) -> bool:
    """Whether it is T of anything but a number."""
    return _is_t(node) and not (
        len(node.args) == 1 and _NUMBER.fullmatch(ast.unparse(node.args[0]))
    )


def _named(node: ast.expr) -> bool:
    """Whether it is an argument; a number by itself would decide the type of the result."""
    return isinstance(node, ast.Name) and (node.id == "ONE" or node.id.startswith("_"))


def _read(node: ast.expr) -> str:
    """A part as it stands in the text."""
    return re.sub(r"\b_(\w+)\b", r"{\1}", ast.unparse(node))


def _shown(names: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
