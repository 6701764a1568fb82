"""A gather traced and split into phases, without the cache of programs."""

from __future__ import annotations

from graphtheta.ops.edge.aggregator import aggregators
from graphtheta.ops.edge.program import split
from graphtheta.ops.edge.symbolic import record


def trace(gather, nodes, edges, sums, owner, sparse=()):
    """The program of a gather, before it is planned."""
    named = None if sums is None else aggregators(sums)
    return split(record(gather, nodes, edges, named, owner, sparse))
