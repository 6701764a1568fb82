"""Source of fused kernels: one loop over rows and their edges, with every value of an edge in registers or L1.

A kernel is generated for a phase in one of three modes: "forward" (rows receive; messages are aggregated), "receiver"
(rows receive; gradients of destination columns, edge values and operands) and "sender" (rows send; gradients of source
columns). Rows are worked on serially inside and in parallel outside, so that nothing is written by two threads and
results do not depend on their number.

Values: every number of an edge is a lane of a vector (``kernels.lanes``); one line computes one vector. Values used once
are written where they are used, others are kept in variables, one for each vector. What belongs to the row that edges
share, such as its running sums, is loaded before its edges and stored after them. Values too wide for variables are
worked on in loops over scratch space.

Each module adds one step to the writer of the one before: place, held, text, value, keep, gradient, aggregate, kernel.
``frontier`` decides what the walk by receivers leaves for the one by senders.
"""
if __name__ != "graphtheta.ops.codegen":
    raise ImportError("import graphtheta.ops.codegen, not ops.codegen")

from .frontier import Kept, numbers
from .kernel import Kernel, generate, kept_at_most, unsupported, worth_keeping
from .text import Variant

__all__ = ["Kept", "Kernel", "Variant", "generate", "kept_at_most", "numbers", "unsupported", "worth_keeping"]
