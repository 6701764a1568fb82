"""Published layers against PyTorch Geometric, on one rank and on several, under every placement."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.view import global_view
from graphtheta.graph.data.graph import Graph
from graphtheta.models import GAT, GATE, GCN, GIN, MLP, SAGE
from graphtheta.ops import RowSpace, Tape, Var, dtype_scope

PLACEMENTS = [(p, m) for p in ("1d-src", "1d-dst", "vertex-cut") for m in ("hash", "block")]


def gcn(file):
    return {"weight": ("lin.weight", lambda w: w.T), "bias": ("bias", None)}, GCN(16, 8)


def sage(aggregator):
    names = {
        "neighbour": ("lin_l.weight", lambda w: w.T),
        "bias": ("lin_l.bias", None),
        "root": ("lin_r.weight", lambda w: w.T),
    }
    return lambda file: (names, SAGE(16, 8, aggregator=aggregator))


def gin(file):
    names = {
        f"mlp.{mine}.{i}": (f"nn.{2 * i}.{theirs}", (lambda w: w.T) if theirs == "weight" else None)
        for i in (0, 1)
        for mine, theirs in (("weights", "weight"), ("biases", "bias"))
    }
    return names, GIN(MLP(16, (12,), 8))


def heads(w):
    return w.reshape(4, 6, -1).transpose(2, 0, 1)


def gat(file):
    return {
        "weight": ("lin.weight", heads),
        "att_src": ("att_src", lambda a: a[0]),
        "att_dst": ("att_dst", lambda a: a[0]),
        "bias": ("bias", None),
    }, GAT(16, 6, 4)


def gat_edge(file):
    names, _ = gat(file)
    return {
        **names,
        "weight_edge": ("lin_edge.weight", heads),
        "att_edge": ("att_edge", lambda a: a[0]),
    }, GATE(16, 6, 5, 4)


LAYERS = {
    "gcn": gcn,
    "gcn_self_loops": gcn,
    "sage_mean": sage("mean"),
    "sage_max": sage("max"),
    "gin": gin,
    "gat": gat,
    "gat_edge": gat_edge,
}


class Alone(Model):
    """One layer on the features."""

    def __init__(self, layer):
        self.layer = layer

    def forward(self, graph):
        return self.layer(graph, graph.x)


def run(comm, graph, name, file, placement):
    """Output, gradients of the inputs (global order) and of the parameters."""
    with dtype_scope("float64"):
        names, layer = LAYERS[name](file)
        model = Alone(layer)
        for p in model.parameters():
            theirs, turned = names[p.name.removeprefix("layer.")]
            p.value = np.ascontiguousarray((turned or (lambda w: w))(file[f"param/{theirs}"]))
        part = build_partition(graph, comm, *placement, dtype=np.float64)
        view = global_view(part, probe(model, part).layers)
        x = Var(file["x"][part.masters], view.space, True)
        attr = file["edge_attr"] if graph.n_edges == 300 else np.zeros((graph.n_edges, 5))
        edge = Var(attr[part.edge_gid], RowSpace(part.edge_gid, "edge"), True)
        with Tape(all_sum=comm.all_sum) as tape:
            out = model(view, **{"x": x, "edge.attr": edge})
            grads = tape.backward(out, file["probe"][part.masters])
        sources = [names[p.name.removeprefix("layer.")] for p in model.parameters()]
        wanted = [
            (turned or (lambda w: w))(file[f"grad/param/{theirs}"]) for theirs, turned in sources
        ]
        got = GradientSum(comm, model.parameters()).finish(grads)
        return (
            (part.masters, out.value, grads.of(x)),
            (part.edge_gid, grads.of(edge)),
            list(zip(got, wanted, strict=True)),
        )


def with_one_loop_each(graph):
    """PyTorch Geometric leaves every node one loop, also where there were two."""
    loops = np.flatnonzero(graph.src == graph.dst)
    again = np.setdiff1d(loops, loops[np.unique(graph.src[loops], return_index=True)[1]])
    return graph.keep_edges(np.setdiff1d(np.arange(graph.n_edges), again)).with_self_loops()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "ranks",
    [(1, 2, 3, 4, 8), pytest.param((1, 3), marks=pytest.mark.fused)],
    ids=["reference", "fused"],
)
@pytest.mark.parametrize("name", LAYERS)
def test_reproduces_reference_values(golden, name, ranks):
    file = golden(name)
    # the graph itself stores float32; the float64 inputs go in as variables
    graph = Graph(file["edge_index"], 60, x=np.zeros((60, 16)), edge_attr=np.zeros((300, 5)))
    if name == "gcn_self_loops":
        graph = with_one_loop_each(graph)
    for size, placement in [(1, PLACEMENTS[0]), *((s, p) for s in ranks[1:] for p in PLACEMENTS)]:
        parts = run_simulated(size, run, graph, name, file, placement)
        for nodes, (edges, of_edge), parameters in parts:
            np.testing.assert_allclose(nodes[1], file["output"][nodes[0]], rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(nodes[2], file["grad/x"][nodes[0]], rtol=1e-10, atol=1e-10)
            if "grad/edge_attr" in file:
                np.testing.assert_allclose(
                    of_edge, file["grad/edge_attr"][edges], rtol=1e-10, atol=1e-10
                )
            for got, wanted in parameters:
                np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)
