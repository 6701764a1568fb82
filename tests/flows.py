"""Models whose layers read each other in many ways, with the hop at which each superstep stands."""

from __future__ import annotations

import numpy as np

import graphtheta as gt
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.ops import Parameter, Var, dtype_scope
from graphtheta.ops.autodiff.init import init_scope

D = 4


class Mix(Layer):
    """Reads both ends, edge attributes and degrees, and drops at random."""

    def __init__(self, direction="in"):
        self.direction = direction
        self.w = Parameter.glorot(D, D)
        self.e = Parameter.glorot(3, 1)

    def transform(self, node):
        return {"z": gt.tanh(node.h @ self.w), "d": node.in_degree * 0.1}

    def gather(self, edge):
        score = (edge.attr @ self.e)[..., 0] + edge.dst.z.sum(-1) - edge.src.d
        return gt.dropout(gt.softmax(score), 0.3) * edge.src.z * edge.weight + edge.dst.z * 0.1

    def apply(self, node, total):
        return gt.tanh(total) + node.h


class Leaves(Mix):
    """Leaves an edge value."""

    def gather(self, edge):
        return super().gather(edge), {"agreement": gt.tanh((edge.src.z * edge.dst.z).sum(-1))}


class Reads(Mix):
    """Reads the edge value that another layer has left."""

    def gather(self, edge):
        return edge.agreement * edge.src.z


class Stashes(Mix):
    """Leaves values of nodes, from before its edges and from after them, where others find them."""

    def transform(self, node):
        made = super().transform(node)
        self.before = made["z"]
        return made

    def apply(self, node, total):
        self.after = super().apply(node, total)
        return self.after


class Finds(Mix):
    """Reads in one of its stages what another layer has left there."""

    def __init__(self, other, stage, name):
        super().__init__()
        self.other = other
        self.stage = stage
        self.name = name

    def transform(self, node):
        made = super().transform(node)
        return made | (
            {"z": made["z"] + getattr(self.other, self.name)} if self.stage == "transform" else {}
        )

    def apply(self, node, total):
        return super().apply(node, total) + (
            getattr(self.other, self.name) if self.stage == "apply" else 0.0
        )


class Columns(Mix):
    """Returns a stored column."""

    def apply(self, node, total):
        return node.x


class Besides(Mix):
    """Is given a second value."""

    def apply(self, node, total):
        return total + node.other


class Ignores(Mix):
    """Hands on what it was given and says that its messages do not matter."""

    def gather(self, edge):
        return edge.attr

    def apply(self, node, total):
        return node.h


class Net(Model):
    """A function of layers and the graph."""

    def __init__(self, forward, *layers):
        self.layers = list(layers)
        self.function = forward

    def forward(self, graph):
        return self.function(graph, *self.layers)


def mixes(*directions):
    return [Mix(d) for d in directions]


def sides(graph, *layers):
    h = graph.x * 2.0
    return sum((layer(graph, h) for layer in layers[1:]), layers[0](graph, h))


def stack(graph, *layers):
    h = graph.x
    for layer in layers:
        h = layer(graph, h)
    return h


def inception(graph, a, b, c, d, e, f):
    return gt.concat([a(graph, graph.x), stack(graph, b, c), stack(graph, d, e, f)]) @ np.ones(
        (3 * D, D)
    )


def knowledge(graph, *layers):
    reached = [graph.x]
    for layer in layers:
        reached.append(layer(graph, gt.dropout(reached[-1], 0.2)))
    return gt.concat(reached) @ np.ones((D * len(reached), D))


def edge_values(graph, first, free, leaves, reads):
    h = first(graph, graph.x)
    return free(graph, h) + leaves(graph, h) + reads(graph, h)


def finds(stage, name):
    """Of two layers side by side the second reads what the first has left."""
    stashes = Stashes()
    return Net(lambda graph, *layers: sides(graph, *layers), stashes, Finds(stashes, stage, name))


def left_behind(graph, a, b, c):
    # a value from inside of a layer that nobody reads the result of
    a(graph, graph.x)
    return c(graph, b(graph, a.before))


def by_hand(graph, a, b):
    h = a(graph, graph.x)
    return b(graph, Var(np.sign(h.value), h.space))


def pieces(graph, a, b, c, d):
    both = gt.recompute(lambda g, h: a(g, h) + gt.recompute(b, g, h), graph, graph.x)
    return gt.recompute(lambda g, h: {"h": c(g, h)}, graph, both)["h"] + d(graph, graph.x)


def unused(graph, a, b, c):
    h = a(graph, graph.x)
    b(graph, c(graph, h))
    return h


def same_layer(graph, a):
    return a(graph, a(graph, graph.x)) + a(graph, graph.x * 0.5)


def turned(graph, a):
    made = []
    for a.direction in ("in", "out"):
        made.append(a(graph, graph.x))
    return made[0] * made[1]


