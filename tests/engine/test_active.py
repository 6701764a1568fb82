"""Named columns and integer edge values in layers: exact on any ranks, with gradients, under every
strategy and back end.
"""

from __future__ import annotations

import equality
import graphs
import numpy as np
import pytest
from typed import KINDS, NETS, TYPES, Simple, typed

import graphtheta.ops as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.message import halo_scope
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import MiniBatch
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.view import global_view
from graphtheta.errors import ColumnError, ShapeError
from graphtheta.models import GCN
from graphtheta.ops import Parameter, Tape
from graphtheta.ops.autodiff.init import dtype_scope, init_scope
from graphtheta.ops.edge.backend.fused import backend_scope, usable
from graphtheta.samplers.neighbour import NeighbourSampler


def trip(comm, graph, placement, direction, dtype):
    """Edge values by global id after layers that pass integers on, and the sum of the codes that
    each node received.
    """

    class Seen(Layer):
        def gather(self, edge):
            made = {
                "src_code": edge.src.code,
                "dst_code": edge.dst.code,
                "wide": edge.src.wide,
                "stamp": edge.stamp,
                "first": edge.pair[..., 1],
            }
            return (
                gt.cast(edge.src.code, "float64")
                * gt.cast(edge.src.h[..., 0] * 0.0 + 1.0, "float64"),
                made,
            )

    class Again(Layer):
        """Brings what the layer before made into its own message, so that it travels once more."""

        def gather(self, edge):
            return edge.src.h, {
                name: getattr(edge, name)
                for name in ("src_code", "dst_code", "wide", "stamp", "first")
            }

    part = build_partition(graph, comm, *placement, dtype=np.dtype(dtype))
    first = Seen()
    again = Again()
    first.direction = again.direction = direction
    view = global_view(part, [direction] * 2)
    active = ActiveGraph(view)
    with Tape(all_sum=comm.all_sum):
        total = first(active, active.x)
        again(active, active.x)
    made = {name: value.value for name, (value, _) in active._carried.items()}
    assert not any(value.needs_grad for value, _ in active._carried.values())
    return part.masters, total.value, view.levels[1].gid, made


@pytest.mark.one_in(9)
@pytest.mark.fused
@pytest.mark.parametrize("halo", ["exact", "bf16"])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_integers_travel_exactly(size, halo):
    graph = typed(graphs.random_graph(40, 130))
    for backend in ("reference", "fused"):
        for i, placement in enumerate(graphs.PLACEMENTS):
            # every placement has both directions, each on two sizes
            direction = ("in", "out")[(i + size) % 2]
            with halo_scope(halo), backend_scope(backend):
                parts = run_simulated(size, trip, graph, placement, direction, "float32")
            check_trip(graph, parts, direction)


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_integers_travel_exactly_on_odd_graphs(name):
    graph = typed(graphs.odd_graphs()[name])
    for size in range(1, min(4, graph.n_nodes) + 1):
        check_trip(
            graph, run_simulated(size, trip, graph, ("vertex-cut", "hash"), "in", "float32"), "in"
        )


def check_trip(graph, parts, direction):
    src, dst = (graph.src, graph.dst) if direction == "in" else (graph.dst, graph.src)
    nodes, edges = graph.node_columns, graph.edge_columns
    expected = {
        "src_code": nodes["code"][src],
        "dst_code": nodes["code"][dst],
        "wide": nodes["wide"][src],
        "stamp": edges["stamp"],
        "first": edges["pair"][:, 1],
    }
    sums = np.zeros(graph.n_nodes)
    np.add.at(sums, dst, nodes["code"][src].astype(float))
    for masters, total, gid, made in parts:
        np.testing.assert_allclose(total, sums[masters], rtol=1e-15)
        for name, x in made.items():
            assert x.dtype == expected[name].dtype, name
            np.testing.assert_array_equal(x, expected[name][gid])


# ---- tables of vectors


