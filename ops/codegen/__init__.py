"""Source of fused kernels: one loop over rows and their edges, with every value of an edge in registers or L1.

A kernel is generated for a phase in one of three modes: "forward" (rows receive; messages are aggregated), "receiver"
(rows receive; gradients of destination columns, edge values and operands) and "sender" (rows send; gradients of source
columns). Rows are worked on serially inside and in parallel outside, so that nothing is written by two threads and
results do not depend on their number.

Values: an elementwise expression used once is written where it is used; what is used again, reduced, contracted or
broadcast is kept in a small buffer of one edge. Gradients likewise. Trip counts are arguments of the kernel, because
constant small ones are unrolled into scalar code.

Each module adds one step to the writer of the one before: text, value, keep, gradient, aggregate, kernel.
"""
if __name__ != "graphtheta.ops.codegen":
    raise ImportError("import graphtheta.ops.codegen, not ops.codegen")

from .kernel import Kernel, generate, supported
from .text import Variant

__all__ = ["Kernel", "Variant", "generate", "supported"]
