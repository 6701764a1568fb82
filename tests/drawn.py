"""Edge programs drawn as trees, for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import graphtheta.ops as gt
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.ops import Parameter

# small trees of scores [edges, 2] and of values [edges, 2, 3]
SCORE = st.recursive(
    st.sampled_from([("src", "s"), ("dst", "s"), ("src", "t"), ("dst", "t"), ("attr",), ("p",)]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["tanh", "leaky_relu", "neg", "softmax"]), inner),
        st.tuples(st.sampled_from(["add", "sub", "mul"]), inner, inner),
    ),
    max_leaves=4,
)
VALUE = st.recursive(
    st.sampled_from([("src", "z"), ("dst", "z")]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["tanh", "neg"]), inner),
        st.tuples(st.just("mul"), SCORE, inner),
        st.tuples(st.sampled_from(["add", "sub"]), inner, inner),
    ),
    max_leaves=3,
)
SUMS = ["sum", "mean", "max", "min", "var", ("sum", "max"), ("mean", "min", "std")]


def evaluate(tree, leaf, call):
    """The value of a tree."""
    name, *rest = tree
    if name in ("src", "dst", "attr", "p"):
        return leaf(tree)
    return call(name, [evaluate(t, leaf, call) for t in rest])


class Drawn(Layer):
    """A layer with a drawn gather; the edge's score [edges, 2] is a new edge value if given."""

    def __init__(self, value, sum, direction, new=None):
        rng = np.random.default_rng(3)
        self.w, self.a, self.b, self.we, self.p = (
            Parameter(rng.standard_normal(s)) for s in ((4, 2, 3), (2, 3), (2, 3), (3, 2), (2,))
        )
        self.value = value
        self.new = new
        self.sum = sum
        self.direction = direction

    def transform(self, node):
        z = gt.matmul(node.h, self.w)
        return dict(z=z, s=gt.tanh((z * self.a).sum(-1)), t=gt.tanh((z * self.b).sum(-1)))

    def gather(self, edge):
        def leaf(tree):
            if tree[0] == "p":
                # a parameter alone is no edge value
                return self.p * edge.src.s
            return (
                gt.matmul(edge.attr, self.we)
                if tree[0] == "attr"
                else getattr(getattr(edge, tree[0]), tree[1])
            )

        call = lambda name, args: getattr(gt, name)(*args)
        message = evaluate(self.value, leaf, call)
        return message if self.new is None else (message, {"new": evaluate(self.new, leaf, call)})

    def apply(self, node, total):
        if isinstance(self.sum, str):
            return total
        return gt.concat([getattr(total, name) for name in self.sum])


class Reader(Drawn):
    """A layer that reads the edge value ``new`` of the layer before it."""

    def gather(self, edge):
        return edge.new * edge.src.z


class Net(Model):
    """The layers in turn, flattening between them."""

    def __init__(self, *layers):
        self.layers = list(layers)

    def forward(self, graph):
        h = graph.x
        for i, layer in enumerate(self.layers):
            h = layer(graph, h if i == 0 else gt.flatten(h)[..., :4])
        return h
