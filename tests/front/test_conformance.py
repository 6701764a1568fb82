"""gt.check: what it finds, and in which words."""
from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.errors import CheckError, ColumnError, DataError, GraphThetaError, ShapeError, UserFunctionError
from graphtheta.models import GAT, GATE, GCN, GIN, SAGE, BatchNorm
from graphtheta.models.mlp import MLP
from graphtheta.ops import PRIMITIVES

RNG = np.random.default_rng(0)


@pytest.fixture
def primitives():
    """Primitives registered in a test are gone after it."""
    before = set(PRIMITIVES)
    yield
    for name in set(PRIMITIVES) - before:
        del PRIMITIVES[name]


class Base(gt.Layer):
    def __init__(self):
        self.w = gt.Parameter.glorot(4, 3)

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w)}

    def gather(self, edge):
        return edge.src.z


class Distance(Base):
    """The gradient of the length of a difference is infinite at self loops."""

    def gather(self, edge):
        return gt.sqrt(gt.square(edge.src.z - edge.dst.z).sum(-1)) * edge.src.h[..., 0]


class Logarithm(Base):
    def apply(self, node, total):
        return gt.log(total.max(-1) - total.max(-1))


class Inverse(Base):
    """Divides by a number that is 0 at nodes without in-edges."""

    def apply(self, node, total):
        return total / node.in_degree


class Noise(Base):
    def __init__(self, stage):
        super().__init__()
        self.stage = stage

    def transform(self, node):
        z = gt.matmul(node.h, self.w)
        return {"z": z * RNG.random() if self.stage == "transform" else z}

    def gather(self, edge):
        return edge.src.z * RNG.random() if self.stage == "gather" else edge.src.z

    def apply(self, node, total):
        return total + RNG.random() if self.stage == "apply" else total


class Counting(Base):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def apply(self, node, total):
        self.calls += 1
        return total * self.calls


class Remembering(Base):
    """Computes a factor from a setting once."""

    def __init__(self):
        super().__init__()
        self.scale, self.factor = 2.0, None

    def gather(self, edge):
        if self.factor is None:
            self.factor = np.full(3, self.scale)
        return edge.src.z * self.factor


class RememberingWeights(Base):
    def __init__(self):
        super().__init__()
        self.v, self.factor = gt.Parameter.ones(3), None

    def gather(self, edge):
        if self.factor is None:
            self.factor = np.array(self.v.value) + 1.0
        return edge.src.z * self.factor * self.v


class KeepingSymbols(Base):
    def __init__(self):
        super().__init__()
        self.kept = None

    def gather(self, edge):
        if self.kept is None:
            self.kept = edge.src.z * 2.0
        return self.kept


class Unread(Base):
    def __init__(self):
        super().__init__()
        self.v = gt.Parameter.ones(3)

    def apply(self, node, total):
        return total * self.v.value


class Useless(Base):
    """Reads a parameter that changes nothing."""

    def __init__(self):
        super().__init__()
        self.v = gt.Parameter.ones(3)

    def apply(self, node, total):
        return total + (self.v - self.v)


class Normed(gt.Model):
    """A bias in front of batch norm."""

    def __init__(self, bias):
        self.layer, self.norm = GCN(4, 3, bias=bias), BatchNorm(3)

    def forward(self, graph):
        return self.norm(self.layer(graph, graph.x))


class Cancelled(Base):
    """What is equal for all in-edges of a node is cancelled by the softmax."""

    def __init__(self):
        super().__init__()
        self.v = gt.Parameter.ones()

    def gather(self, edge):
        return gt.softmax(edge.src.z + self.v) * edge.src.z


class InAPlainObject(Base):
    def __init__(self):
        super().__init__()
        self.held = SimpleNamespace(inner=SimpleNamespace(v=gt.Parameter.ones(3)))

    def apply(self, node, total):
        return total * self.held.inner.v


