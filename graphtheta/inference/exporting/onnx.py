"""``gt.to_onnx``: dense parts of a model as ONNX, which needs the package ``onnx``.

An operation becomes one or a few operators of ONNX (opset 18), registered by its name below. Row
axes are free: "rows" in the shapes of inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from math import prod
from os import PathLike
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.wording import shown
from graphtheta.errors import ConfigError
from graphtheta.inference.exporting.symbolic import Shape, trace
from graphtheta.ops.autodiff.expr import Expr, ordered
from graphtheta.ops.autodiff.tape import value_of

OPSET = 18
# the version of the file format that belongs to it
FORMAT = 8
DTYPES = ("float32", "float64", "float16")


@checked
def to_onnx(
    part: Any,
    widths: int | Mapping[str, int | Shape],
    path: str | PathLike[str] | None = None,
    *,
    stage: str = "",
    dtype: str = "float32",
) -> Any:
    """A dense part of a model in evaluation mode as an ``onnx.ModelProto``.

    Args:
        part: A module that is called with row values (``MLP``, ``Linear``, a norm, ``.embed`` or
            ``.head`` of a network), a network without edges (``mlp``), a decoder of pairs, or, with
            a stage, a layer.
        widths: Width of the input "x"; or trailing shapes of the inputs by name: of a decoder
            "src.h", "dst.h" and, if it reads them, "edge.attr"; of a stage its columns, and for
            apply "total" or "total.NAME".
        path: Where to write it; None not to.
        stage: "transform", whose outputs are its columns, or "apply".
        dtype: Float type of the inputs, that of the weights.

    Returns:
        The model; its output is "out", or the columns of transform by name, which ends in "_out"
        if an input has the same name.

    Raises:
        ConfigError: The part sums over edges, an operation has no counterpart, or onnx is not
            installed.
        ColumnError: The part reads a column whose width is not given.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"to_onnx: unknown dtype {shown(dtype)}; choose from {', '.join(DTYPES)}")
    tracer, inputs, named = trace(part, widths, stage, np.dtype(dtype))
    outputs = {f"{name}_out" if name in inputs else name: e for name, e in named.items()}
    try:
        onnx = import_module("onnx")
    except ImportError as error:
        raise ConfigError(
            f"gt.to_onnx needs the package onnx, which cannot be imported ({error}); install it:"
            " pip install onnx"
        ) from None
    nodes = _Graph(onnx, tracer.operands, np.dtype(dtype))
    order = ordered(outputs.values())
    used = {name: e for name, e in inputs.items() if any(e is x for x in order)}
    for e in order:
        nodes.add(e)
    for name, e in outputs.items():
        nodes.emit("Identity", [nodes.names[id(e)]], name=name)

    def described(values: Mapping[str, Expr]) -> list[Any]:
        return [
            onnx.helper.make_tensor_value_info(name, nodes.kind(e.dtype), ["rows", *e.dims])
            for name, e in values.items()
        ]

    graph = onnx.helper.make_graph(
        nodes.nodes, type(part).__name__, described(used), described(outputs), nodes.constants
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="graphtheta"
    )
    model.ir_version = FORMAT
    onnx.checker.check_model(model, full_check=True)
    if path is not None:
        onnx.save(model, str(path))
    return model


