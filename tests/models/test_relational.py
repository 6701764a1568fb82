"""Relational layers against PyTorch Geometric, on one rank and on several, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import MiniBatch
from graphtheta.engine.strategy.task import NodeTask
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.view import global_view
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.models import HGT, RGAT, RGCN, SimpleHGN, build_model
from graphtheta.ops import Tape, Var, dtype_scope

FILE = np.load(Path(__file__).parent / "golden" / "relational.npz")
N = 40
D = 8
R = 5
ALL_TARGETS = {"y": np.zeros(N, int), "train": np.ones(N, bool)}
PLACEMENTS = [(p, m) for p in ("1d-src", "1d-dst", "vertex-cut") for m in ("hash", "block")]


class Alone(Model):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, graph):
        return self.layer(graph, graph.x)


class Pair(Model):
    """The second layer reads the attention weights of the first."""

    def __init__(self):
        self.first = SimpleHGN(
            D, 3, R, 2, d_relation=4, stores_attention=True, residual=True, bias=False
        )
        self.second = SimpleHGN(
            6, 3, R, 2, d_relation=4, concat=False, beta=0.1, residual=True, bias=False
        )

    def forward(self, graph):
        return self.second(graph, self.first(graph, graph.x))


def turned(w):
    return w.transpose(1, 0, 2)


def heads(w):
    return turned(w).reshape(D, -1, 2, 3)


ROOT = {"root": ("root", None), "bias": ("bias", None)}
FULL = {**ROOT, "weight": ("weight", turned)}
SCORES = {"query": ("q", None), "key": ("k", None), "bias": ("bias", None)}
HGN = {
    f"{part}.{name}": (f"{name}{i}", None)
    for i, part in enumerate(("first", "second"))
    for name in ("weight", "weight_edge", "relations", "att_src", "att_dst", "att_edge", "root")
}
CASES = {
    "rgcn": (FULL, lambda: RGCN(D, 6, R)),
    "rgcn_sum": (FULL, lambda: RGCN(D, 6, R, aggregator="sum")),
    "rgcn_bases": ({**FULL, "comp": ("comp", None)}, lambda: RGCN(D, 6, R, bases=3)),
    "rgcn_many_blocks": (
        {**ROOT, "weight": ("weight", lambda w: w.transpose(2, 0, 3, 1))},
        lambda: RGCN(D, 8, R, blocks=4),
    ),
    "rgcn_few_blocks": (
        {**ROOT, "weight": ("weight", lambda w: w.transpose(2, 0, 1, 3))},
        lambda: RGCN(D, 6, R, blocks=2),
    ),
    "rgat": ({**SCORES, "weight": ("weight", heads)}, lambda: RGAT(D, 3, R, 2, mixed_heads=True)),
    "rgat_bases": (
        {**SCORES, "weight": ("basis", heads), "comp": ("att", None)},
        lambda: RGAT(D, 3, R, 2, bases=3, concat=False, mixed_heads=True),
    ),
    "simple_hgn": (HGN, Pair),
}
# the types of the case hgt, and its relations
TYPES = {"a": 12, "b": 18, "c": 10}
TRIPLES = [
    ("a", "to", "b"),
    ("b", "to", "a"),
    ("b", "to", "c"),
    ("c", "to", "a"),
    ("a", "near", "a"),
]


def of_hgt(name, what):
    """A parameter of HGT, or its gradient, from those of PyTorch Geometric for each type, relation
    and head.
    """

    def get(theirs):
        return FILE[f"hgt/{what}/layer.{theirs}"]

    by_type = {
        "weight": lambda t: get(f"kqv_lin.lins.{t}.weight").T.reshape(D, 3, 2, 4),
        "bias": lambda t: get(f"kqv_lin.lins.{t}.bias").reshape(3, 2, 4),
        "out": lambda t: get(f"out_lin.lins.{t}.weight").T,
        "out_bias": lambda t: get(f"out_lin.lins.{t}.bias"),
        "skip": lambda t: get(f"skip.{t}")[0],
    }
    if name in by_type:
        return np.stack([by_type[name](t) for t in TYPES])
    if name == "prior":
        return np.concatenate([get("p_rel." + "__".join(triple)) for triple in TRIPLES])
    return (
        get({"key": "k_rel.weight", "value": "v_rel.weight"}[name])
        .reshape(2, R, 4, 4)
        .transpose(0, 2, 1, 3)
    )


def the_graph(**fields):
    return Graph(
        FILE["edge_index"].astype(np.int64),
        N,
        x=np.zeros((N, D)),
        edge_columns={"relation": FILE["relation"]},
        **fields,
    )


def typed_graph():
    """The graph of the case hgt, from edges in the numbers of each type."""
    relation = FILE["hgt/relation"]
    first = dict(zip(TYPES, np.cumsum([0, *TYPES.values()])[:-1], strict=True))
    edges = {
        t: FILE["hgt/edge_index"][:, relation == r] - [[first[t[0]]], [first[t[2]]]]
        for r, t in enumerate(TRIPLES)
    }
    graph = Graph(edges, TYPES, x={"a": np.zeros((12, D))})
    np.testing.assert_array_equal(graph.edge_index, FILE["hgt/edge_index"])
    return graph.replace(**ALL_TARGETS)


def stored(name, parameter, what):
    """A parameter ("param") or its gradient ("grad/param") of a case, in the layer's layout."""
    if name == "hgt":
        return of_hgt(parameter, what)
    theirs, turn = CASES[name][0][parameter]
    return (turn or (lambda w: w))(FILE[f"{name}/{what}/{theirs}"])


