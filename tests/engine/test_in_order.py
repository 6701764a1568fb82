"""Sums in the order of the edges: their numbers against loops over the edges of each node, on any
number of workers, and what is said of wrong ones.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from covering import covering
from equality import PLACEMENTS

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.sampling.candidates import Sample
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.view import global_view
from graphtheta.errors import CheckError, ColumnError, ConfigError, UserFunctionError
from graphtheta.ops import Tape, Var, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.edge import turns
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.functions import long_rows, recurrence

N = 14
E = 60
D = 5
WIDTH = 3


def example(edges=E, seed=1):
    """A hub, self loops, duplicate edges, isolated nodes, and columns with equal values."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, N - 2, (2, edges))
    ends[1, : edges // 3] = 2
    ends[:, edges // 2 : edges // 2 + 4] = ends[:, :4]
    ends[0, -3:] = ends[1, -3:]
    return gt.Graph(
        ends,
        N,
        x=rng.standard_normal((N, D)),
        edge_columns={
            "time": 1_700_000_000_000 - rng.integers(0, 5, edges),
            "rate": rng.integers(0, 3, edges) / 4,
        },
        node_columns={"age": rng.integers(0, 4, N)},
    )


class Summed(gt.Layer):
    def __init__(self, make, direction="in"):
        self.sum = make()
        self.direction = direction


class Net(gt.Model):
    def __init__(self, make, direction="in"):
        self.layer = Summed(make, direction)

    def forward(self, graph):
        return self.layer(graph, graph.x)


def numbers(comm, graph, make, placement=("1d-dst", "hash"), direction="in", backend="reference"):
    """Values by node, and gradients of x and of the parameters, of the sum of squares."""
    with dtype_scope("float64"), init_scope(3), backend_scope(backend):
        model = Net(make, direction)
        for i, p in enumerate(model.parameters()):
            p.value = np.random.default_rng(i).standard_normal(p.shape) / 2
        part = build_partition(graph, comm, *placement, dtype=np.float64)
        probe(model, part)
        view = global_view(part, [direction])
        x = Var(np.asarray(graph.x, np.float64)[part.masters], view.space, needs_grad=True)
        with Tape(all_sum=comm.all_sum) as tape:
            out = model.run(ActiveGraph(view, x=x))
            total = GradientSum(comm, model.parameters())
            grads = tape.backward(out, 2 * out.value, final=total.add)
        values = np.zeros((N, *out.shape[1:]))
        values[part.masters] = out.value
        of_x = np.zeros((N, D))
        if grads.of(x) is not None:
            of_x[part.masters] = grads.of(x)
        return [comm.all_sum(values), comm.all_sum(of_x), *total.finish(grads)]


def in_edges(graph, by=None, direction="in"):
    """Senders of each node, in order."""
    ids = np.arange(graph.n_edges)
    passes = {"in": [0], "out": [1], "both": [0, 1]}[direction]
    each = [(graph.edge_index[p], graph.edge_index[1 - p], ids + p * graph.n_edges) for p in passes]
    src, dst, tie = (np.concatenate(x) for x in zip(*each, strict=True))
    edge = tie % max(graph.n_edges, 1)
    if by is None:
        key = tie
    else:
        key = graph.node_columns["age"][src] if by == "src.age" else graph.edge_columns[by][edge]
    order = np.lexsort((tie, key))
    return [src[order][dst[order] == node] for node in range(N)]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(xs, weight, recurrent, bias):
    h = c = np.zeros(WIDTH)
    for x in xs:
        i, f, g, o = np.einsum("d,dgk->gk", x, weight) + np.einsum("d,dgk->gk", h, recurrent) + bias
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h


def gru(xs, weight, recurrent, bias, inner):
    h = np.zeros(WIDTH)
    for x in xs:
        given = np.einsum("d,dgk->gk", x, weight) + bias
        own = np.einsum("d,dgk->gk", h, recurrent)
        r, z = sigmoid(given[:2] + own[:2])
        n = np.tanh(given[2] + r * (own[2] + inner))
        h = (1 - z) * n + z * h
    return h


def first(xs):
    out = np.zeros((4, D))
    out[: min(4, len(xs))] = xs[:4]
    return out


TWINS = {"lstm": lstm, "gru": gru, "concat": first}


def maker(kind, order=None):
    return {
        "lstm": lambda: gt.LSTM(D, WIDTH, order),
        "gru": lambda: gt.GRU(D, WIDTH, order),
        "concat": lambda: gt.Concat(4, order),
    }[kind]


def parameters_of(make):
    shapes = [p.shape for p in Net(make).parameters()]
    return [np.random.default_rng(i).standard_normal(s) / 2 for i, s in enumerate(shapes)]


@pytest.mark.one_in(5, 5)
@pytest.mark.parametrize("direction", ["in", "out", "both"])
@pytest.mark.parametrize("order", [None, "time", "rate", "src.age"])
@pytest.mark.parametrize("kind", TWINS)
def test_values_are_those_of_a_loop(kind, order, direction):
    graph = example()
    make = maker(kind, order)
    values = run_simulated(1, numbers, graph, make, direction=direction)[0][0]
    x = np.asarray(graph.x, np.float64)
    arrays = parameters_of(make)
    expected = [TWINS[kind](x[senders], *arrays) for senders in in_edges(graph, order, direction)]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)


SECONDS = 1_700_000_000.0


@pytest.mark.parametrize(
    ("order", "direction", "targets"),
    # dense and sparse frames: all nodes, and those of a batch
    covering(("time", "src.age"), ("in", "out", "both"), ("all", "some")),
)
def test_times_are_compared_as_they_were_given(order, direction, targets):
    """In float32, seconds since 1970 are 128 apart."""
    graph = example()
    is_target = (np.arange(N) % 3 < 2) | (targets == "all")
    rng = np.random.default_rng(5)
    graph = graph.replace(
        edge_columns={"time": SECONDS + rng.permutation(E) / 4},
        node_columns={"age": SECONDS + rng.permutation(N) / 4},
    )

    def values(comm):
        with dtype_scope("float32"), init_scope(3):
            model = Net(maker("concat", order), direction)
            part = build_partition(graph, comm, "vertex-cut", "hash", dtype=np.float32)
            view = k_hop_view(part, is_target[part.masters], probe(model, part).layers)
            out = model(view)
            every = np.zeros((N, *out.shape[1:]))
            every[part.masters[view.rows[: len(out.value)]]] = out.value
            return comm.all_sum(every)

    x = np.asarray(graph.x, np.float32)
    expected = np.array([first(x[senders]) for senders in in_edges(graph, order, direction)])
    expected[~is_target] = 0
    for size in (1, 3):
        np.testing.assert_array_equal(run_simulated(size, values)[0], expected)


@pytest.mark.second
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_values_and_gradients_are_those_of_torch(kind):
    torch = pytest.importorskip("torch")
    graph = example()
    make = maker(kind, "time")
    found = run_simulated(3, numbers, graph, make, ("1d-src", "hash"))[0]
    arrays = parameters_of(make)
    weight, recurrent, bias = (torch.tensor(a, requires_grad=True) for a in arrays[:3])
    inner = torch.tensor(arrays[3], requires_grad=True) if kind == "gru" else None
    x = torch.tensor(np.asarray(graph.x, np.float64), requires_grad=True)
    ones = torch.zeros(bias.numel(), dtype=torch.float64)
    if inner is not None:
        ones = torch.cat([ones[: 2 * WIDTH], inner])
    given = [
        weight.reshape(D, -1).T,
        recurrent.reshape(WIDTH, -1).T,
        bias.reshape(-1),
        ones,
    ]
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](D, WIDTH).double()
    names = [name for name, _ in module.named_parameters()]
    values = []
    for senders in in_edges(graph, "time"):
        if not len(senders):
            values.append(torch.zeros(WIDTH, dtype=torch.float64))
            continue
        out, _ = torch.func.functional_call(
            module, dict(zip(names, given, strict=True)), (x[senders][:, None],)
        )
        values.append(out[-1, 0])
    total = torch.stack(values)
    (total**2).sum().backward()
    learned = [weight, recurrent, bias, *([] if inner is None else [inner])]
    expected = [total.detach(), x.grad, *(p.grad for p in learned)]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=0, atol=1e-10)


