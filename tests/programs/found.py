"""Layers in which the search, or a person, once found wrong numbers; each is small, and right
today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from program import Case, Drawn

RING = ((0, 1, 2, 3, 4, 0, 2, 2), (1, 2, 3, 4, 0, 2, 2, 2))
TEXT = """
class Layer0(gt.Layer):
    direction = "{direction}"
    sum = {sum}

    def __init__(self):
        self.unused = gt.Parameter(data["unused"]){parameters}

    def transform(self, node):
        return {transform}

    def gather(self, edge):
        return {gather}

    def apply(self, node, total):
        return ({apply}) * self.unused


class Net(gt.Model):
    def __init__(self):
        self.layer0 = Layer0()

    def forward(self, graph):
        return {forward}
"""


def layer(
    gather: str,
    *,
    transform: str = "{}",
    apply: str = "total",
    sum: str = '"sum"',
    direction: str = "in",
    forward: str = "self.layer0(graph, graph.x)",
    parameters: Mapping[str, tuple[int, ...]] | None = None,
    arrays: Mapping[str, Drawn] | None = None,
    **settings: Any,
) -> Case:
    """A case of one layer on a small graph with a self loop, duplicate edges and a node without
    edges.
    """
    shapes = {"unused": (1,), **(parameters or {})}
    n = 6
    m = len(RING[0])
    given = {
        "x": Drawn((n, 3), seed=1),
        "attr": Drawn((m, 2), seed=2),
        "edge.code": Drawn((m,), "codes", 3, "int32", 3),
        "edge.signed": Drawn((m,), "signed", 4, "int64"),
        "edge.reals": Drawn((m, 3), seed=5),
        "node.code": Drawn((n,), "codes", 6, "int64", 3),
        **{name: Drawn(shape, "positive", 7 + len(name)) for name, shape in shapes.items()},
        **(arrays or {}),
    }
    made = "".join(
        f'\n        self.{name} = gt.Parameter(data["{name}"])'
        for name in shapes
        if name != "unused"
    )
    text = TEXT.format(
        gather=gather,
        transform=transform,
        apply=apply,
        sum=sum,
        direction=direction,
        forward=forward,
        parameters=made,
    )
    return Case(text, given, n, *RING, **settings)


FOUND: dict[str, Case] = {
    "a narrow source column under a message in loops over scratch space": layer(
        "edge.src.s + self.p",
        transform='{"s": node.h[..., :1] * 1.5}',
        parameters={"p": (4, 2)},
        bounds={"MOST_VECTORS": 3, "SAVE": 1},
    ),
    "a score of the source under a message of more than 64 vectors": layer(
        "gt.sigmoid(edge.src.s + edge.dst.s) * edge.src.z",
        transform='{"s": node.h[..., 0] * 0.5, "z": node.h @ self.p}',
        parameters={"p": (3, 515)},
        bounds={"SAVE": 1},
    ),
    "a product with a vector, and then with a matrix": layer(
        "(edge.src.z * edge.dst.z @ self.p) @ self.q",
        transform='{"z": node.h @ self.w}',
        parameters={"w": (3, 3, 3), "p": (3,), "q": (3, 3)},
    ),
    "a column of a parameter": layer(
        "gt.tanh(edge.src.x + edge.dst.x) * self.p[..., 0] + edge.reals @ self.p[..., 1:4]",
        parameters={"p": (3, 5)},
    ),
    "a transposed constant": layer(
        'gt.tanh(edge.src.x + edge.dst.x) * data["c0"].T[0] + data["c0"][0, ::-1]',
        arrays={"c0": Drawn((3, 3), seed=9)},
    ),
    "a quotient of integers": layer("gt.where(edge.code / 2 > 0.4, edge.src.x, 2.0)"),
    "a quotient of integer columns": layer("edge.signed / (edge.code + 1) * edge.src.x"),
    "the larger of an integer and a fraction": layer("gt.maximum(edge.signed, 1.5) * edge.src.x"),
    "a mean of integers": layer(
        "gt.stack([edge.code, edge.code + 1]).mean(-1) * edge.src.x[..., 0]"
    ),
    "a float function of integers": layer("gt.tanh(edge.signed) * gt.sqrt(edge.code) * edge.src.x"),
    "a negative power of integers": layer("(edge.code + 1) ** -1 * edge.src.x"),
    "the fractional part by a cast": layer(
        'edge.attr * self.p - gt.cast(gt.cast(edge.attr * self.p, "int64"), "float64")',
        parameters={"p": (2,)},
    ),
    "a cast to a small integer": layer('gt.cast(gt.absolute(edge.attr), "int8") * edge.attr'),
    "a cast to a mask": layer('gt.cast(edge.attr, "bool") * edge.attr'),
    "the power 0 of 0": layer(
        '(edge.attr * data["c0"]) ** 0.0 + edge.attr',
        arrays={"c0": Drawn((2,), "constant")},
    ),
    "a parameter of shape () that is used several times": layer(
        "edge.src.x",
        apply="total * self.p + gt.tanh(total * self.p) + gt.sin(total * self.p)",
        parameters={"p": ()},
    ),
    "a number to the power of a total of float32": layer(
        "edge.src.x * 0.25", apply="2.0 ** total", dtype="float32"
    ),
    "a table of the source, by the direction": layer(
        "gt.embedding(edge.src.t, edge.reversed)",
        transform='{"t": node.h @ self.p}',
        parameters={"p": (3, 2, 3)},
        direction="both",
    ),
    "dropout beside residuals that one direction saves for the other": layer(
        "gt.maximum(edge.src.x, gt.dropout(gt.softmax(edge.attr[..., 0]), 0.5))",
        bounds={"SAVE": 1},
    ),
    "dropout of a parameter": layer("edge.src.x * gt.dropout(self.p, 0.5)", parameters={"p": (3,)}),
    "dropout of a parameter, outside of training": layer(
        "edge.src.x * gt.dropout(self.p, 0.5)", parameters={"p": (3,)}, training=False
    ),
    "the smallest of masks": layer("gt.min(edge.reals > 0.1, -1) * edge.src.x"),
    "a mask with a sign": layer("-(edge.src.x > 0.1) * edge.src.x"),
    "a score that is infinite": layer(
        "gt.softmax(edge.src.x)", sum='"min"', arrays={"x": Drawn((6, 3), "special", 0)}
    ),
    "codes of a node without edges": layer(
        "edge.src.x * gt.embedding(self.p, edge.dst.code)",
        parameters={"p": (3, 3)},
    ),
    "a row of a table of the source that is chosen by a draw of dropout": layer(
        "(edge.dst.x, {'new': gt.embedding(edge.src.x, "
        "gt.maximum(edge.src.code * 0, gt.dropout(edge.src.x[..., 0], 0.75) <= 0.013))})",
    ),
    "a row of a table of the source that is chosen by a sum": layer(
        "edge.dst.x * gt.embedding(edge.src.x, gt.maximum(edge.code * 0, "
        "(edge.reals + edge.dst.x).sum(-1) > 0.013))",
        bounds={"SAVE": 1},
    ),
    "scores that are all -inf": layer(
        "gt.softmax(gt.where(edge.code < 0, edge.attr[..., 0], -1e400)) * edge.src.x"
    ),
    "scores of which some are -inf": layer(
        "gt.softmax(gt.where(edge.code < 1, edge.attr[..., 0], -1e400)) * edge.src.x"
    ),
    "the largest of infinity and NaN": layer(
        "edge.src.x",
        sum='"max"',
        apply="gt.tanh(total)",
        arrays={"x": Drawn((6, 3), "special", 17)},
    ),
    "scores that are the values that they weight": layer(
        "(lambda v: gt.softmax(v) * v)(edge.src.x @ self.p)",
        parameters={"p": (1,)},
        arrays={"x": Drawn((6, 1), seed=1)},
    ),
    "functions of two parameters that ranks with few rows compute at once": layer(
        "gt.minimum(edge.dst.x + self.p, self.q)",
        parameters={"p": (3,), "q": (3,)},
        bounds={"SMALLEST": 4},
    ),
    "a gradient that ranks with few rows complete before the messages of backward": layer(
        "edge.src.x * self.q",
        forward="(lambda u: self.layer0(graph, graph.x) + u)(graph.x * self.layer0.p)",
        parameters={"q": (3,), "p": (3,)},
        bounds={"SMALLEST": 4, "BUCKET_BYTES": 1},
    ),
    **{
        f"{text}, infinite at a node without edges": layer(
            text,
            parameters={"p": (1,)},
            arrays={"x": Drawn((6, 1), "few", 41)},
        )
        for text in (
            "(edge.src.x ** -0.5) * self.p",
            "gt.tanh(self.p / edge.src.x) * edge.src.x",
            "gt.sqrt(edge.src.x) @ self.p.reshape(1, 1)",
            "gt.log(edge.dst.x * self.p) * edge.src.x",
        )
    },
}
