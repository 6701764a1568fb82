"""Runs one gather on both back ends, on simulated workers, and compares all numbers."""

from __future__ import annotations

from types import SimpleNamespace

import graphs
import numpy as np
from traced import trace

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.superstep import _run_phases
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.ops import Parameter, RowSpace, Tape, Var
from graphtheta.ops.edge.backend.fused import backend_scope

DTYPES = {"float64": 1e-12, "float32": 1e-5}
NODES = {
    "a": (),
    "s": (2,),
    "t": (2,),
    "z": (2, 3),
    "y": (2, 3),
    "m": (2, 1),
    "n": (1, 3),
    "w": (4,),
    "table": (4, 2, 3),
}
EDGES = {"attr": (3,), "weight": (), "old": (2,), "kind": (), "time": ()}
CARRIED = frozenset({"old"})


def parameter(*shape):
    """A parameter by its shape; made anew in every call of gather, so its dtype can be that of the
    test.
    """
    rng = np.random.default_rng(sum(shape) + len(shape))
    return Parameter(rng.standard_normal(shape).astype(parameter.dtype))


class Stub:
    """As much of the active graph as phases look at."""

    def __init__(self, partition, edges):
        self.view = SimpleNamespace(partition=partition)
        self.partition = partition
        self.values = edges
        self.traffic = []
        self.supersteps = []
        self.n = len(partition.masters)

    def space(self, n):
        return RowSpace(self.partition.masters[:n])

    def sent(self, columns, names, level):
        """Every row is given."""
        return columns

    def read_begin(self, names, n):
        """Nothing is stored: all columns are given, or made by the planner."""

    def edges(self, names, level):
        return {n: self.values[n] for n in names}, CARRIED & set(names)

    def exact(self, end, name, level):
        """None: no column is stored with more digits."""

    def edge_space(self, level):
        return RowSpace(level.gid, "edge")


def drawn(seed, ids, shape, dtype):
    """Numbers that belong to global ids, whatever rank asks."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((int(ids.max(initial=0)) + 1, *shape))[ids].astype(dtype)


def run(
    comm,
    gather,
    sum,
    graph,
    dtype,
    direction,
    training,
    scale,
    nodes,
    placement=("vertex-cut", "hash"),
):
    """Totals, new edge values and gradients of one program on one rank, by name."""
    parameter.dtype = dtype
    partition = build_partition(graph, comm, *placement, dtype=dtype)
    view = global_view(partition, [direction])
    (level,) = view.levels
    if scale:
        for p in level.passes:
            for s in p.selections:
                s.weight = 1 + drawn(9, partition.edge_gid[s.stored], (), dtype) ** 2
    columns = {
        n: Var(drawn(i, partition.masters, s, dtype), view.space, True)
        for i, (n, s) in enumerate(nodes.items())
    }
    gid = partition.edge_gid
    space = RowSpace(partition.edge_gid, "edge")
    columns |= {
        "k": Var((partition.masters % 3).astype(np.int32), view.space),
        "b": Var(partition.masters % 2 == 0, view.space),
    }
    edges = {
        "attr": Var(drawn(20, gid, (3,), dtype), space, True),
        "weight": Var(drawn(21, gid, (), dtype), space),
        "old": Var(drawn(22, level.gid, (2,), dtype), RowSpace(level.gid, "edge"), True),
        "kind": Var(gid % 4, space),
        "time": Var(gid * 3**15, space),
    }
    schema = lambda xs: {n: (x.shape[1:], x.dtype, x.needs_grad) for n, x in xs.items()}
    program = trace(gather, schema(columns), schema(edges), sum, "Mine")
    with Tape(seed=3, all_sum=comm.all_sum, training=training) as tape:
        totals, outputs = _run_phases(
            program, columns, Stub(partition, edges), level, tape.random_key() if training else None
        )
        made = {
            **{f"total {n}": x for n, x in totals.items()},
            **{f"edge {n}": x for n, x in outputs.items()},
        }
        loss = Var(np.zeros((), dtype))
        seeds = [drawn(40, x.space.gid, x.shape[1:], dtype) for x in made.values()]
        tape.add("meet", list(made.values()), [loss], lambda gs: seeds)
        grads = tape.backward(loss)
    found = {n: x.value for n, x in made.items()}
    for name, x in {
        **columns,
        **edges,
        **{f"operand {i}": p for i, p in enumerate(program.operands)},
    }.items():
        if grads.of(x) is not None:
            found[f"gradient of {name}"] = grads.of(x)
    return found


def both(
    gather,
    sum="sum",
    dtype="float64",
    direction="in",
    training=True,
    scale=False,
    graph=None,
    size=1,
    nodes=NODES,
    placement=("vertex-cut", "hash"),
):
    """Run on both back ends, compare, and return the fused numbers of all ranks."""
    graph = graphs.random_graph(24, 90) if graph is None else graph
    results = []
    for name in ("reference", "fused"):
        with backend_scope(name):
            results.append(
                run_simulated(
                    size,
                    run,
                    gather,
                    sum,
                    graph,
                    np.dtype(dtype),
                    direction,
                    training,
                    scale,
                    nodes,
                    placement,
                )
            )
    for expected, got in zip(*results, strict=True):
        assert expected.keys() == got.keys()
        for name, x in expected.items():
            y = got[name]
            assert y.dtype == x.dtype and y.shape == x.shape, name
            size_of = max(1, np.abs(x[np.isfinite(x)]).max(initial=0))
            np.testing.assert_allclose(y, x, rtol=0, atol=2 * DTYPES[dtype] * size_of, err_msg=name)
    return results[1]
