"""Local numerics: tape, primitives, edge programs, losses, optimisers. Knows neither MPI nor partitions."""
if __name__ != "graphtheta.ops":
    raise ImportError("import graphtheta.ops, not ops")

from . import operators  # noqa: F401  (fills the operators of variables)
from .dense import embedding, linear, matmul
from .elementwise import (
    absolute,
    add,
    clip,
    div,
    elu,
    exp,
    gelu,
    leaky_relu,
    log,
    maximum,
    minimum,
    mul,
    neg,
    power,
    relu,
    sigmoid,
    softplus,
    sqrt,
    square,
    sub,
    tanh,
)
from .index import getitem
from .primitive import PRIMITIVES, Primitive, defvjp, primitive
from .rows import cast, expand_last, prefix
from .shape import broadcast_to, concat, flatten, max, mean, min, repeat_rows, reshape, stack, sum
from .space import RowSpace
from .tape import Parameter, Tape, Var, current

__all__ = [
    "PRIMITIVES", "Parameter", "Primitive", "RowSpace", "Tape", "Var", "absolute", "add", "broadcast_to", "cast", "clip", "concat", "current",
    "defvjp", "div", "elu", "embedding", "exp", "expand_last", "flatten", "gelu", "getitem", "leaky_relu", "linear", "log", "matmul", "max",
    "maximum", "mean", "min", "minimum", "mul", "neg", "power", "prefix", "primitive", "relu", "repeat_rows", "reshape", "sigmoid", "softplus",
    "sqrt", "square", "stack", "sub", "sum", "tanh",
]