@cache
def on_one_worker(kind, direction):
    return run_simulated(1, numbers, example(), maker(kind, "rate"), direction=direction)[0]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("placement", PLACEMENTS, ids=" ".join)
@pytest.mark.parametrize("kind", TWINS)
def test_any_number_of_workers_and_any_placement(kind, placement):
    # every kind and every placement meets 2, 3 and 4 workers
    number = list(TWINS).index(kind) + PLACEMENTS.index(placement)
    for i, direction in enumerate(("in", "both")):
        size = 2 + (number + i) % 3
        found = run_simulated(size, numbers, example(), maker(kind, "rate"), placement, direction)
        for mine, theirs in zip(found[0], on_one_worker(kind, direction), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)


@pytest.mark.one_in(3)
@pytest.mark.fused
@pytest.mark.parametrize("kind", TWINS)
def test_both_back_ends(kind):
    graph = example()
    expected = run_simulated(1, numbers, graph, maker(kind, "time"))[0]
    for size in (1, 3):
        found = run_simulated(
            size, numbers, graph, maker(kind, "time"), ("vertex-cut", "hash"), "in", "fused"
        )[0]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", TWINS)
@pytest.mark.parametrize("edges", [0, 1, 3])
def test_workers_and_graphs_with_few_edges(kind, edges):
    graph = gt.Graph(np.array([[0, 4, 0], [3, 3, 3]])[:, :edges], N, x=np.eye(N)[:, :D])
    expected = run_simulated(1, numbers, graph, maker(kind))[0]
    assert np.abs(expected[0][[0, 1, 2]]).max() == 0
    assert (np.abs(expected[0][3]).max() > 0) == (edges > 0)
    for placement in ("1d-src", "1d-dst"):
        # most workers have no edges
        found = run_simulated(5, numbers, graph, maker(kind), (placement, "block"))[0]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", TWINS)