def train(comm, graph, placement, nets, share=None):
    """Losses and last gradients of nets by (strategy, net), of all pairs or a third of them."""
    part = build_partition(graph, comm, *placement, dtype=np.float64)
    task = equality.node_task(part, graph)[0]
    numbers = {}
    for name in nets:
        with dtype_scope("float64"), init_scope(5):
            model = NETS[name]()
        assert [hop.direction for hop in probe(model, part).layers] == ["in", "in"]
        start = {k: v.copy() for k, v in model.state().items()}
        strategies = {**equality.STRATEGIES, "mini shared": shared}
        for i, (strategy_name, make) in enumerate(strategies.items(), list(NETS).index(name)):
            if share is not None and i % 3 != share:
                continue
            if "bucket" in name and strategy_name in ("mini sampled", "mini replaced"):
                # its layers would have to see the same edges
                continue
            strategy = make(part, ["in", "in"], task)
            model.load_state(start)
            views = [
                strategy.batch(i // strategy.steps_per_epoch, i % strategy.steps_per_epoch)
                for i in range(equality.STEPS)
            ]
            numbers[strategy_name, name] = equality.train(comm, model, task, views)
    return numbers


def shared(*of):
    """Batches whose layers see the same sampled edges."""
    return MiniBatch(
        *of,
        batch_size=of[2].n_targets // equality.STEPS,
        sampler=NeighbourSampler((3, 3), shared=True),
    )


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, numbers in found.items():
        for mine, theirs in zip(numbers, expected[key], strict=True):
            np.testing.assert_allclose(
                mine, theirs, rtol=0, atol=1e-10 * max(1, np.abs(theirs).max()), err_msg=str(key)
            )


@pytest.mark.second
def test_pieces_that_run_again_change_nothing():
    found = run_simulated(
        2, train, typed(equality.example()), equality.PLACEMENTS[4], ("bucket", "bucket in pieces")
    )[0]
    for (strategy, name), (losses, grads) in found.items():
        np.testing.assert_array_equal(losses, found[strategy, "bucket"][0], err_msg=name)
        np.testing.assert_array_equal(grads, found[strategy, "bucket"][1], err_msg=name)


@pytest.mark.fused
@pytest.mark.second
def test_tables_under_every_strategy_and_placement():
    """Each pair of a strategy and a net, on one of the placements, equals one rank on the
    reference.
    """
    graph = typed(equality.example())
    with backend_scope("reference"):
        expected = run_simulated(1, train, graph, equality.PLACEMENTS[0], NETS)[0]
    met = set()
    for share, placement in enumerate(equality.PLACEMENTS[1::2]):
        found = run_simulated(2 + share, train, graph, placement, NETS, share)[0]
        assert_same(found, {key: expected[key] for key in found})
        met |= found.keys()
    assert met == expected.keys()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("size, placement", [(2, ("1d-dst", "hash")), (3, ("vertex-cut", "block"))])
def test_tables_on_the_reference(size, placement):
    graph = typed(equality.example())
    expected = run_simulated(1, train, graph, equality.PLACEMENTS[0], NETS)[0]
    assert_same(run_simulated(size, train, graph, placement, NETS)[0], expected)


def dense(graph, layer, h):
    """The totals of ``Simple`` by whole arrays."""
    of = graph.edge_columns
    value = {n: p.value for n, p in vars(layer).items() if isinstance(p, Parameter)}
    kind = graph.node_columns["kind"]
    z = h @ value["w"] + value["kinds"][graph.node_columns["kind"]]
    gate = 1 / (1 + np.exp(-value["gates"][of["pair"][:, 0]]))
    message = (
        gate[:, None] * z[graph.src] * value["types"][of["type"]]
        + value["senders"][kind[graph.src]]
    )
    message += (
        value["pairs"][of["pair"][:, ::-1]].reshape(-1, 4)
        * (of["size"].astype(float) * of["type"])[:, None]
    )
    total = np.zeros((graph.n_nodes, 4))
    np.add.at(total, graph.dst, message)
    return total


@pytest.mark.fused
@pytest.mark.parametrize("backend", ["reference", "fused"])
def test_tables_against_whole_arrays(backend):
    graph = typed(graphs.random_graph())

    def program(comm):
        part = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
        with dtype_scope("float64"), init_scope(5):
            layer = Simple(4)
        active = ActiveGraph(global_view(part, ["in"]))
        with Tape(all_sum=comm.all_sum):
            total = layer(active, active.x).value
        if backend == "fused":
            assert all(usable(phase) for phase in active.supersteps[0].program.phases)
        np.testing.assert_allclose(
            total, dense(graph, layer, graph.x.astype(float))[part.masters], rtol=1e-12, atol=1e-12
        )

    with backend_scope(backend):
        run_simulated(3, program)


@pytest.mark.fused
def test_the_fused_back_end_runs_tables():
    part = build_partition(typed(equality.example()), SerialComm())
    for name in ("simple", "typed", "bucket"):
        steps = probe(NETS[name](), part).supersteps
        assert all(usable(phase) for step in steps for phase in step.program.phases), name


@pytest.mark.fused
@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize(
    "wrong, words",
    [
        (
            {"edge": ("type", TYPES)},
            rf"gather of Simple: embedding: edge.type holds numbers from \d+ to {TYPES}; expected 0"
            r" to 3, the rows of "
            r"the table first.types",
        ),
        (
            {"edge": ("type", -1)},
            (
                r"gather of Simple: embedding: edge.type holds numbers from -1 to \d; expected 0 to"
                r" 3, .*first.types"
            ),
        ),
        (
            {"edge": ("pair", TYPES)},
            r"gather of Simple: embedding: getitem\(edge.pair\) holds .*first.(gates|pairs)",
        ),
        (
            {"node": ("kind", KINDS)},
            (
                r"embedding: node.kind holds numbers from \d to 5; expected 0 to 4, the rows of the"
                r" table start"
            ),
        ),
    ],
)
def test_codes_beyond_the_table_name_column_and_table(backend, wrong, words):
    graph = typed(equality.example())
    ((end, (name, code)),) = wrong.items()
    columns = dict(getattr(graph, f"{end}_columns"))
    columns[name] = np.where(np.arange(len(columns[name])) == 7, code, columns[name].T).T
    graph = graph.replace(**{f"{end}_columns": columns})

    def program(comm):
        model = NETS["simple"]()
        model.parameters()
        model(global_view(build_partition(graph, comm, "vertex-cut"), ["in", "in"]))

    with backend_scope(backend), pytest.raises(ShapeError, match=words):
        run_simulated(2, program)


@pytest.mark.fused
@pytest.mark.parametrize("backend", ["reference", "fused"])
def test_a_batch_looks_at_the_codes_that_it_reads(backend):
    """A step takes no time for the codes of all other edges, and does not complain of them."""

    class Table(Model):
        def __init__(self):
            self.layer = Layer()
            self.layer.types = Parameter.normal(2, 4)
            self.layer.gather = lambda edge: edge.src.h * gt.embedding(self.layer.types, edge.type)

        def forward(self, graph):
            return self.layer(graph, graph.x)

    part = build_partition(
        graphs.fill([0, 1, 2], [1, 2, 3], 5, edge_columns={"type": [0, 1, 99]}), SerialComm()
    )
    model = Table()
    with backend_scope(backend):
        assert model(k_hop_view(part, part.masters == 2, ["in"])).shape == (1, 4)
        with pytest.raises(ShapeError, match=r"edge.type holds numbers from"):
            model(k_hop_view(part, part.masters == 3, ["in"]))


# ---- what may be read, and memory


def test_columns_are_offered_by_name():
    part = build_partition(typed(graphs.random_graph()), SerialComm())

    class Wrong(Layer):
        def transform(self, node):
            return {"z": node.sort}

    class WrongEdge(Layer):
        def gather(self, edge):
            return edge.src.h * edge.sort

    for layer, words in (
        (Wrong(), "there are h, in_degree, out_degree, x, kind, code, wide"),
        (
            WrongEdge(),
            r"edge.weight, edge.attr, edge.type, edge.pair, .*edge_columns=\{'sort': array\}",
        ),
    ):
        with pytest.raises(ColumnError, match=words):
            layer(active := ActiveGraph(global_view(part, ["in"])), active.x)
    with pytest.raises(ColumnError, match="kind, code, wide; give it with"):
        ActiveGraph(global_view(part, ["in"])).node("sort")


def test_a_column_that_transform_makes_goes_before_one_of_the_graph():
    graph = typed(graphs.random_graph())

    class Own(Layer):
        def transform(self, node):
            return {"kind": gt.cast(node.kind * 0, "float64")}

        def gather(self, edge):
            return edge.src.kind

    active = ActiveGraph(
        global_view(build_partition(graph, SerialComm(), dtype=np.float64), ["in"])
    )
    assert not Own()(active, active.x).value.any()


def test_wide_integers_take_the_memory_of_two_numbers():
    class Sum(Layer):
        def __init__(self, name):
            self.name = name

        def gather(self, edge):
            return edge.src.h * (edge.weight * getattr(edge.src, self.name))

    class Both(Model):
        def __init__(self, name):
            self.w = Parameter.normal(4, 4)
            self.layer = Sum(name)

        def forward(self, graph):
            return self.layer(graph, gt.matmul(graph.x, self.w))

    part = build_partition(typed(graphs.random_graph()), SerialComm())
    narrow, wide = (probe(Both(name), part).halo_width for name in ("kind", "code"))
    assert wide == narrow + 1


def test_integers_have_no_gradients():
    part = build_partition(typed(graphs.random_graph()), SerialComm(), dtype=np.float64)

    class Rounded(Layer):
        def __init__(self):
            self.w = Parameter.normal(4, 4)

        def transform(self, node):
            z = node.h @ self.w
            return {"z": z, "level": gt.cast(gt.clip(z[..., 0], 0.0, 3.0), "int64")}

        def gather(self, edge):
            return edge.src.z * edge.src.level

    with dtype_scope("float64"), init_scope(0):
        layer = Rounded()
    for backend in ("reference", "fused"):
        with backend_scope(backend), Tape() as tape:
            active = ActiveGraph(global_view(part, ["in"]))
            grads = tape.backward(layer(active, active.x))
        level = np.clip(part.node.read("x") @ layer.w.value[:, 0], 0, 3).astype(np.int64)
        assert level.max() > 0
        flow = np.zeros(part.n_masters)
        np.add.at(flow, part.directory.row(part.edge_ends()[0]), 1)
        expected = part.node.read("x").T @ np.repeat((flow * level)[:, None], 4, axis=1)
        np.testing.assert_allclose(grads.of(layer.w), expected)


def test_a_published_layer_takes_no_notice():
    """The same bits as without columns."""
    plain = equality.example()
    found = []
    for graph in (plain, typed(plain)):
        part = build_partition(graph, SerialComm(), dtype=np.float64)
        with dtype_scope("float64"), init_scope(1):
            layer = GCN(equality.D, 3)
        active = ActiveGraph(global_view(part, ["in"]))
        found.append(layer(active, active.x).value)
    np.testing.assert_array_equal(*found)