def made(name):
    """The model of a case with the parameters of the file."""
    with dtype_scope("float64"):
        layer = CASES[name][1]() if name in CASES else HGT(D, D, R, len(TYPES), 2)
    model = layer if isinstance(layer, Model) else Alone(layer)
    for p in model.parameters():
        value = np.ascontiguousarray(stored(name, p.name.removeprefix("layer."), "param"))
        assert p.value.shape == value.shape
        p.value = value
    return model


def check(comm, graph, name, placement, batch=False):
    """Output, gradient of the input and gradients of the parameters; in a batch of all nodes, each
    with all its neighbours.
    """
    model = made(name)
    part = build_partition(graph, comm, *placement, dtype=np.float64)
    layers = probe(model, part).layers
    view = (
        MiniBatch(part, layers, NodeTask(part, "classes"), batch_size=N).batch(0, 0)
        if batch
        else global_view(part, layers)
    )
    nodes = part.masters if view.rows is None else part.masters[view.rows]
    with Tape(all_sum=comm.all_sum) as tape:
        out = model(view, x=(x := Var(FILE["x"][nodes], view.space, True)))
        grads = tape.backward(out, FILE[f"{name}/probe"][nodes])
    same(out.value, FILE[f"{name}/output"][nodes])
    same(grads.of(x), FILE[f"{name}/grad/x"][nodes])
    for p, got in zip(
        model.parameters(), GradientSum(comm, model.parameters()).finish(grads), strict=True
    ):
        same(got, stored(name, p.name.removeprefix("layer."), "grad/param"))


def same(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)


ALL = [(1, PLACEMENTS[0]), *((size, placement) for size in (2, 3, 4) for placement in PLACEMENTS)]


# every network, with the form of its weights whose kernels are largest
COMPILED = ("rgcn_bases", "rgcn_many_blocks", "rgat_bases", "simple_hgn", "hgt")


@pytest.mark.one_in(9, 2)
@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *(pytest.param(name, ALL, id=f"{name}-reference") for name in (*CASES, "hgt")),
        *(
            pytest.param(name, [ALL[0], ALL[-1]], marks=pytest.mark.fused, id=f"{name}-fused")
            for name in COMPILED
        ),
    ],
)
def test_reproduces_reference_values(name, runs):
    graph = typed_graph() if name == "hgt" else the_graph(**ALL_TARGETS)
    for size, placement in runs:
        run_simulated(size, check, graph, name, placement)
    run_simulated(2, check, graph, name, PLACEMENTS[-1], True)


def test_edges_of_a_relation_are_counted_over_all_workers():
    graph, relation = the_graph(), FILE["relation"].astype(int)
    ends = {"in_degree": graph.dst, "out_degree": graph.src}

    def program(comm, placement):
        part = build_partition(graph, comm, *placement)
        for name, end in ends.items():
            alike = (relation[:, None] == relation) & (end[:, None] == end)
            np.testing.assert_array_equal(part.edge.read(name), alike.sum(axis=1)[part.edge_gid])

    for size in (1, 3):
        for placement in PLACEMENTS:
            run_simulated(size, program, placement)


def test_a_graph_without_relations_has_no_counts():
    part = run_simulated(
        1, lambda comm: build_partition(the_graph().replace(edge_columns={}), comm)
    )[0]
    assert part.edge.readable() == ("weight",)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"bases": 2, "blocks": 2}, "exclude each other"),
        ({"blocks": 3}, "3 blocks do not divide the widths 8 and 6"),
    ],
)
def test_decompositions_that_cannot_be(arguments, said):
    with pytest.raises(ConfigError, match=said):
        RGCN(8, 6, R, **arguments)


def test_a_mean_by_relation_has_one_direction():
    layer = RGCN(D, 6, R)
    layer.direction = "both"
    part = run_simulated(1, lambda comm: build_partition(the_graph(), comm))[0]
    with pytest.raises(
        ConfigError, match=r"graph.with_inverse_relations\(\), or choose aggregator='sum'"
    ):
        probe(Alone(layer), part)


def test_models_that_need_relations_say_so():
    with pytest.raises(
        ConfigError,
        match="rgcn reads relations of edges and the graph has none; give codes, edge_columns=",
    ):
        build_model("rgcn", 5, 3)


@pytest.mark.second
@pytest.mark.parametrize("heads", [2, 4])
def test_gradients_of_narrow_tables_are_added_to_their_rows(heads, rng):
    relation = {"relation": rng.integers(0, 2, 60)}
    graph = gt.Graph(
        rng.integers(0, 20, (2, 60)),
        20,
        x=rng.standard_normal((20, 4)),
        y=rng.integers(0, 2, 20),
        train=np.ones(20, bool),
        edge_columns=relation,
    )
    keys = {
        "hidden": 4,
        "heads": heads,
        "epochs": 3,
        "self_loops": "no",
        "dtype": "float64",
        "dropout": 0.0,
    }
    runs = (
        gt.Trainer("rgat", graph, backend=name, **keys).fit() for name in ("fused", "reference")
    )
    fused, plain = ([row["loss"] for row in run.history] for run in runs)
    np.testing.assert_allclose(fused, plain, rtol=1e-12)