def test_blocks_of_rows_change_nothing(kind, monkeypatch):
    graph = example()
    expected = run_simulated(1, numbers, graph, maker(kind))[0]
    monkeypatch.setattr(turns, "NUMBERS", 7 * 4 * D)
    found = run_simulated(1, numbers, graph, maker(kind))[0]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


class Mixed(gt.Recurrent):
    """A recurrence of parts of several shapes, which products, indices and constants connect."""

    def __init__(self):
        super().__init__("time")
        self.matrix = gt.Parameter.glorot(D, D)
        self.vector = gt.Parameter.ones(D)
        self.unread = gt.Parameter.ones(D)

    def step(self, state, message):
        if state is None:
            return {"a": message, "b": message[..., 0] * 0.5, "c": message * self.unread}
        a = gt.tanh(state["a"] @ self.matrix + message * gt.sigmoid(self.vector))
        both = gt.concat([a[..., 2:], state["a"][..., :2]])
        b = gt.maximum(state["b"], message[..., 1]) - 0.25 * state["b"]
        return {"a": both * self.vector, "b": b, "c": state["c"] - a / 3.0}

    def after(self, node, total):
        return total.a * total.b[..., None] + total.c


class Clipped(gt.Recurrent):
    """A recurrence that has no compiled loop: its step computes a sum over an axis."""

    def step(self, state, message):
        return message if state is None else state + message / (1.0 + message.sum(-1, True) ** 2)


