"""The cost model: bytes read and written, and floating-point operations, of a forward pass.

The formulae assume that every read comes from memory and no cache holds anything. For bytes this
is an upper bound, close to the truth where a graph is much larger than the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..autodiff.expr import COMPUTED
from ..autodiff.operation import Operation
from .program import Phase

# the row at the other end, and the position of the edge
INDEX_BYTES = 8
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """Bytes and floating-point operations."""

    bytes: int = 0
    flops: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.flops + other.flops)

    def times(self, n: int) -> Cost:
        """The same n times."""
        return Cost(self.bytes * n, self.flops * n)


def operation_flops(prim: Operation | None, inputs: Sequence[Shape], output: Shape) -> int:
    """Floating-point operations for one row: two per multiplication of a product, else one.

    Args:
        prim: None for what the tape records besides primitives.
        inputs: Trailing shapes of its arguments.
        output: Trailing shape of its result.
    """
    work = "result" if prim is None else prim.traits.work
    if work == "contraction":
        return 2 * prod(output) * inputs[0][-1]
    if work == "none":
        return 0
    return max(prod(inputs[0]), prod(output)) if work == "argument" else prod(output)


def node_cost(
    prim: Operation | None, inputs: Sequence[Shape], outputs: Sequence[Shape], itemsize: int
) -> Cost:
    """Cost of an operation on node values, for one node; arguments as for ``operation_flops``."""
    flops = operation_flops(prim, inputs, outputs[0])
    return Cost(itemsize * (prod(inputs[0]) + sum(map(prod, outputs))) if flops else 0, flops)


def edge_cost(phase: Phase) -> Cost:
    """Cost of a pass for one edge: to read columns and indices, compute the message and add it;
    without products that edges choose.
    """
    phase = phase.grouped.product_first if phase.grouped else phase
    flops = sum(
        operation_flops(e.prim, [a.dims for a in e.args], e.dims)
        for e in phase.order
        if e.rows and e.prim is not None
    )
    added = sum(prod(e.dims) for parts in phase.parts.values() for e in parts)
    columns = [
        e
        for e in phase.order
        if e.leaf is not None and e.leaf[0] in ("src", "dst", "edge") and e.leaf[1] not in COMPUTED
    ]
    moved = sum(e.dtype.itemsize * prod(e.dims) for e in [*columns, *phase.outputs.values()])
    return Cost(moved + INDEX_BYTES, flops + added)


def pair_cost(phase: Phase) -> Cost:
    """Cost of the product that edges choose, for one pair of a node and a code; nothing without
    one.
    """
    form = phase.grouped
    if form is None:
        return Cost()
    return Cost(
        phase.dtype.itemsize * (form.width + prod(form.shape)), 2 * form.width * prod(form.shape)
    )


def most_pairs(phase: Phase, nodes: Any, edges: Any) -> Any:
    """The most pairs of a node and a code that some nodes and edges may have, as numbers or as
    arrays of them; 0 without codes.
    """
    return np.minimum(edges, nodes * phase.grouped.count) if phase.grouped else nodes * 0


def widths(phase: Phase, end: str) -> dict[str, int]:
    """Numbers per row of the columns that a phase reads at an end ("src" or "dst"), or per edge
    ("edge").
    """
    return {
        e.leaf[1]: prod(e.dims)
        for e in phase.order
        if e.leaf is not None and e.leaf[0] == end and e.leaf[1] not in COMPUTED
    }
