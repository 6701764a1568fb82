"""Local numerics, without MPI: tape, primitives, edge programs, losses, optimisers."""

if __name__ != "graphtheta.ops":
    raise ImportError("import graphtheta.ops, not ops")

from .autodiff.init import default_dtype, dtype_scope, init_scope
from .autodiff.primitive import PRIMITIVES, Primitive, defvjp, primitive
from .autodiff.space import RowSpace
from .autodiff.tape import Parameter, Tape, Var, current
from .autodiff.traits import Traits
from .compile.scalar import Scalar
from .edge import variance  # noqa: F401  (registers aggregators)
from .edge.program import softmax
from .functions import operators  # noqa: F401  (fills the operators of variables)
from .functions.comparison import where
from .functions.constant import stop_gradient
from .functions.dense import linear, matmul, to_dense
from .functions.dropout import dropout
from .functions.einsum import einsum
from .functions.elementwise import (
    absolute,
    add,
    clip,
    cos,
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
    silu,
    sin,
    softplus,
    sqrt,
    square,
    sub,
    tanh,
)
from .functions.embedding import embedding
from .functions.index import getitem
from .functions.losses.loss import binary_cross_entropy, mean_squared_error, softmax_cross_entropy
from .functions.losses.pick import log_softmax, pick
from .functions.norm import RunningStats, batch_norm, layer_norm
from .functions.rows import cast, expand_last, prefix
from .functions.segment import segment_max, segment_mean, segment_min, segment_softmax, segment_sum
from .functions.shape import (
    broadcast_to,
    concat,
    cumsum,
    flatten,
    max,
    mean,
    min,
    repeat_rows,
    reshape,
    stack,
    std,
    sum,
)
from .functions.typed import typed_matmul
from .functions.whole_graph import graph_mean, graph_sum
from .optimisers.optim import SGD, Adam, AdamW, Optimiser, RMSprop

__all__ = [
    "softmax",
    "PRIMITIVES",
    "SGD",
    "Adam",
    "AdamW",
    "Optimiser",
    "Parameter",
    "Primitive",
    "RMSprop",
    "RowSpace",
    "RunningStats",
    "Scalar",
    "Tape",
    "Traits",
    "Var",
    "absolute",
    "add",
    "batch_norm",
    "binary_cross_entropy",
    "broadcast_to",
    "cast",
    "clip",
    "concat",
    "cos",
    "cumsum",
    "current",
    "default_dtype",
    "defvjp",
    "div",
    "dropout",
    "dtype_scope",
    "einsum",
    "elu",
    "embedding",
    "exp",
    "expand_last",
    "flatten",
    "gelu",
    "getitem",
    "graph_mean",
    "graph_sum",
    "init_scope",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log",
    "log_softmax",
    "matmul",
    "max",
    "maximum",
    "mean",
    "mean_squared_error",
    "min",
    "minimum",
    "mul",
    "neg",
    "pick",
    "power",
    "prefix",
    "primitive",
    "relu",
    "repeat_rows",
    "reshape",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_softmax",
    "segment_sum",
    "sigmoid",
    "silu",
    "sin",
    "softmax_cross_entropy",
    "softplus",
    "sqrt",
    "square",
    "stack",
    "std",
    "stop_gradient",
    "sub",
    "sum",
    "tanh",
    "to_dense",
    "typed_matmul",
    "where",
]