class Functions(gt.Recurrent):
    """A recurrence of elementary functions."""

    names = ("exp", "sin", "cos", "tanh", "sigmoid", "softplus", "gelu", "elu", "relu", "absolute")

    def step(self, state, message):
        if state is None:
            return message
        for name in (*self.names, "square", "leaky_relu"):
            state = state * 0.5 + getattr(gt, name)(state - message) * 0.25
        positive = gt.square(state) + 0.5
        return gt.log(positive) - gt.sqrt(positive) + gt.clip(gt.minimum(state, message), -1.0, 2.0)


class Powers(gt.Recurrent):
    """Recurrences of functions that loops over numbers lack."""

    def step(self, state, message):
        if state is None:
            return message
        return state**0 + (gt.square(state) + 0.5) ** 0.5 * 0.1 + gt.where(state > 0, message, 0.5)


LOOPS = {
    "lstm": maker("lstm"),
    "gru": maker("gru", "time"),
    "mixed": Mixed,
    "functions": Functions,
    "clipped": Clipped,
    "powers": Powers,
}


@pytest.mark.second
@pytest.mark.fused
@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize(("few", "segment"), [(1, 3), (3, 1), (20, 1024)])
def test_long_rows_run_in_compiled_loops(kind, few, segment, monkeypatch):
    graph = example()
    expected = run_simulated(1, numbers, graph, LOOPS[kind])[0]
    monkeypatch.setattr(recurrence, "FEW_ROWS", few)
    monkeypatch.setattr(recurrence, "LONG", 1)
    monkeypatch.setattr(long_rows, "SEGMENT", segment)
    ran = []
    monkeypatch.setattr(
        long_rows.LongRows,
        "backpropagate",
        lambda *args, whole=long_rows.LongRows.backpropagate, **keys: (
            ran.append(1) or whole(*args, **keys)
        ),
    )
    for size in (1, 3):
        found = run_simulated(size, numbers, graph, LOOPS[kind], ("1d-src", "hash"), "in", "fused")[
            0
        ]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)
    assert bool(ran) == (kind not in ("clipped", "powers"))


class Weighted:
    """A sampler that keeps two of three edges, each with a weight."""

    hops = None

    def choose(self, frontier, *, hop, step):
        samples = []
        for candidates in frontier.candidates:
            edges = candidates.listed()
            gid = frontier.relation.gid[edges.stored]
            edges, times = edges.selected(np.where(gid % 3 > 0, 1 + gid % 2, 0))
            samples.append(edges.weighted(times.astype(float)))
        return Sample(samples)


@pytest.mark.parametrize("kind", TWINS)
def test_sampled_edges_are_taken_as_if_there_were_no_others(kind):
    graph = example()
    make = maker(kind, "rate")

    def values(comm, graph, view_of):
        with dtype_scope("float64"), init_scope(3):
            model = Net(make)
            part = build_partition(graph, comm, "1d-src", "hash", dtype=np.float64)
            view = view_of(part, probe(model, part).layers)
            out = model(view)
            every = np.zeros((N, *out.shape[1:]))
            every[part.masters[view.rows[: len(out.value)]]] = out.value
            return comm.all_sum(every)

    def sampled(part, layers):
        return k_hop_view(part, part.masters % 2 == 0, layers, sampler=Weighted())

    def whole(part, layers):
        return k_hop_view(part, part.masters % 2 == 0, layers)

    left = graph.keep_edges(np.arange(E) % 3 > 0)
    for size in (1, 3):
        found = run_simulated(size, values, graph, sampled)[0]
        expected = run_simulated(1, values, left, whole)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        assert np.abs(found).max() > 0


def test_messages_of_a_pass_are_not_stored():
    """On one worker nothing that is as large as the messages lives from forward to backward."""
    graph = example()
    with dtype_scope("float64"):
        part = build_partition(graph, gt.start(), dtype=np.float64)
        view = global_view(part, ["in"])
        x = Var(np.asarray(graph.x, np.float64)[part.masters], view.space, needs_grad=True)
        with Tape() as tape:
            Net(maker("lstm")).run(ActiveGraph(view, x=x))
        rows = [y.shape[0] for node in tape.nodes for y in node.outputs if y.space is not None]
        assert max(rows) <= N


