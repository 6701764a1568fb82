"""Source of fused kernels: one loop over rows and their edges, with every value of an edge in
registers or L1.

A kernel is generated for a phase in one of three modes: "forward" (rows receive; messages are
aggregated), "receiver" (rows receive; gradients of destination columns, edge values and operands)
and "sender" (rows send; gradients of source columns). Blocks of rows run in parallel, each row in
one thread, so no two threads write the same memory and results do not depend on their number.

Values: every number of an edge is a lane of a vector (``kernels.lanes``); one line computes one
vector. Values used once are written where they are used, others are saved in variables, one for
each vector. Values of the row that edges share, such as its running sums, are loaded before its
edges and stored after them. Values too wide for variables are processed in loops over scratch
space.

``KernelSource`` collects lines, names and arguments; ``Values`` gives the text of an expression;
``Registers`` saves values and sums; ``GradientCode`` backpropagates; ``Messages`` computes totals;
``kernel`` puts these parts together. Elementwise operations have a scalar form. All others have a
lowering, registered by operation (``lowering``) or by aggregator (``aggregate``) in the files that
are imported here. ``boundary`` decides which residuals the first of the two backward kernels saves
for the second one.
"""

if __name__ != "graphtheta.ops.edge.codegen":
    raise ImportError("import graphtheta.ops.edge.codegen, not ops.codegen")

from . import (  # noqa: F401  (register)
    axes,
    dropout,
    embedding,
    product,
    softmax,
    standardise,
    totals,
)
from .boundary import numbers
from .kernel import FIXED, Kernel, generate, in_turn, saved_at_most, unsupported
from .lowering import lowering_of
from .prefetch import edges_ahead
from .values import TABLES
from .variant import Variant

__all__ = [
    "FIXED",
    "TABLES",
    "Kernel",
    "Variant",
    "edges_ahead",
    "generate",
    "in_turn",
    "lowering_of",
    "numbers",
    "saved_at_most",
    "unsupported",
]
