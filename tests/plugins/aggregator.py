"""An aggregator of your own: the mean of the squares of the messages."""

import numpy as np

import graphtheta as gt


def weights(x, scale):
    """The importance weight of each edge, with as many axes as x."""
    one_each = np.ones(len(x), x.dtype) if scale is None else scale.astype(x.dtype)
    return one_each.reshape(-1, *[1] * (x.ndim - 1))


class MeanSquare(gt.Aggregator):
    name = "mean_square"

    def start(self, n, shapes, dtype):
        return {
            "squares": np.zeros((n, *shapes[0]), dtype),
            "count": np.zeros((n, *[1] * len(shapes[0])), dtype),
        }

    def accumulate(self, state, seg, parts, gid, scale):
        (x,), w = parts, weights(parts[0], scale)
        state["squares"][seg.row] += seg.add(w * x * x)
        state["count"][seg.row] += seg.add(w)

    def merge(self, state, rows, other):
        for name, column in state.items():
            column[rows] += other[name]

    def finish(self, state):
        return state["squares"] / np.where(state["count"] > 0, state["count"], 1)

    def backward_state(self, state, total, g):
        return {"g": g / np.where(state["count"] > 0, state["count"], 1)}

    def backward(self, columns, parts, gid, scale):
        (x,) = parts
        return [2 * x * columns["g"] * weights(x, scale)]


gt.AGGREGATORS.add(MeanSquare())


class Energy(gt.Layer):
    def __init__(self, d_in, d_out):
        self.weight = gt.Parameter.glorot(d_in, d_out)

    def transform(self, node):
        return dict(z=gt.matmul(node.h, self.weight))

    def gather(self, edge):
        return edge.src.z

    sum = ("mean_square", "mean")

    def apply(self, node, total):
        return total.mean_square - gt.square(total.mean)


class Net(gt.Model):
    def __init__(self, d_in, d_out):
        self.layer = Energy(d_in, d_out)

    def forward(self, graph):
        return self.layer(graph, graph.x)
