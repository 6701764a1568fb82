"""Primitives and their gradient rules: one function and one rule per argument.

    @primitive("exp")
    def exp(x):
        return np.exp(x)

    defvjp(exp, x=lambda g, y, x: g * y)

A rule is called as ``rule(g, y, *args, **static)`` with plain arrays. ``None`` says "no gradient
here"; an argument with no rule at all is an error as soon as something differentiable is passed
for it. The function and its rules work on plain arrays. A call with variables is recorded, a call
with edge expressions builds a larger expression.

An elementwise primitive needs no rules: those that are not given are the gradients of its scalar
form.

A primitive of any number of arguments, ``def concat(*xs, axis)``, has one rule for all of them,
called as ``rule(position, g, y, *xs, **static)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16, is_wide
from graphtheta.base.sparse import is_sparse
from graphtheta.errors import (
    GraphThetaError,
    MissingRuleError,
    ShapeError,
    UserFunctionError,
)

from ..compile.scalar import Scalar
from ..parallel.buffers import rowwise
from ..rows.bfloat16 import as_float
from ..rows.columns import unbroadcast
from ..rows.row_list import RowList
from .expr import Expr, build, tracing
from .fusion import defer
from .gradients import PartialGradient
from .operation import Operation
from .refusal import FAILURES, refuse
from .space import RowSpace
from .stored import blocks_of, operand_of
from .tape import Parameter, Var, current, needs_grad, space_of
from .traits import PLAIN, Traits

PRIMITIVES: dict[str, Primitive] = {}
# makes a function of blocks of rows one of all rows, or leaves it as it is
ByRows = Callable[[Callable[..., Any]], Callable[..., Any]]
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Primitive(Operation):
    """An operation that is called with arrays, variables (recorded) or symbols (traced)."""

    @property
    def built_in(self) -> bool:
        """Whether it is an operation of this package."""
        return _is_ours(self.forward)

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy is the registered primitive itself
        return _registered, (self.name,)

    def __call__(self, *args: Any, **static: Any) -> Any:
        # a variable among the static keywords would pass by the tape and the gradient rule
        if not self.taken.isdisjoint(static):
            named = next(name for name in static if name in self.taken)
            raise UserFunctionError(
                f"{self.name} takes its argument '{named}' by position, and was given it by name;"
                f" call it as {self.name}({', '.join(self.args)})"
            )
        try:
            return self._call(args, static)
        except GraphThetaError:
            raise
        except FAILURES as error:
            # a user's primitive may take anything
            if self.built_in:
                refuse(self.name, args, error)
            raise

    def _call(self, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """An expression of a gather, a value that waits to be fused, or the result."""
        if self.traits.takes != "anything":
            takes = self.traits.taken(static)
            args = tuple(_taken(takes, a) for a in args)
        # constants have a value, inside gather as well
        traced = (Expr, Var, Parameter) if tracing() else Expr
        for a in args:
            if isinstance(a, traced):
                return build(self, args, static)
        if (later := defer(self, args, static)) is not None:
            return later
        read = blocks_of if self.traits.contraction else operand_of
        operands = [read(a) for a in args]
        if not self.sparse:
            operands = [
                v if isinstance(v, (np.ndarray, float)) or not is_sparse(v) else v.toarray()
                for v in operands
            ]
        # the function may reduce axis 0 of a value without rows
        by_rows: ByRows = rowwise if self.threaded and space_of(args[0]) is not None else _itself
        values = [self._readable(v) for v in operands]
        try:
            y = by_rows(self.forward)(*values, **static)
        except GraphThetaError:
            raise
        except (ValueError, IndexError) as error:
            shapes = ", ".join(str(list(getattr(v, "shape", ()))) for v in values)
            raise ShapeError(
                f"{self.name} cannot take arrays of shape {shapes}: {error}"
            ) from error
        for a in args:
            if isinstance(a, Var) or needs_grad(a):
                return self._recorded(y, by_rows, operands, (args, static))
        return y

    def _recorded(self, y: Any, by_rows: ByRows, operands: list[Any], call: Call) -> Var:
        """A result as a variable, with the gradient rules of the arguments on the tape.

        Args:
            y: The result.
            by_rows: How the function was called, and rules are.
            operands: The values of the arguments, as the tape keeps them.
            call: The arguments and the keywords.
        """
        args, static = call
        rules = [self.rule(i) if needs_grad(a) else None for i, a in enumerate(args)]
        # part of a rounded value may be narrow
        if y.dtype == BFLOAT16 and not is_wide(y.shape[1:], np.float32):
            y = as_float(y)
        out = Var(y, self._space(args, y))
        part = None if self.traits.part is None else self.traits.part(static)

        def vjp(gs: list[Any]) -> list[Any]:
            if part is not None:
                return [PartialGradient(operands[0].shape, part, gs[0])]
            # rounded values are expanded again, and are those that later operations read
            again = [self._readable(v) for v in operands]
            result = self._readable(operand_of(out))
            return [
                None if r is None else by_rows(r)(gs[0], result, *again, **static) for r in rules
            ]

        current().add(self.name, args, [out], vjp, (self, static))
        if not any(rules):
            out.needs_grad = False
        return out

    def _readable(self, x: Any) -> Any:
        """An operand as the function and its rules take it."""
        if self.short or not isinstance(x, (np.ndarray, RowList)) or x.dtype != BFLOAT16:
            return x
        if self.traits.structural:
            return x[:] if isinstance(x, RowList) else x
        return as_float(x)

    def _space(self, args: tuple[Any, ...], y: Any) -> RowSpace | None:
        common = None
        for a in args:
            space = a.space if self.rowwise and isinstance(a, Var) else None
            if space is None:
                continue
            if space.n != y.shape[0]:
                spaces = [s for s in map(space_of, args) if s is not None]
                raise UserFunctionError(
                    f"{self.name} was given rows of different sets"
                    f" ({', '.join(f'{s.n} {s.kind}s' for s in spaces)}); combine values of the"
                    " same nodes or edges only"
                )
            common = space if common is None else common
        return common


def _taken(takes: str, x: Any) -> Any:
    """An argument in a type that an operation computes in, see ``Traits.takes``."""
    kind = x.dtype.kind if hasattr(x, "dtype") else "f"
    if kind == "b" or (kind in "iu" and takes == "floats"):
        dtype = current().dtype if takes == "floats" else np.dtype(np.int32)
        return PRIMITIVES["cast"](x, dtype=dtype.name)
    return x


def _itself(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _is_ours(function: Callable[..., Any]) -> bool:
    """Whether a function is one of this package."""
    return function.__module__.split(".")[0] == __name__.split(".")[0]


def _reading(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a user's primitive that cannot change its arrays, which others read as well.

    Raises:
        UserFunctionError: It tries to.
    """

    @wraps(function)
    def read(*args: Any, **static: Any) -> Any:
        try:
            return function(*map(read_only, args), **static)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise UserFunctionError(
                f"{name} changes an array that it was given, which others read as well; change a"
                " copy of it, such as x.copy()"
            ) from error

    return read


