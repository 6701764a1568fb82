"""Elementwise operations with scalar forms, which are compiled into the kernels of gathers."""

import numpy as np

import graphtheta as gt


# {0} is the argument, {g} the gradient of the result {y}; T(1) is 1 in the type of the kernel.
# NumPy evaluates the gradient too, so the op needs no gt.defvjp
@gt.primitive(
    "softsign",
    scalar=gt.Scalar("{0} / (T(1) + absolute({0}))", ("{g} / square(T(1) + absolute({0}))",)),
)
def softsign(x):
    """x / (1 + |x|)."""
    return x / (1 + np.abs(x))


# keywords are constants of the kernel, so the form is a function of them
@gt.primitive(
    "swish",
    scalar=lambda beta: gt.Scalar(
        f"{{0}} * sigmoid(T({beta!r}) * {{0}})",
        (
            (
                f"{{g}} * (T({beta!r}) * {{y}} + sigmoid(T({beta!r}) * {{0}}) * (T(1) - T({beta!r})"
                " * {y}))"
            ),
        ),
        costly=True,
    ),
)
def swish(x, *, beta):
    """x * sigmoid(beta x)."""
    return x / (1 + np.exp(-beta * x))


class Gated(gt.Layer):
    def __init__(self, d_in, d_out):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.source = gt.Parameter.glorot(d_in, 1)
        self.destination = gt.Parameter.glorot(d_in, 1)

    def transform(self, node):
        return dict(
            z=gt.matmul(node.h, self.weight),
            s=gt.matmul(node.h, self.source),
            t=gt.matmul(node.h, self.destination),
        )

    def gather(self, edge):
        return softsign(edge.src.s + edge.dst.t) * swish(edge.src.z - edge.dst.z, beta=1.5)

    sum = "sum"


class Net(gt.Model):
    def __init__(self, d_in, d_out):
        self.layer = Gated(d_in, d_out)

    def forward(self, graph):
        return self.layer(graph, graph.x)