class Counting(gt.Recurrent):
    """A recurrence of one's own: a decayed sum whose decay is learned, with dropout."""

    def __init__(self, width, rate=0.0):
        super().__init__("time")
        self.decay = gt.Parameter.zeros(width)
        self.scale = gt.Parameter.ones(width)
        self.rate = rate

    def before(self, edge, message):
        return message * self.scale

    def step(self, state, message):
        message = gt.dropout(message, self.rate) if self.rate else message
        return message if state is None else state * gt.sigmoid(self.decay) + message

    def after(self, node, total):
        return total + node.h


TIMES = {"edge_columns": {"time": range(8)}}


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_a_recurrence_of_ones_own_passes_the_checks(rate):
    report = gt.check(Summed(lambda: Counting(D, rate)), d_in=D, **TIMES)
    assert report.workers < 1e-12 and report.eager < 1e-12 and not report.notes


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "make",
    [
        lambda: gt.LSTM(D, WIDTH),
        lambda: gt.GRU(D, WIDTH, "time"),
        lambda: gt.Concat(2, "src.in_degree"),
        lambda: gt.AttentionPooling(D, 4, heads=2),
        lambda: gt.GatedPooling(D, WIDTH, D),
    ],
)
def test_those_of_the_package_pass_the_checks(make):
    report = gt.check(Summed(make), d_in=D, **TIMES)
    assert report.gradients < 1e-6 and not report.notes


class Typed(gt.Recurrent):
    """Number of messages, whether one of them was positive, and the last code, as they are."""

    def step(self, state, message):
        positive = message > 0
        code = gt.cast(gt.cast(positive, message.dtype) * 5.0 - 2.0, "int32")
        if state is None:
            one = gt.cast(message[..., 0] * 0.0, "int64") + 1
            return {"n": one, "positive": positive, "code": code, "sum": message}
        return {
            "n": state["n"] + 1,
            "positive": state["positive"] | positive,
            "code": code,
            "sum": state["sum"] + message,
        }

    def after(self, node, total):
        kinds = total.n.dtype, total.positive.dtype, total.code.dtype, total.sum.dtype
        assert kinds == (np.int64, bool, np.int32, node.h.dtype)
        scale = gt.cast(total.n, node.h.dtype)[..., None]
        chosen = gt.where(total.positive, total.sum, node.h * 2.0)
        return chosen / (1.0 + scale) + gt.cast(total.code, node.h.dtype)


def test_parts_of_a_state_keep_their_types():
    report = gt.check(Summed(Typed), d_in=D)
    assert report.workers < 1e-12 and report.eager < 1e-12
    graph = example()
    x = np.asarray(graph.x, np.float64)
    expected = []
    for node, senders in zip(x, in_edges(graph, None), strict=True):
        xs = x[senders]
        some = (xs > 0).any(axis=0)
        last = np.where(xs[-1] > 0, 3, -2) if len(xs) else 0
        expected.append(np.where(some, xs.sum(axis=0), 2 * node) / (1 + len(xs)) + last)
    for size in (1, 3):
        found = run_simulated(size, numbers, graph, Typed, ("1d-src", "hash"))[0]
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-12)


class Several(gt.Layer):
    """Sums of all kinds side by side, and new edge values."""

    def __init__(self):
        self.sum = {
            "mean": "mean",
            "last": gt.GRU(D, WIDTH),
            "attended": gt.AttentionPooling(D, WIDTH),
            "first": gt.Concat(2, "time"),
        }

    def gather(self, edge):
        value = gt.tanh(edge.src.h + edge.dst.h)
        return value, {"agreement": value.sum(-1)}

    def apply(self, node, total):
        first = gt.flatten(total.first)
        return gt.concat([total.mean, total.last, total.attended, first])


class Nested(gt.Pooling):
    """A pooling of several sums, one of them in order."""

    def __init__(self):
        self.sum = {"top": "max", "last": gt.LSTM(D, D)}

    def before(self, edge, message):
        return {"top": message, "last": gt.tanh(message)}

    def after(self, node, total):
        return total.top + total.last