FAULTS = {
    "infinite gradient": (Distance, r"Distance: its gradient of x is not finite: nan at node 2, which has 28 in-edges, 3 of them self "
                                    r"loops.*gt\.sqrt\(gt\.maximum"),
    "NaN values": (Logarithm, r"Logarithm: its values are not finite: -?(inf|nan) at node \d+"),
    "0 / 0": (Inverse, r"Inverse: its values are not finite: nan at node \d+, which has 0 in-edges"),
    "draw in transform": (lambda: Noise("transform"), "Noise: two equal models.*draws random numbers"),
    "draw in gather": (lambda: Noise("gather"), "Noise: two equal models.*draws random numbers"),
    "draw in apply": (lambda: Noise("apply"), "Noise: two equal models.*draws random numbers"),
    "state": (Counting, r"Counting: a second call computes other values, and self\.calls changed: the layer keeps state"),
    "stale setting": (Remembering, r"Remembering: a change of self\.scale has another effect on a layer that has run"),
    "stale weights": (RememberingWeights, "RememberingWeights: a change of its parameters has another effect"),
    "unread parameter": (Unread, r"Unread: no operation reads v, so it is not trained"),
    "useless parameter": (Useless, r"Useless: the gradient of v is zero, so it is not trained"),
    "bias before batch norm": (lambda: Normed(True), r"Normed: the gradient of layer\.bias is zero up to rounding.*Adam.*bias=False"),
    "bias before softmax": (Cancelled, r"Cancelled: the gradient of v is zero up to rounding"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    make, words = FAULTS[fault]
    with pytest.raises(CheckError, match=words):
        gt.check(make(), d_in=4, d_edge=2)


def test_a_rule_that_returns_nan_is_found(primitives):
    @gt.primitive("test_conformance_double")
    def twice(x):
        return 2 * x

    gt.defvjp(twice, x=lambda g, y, x: g * np.nan)

    class Mine(Base):
        def apply(self, node, total):
            return twice(total)

    with pytest.raises(CheckError, match="Mine: its gradient of x is not finite: nan at node"):
        gt.check(Mine(), 4, 2)


@pytest.mark.parametrize(("rule", "words"), [
    (lambda g, y, x: 1.5 * g, r"Mine: its gradient of w differs from finite differences \(relative error"),
    (None, r"Mine: the gradient of w is zero.*None as its gradient rule"),
])
def test_a_wrong_rule_is_found(primitives, rule, words):
    @gt.primitive("test_conformance_double")
    def twice(x):
        return 2 * x

    gt.defvjp(twice, x=rule)

    class Mine(Base):
        def apply(self, node, total):
            return twice(total)

    with pytest.raises(CheckError, match=words):
        gt.check(Mine(), 4, 2)


def test_dependence_on_numbers_is_found(primitives):
    @gt.primitive("test_conformance_numbered")
    def numbered(x):
        return x * (1.0 + np.arange(len(x)))[:, None]

    gt.defvjp(numbered, x=lambda g, y, x: g * (1.0 + np.arange(len(x)))[:, None])

    class Numbered(Base):
        def apply(self, node, total):
            return numbered(total)

    with pytest.raises(CheckError, match="Numbered: its values change when nodes are renumbered"):
        gt.check(Numbered(), 4, 2)


def test_symbols_that_are_kept_are_refused():
    with pytest.raises(UserFunctionError, match=r"gather of KeepingSymbols: .*earlier call of gather"):
        gt.check(KeepingSymbols(), 4, 2)


def test_a_parameter_that_is_not_found_is_named_with_its_place():
    words = r"parameter \[3\] that.*it is self\.layer\.held\.inner\.v, inside a SimpleNamespace.*gt\.Module"
    with pytest.raises(UserFunctionError, match=words):
        gt.check(InAPlainObject(), 4, 2)


def test_a_private_parameter_is_found():
    class Private(gt.Layer):
        def __init__(self):
            self._w = gt.Parameter.glorot(4, 3)

        def transform(self, node):
            return {"z": gt.matmul(node.h, self._w)}

        def gather(self, edge):
            return edge.src.z

    layer = Private()
    assert [name for name, _ in layer.named_parameters()] == ["_w"]
    gt.check(layer)


@pytest.mark.parametrize("make", [lambda: GCN(5, 3), lambda: GAT(5, 3, 2), lambda: GATE(6, 4, 3, 2), lambda: SAGE(5, 3, aggregator="max"),
                                  lambda: GIN(MLP(5, (6,), 4)), lambda: Normed(False)])
def test_what_is_right_passes_and_is_left_alone(make):
    layer = make()
    before = {name: p.value.copy() for name, p in layer.named_parameters()}
    report = gt.check(layer)
    assert max(report.permutation, report.workers, report.backends) < 1e-9 and report.gradients < 1e-6 and not report.notes
    for name, p in layer.named_parameters():
        np.testing.assert_array_equal(p.value, before[name])


@pytest.mark.fused
def test_a_fall_back_is_reported(primitives):
    @gt.primitive("test_conformance_double")
    def twice(x):
        return 2 * x

    gt.defvjp(twice, x=lambda g, y, x: 2 * g)

    class Mine(Base):
        def gather(self, edge):
            return twice(edge.src.z * edge.dst.z)

    report = gt.check(Mine(), 4, 2)
    (note,) = report.notes
    assert "Mine runs on the reference back end" in note and "test_conformance_double" in note and note in str(report)


def test_errors_of_the_layer_itself_come_through():
    class Wrong(Base):
        def gather(self, edge):
            return edge.src.nothing

    with pytest.raises(GraphThetaError, match=r"gather of Wrong reads edge\.src\.nothing"):
        gt.check(Wrong(), 4, 2)


# ---- named columns


class Looked(gt.Layer):
    """Tables of kinds and types, a time, and a pair of codes."""

    def __init__(self):
        self.kinds, self.types, self.pairs = gt.Parameter.normal(3, 4), gt.Parameter.normal(5, 4), gt.Parameter.normal(2, 4)

    def transform(self, node):
        return {"z": node.h + gt.embedding(self.kinds, node.kind)}

    def gather(self, edge):
        return edge.src.z * gt.embedding(self.types, edge.type) * edge.size + gt.embedding(self.pairs, edge.pair[..., 1]) + edge.dst.z


COLUMNS = {"node_columns": {"kind": range(3)}, "edge_columns": {"type": range(5), "size": [0.5, 1.5, -2.0], "pair": [[7, 0], [8, 1]]}}


@pytest.mark.fused
def test_columns_are_drawn_from_examples():
    report = gt.check(Looked(), d_in=4, **COLUMNS)
    assert report.gradients < 1e-6 and report.permutation < 1e-9 and report.workers < 1e-9 and not report.notes


def test_columns_that_are_missing_or_wrong():
    with pytest.raises(ColumnError, match=r"gather of Looked reads edge.type.*edge_columns=\{'type': array\}"):
        gt.check(Looked(), d_in=4, node_columns={"kind": range(3)})
    with pytest.raises(ShapeError, match=r"transform of Looked: embedding: node.kind holds numbers from \d to 8; expected 0 to 2, .*kinds"):
        gt.check(Looked(), d_in=4, **{**COLUMNS, "node_columns": {"kind": range(9)}})
    for rows in ([], 3):
        with pytest.raises(DataError, match=r"edge_columns\['type'\] has no rows to draw from"):
            gt.check(Looked(), d_in=4, edge_columns={"type": rows})
    with pytest.raises(DataError, match="'weight' is reserved"):
        gt.check(Looked(), d_in=4, edge_columns={"weight": range(3)})