def given_besides(graph, a, b, c):
    return c(graph, b(graph, graph.x, other=a(graph, graph.x)))


def edges_of_pieces(graph, free, leaves, reads):
    h = gt.recompute(leaves, graph, graph.x)
    return gt.recompute(lambda g, x: reads(g, x), graph, graph.x) + free(graph, graph.x) + h


def branches(graph, a, b, c, d):
    return c(graph, a(graph, graph.x) + b(graph, graph.x)) + d(graph, a(graph, graph.x))


MODELS = {
    "one": (lambda: Net(stack, *mixes("both")), [("both", 0)]),
    "stack": (
        lambda: Net(stack, *mixes("in", "out", "both")),
        [("in", 2), ("out", 1), ("both", 0)],
    ),
    "in and out": (lambda: Net(sides, *mixes("in", "out")), [("in", 0), ("out", 0)]),
    "out and in": (lambda: Net(sides, *mixes("out", "in")), [("out", 0), ("in", 0)]),
    "two of one direction": (lambda: Net(sides, *mixes("in", "in")), [("in", 0), ("in", 0)]),
    "four branches": (
        lambda: Net(sides, *mixes("in", "out", "both", "in")),
        [("in", 0), ("out", 0), ("both", 0), ("in", 0)],
    ),
    "branches of branches": (
        lambda: Net(branches, *mixes("in", "out", "out", "in")),
        [("in", 1), ("out", 1), ("out", 0), ("in", 1), ("in", 0)],
    ),
    "skip": (
        lambda: Net(
            lambda g, *ls: stack(g, *ls[:3]) + ls[3](g, g.x), *mixes("in", "out", "in", "in")
        ),
        [("in", 2), ("out", 1), ("in", 0), ("in", 0)],
    ),
    "skip called first": (
        lambda: Net(
            lambda g, *ls: ls[3](g, g.x) + stack(g, *ls[:3]), *mixes("in", "out", "in", "both")
        ),
        [("both", 0), ("in", 2), ("out", 1), ("in", 0)],
    ),
    "inception": (
        lambda: Net(inception, *mixes("in", "in", "out", "out", "both", "in")),
        [("in", 0), ("in", 1), ("out", 0), ("out", 2), ("both", 1), ("in", 0)],
    ),
    "jumping knowledge": (
        lambda: Net(knowledge, *mixes("in", "out", "in")),
        [("in", 2), ("out", 1), ("in", 0)],
    ),
    "edge values": (
        lambda: Net(edge_values, Mix(), Mix("out"), Leaves(), Reads()),
        [("in", 2), ("out", 0), ("in", 1), ("in", 0)],
    ),
    "edge values of the other direction": (
        lambda: Net(edge_values, Mix(), Mix(), Leaves("out"), Reads("in")),
        [("in", 2), ("in", 0), ("out", 1), ("in", 0)],
    ),
    "edge values of pieces": (
        lambda: Net(edges_of_pieces, Mix("out"), Leaves(), Reads()),
        [("in", 1), ("in", 0), ("out", 0)],
    ),
    "found in transform, from before": (
        lambda: finds("transform", "before"),
        [("in", 1), ("in", 0)],
    ),
    "found in transform, from after": (lambda: finds("transform", "after"), [("in", 1), ("in", 0)]),
    "found in apply, from before": (lambda: finds("apply", "before"), [("in", 1), ("in", 0)]),
    "found in apply, from after": (lambda: finds("apply", "after"), [("in", 1), ("in", 0)]),
    "left behind": (
        lambda: Net(left_behind, Stashes(), Mix(), Mix()),
        [("in", 2), ("in", 1), ("in", 0)],
    ),
    "by hand": (lambda: Net(by_hand, *mixes("in", "out")), [("in", 1), ("out", 0)]),
    "hands on": (lambda: Net(stack, Mix(), Ignores(), Mix()), [("in", 2), ("in", 1), ("in", 0)]),
    "stored column": (
        lambda: Net(stack, Mix(), Columns("out"), Mix()),
        [("in", 2), ("out", 1), ("in", 0)],
    ),
    "pieces": (
        lambda: Net(pieces, *mixes("in", "out", "in", "both")),
        [("in", 1), ("out", 1), ("in", 0), ("both", 0)],
    ),
    "unused": (lambda: Net(unused, *mixes("in", "in", "out")), [("in", 2), ("out", 1), ("in", 0)]),
    "same layer": (lambda: Net(same_layer, Mix()), [("in", 1), ("in", 0), ("in", 0)]),
    "turned": (lambda: Net(turned, Mix()), [("in", 0), ("out", 0)]),
    "given besides": (
        lambda: Net(given_besides, Mix(), Besides("out"), Mix()),
        [("in", 2), ("out", 1), ("in", 0)],
    ),
    "no layer": (lambda: Net(lambda graph: graph.x * 2.0), []),
}


def made(name):
    with dtype_scope("float64"), init_scope(7):
        return MODELS[name][0]()