@pytest.mark.second
@pytest.mark.parametrize(
    ("make", "columns"), [(lambda: Summed(Nested), {}), (lambda: Several(), TIMES)]
)
def test_several_sums_at_once(make, columns):
    gt.check(make(), d_in=D, **columns)


# ---- wrong ones


def refused(make, error, match, **keys):
    with pytest.raises(error, match=match) as info:
        gt.check(Summed(make), **{"d_in": D, **keys})
    assert "\n" not in str(info.value)


class Wrong(gt.Recurrent):
    """A recurrence with one method replaced."""

    def __init__(self, **methods):
        super().__init__()
        self.factor = gt.Parameter.ones(D)
        vars(self).update(methods)

    def step(self, state, message):
        return message * self.factor if state is None else state * self.factor + message


ELSEWHERE = gt.Parameter.ones(D)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: gt.LSTM(D, WIDTH, "when"), ColumnError, "edge.when, but the edges of this graph"),
        (lambda: gt.LSTM(D, WIDTH, "src.when"), ColumnError, "edge.src.when, which does not exist"),
        (lambda: gt.LSTM(D, WIDTH, "attr"), UserFunctionError, "order of LSTM .* one number of"),
        (lambda: gt.LSTM(D + 1, WIDTH), gt.errors.ShapeError, "before of LSTM.*matmul"),
        (lambda: Wrong(step=lambda s, m: None), UserFunctionError, "step of Wrong .* NoneType"),
        (lambda: Wrong(step=lambda s, m: {}), UserFunctionError, "step of Wrong .* nothing"),
        (
            lambda: Wrong(step=lambda s, m: m if s is None else m.sum(-1)),
            UserFunctionError,
            r"state float\d\d\[5\] at first and float\d\d\[\] afterwards",
        ),
        (
            lambda: Wrong(step=lambda s, m: gt.cast(m, "int32") if s is None else s * 1.5),
            UserFunctionError,
            r"state int32\[5\] at first and float\d\d\[5\] afterwards",
        ),
        (
            lambda: Wrong(step=lambda s, m: m - gt.graph_mean(m)),
            UserFunctionError,
            "cannot reduce over all",
        ),
        (
            lambda: Wrong(before=lambda edge, m: gt.cast(m, "int32")),
            UserFunctionError,
            "before of Wrong .* floats",
        ),
        (
            lambda: Wrong(step=lambda s, m: m * ELSEWHERE),
            UserFunctionError,
            "not among its parameters",
        ),
        (lambda: Wrong(step=lambda s, m: m), CheckError, "no operation reads .*factor"),
        (lambda: Wrong(after=lambda node, t: t.h), UserFunctionError, "after of Wrong .*'h'"),
        (lambda: "lstm", ConfigError, r"give an object, such as sum = gt.LSTM\(d_in, d_out\)"),
    ],
)
def test_wrong_ones_are_refused(make, error, match):
    refused(make, error, match, d_edge=2)


def test_an_accumulator_of_the_class_is_refused_if_it_has_parameters():
    class Shared(gt.Layer):
        sum = gt.LSTM(D, WIDTH)

    class Without(gt.Layer):
        sum = gt.Concat(2)

    with pytest.raises(UserFunctionError, match=r"Shared\.sum = LSTM.*set self\.sum in"):
        gt.check(Shared(), d_in=D)
    gt.check(Without(), d_in=D)


class Useless(gt.Pooling):
    """A parameter without effect: all messages of a node are weighted alike."""

    def __init__(self):
        self.weight = gt.Parameter.ones(1)

    def before(self, edge, message):
        return gt.softmax(edge.dst.h[..., 0] * self.weight) * message


def test_a_parameter_without_effect_is_found():
    refused(Useless, CheckError, "gradient of .*weight is zero")


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_numbers_of_messages_that_are_refused(k):
    with pytest.raises(ConfigError):
        gt.Concat(k)