class _Graph:
    """Nodes and constants of an ONNX graph.

    Args:
        onnx: The package.
        operands: Values of operand leaves.
        dtype: Float type of Python numbers.
    """

    def __init__(self, onnx: Any, operands: list[Any], dtype: np.dtype[Any]):
        self.onnx = onnx
        self.operands = operands
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        # by the id of the expression
        self.names: dict[int, str] = {}

    def kind(self, dtype: Any) -> int:
        """The type of ONNX."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def emit(self, operator: str, inputs: list[str], name: str = "", **attributes: Any) -> str:
        """Add an operator; the name of its result."""
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, x: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(
            self.onnx.numpy_helper.from_array(np.ascontiguousarray(x).reshape(np.shape(x)), name)
        )
        return name

    def integers(self, *x: int) -> str:
        """The name of a constant of 64-bit integers."""
        return self.constant(np.array(x, np.int64))

    def number(self, x: float, like: Expr) -> str:
        """The name of a constant of the type of an expression."""
        return self.constant(np.array(x, like.dtype))

    def add(self, e: Expr) -> None:
        """Add the operators of an expression whose arguments have been added."""
        if e.leaf is not None:
            kind, name = e.leaf
            if kind == "operand":
                x = np.asarray(value_of(self.operands[name]))
                # Python numbers take the float type of what they meet
                x = x if hasattr(self.operands[name], "dtype") else x.astype(self.dtype)
                self.names[id(e)] = self.constant(x)
            else:
                self.names[id(e)] = name
            return
        assert e.prim is not None
        if e.prim.name not in OPERATORS:
            raise ConfigError(
                f"the operation {e.prim.name} has no counterpart in ONNX here; compute it outside"
                " of the exported part"
            )
        self.names[id(e)] = OPERATORS[e.prim.name](self, e, *(self.names[id(a)] for a in e.args))

    def shaped(self, e: Expr, x: str) -> str:
        """A value in the axes of an expression."""
        return self.emit("Reshape", [x, self.integers(*([0] if e.rows else []), *e.dims)])


Operator = Callable[..., str]


def _plain(operator: str) -> Operator:
    return lambda g, e, *xs: g.emit(operator, list(xs))


def _square(g: _Graph, e: Expr, x: str) -> str:
    return g.emit("Mul", [x, x])


def _reduced(operator: str) -> Operator:
    return lambda g, e, x: g.emit(
        operator, [x, g.integers(*e.static["axis"])], keepdims=int(e.static["keepdims"])
    )


def _gelu(g: _Graph, e: Expr, x: str) -> str:
    """x times the normal distribution function, by the error function."""
    inner = g.emit("Erf", [g.emit("Mul", [x, g.number(2**-0.5, e)])])
    return g.emit(
        "Mul", [g.emit("Mul", [x, g.number(0.5, e)]), g.emit("Add", [inner, g.number(1, e)])]
    )


def _clip(g: _Graph, e: Expr, x: str) -> str:
    for operator, limit in (("Max", e.static["low"]), ("Min", e.static["high"])):
        x = x if limit is None else g.emit(operator, [x, g.number(limit, e)])
    return x


def _matmul(g: _Graph, e: Expr, x: str, w: str) -> str:
    shape = e.args[1].dims
    if len(shape) == 2:
        return g.emit("MatMul", [x, w])
    matrix = g.emit("Reshape", [w, g.integers(shape[0], prod(shape[1:]))])
    return g.shaped(e, g.emit("MatMul", [x, matrix]))


def _standardise(g: _Graph, e: Expr, x: str) -> str:
    def mean(v: str) -> str:
        return g.emit("ReduceMean", [v, g.integers(-1)], keepdims=1)

    centred = g.emit("Sub", [x, mean(x)])
    variance = mean(g.emit("Mul", [centred, centred]))
    return g.emit(
        "Div", [centred, g.emit("Sqrt", [g.emit("Add", [variance, g.number(e.static["eps"], e)])])]
    )


def _getitem(g: _Graph, e: Expr, x: str) -> str:
    """Part of trailing axes: one after another, from the last, so that axes before keep their
    numbers.
    """
    source = e.args[0]
    keys = [key for key in e.static["key"] if key[0] != "new"]
    axes = len(source.dims) + source.rows
    at = keys.index(("...",)) if ("...",) in keys else len(keys)
    placed = dict(enumerate(keys[:at])) | {
        axes - len(keys[at + 1 :]) + i: key for i, key in enumerate(keys[at + 1 :])
    }
    for axis in sorted(placed, reverse=True):
        kind, *rest = placed[axis]
        if kind == "int":
            x = g.emit("Gather", [x, g.constant(np.array(rest[0], np.int64))], axis=axis)
        elif kind == "list":
            x = g.emit("Gather", [x, g.integers(*rest)], axis=axis)
        elif rest != [None, None, None]:
            numbers = range(source.dims[axis - source.rows])[slice(*rest)]
            x = g.emit("Gather", [x, g.integers(*numbers)], axis=axis)
    return g.shaped(e, x)


def _repeat_rows(g: _Graph, e: Expr, x: str, like: str) -> str:
    rows = g.emit("Shape", [like], start=0, end=1)
    return g.emit("Expand", [x, g.emit("Concat", [rows, g.integers(*e.dims)], axis=0)])


def _cast(g: _Graph, e: Expr, x: str) -> str:
    return g.emit("Cast", [x], to=g.kind(e.dtype))


def _arithmetic(operator: str) -> Operator:
    """An operation on numbers, in whose arguments a mask is 0 or 1."""

    def emit(g: _Graph, e: Expr, *xs: str) -> str:
        cast = [
            g.emit("Cast", [x], to=g.kind(e.dtype)) if a.dtype != e.dtype and a.rows else x
            for a, x in zip(e.args, xs, strict=True)
        ]
        return g.emit(operator, cast)

    return emit


OPERATORS: dict[str, Operator] = {
    **{
        name: _arithmetic(operator)
        for name, operator in (
            ("add", "Add"),
            ("sub", "Sub"),
            ("mul", "Mul"),
            ("div", "Div"),
            ("maximum", "Max"),
            ("minimum", "Min"),
            ("pow", "Pow"),
        )
    },
    **{
        name: _plain(operator)
        for name, operator in (
            ("neg", "Neg"),
            ("exp", "Exp"),
            ("log", "Log"),
            ("sqrt", "Sqrt"),
            ("sin", "Sin"),
            ("cos", "Cos"),
            ("absolute", "Abs"),
            ("relu", "Relu"),
            ("sigmoid", "Sigmoid"),
            ("tanh", "Tanh"),
            ("softplus", "Softplus"),
            ("stop_gradient", "Identity"),
            ("to_dense", "Identity"),
            ("logical_and", "And"),
            ("logical_not", "Not"),
            ("where", "Where"),
            ("less", "Less"),
            ("less_equal", "LessOrEqual"),
            ("equal", "Equal"),
        )
    },
    "square": _square,
    "gelu": _gelu,
    "silu": lambda g, e, x: g.emit("Mul", [x, g.emit("Sigmoid", [x])]),
    "clip": _clip,
    "matmul": _matmul,
    "standardise": _standardise,
    "getitem": _getitem,
    "cast": _cast,
    "repeat_rows": _repeat_rows,
    "sum": _reduced("ReduceSum"),
    "max": _reduced("ReduceMax"),
    "min": _reduced("ReduceMin"),
    "power": lambda g, e, x: g.emit("Pow", [x, g.number(e.static["exponent"], e)]),
    "leaky_relu": lambda g, e, x: g.emit("LeakyRelu", [x], alpha=float(e.static["slope"])),
    "elu": lambda g, e, x: g.emit("Elu", [x], alpha=float(e.static["alpha"])),
    "reshape": lambda g, e, x: g.shaped(e, x),
    "expand_last": lambda g, e, x: g.shaped(e, x),
    "broadcast_to": lambda g, e, x: g.emit(
        "Expand", [x, g.integers(*([1] if e.rows else []), *e.dims)]
    ),
    "cumsum": lambda g, e, x: g.emit(
        "CumSum", [x, g.constant(np.array(e.static["axis"], np.int64))]
    ),
    "permute": lambda g, e, x: g.emit(
        "Transpose", [x], perm=[*range(e.rows), *(e.rows + i for i in e.static["order"])]
    ),
    "concat": lambda g, e, *xs: g.emit("Concat", list(xs), axis=e.static["axis"]),
    # in evaluation nothing is dropped
    "dropout": lambda g, e, x, ids, key: x,
    "embedding": lambda g, e, table, index: g.emit("Gather", [table, index], axis=0),
}
