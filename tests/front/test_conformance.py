"""gt.check: what it finds, and in which words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, wraps
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.layer import superstep
from graphtheta.errors import (
    CheckError,
    ColumnError,
    ConfigError,
    DataError,
    GraphThetaError,
    ShapeError,
    UserFunctionError,
)
from graphtheta.inspect.checking import conformance, trial
from graphtheta.models import GAT, GATE, GCN, GIN, SAGE, BatchNorm
from graphtheta.models.mlp import MLP
from graphtheta.ops import PRIMITIVES
from graphtheta.ops.edge import rewrite
from graphtheta.ops.edge.program_cache import ProgramCache
from graphtheta.ops.functions.dense import matmul

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


class CountingAmongObjects(Counting):
    def __init__(self):
        self.layers = [gt.Linear(4, 3)]
        self.settings = SimpleNamespace(items=[SimpleNamespace()])
        super().__init__()

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w) + self.layers[0](node.h)}


class CountingInArray(Base):
    def __init__(self):
        super().__init__()
        self.counts = np.zeros(5000)

    def apply(self, node, total):
        self.counts[2500] += 1
        return total * self.counts[2500]


class Remembering(Base):
    """Computes a factor from a setting once."""

    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.factor = None

    def gather(self, edge):
        if self.factor is None:
            self.factor = np.full(3, self.scale)
        return edge.src.z * self.factor


class RememberingWeights(Base):
    def __init__(self):
        super().__init__()
        self.v = gt.Parameter.ones(3)
        self.factor = None

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
        self.layer = GCN(4, 3, bias=bias)
        self.norm = BatchNorm(3)

    def forward(self, graph):
        return self.norm(self.layer(graph, graph.x))


class Cancelled(Base):
    """What is equal for all in-edges of a node is cancelled by the softmax."""

    def __init__(self):
        super().__init__()
        self.v = gt.Parameter.ones()

    def gather(self, edge):
        return gt.softmax(edge.src.z + self.v) * edge.src.z


class Remembers(Base):
    """Subtracts a sum over the first graph that it sees, which it stores somewhere."""

    def apply(self, node, total):
        return total - self.stored(lambda: float(np.sum(np.asarray(node.h.value))))


class StoredInSelf(Remembers):
    def stored(self, compute):
        if not hasattr(self, "first"):
            self.first = compute()
        return self.first


class StoredInClass(Remembers):
    first = None

    def stored(self, compute):
        if StoredInClass.first is None:
            StoredInClass.first = compute()
        return self.first


class AddedToClass(Remembers):
    def stored(self, compute):
        if not hasattr(type(self), "added"):
            type(self).added = compute()
        return type(self).added


FIRST = {}


class StoredInGlobal(Remembers):
    def stored(self, compute):
        return FIRST.setdefault("sum", compute())


class Memory:
    """An object, and its class, that keep a number."""

    numbers = []

    def __init__(self):
        self.first = None


MEMORY = Memory()


class StoredInObject(Remembers):
    def stored(self, compute):
        MEMORY.first = compute() if MEMORY.first is None else MEMORY.first
        return MEMORY.first


class StoredInItsClass(Remembers):
    def stored(self, compute):
        MEMORY.numbers.append(compute())
        return MEMORY.numbers[0]


class AssignedGlobal(Remembers):
    def stored(self, compute):
        global assigned
        try:
            return assigned
        except NameError:
            assigned = compute()
        return assigned


def by_helper(compute):
    by_helper.first = getattr(by_helper, "first", None) or compute()
    return by_helper.first


class StoredByHelper(Remembers):
    def stored(self, compute):
        return by_helper(compute)


@lru_cache
def by_shape(shape):
    return LAST[-1]


LAST = []


class StoredInFunctionCache(Remembers):
    def stored(self, compute):
        LAST.append(compute())
        return by_shape("any")


def keeping_the_first(function):
    results = {}

    @wraps(function)
    def of_the_first(self, compute):
        return results.setdefault("first", compute())

    return of_the_first


class StoredByDecorator(Remembers):
    @keeping_the_first
    def stored(self, compute):
        return compute()


def stored_in_closure():
    first = []

    class StoredInClosure(Remembers):
        def stored(self, compute):
            first.append(compute())
            return first[0]

    return StoredInClosure()


class Total(gt.Aggregator):
    """A sum, which may ignore importance weights.

    Args:
        forward, backward: Whether they count.
    """

    name = "mine"

    def __init__(self, forward=True, backward=True):
        self.counts = forward, backward

    def start(self, n, shapes, dtype):
        return {"a": np.zeros((n, *shapes[0]), dtype)}

    def accumulate(self, state, seg, parts, gid, scale):
        state["a"][seg.row] += seg.add(self.scaled(parts[0], scale, self.counts[0]))

    def merge(self, state, rows, other):
        state["a"][rows] += other["a"]

    def finish(self, state):
        return state["a"]

    def backward_state(self, state, total, g):
        return {"g": g}

    def backward(self, columns, parts, gid, scale):
        return [self.scaled(columns["g"], scale, self.counts[1])]

    @staticmethod
    def scaled(x, scale, counts):
        return x * scale[:, None] if counts and scale is not None else x


class Summed(Base):
    def __init__(self, aggregator):
        super().__init__()
        self.sum = aggregator

    def apply(self, node, total):
        parts = [total] if isinstance(self.sum, gt.Aggregator) else [total.mine, total.median]
        return gt.tanh(sum(parts[1:], parts[0]))


def statistic():
    aggregator = Total(forward=False, backward=False)
    aggregator.weighted = False
    return aggregator


class InAPlainObject(Base):
    def __init__(self):
        super().__init__()
        self.held = SimpleNamespace(inner=SimpleNamespace(v=gt.Parameter.ones(3)))

    def apply(self, node, total):
        return total * self.held.inner.v


FAULTS = {
    "infinite gradient": (
        Distance,
        r"Distance: its gradient of x is not finite: nan at node 2, which has 28 in-edges, 3 of"
        r" them self "
        r"loops.*gt\.sqrt\(gt\.maximum",
    ),
    "NaN values": (Logarithm, r"Logarithm: its values are not finite: -?(inf|nan) at node \d+"),
    "0 / 0": (
        Inverse,
        r"Inverse: its values are not finite: nan at node \d+, which has 0 in-edges",
    ),
    "draw in transform": (
        lambda: Noise("transform"),
        "Noise: two equal models.*draws random numbers",
    ),
    "draw in gather": (lambda: Noise("gather"), "Noise: two equal models.*draws random numbers"),
    "draw in apply": (lambda: Noise("apply"), "Noise: two equal models.*draws random numbers"),
    "state": (
        Counting,
        (
            r"Counting: a second call computes other values, and self\.calls changed: the layer"
            r" keeps state"
        ),
    ),
    "stale setting": (
        Remembering,
        r"Remembering: a change of self\.scale has another effect on a layer that has run",
    ),
    "stale weights": (
        RememberingWeights,
        "RememberingWeights: a change of its parameters has another effect",
    ),
    "stored in the layer": (
        StoredInSelf,
        (
            r"StoredInSelf: after a pass over one graph.*new layer does there, and self\.first"
            r" changed: "
        ),
    ),
    "stored in its class": (
        StoredInClass,
        (
            r"after a pass over one graph.*and StoredInClass\.first changed: the layer stores"
            r" something"
        ),
    ),
    "added to its class": (
        AddedToClass,
        r"after a pass over one graph.*and AddedToClass\.added changed",
    ),
    "stored in a global": (
        StoredInGlobal,
        r"after a pass over one graph.*and the global FIRST changed",
    ),
    "stored in an object": (
        StoredInObject,
        r"after a pass over one graph.*and the global MEMORY changed",
    ),
    "stored in the class of an object": (
        StoredInItsClass,
        r"after a pass over one graph.*and Memory\.numbers changed",
    ),
    "an assigned global": (
        AssignedGlobal,
        r"after a pass over one graph.*and the global assigned changed",
    ),
    "stored by a helper": (
        StoredByHelper,
        r"after a pass over one graph.*and by_helper\.first changed",
    ),
    "stored in the cache of a function": (
        StoredInFunctionCache,
        r"after a pass over one graph.*the cache of by_shape changed",
    ),
    "stored by a decorator": (
        StoredByDecorator,
        r"after a pass over one graph.*and the variable results changed",
    ),
    "a changed number among many objects": (
        CountingAmongObjects,
        "a second call computes other values, and self.calls changed: the layer keeps state",
    ),
    "a changed number of a large array": (
        CountingInArray,
        "a second call computes other values, and self.counts changed: the layer keeps state",
    ),
    "stored in a closure": (
        stored_in_closure,
        r"after a pass over one graph.*and the variable first changed",
    ),
    "weights ignored": (
        lambda: Summed(Total(False, False)),
        (
            r"Summed: its .* changes where k equal.*aggregator Total of Summed ignores"
            r" scale.*weighted = False"
        ),
    ),
    "weights ignored backward": (
        lambda: Summed(Total(True, False)),
        r"Summed: its gradient of .* changes where k equal.*Total of Summed ignores scale",
    ),
    "weights ignored beside a statistic": (
        lambda: Summed((Total(False, True), "median")),
        r"changes where k equal.*the aggregator Total of Summed",
    ),
    "unread parameter": (Unread, r"Unread: no operation reads v, so it is not trained"),
    "useless parameter": (Useless, r"Useless: the gradient of v is zero, so it is not trained"),
    "bias before batch norm": (
        lambda: Normed(True),
        r"Normed: the gradient of layer\.bias is zero up to rounding.*Adam.*bias=False",
    ),
    "bias before softmax": (Cancelled, r"Cancelled: the gradient of v is zero up to rounding"),
}


class Drawing(gt.Layer):
    """Draws something in its constructor.

    Args:
        draw: From a shape to values.
        where: Attribute that holds them: a parameter, an array, a number, or one of these in a
            list.
    """

    def __init__(self, draw, where="w"):
        self.w = gt.Parameter(np.eye(4, 3, dtype=np.float32))
        values = draw((4, 3)).astype(np.float32)
        if where == "w":
            self.w = gt.Parameter(values)
        elif where == "array":
            self.array = values
        elif where == "number":
            self.number = float(values[0, 0])
        else:
            self.several = {"of": [0, values]}

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w)}

    def gather(self, edge):
        return edge.src.z


class DrawingDeeper(gt.Model):
    """A model whose layer draws; its own constructor has an argument with a default."""

    def __init__(self, size=1.0):
        self.layers = [Drawing(lambda shape: size * np.random.default_rng().normal(size=shape))]

    def forward(self, graph):
        return self.layers[0](graph, graph.x)


# how a constructor may draw, and whether each worker would draw other values
DRAWS = {
    "a generator without a seed": (lambda shape: np.random.default_rng().normal(size=shape), True),
    "the generator of NumPy": (lambda shape: np.random.normal(size=shape), True),
    "a seed": (lambda shape: np.random.default_rng(1).normal(size=shape), False),
    "a given generator": (np.random.default_rng(1).standard_normal, False),
    "a parameter of gt": (lambda shape: gt.Parameter.glorot(*shape).value, False),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("where", ["w", "array", "number", "several"])
@pytest.mark.parametrize("how", DRAWS)
def test_a_constructor_that_draws_without_a_seed_is_found(how, where):
    draw, differs = DRAWS[how]
    state = np.random.get_state()[1].copy()
    layer = Drawing(draw, where)
    before = np.random.get_state()[1].copy()
    if not differs:
        gt.check(layer)
    else:
        with pytest.raises(CheckError, match=f"Drawing: its constructor draws {where}"):
            gt.check(layer)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
    assert how == "the generator of NumPy" or np.array_equal(before, state)


def test_a_layer_inside_a_model_is_made_again_with_it():
    for model in (
        DrawingDeeper(),
        DrawingDeeper(2.0),
        type("Derived", (DrawingDeeper,), {})(size=3.0),
    ):
        with pytest.raises(CheckError, match=r"its constructor draws layers\.0\.w anew each time"):
            gt.check(model)


@pytest.mark.one_in(3)
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


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            lambda g, y, x: 1.5 * g,
            r"Mine: its gradient of w differs from finite differences \(relative error",
        ),
        (None, r"Mine: the gradient of w is zero.*None as its gradient rule"),
    ],
)
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
    with pytest.raises(
        UserFunctionError, match=r"gather of KeepingSymbols: .*earlier call of gather"
    ):
        gt.check(KeepingSymbols(), 4, 2)


def test_a_parameter_that_is_not_found_is_named_with_its_place():
    words = (
        r"parameter \[3\] that.*it is self\.layer\.held\.inner\.v, inside a"
        r" SimpleNamespace.*gt\.Module"
    )
    with pytest.raises(UserFunctionError, match=words):
        gt.check(InAPlainObject(), 4, 2)


@pytest.mark.second
@pytest.mark.parametrize(
    "make",
    [lambda: Summed(Total()), lambda: Summed((Total(), "median")), lambda: Summed(statistic())],
)
def test_weights_that_count_and_statistics_pass(make):
    assert gt.check(make(), d_in=4, d_edge=2).weights < 1e-12


def test_the_check_leaves_state_outside_of_the_layer_alone():
    for make in (
        StoredInClass,
        AddedToClass,
        StoredInGlobal,
        StoredInObject,
        StoredInItsClass,
        AssignedGlobal,
        StoredByHelper,
        StoredInFunctionCache,
    ):
        with pytest.raises(CheckError, match="after a pass over one graph"):
            gt.check(make(), d_in=4, d_edge=2)
    assert (
        StoredInClass.first is None
        and not hasattr(AddedToClass, "added")
        and not hasattr(by_helper, "first")
    )
    assert not FIRST and not LAST and not MEMORY.numbers and MEMORY.first is None
    assert "assigned" not in globals() and not by_shape.cache_info().currsize


class Factor(Total):
    """A sum times a parameter, which it finds in one of several places."""

    shared_factor = None

    def __init__(self, place):
        super().__init__()
        factor = gt.Parameter.ones(3)
        if place == "attribute":
            self.factor = factor
        elif place == "module":
            self.inner = {"linear": gt.Linear(3, 3)}
        elif place == "method":
            self.scaled = lambda x, scale, counts: x * np.asarray(factor.value)
        elif place == "class":
            self.__class__ = type("Factor", (Total,), {"factor": factor})


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("attribute", r"self\.factor"),
        ("module", r"self\.inner\.linear\.weight"),
        ("method", r"self\.scaled\.factor"),
        ("class", r"Factor\.factor"),
    ],
)
def test_a_parameter_in_an_aggregator_is_refused(place, path):
    class Net(gt.Model):
        def __init__(self, d_in, d_out):
            self.layer = Summed(Factor(place))
            self.out = gt.Linear(3, d_out)

        def forward(self, graph):
            return self.out(self.layer(graph, graph.x))

    words = (
        rf"Summed: its aggregator Factor holds a parameter .*\(it is {path}\).*derive from"
        r" gt\.Pooling or gt\.Recurrent"
    )
    with pytest.raises(UserFunctionError, match=words):
        gt.check(Summed(Factor(place)), d_in=4, d_edge=2)
    graph = gt.Graph([[0, 1], [1, 2]], 4, x=np.eye(4), y=[0, 1, 0, 1], train=np.ones(4, bool))
    with pytest.raises(UserFunctionError, match=words):
        gt.Trainer(Net, graph, epochs=1).fit()


# ---- self loops


class Looped(Base):
    """Its values are infinite where a node has no in-edge."""

    self_loops = True
    sum = "mean"

    def apply(self, node, total):
        return total / gt.cast(node.in_degree, total.dtype)


class LoopedFloats(Looped):
    def gather(self, edge):
        return edge.src.z * edge.size


class LoopedCodes(Looped):
    def gather(self, edge):
        return edge.src.z * edge.type


def test_self_loops_are_those_of_a_job():
    gt.check(Looped(), d_in=4, d_edge=2)
    columns = {"size": [0.5, 1.5, -2.0], "type": range(3)}
    gt.check(LoopedFloats(), d_in=4, d_edge=2, edge_columns=columns)
    with pytest.raises(CheckError, match=r"not finite: nan at node \d+, which has 0 in-edges"):
        gt.check(Looped(), d_in=4, d_edge=2, self_loops="no")
    words = r"LoopedCodes reads edge.type, a column without a value for the self loops that"
    with pytest.raises(DataError, match=words):
        gt.check(LoopedCodes(), d_in=4, d_edge=2, edge_columns=columns)
    with pytest.raises(CheckError, match="not finite"):
        gt.check(LoopedCodes(), d_in=4, d_edge=2, edge_columns=columns, self_loops="no")
    with pytest.raises(CheckError, match="not finite"):
        gt.check(Inverse(), 4, 2)
    gt.check(Inverse(), 4, 2, self_loops="yes")
    with pytest.raises(
        ConfigError, match="self_loops 'maybe' is not known; choose from auto, yes, no"
    ):
        gt.check(Looped(), d_in=4, self_loops="maybe")


def test_the_case_of_a_job_has_its_self_loops():
    """Loops, means of attributes and float columns, and no codes; numbers of edges come first."""
    columns = {}, {"size": np.array([0.5, 1.5, -2.0]), "type": np.arange(3)}
    plain = trial.fitting(trial.copied(Base()), 4, 2, columns, "auto").case
    looped = trial.fitting(trial.copied(Looped()), 4, 2, columns, "auto").case
    graph = plain.graph.with_self_loops(columns={"type": -1})
    np.testing.assert_array_equal(looped.graph.edge_index, graph.edge_index)
    assert graph.n_edges > plain.graph.n_edges == len(plain.attr)
    for name in columns[1]:
        np.testing.assert_array_equal(looped.graph.edge_columns[name], graph.edge_columns[name])
    np.testing.assert_allclose(looped.attr, graph.edge_attr, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(looped.attr[: len(plain.attr)], plain.attr)
    bare = trial.fitting(trial.copied(Looped()), 4, 2, columns, "no").case
    assert (
        not np.any(bare.graph.src == bare.graph.dst)
        and len(bare.attr) == bare.graph.n_edges < plain.graph.n_edges
    )


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


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "make",
    [
        lambda: GCN(5, 3),
        lambda: GAT(5, 3, 2),
        lambda: GATE(6, 4, 3, 2),
        lambda: SAGE(5, 3, aggregator="max"),
        lambda: GIN(MLP(5, (6,), 4)),
        lambda: Normed(False),
    ],
)
def test_what_is_right_passes_and_is_left_alone(make):
    layer = make()
    before = {name: p.value.copy() for name, p in layer.named_parameters()}
    report = gt.check(layer)
    assert (
        max(report.permutation, report.workers, report.weights, report.backends) < 1e-9
        and report.gradients < 1e-6
        and not report.notes
    )
    for name, p in layer.named_parameters():
        np.testing.assert_array_equal(p.value, before[name])


class Settings:
    """Gives settings as attributes, and raises another error than AttributeError without them."""

    def __init__(self, **values):
        vars(self)["values"] = values

    def __getattr__(self, name):
        return vars(self)["values"][name]


class Fixed(dict):
    def clear(self):
        raise TypeError("it is fixed")


class Uncopied:
    def __deepcopy__(self, memo):
        raise NotImplementedError("it cannot be copied")


SETTINGS = Settings(factor=2.0)
UNCOPIED = {"factor": Uncopied()}
NOTHING = object()
CHOICES = {"factor": NOTHING, "objects": [NOTHING]}
FIXED = Fixed(factor=2.0)
FACTORS = np.arange(1.0, 4.0)
FACTORS.setflags(write=False)
OBJECTS = np.array([NOTHING, np.zeros(2), None], object)


class ReadsOutside(Base):
    """Reads variables that cannot be set, or that are told apart by identity."""

    def apply(self, node, total):
        assert CHOICES["factor"] is CHOICES["objects"][0] is NOTHING
        assert OBJECTS[0] is NOTHING and UNCOPIED["factor"]
        return total * FACTORS * FIXED["factor"] * SETTINGS.factor


class SummedBySettings(Total):
    def finish(self, state):
        assert SETTINGS.factor
        return state["a"]


class Refusing(Base):
    """Has one allowed setting, and refuses others by some error."""

    def __init__(self, error):
        super().__init__()
        self.heads = 1
        self.error = error

    def gather(self, edge):
        if self.heads != 1:
            raise self.error
        return edge.src.z


@dataclass(frozen=True, eq=False)
class Frozen(gt.Layer):
    w: gt.Parameter
    factor: float = 2.0

    def gather(self, edge):
        return gt.matmul(edge.src.h, self.w) * self.factor


class PartlyFrozen(Base):
    """One of its parameters is not trained.

    Args:
        name: The parameter.
    """

    def __init__(self, name):
        super().__init__()
        self.v = gt.Parameter.ones(3)
        getattr(self, name).requires_grad = False

    def apply(self, node, total):
        return total * self.v


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "make",
    [
        lambda: PartlyFrozen("v"),
        lambda: PartlyFrozen("w"),
        ReadsOutside,
        lambda: Summed(SummedBySettings()),
        *(
            lambda error=error: Refusing(error)
            for error in (AssertionError, NotImplementedError, AttributeError, RuntimeError)
        ),
        lambda: Frozen(gt.Parameter.glorot(4, 3)),
    ],
)
def test_sound_layers_pass_however_they_are_written(make):
    gt.check(make(), d_in=4, d_edge=2)
    assert CHOICES == {"factor": NOTHING, "objects": [NOTHING]}


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
    assert (
        "Mine runs on the reference back end" in note
        and "test_conformance_double" in note
        and note in str(report)
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda messages: messages, r"Summed\.sum is a function"),
        ("avg", "sum = 'avg' is not an aggregator"),
        (("sum", "avg"), "sum = 'avg' is not an aggregator"),
        (3, "sum = 3 is not an aggregator"),
    ],
)
def test_what_is_no_aggregator_is_refused_as_in_a_run(wrong, words):
    with pytest.raises(GraphThetaError, match=words):
        gt.check(Summed(wrong), d_in=4, d_edge=2)


class EveryKind(gt.Layer):
    """Softmax twice, several messages, an edge value in arithmetic, both directions."""

    direction = "both"
    sum: ClassVar = {"most": "max", "middle": "median", "spread": "std", "three": gt.TopK(3)}

    def __init__(self):
        self.w = gt.Parameter.glorot(4, 3)
        self.table = gt.Parameter.glorot(2, 3)

    def transform(self, node):
        return {"z": node.h @ self.w}

    def gather(self, edge):
        share = gt.softmax(edge.src.z * edge.dst.z)
        message = share * share * edge.src.z * gt.embedding(self.table, edge.reversed)
        return {
            "most": edge.src.z,
            "middle": message,
            "spread": edge.src.z * edge.weight[..., None],
            "three": message,
        }

    def apply(self, node, total):
        return gt.concat([total.most, total.middle, total.spread, gt.flatten(total.three)])


@pytest.mark.second
def test_the_edge_program_is_compared_with_gather_on_arrays_of_edges(monkeypatch):
    # other tests compare workers and placements
    monkeypatch.setattr(conformance, "PLACEMENTS", ("vertex-cut",))
    assert gt.check(EveryKind(), 4, 2).eager < 1e-9

    class Product(Base):
        def gather(self, edge):
            return (edge.src.z + edge.dst.z) @ self.square

        def __init__(self):
            super().__init__()
            self.square = gt.Parameter.glorot(3, 3)

    def turned(scope, e, uses):
        """x @ W -> x @ W[::-1], once."""
        if not e.traits.contraction or not e.rows or not e.args[1].leaf or e.args[1].dims != (3, 3):
            return None
        return matmul(e.args[0], e.args[1][::-1])

    monkeypatch.setattr(superstep, "PROGRAMS", ProgramCache())
    monkeypatch.setitem(rewrite.LINEAR, "turned", turned)
    with pytest.raises(
        CheckError, match="differs from gather on arrays of edges: a fault of graphtheta"
    ):
        gt.check(Product(), 4, 2)


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
        self.kinds = gt.Parameter.normal(3, 4)
        self.types = gt.Parameter.normal(5, 4)
        self.pairs = gt.Parameter.normal(2, 4)

    def transform(self, node):
        return {"z": node.h + gt.embedding(self.kinds, node.kind)}

    def gather(self, edge):
        return (
            edge.src.z * gt.embedding(self.types, edge.type) * edge.size
            + gt.embedding(self.pairs, edge.pair[..., 1])
            + edge.dst.z
        )


COLUMNS = {
    "node_columns": {"kind": range(3)},
    "edge_columns": {"type": range(5), "size": [0.5, 1.5, -2.0], "pair": [[7, 0], [8, 1]]},
}


@pytest.mark.second
@pytest.mark.fused
def test_columns_are_drawn_from_examples():
    report = gt.check(Looked(), d_in=4, **COLUMNS)
    assert (
        report.gradients < 1e-6
        and report.permutation < 1e-9
        and report.workers < 1e-9
        and not report.notes
    )


def test_columns_that_are_missing_or_wrong():
    with pytest.raises(
        ColumnError, match=r"gather of Looked reads edge.type.*edge_columns=\{'type': array\}"
    ):
        gt.check(Looked(), d_in=4, node_columns={"kind": range(3)})
    with pytest.raises(
        ShapeError,
        match=(
            r"transform of Looked: embedding: node.kind holds numbers from \d to 8; expected 0 to"
            r" 2, .*kinds"
        ),
    ):
        gt.check(Looked(), d_in=4, **{**COLUMNS, "node_columns": {"kind": range(9)}})
    for rows in ([], 3):
        with pytest.raises(DataError, match=r"edge_columns\['type'\] has no rows to draw from"):
            gt.check(Looked(), d_in=4, edge_columns={"type": rows})
    with pytest.raises(DataError, match="'weight' is reserved"):
        gt.check(Looked(), d_in=4, edge_columns={"weight": range(3)})