def read_only(x: Any) -> Any:
    """An array as a view that cannot be written; anything else as it is."""
    if not isinstance(x, np.ndarray):
        return x
    view = x.view()
    view.flags.writeable = False
    return view


def _registered(name: str) -> Primitive:
    return PRIMITIVES[name]


def primitive(
    name: str,
    *,
    rowwise: bool = True,
    sparse: bool = False,
    short: bool = False,
    threaded: bool = False,
    scalar: Scalar | Callable[..., Scalar | None] | None = None,
    traits: Traits = PLAIN,
) -> Callable[[Callable[..., Any]], Primitive]:
    """Register a function on plain arrays as a primitive.

    If the name is registered already, as after a notebook cell has run again, the new function
    replaces the older one; layers that hold the older primitive keep using it.

    Args:
        name: For messages and for the output of ``explain``.
        rowwise: Whether each row of the result depends on the same row of the arguments only, so
            that ``gather`` may use it.
        sparse: Whether it takes scipy CSR rows as they are; otherwise it gets dense arrays.
        short: Whether it takes ``BFLOAT16``, also as a ``RowList``, as it is. Structural
            operations take arrays of it; others get float32.
        threaded: Whether it takes one row value and is worth running on blocks of rows in several
            threads.
        scalar: The scalar form of an elementwise function, with which compiled gathers and lazy
            fusion run it, and which gives its gradient rules; a function of the static keywords if
            there are any, which returns None where they have no form. Without one, a gather that
            uses it runs on the reference back end.
        traits: What the planner may use.

    Raises:
        UserFunctionError: The name belongs to an operation of this package, or the scalar form has
            no gradient text for each argument.
    """

    def register(forward: Callable[..., Any]) -> Primitive:
        registered = PRIMITIVES.get(name)
        # copies of a model find its operations by name
        if registered is not None and registered.built_in:
            raise UserFunctionError(
                f"gt.primitive({name!r}): gt already has an operation of this name; choose another"
                f" name, such as 'my_{name}'"
            )
        form = (lambda: scalar) if isinstance(scalar, Scalar) else scalar
        new = Primitive(
            name,
            forward if _is_ours(forward) else _reading(name, forward),
            rowwise=rowwise,
            sparse=sparse,
            short=short,
            threaded=threaded,
            scalar=form,
            traits=traits,
        )
        if isinstance(scalar, Scalar) and len(scalar.grads) != len(new.args):
            raise UserFunctionError(
                f"gt.primitive({name!r}): its scalar form has {len(scalar.grads)} gradient texts"
                f" for the arguments {', '.join(new.args)}; give one for each, or None for an"
                " argument without a gradient"
            )
        for position, argument in enumerate(new.args if form is not None else ()):
            no_gradient = isinstance(scalar, Scalar) and scalar.grads[position] is None
            new.rules[argument] = None if no_gradient else _rule_of_form(new, position)
        PRIMITIVES[name] = new
        return new

    return register


def _rule_of_form(prim: Primitive, position: int) -> Callable[..., Any]:
    """The gradient rule that the scalar form of a primitive gives."""

    def rule(g: Any, y: Any, *args: Any, **static: Any) -> Any:
        form = prim.form(static)
        if form is None:
            raise MissingRuleError(
                f"{prim.name} has no scalar form for {static}, and no gradient rule for its"
                f" argument '{prim.args[position]}'; add one with defvjp"
            )
        return unbroadcast(form.gradient(position, g, y, args), args[position])

    return rule


def defvjp(prim: Primitive, **rules: Callable[..., Any] | None) -> None:
    """Give the gradient rules of a primitive by argument name; they take the place of those of a
    scalar form.

    Raises:
        UserFunctionError: It has no argument of that name.
    """
    unknown = sorted(set(rules) - set(prim.args))
    if unknown:
        raise UserFunctionError(
            f"gt.defvjp({prim.name}, {unknown[0]}=...): {prim.name} has no argument {unknown[0]!r}"
            f" that gets a gradient; it has {', '.join(prim.args)}"
        )
    for argument, rule in rules.items():
        if rule is not None and not prim.built_in:
            rule = _reading(prim.name, rule)
        prim.rules[argument] = rule
