"""Edge expressions: what ``gather`` returns when it is called once with symbols instead of edges.

An expression is a tree of primitives over leaves. A leaf is a column read at the source or
destination of an edge, an edge value, an operand (parameter or constant, one array for all edges)
or a key of random draws. Equal sub-expressions are one object, so a tree is in fact a graph without
repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from graphtheta.errors import GraphThetaError, ShapeError, UserFunctionError

from .operation import Operation
from .tape import Operators, needs_grad, value_of
from .traits import PLAIN, Traits

# constants of more numbers are not compared with 0 and 1
MOST_COMPARED = 1024


# edge values that have no array: the id of an edge, and whether messages run against it
COMPUTED = frozenset(("gid", "reversed"))

# trailing shape and type
Result = tuple[tuple[int, ...], np.dtype]
_RESULTS: dict[tuple[Any, ...], Result] = {}
MOST_RESULTS = 4096


class Expr(Operators):
    """One node of an edge expression.

    Attributes:
        prim: The primitive, or None for a leaf.
        args: Argument expressions, operands as leaves.
        static: Static keyword arguments of the primitive.
        leaf: ("src" | "dst" | "edge" | "operand" | "key", name) for a leaf; the planner adds "node"
            and "total".
        rows: Whether it has one value per edge; if not it is one array for all edges.
        dims: Trailing shape for one edge if ``rows``, else the whole shape.
        requires_grad: Whether gradients flow into it; they flow into floats only.
    """

    __slots__ = ("args", "dims", "dtype", "leaf", "prim", "requires_grad", "rows", "static")

    def __init__(
        self,
        prim: Operation | None,
        args: tuple[Expr, ...],
        static: dict[str, Any],
        *,
        leaf: tuple[str, Any] | None,
        rows: bool,
        dims: tuple[int, ...],
        dtype: Any,
        requires_grad: bool,
    ):
        self.prim = prim
        self.args = args
        self.static = static
        self.leaf = leaf
        self.rows = rows
        self.dims = dims
        self.dtype = np.dtype(dtype)
        self.requires_grad = requires_grad

    @property
    def traits(self) -> Traits:
        """What its operation declares; nothing for a leaf."""
        return PLAIN if self.prim is None else self.prim.traits

    @property
    def shape(self) -> tuple[int | None, ...]:
        """As for node values; the row axis is None, since no function may depend on its length."""
        return (None, *self.dims) if self.rows else self.dims

    def dummy(self) -> np.ndarray:
        """An empty array of this shape, with no edges; shapes are inferred by running primitives on
        it.
        """
        return np.ones(((0,) if self.rows else ()) + self.dims, self.dtype)

    def __repr__(self) -> str:
        if self.prim is None:
            assert self.leaf is not None
            return f"{self.leaf[0]}.{self.leaf[1]}"
        return f"{self.prim.name}({', '.join(map(repr, self.args))})"


class Tracer:
    """The scope of one symbolic call: keeps leaves and sub-expressions unique and operands in
    order.
    """

    def __init__(self) -> None:
        self.operands: list[Any] = []
        # what was given as an operand, and its leaf
        self._given: list[tuple[Any, Expr]] = []
        self._expressions: dict[Any, Expr] = {}
        # ids of the expressions above, which live as long as this scope
        self._ids: set[int] = set()
        self._call_sites = 0
        self._token: Any = None

    def __enter__(self) -> Tracer:
        self._token = _TRACER.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _TRACER.reset(self._token)

    def next_call_site(self) -> int:
        """Number of the next random operation inside the function."""
        self._call_sites += 1
        return self._call_sites

    def leaf(
        self,
        kind: str,
        name: Any,
        dims: tuple[int, ...],
        dtype: Any,
        *,
        rows: bool = True,
        requires_grad: bool = True,
    ) -> Expr:
        """The leaf of that kind and name, made on first use."""
        leaf = self._expressions.get((kind, name))
        if leaf is None:
            leaf = Expr(
                None,
                (),
                {},
                leaf=(kind, name),
                rows=rows,
                dims=tuple(dims),
                dtype=dtype,
                requires_grad=requires_grad,
            )
            self._add((kind, name), leaf)
        return leaf

    def operand(self, x: Any) -> Expr:
        """A parameter, rowless variable, array or number as a leaf."""
        if getattr(x, "space", None) is not None:
            raise UserFunctionError(
                "gather uses a value with one row per node directly; return it from transform "
                "and read it as edge.src.NAME or edge.dst.NAME"
            )
        for given, leaf in self._given:
            if given is x:
                return leaf
        value = value_of(x)
        shape = np.shape(value)
        dtype = getattr(value, "dtype", None)
        # a Python number adapts to the dtype of arrays, so it stays one; edges read an array later,
        # when its owner may have changed it
        self.operands.append(x.copy() if isinstance(x, np.ndarray) else x)
        leaf = self.leaf(
            "operand",
            len(self.operands) - 1,
            shape,
            dtype if dtype is not None else np.float32,
            rows=False,
            requires_grad=needs_grad(x),
        )
        self._given.append((x, leaf))
        return leaf

    def neutral(self, e: Expr) -> int | None:
        """0 or 1 for an operand that is a constant of zeros or of ones; None for everything else.

        The planner reads nothing else of the values of operands.
        """
        value = self.operands[e.leaf[1]] if e.leaf is not None and e.leaf[0] == "operand" else None
        if (
            not isinstance(value, (bool, int, float, np.generic, np.ndarray))
            or not 0 < np.size(value) <= MOST_COMPARED
        ):
            return None
        return next((n for n in (0, 1) if np.all(np.equal(value, n))), None)

    def check_own(self, e: Expr) -> None:
        """Check that an expression was made in this call.

        Raises:
            UserFunctionError: It was made in an earlier one.
        """
        if id(e) not in self._ids:
            raise UserFunctionError(
                f"{e!r} comes from an earlier call of gather, whose edges no longer exist; compute"
                " it anew in each call, and keep only settings and parameters on self"
            )

    def node(self, prim: Operation, args: tuple[Expr, ...], static: dict[str, Any]) -> Expr:
        """The expression prim(*args), made on first use."""
        key = (prim, tuple(id(a) for a in args), keywords(static))
        try:
            existing = self._expressions.get(key)
        except TypeError:
            given = ", ".join(f"{n}={v!r}" for n, v in static.items())
            raise UserFunctionError(
                f"{prim.name} was given {given}; inside gather the keywords of an operation are"
                " constants, such as numbers, strings or tuples of them"
            ) from None
        if existing is not None:
            return existing
        for a in args:
            self.check_own(a)
        if not prim.rowwise:
            raise UserFunctionError(
                f"{prim.name} mixes edges and cannot be used inside gather; use it in transform or"
                " apply"
            )
        rows = any(a.rows for a in args)
        # every missing rule is an error, and an argument whose rule is None passes nothing on
        learned = [a for i, a in enumerate(args) if a.requires_grad and prim.rule(i) is not None]
        node = Expr(
            prim,
            args,
            static,
            leaf=None,
            rows=rows,
            dims=(),
            dtype=np.float32,
            requires_grad=bool(learned),
        )
        node.dims, node.dtype = self._infer(prim, args, static, rows)
        node.requires_grad = node.requires_grad and node.dtype.kind == "f"
        self._add(key, node)
        return node

    def _add(self, key: Any, e: Expr) -> None:
        self._expressions[key] = e
        self._ids.add(id(e))

    def _infer(
        self, prim: Operation, args: tuple[Expr, ...], static: dict[str, Any], rows: bool
    ) -> Result:
        """Trailing shape and type of prim(*args); where all arguments have rows, found once for
        their shapes and types.
        """
        if not all(a.rows for a in args):
            return self._tried(prim, args, static, rows)
        given = (prim, tuple((a.dims, a.dtype) for a in args), keywords(static))
        if given not in _RESULTS:
            if len(_RESULTS) >= MOST_RESULTS:
                _RESULTS.clear()
            _RESULTS[given] = self._tried(prim, args, static, rows)
        return _RESULTS[given]

    def _tried(
        self, prim: Operation, args: tuple[Expr, ...], static: dict[str, Any], rows: bool
    ) -> Result:
        values = [
            value_of(self.operands[a.leaf[1]]) if a.leaf and a.leaf[0] == "operand" else a.dummy()
            for a in args
        ]
        try:
            result = np.asarray(prim.forward(*values, **static))
            return (result.shape[1:] if rows else result.shape), result.dtype
        except GraphThetaError:
            raise
        except (ValueError, IndexError, TypeError) as error:
            shapes = ", ".join(
                (
                    ("[edges" + "".join(f", {d}" for d in a.dims) + "]")
                    if a.rows
                    else str(list(a.dims))
                )
                for a in args
            )
            raise ShapeError(f"{prim.name} cannot take {shapes}: {error}") from error


def keywords(static: Mapping[str, Any]) -> tuple[Any, ...]:
    """Static keywords as a key, equal for equal types and values: 2 differs from 2.0."""
    return tuple((name, _typed(static[name])) for name in sorted(static))


def _typed(x: Any) -> tuple[Any, ...]:
    if isinstance(x, tuple):
        return (tuple, *map(_typed, x))
    # the text tells 0.0 from -0.0, and NaN equals itself
    return type(x), repr(x) if isinstance(x, float) else x


_TRACER: ContextVar[Tracer | None] = ContextVar("graphtheta_tracer", default=None)


def tracing() -> bool:
    """Whether a gather is being traced in this context."""
    return _TRACER.get() is not None


def tracer() -> Tracer:
    """The tracer of the gather being traced.

    Raises:
        UserFunctionError: There is none.
    """
    active = _TRACER.get()
    if active is None:
        raise UserFunctionError(
            "an edge expression was used outside of gather; return it from gather as a new edge"
            " value"
        )
    return active


def build(prim: Operation, args: tuple[Any, ...], static: dict[str, Any]) -> Expr:
    """The expression prim(*args); arguments that are not expressions become operands."""
    scope = tracer()
    return scope.node(
        prim, tuple(a if isinstance(a, Expr) else scope.operand(a) for a in args), static
    )


def ordered(roots: Iterable[Expr]) -> list[Expr]:
    """Every expression below the roots once, arguments first."""
    seen: set[int] = set()
    order: list[Expr] = []

    def visit(e: Expr) -> None:
        if id(e) in seen:
            return
        seen.add(id(e))
        for a in e.args:
            visit(a)
        order.append(e)

    for root in roots:
        visit(root)
    return order


def replaced(scope: Tracer, root: Expr, by: Mapping[Expr, Expr]) -> Expr:
    """The root with expressions below it replaced by others."""
    done: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        if e in by:
            return by[e]
        if e.prim is None:
            return e
        if e not in done:
            done[e] = scope.node(e.prim, tuple(map(visit, e.args)), e.static)
        return done[e]

    return visit(root)
