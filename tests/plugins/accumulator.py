"""Accumulators of your own, with parameters: a power mean, and a sum that decays with time."""

import graphtheta as gt


class PowerMean(gt.Pooling):
    """The power mean of positive messages with a learned exponent, 0 without messages."""

    name = "power"
    sum = "mean"

    def __init__(self):
        self.p = gt.Parameter.ones(1)

    def before(self, edge, message):
        return (gt.relu(message) + 1e-3) ** self.p

    def after(self, node, total):
        mean = gt.where(total > 0, total, 1.0) ** (1 / self.p)
        return gt.where(total > 0, mean, 0.0)


class Decaying(gt.Recurrent):
    """A sum in the order of the edge column "time", in which a message fades as others follow."""

    name = "decaying"

    def __init__(self, width):
        super().__init__(order="time")
        self.decay = gt.Parameter.zeros(width)

    def step(self, state, message):
        return message if state is None else state * gt.sigmoid(self.decay) + message


class Both(gt.Layer):
    def __init__(self, d_in, d_out):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.sum = (PowerMean(), Decaying(d_out))

    def transform(self, node):
        return dict(z=node.h @ self.weight)

    def gather(self, edge):
        return edge.src.z

    def apply(self, node, total):
        return total.power - total.decaying


class Net(gt.Model):
    def __init__(self, d_in, d_out):
        self.layer = Both(d_in, d_out)

    def forward(self, graph):
        return self.layer(graph, graph.x)
