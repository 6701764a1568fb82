"""Graphs with codes of nodes and edges, and networks that look them up in tables."""

from __future__ import annotations

import equality
import numpy as np

import graphtheta.ops as gt
from graphtheta.engine.layer.checkpointing import recompute
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.ops import Parameter

KINDS, TYPES = 5, 4
# codes that float32, int32 and float64 cannot hold
LARGE = (2**24 + 1, 2**31 + 5, 2**53 + 1)


def typed(graph, seed=4):
    """The graph with codes of all sizes; codes of nodes end in the number of the node, so that none
    is like another.
    """
    rng = np.random.default_rng(seed)
    n = graph.n_nodes
    e = graph.n_edges
    code = np.array(LARGE)[rng.integers(0, 3, n)] // n * n + np.arange(n)
    wide = (2**24 + rng.integers(0, 99, (n, 20))).astype(np.int32)
    return graph.replace(
        node_columns={
            "kind": rng.integers(0, KINDS, n).astype(np.int32),
            "code": code,
            "wide": wide,
        },
        edge_columns={
            "type": rng.integers(0, TYPES, e),
            "pair": rng.integers(0, TYPES, (e, 2)).astype(np.int32),
            "stamp": 2**53 + np.arange(e),
            "size": rng.standard_normal(e),
        },
    )


class Typed(Layer):
    """Tables by all integers there are: of nodes in transform and at edges, of edges, and of parts
    of a column.
    """

    def __init__(self, d):
        table = lambda n, *shape: Parameter.normal(n, *shape)
        self.w = Parameter.glorot(d, 4)
        self.kinds = table(KINDS, 4)
        self.senders = table(KINDS, 4)
        self.types = table(TYPES, 4)
        self.pairs = table(TYPES, 2)
        self.gates = table(TYPES)

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w) + gt.embedding(self.kinds, node.kind)}

    def gather(self, edge):
        scaled = edge.src.z * gt.embedding(self.types, edge.type * 2 - edge.type) + gt.embedding(
            self.senders, edge.src.kind
        )
        both = gt.flatten(gt.embedding(self.pairs, edge.pair))
        gate = gt.sigmoid(
            gt.embedding(self.gates, edge.pair[..., 0])
            + gt.embedding(self.gates, edge.dst.kind[..., None].sum(-1) * 0)
        )
        return gate * scaled + both * edge.size * edge.type


class Attention(Typed):
    """The same under a softmax, so that numbers of an edge may be kept from one walk back to the
    next.
    """

    def gather(self, edge):
        score = gt.leaky_relu(
            edge.src.z.sum(-1) + edge.dst.z.sum(-1) + gt.embedding(self.gates, edge.pair[..., 1]),
            0.2,
        )
        return gt.softmax(score) * (edge.src.z + gt.embedding(self.types, edge.type))


class Simple(Typed):
    """What the fused back end runs by itself."""

    def gather(self, edge):
        gate = gt.sigmoid(gt.embedding(self.gates, edge.pair[..., 0]))
        both = gt.flatten(gt.embedding(self.pairs, edge.pair[..., ::-1]))
        senders = gt.embedding(self.senders, edge.src.kind)
        return (
            gate * edge.src.z * gt.embedding(self.types, edge.type)
            + both * edge.size * edge.type
            + senders
        )


class Bucket(Layer):
    """Makes an integer edge value of floats, and passes a column on."""

    def __init__(self, d):
        self.w = Parameter.glorot(d, 4)

    def transform(self, node):
        return {"z": gt.tanh(gt.matmul(node.h, self.w))}

    def gather(self, edge):
        return edge.src.z, {
            "bucket": gt.cast(gt.clip(edge.src.x[..., 0] * 2.0 + 2.0, 0.0, 3.0), "int64"),
            "type_again": edge.type,
        }


class Reader(Layer):
    """Reads it."""

    def __init__(self):
        self.buckets = Parameter.normal(4, 4)
        self.types = Parameter.normal(TYPES, 4)

    def gather(self, edge):
        return edge.src.h * gt.embedding(self.buckets, edge.bucket) + gt.embedding(
            self.types, edge.type_again
        )


class Net(Model):
    """Two layers, with an input that a table gives, and classes at the end."""

    def __init__(self, first, second):
        self.start = Parameter.normal(KINDS, equality.D)
        self.first = first
        self.second = second
        self.end = Parameter.glorot(4, equality.CLASSES)

    def forward(self, graph):
        h = graph.x + gt.embedding(self.start, graph.node("kind"))
        return gt.matmul(self.second(graph, gt.dropout(self.first(graph, h), 0.2)), self.end)


class Pieces(Net):
    """The same, with layers that run again."""

    def forward(self, graph):
        h = graph.x + gt.embedding(self.start, graph.node("kind"))
        h = gt.dropout(recompute(lambda g, h: self.first(g, h), graph, h), 0.2)
        return gt.matmul(recompute(lambda g, h: self.second(g, h), graph, h), self.end)


NETS = {
    "simple": lambda: Net(Simple(equality.D), Simple(4)),
    "typed": lambda: Net(Typed(equality.D), Attention(4)),
    "bucket": lambda: Net(Bucket(equality.D), Reader()),
    "bucket in pieces": lambda: Pieces(Bucket(equality.D), Reader()),
}
