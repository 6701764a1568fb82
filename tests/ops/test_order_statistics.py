"""The k largest messages and the median: against NumPy, in any split, on any number of workers, on
both back ends.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.errors import ConfigError
from graphtheta.ops import Tape, dtype_scope
from graphtheta.ops.edge.aggregator import NO_EDGE, Segments, aggregator
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.edge.order_statistics import MEDIAN, TopK, number_of, ordered_bits

N, E = 30, 180


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=20))
def test_ordered_bits_have_the_order_of_the_numbers(values: list[float]) -> None:
    x = np.array(values, np.float32)
    bits = ordered_bits(x)
    np.testing.assert_array_equal(number_of(bits), x)
    for a, b in pairwise(x):
        # -0.0 comes before 0.0, to which it is equal
        assert (a < b) <= (ordered_bits(np.array(a)) < ordered_bits(np.array(b)))


def summed(
    agg: Any, n: int, chunks: list[tuple[np.ndarray, np.ndarray, np.ndarray]], dtype: Any = float
) -> dict[str, np.ndarray]:
    """The state after all passes over the chunks, each of which another worker aggregates."""
    shape = chunks[0][1].shape[1:]
    state = agg.start(n, [shape], dtype)
    for number in range(agg.passes(dtype)):
        if number:
            agg.refine(state, number)
        for row, x, gid in chunks:
            other = agg.beside(state, n, [shape], dtype)
            if len(row):
                order = np.lexsort((gid, row))
                start = np.flatnonzero(np.concatenate(([True], row[order][1:] != row[order][:-1])))
                agg.accumulate(
                    other,
                    Segments(row[order][start], start, row[order]),
                    [x[order].astype(dtype)],
                    gid[order],
                    None,
                )
            agg.merge(state, np.arange(n), agg.returned(other))
    return state


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 4), st.integers(1, 5))
def test_totals_and_edges_equal_sorting_for_any_split(
    seed: int, integers: bool, n_chunks: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    n = 5
    e = 23
    row = rng.integers(0, n - 1, e)
    gid = rng.permutation(100)[:e]
    x = rng.integers(-2, 3, (e, 2)).astype(float) if integers else rng.standard_normal((e, 2))
    chunk = rng.integers(0, n_chunks, e)
    chunks = [(row[chunk == c], x[chunk == c], gid[chunk == c]) for c in range(n_chunks)]
    top = summed(TopK(k), n, chunks)
    median = summed(MEDIAN, n, chunks)
    for r in range(n):
        for f in range(2):
            mine = np.flatnonzero(row == r)
            best = mine[np.lexsort((gid[mine], -x[mine, f]))][:k]
            np.testing.assert_array_equal(
                TopK(k).finish(top)[r, :, f], np.pad(x[best, f], (0, k - len(best)))
            )
            assert [top[f"edge{i}"][r, f] for i in range(k)] == [
                *gid[best],
                *[NO_EDGE] * (k - len(best)),
            ]
            middle = np.sort(x[mine, f])[(len(mine) - 1) // 2] if len(mine) else 0
            assert MEDIAN.finish(median)[r, f] == middle
            assert median["edge"][r, f] == gid[mine][x[mine, f] == middle].min(initial=NO_EDGE)


@pytest.mark.parametrize("agg", [TopK(2), MEDIAN], ids=lambda agg: agg.name)
def test_gradients_equal_differences(agg: Any) -> None:
    rng = np.random.default_rng(5)
    row = rng.integers(0, 4, 15)
    x = rng.standard_normal((15, 2))
    gid = rng.permutation(15)
    state = summed(agg, 5, [(row, x, gid)])
    total = agg.finish(state)
    g = rng.standard_normal(total.shape)
    v = rng.standard_normal(x.shape)
    columns = agg.backward_state(state, total, g)
    (found,) = agg.backward({name: y[row] for name, y in columns.items()}, [x], gid, None)
    up, down = (
        np.vdot(g, agg.finish(summed(agg, 5, [(row, x + t * v, gid)]))) for t in (1e-6, -1e-6)
    )
    assert np.vdot(found, v) == pytest.approx((up - down) / 2e-6, rel=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_numbers(dtype: Any) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    inf = np.inf
    rows = [
        [-inf, -1.0, inf],
        [inf, inf, 0.0],
        [-0.0, 0.0],
        [tiny, -tiny, tiny],
        [np.nan, 1.0, 2.0],
        [-inf],
        [3.5],
    ]
    row = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    chunk = row, np.concatenate(rows)[:, None].astype(dtype), np.arange(len(row))
    median = MEDIAN.finish(summed(MEDIAN, len(rows) + 1, [chunk], dtype))[:, 0]
    np.testing.assert_array_equal(median, np.array([-1, inf, 0, tiny, np.nan, -inf, 3.5, 0], dtype))
    assert median.dtype == dtype
    top = TopK(2).finish(summed(TopK(2), len(rows) + 1, [chunk], dtype))[..., 0]
    wanted = [[inf, -1], [inf, inf], [0, 0], [tiny, tiny], [np.nan, 2], [-inf, 0], [3.5, 0], [0, 0]]
    np.testing.assert_array_equal(top, np.array(wanted, dtype))


class Orders(gt.Layer):
    """All order statistics of a message of both ends, and a mean beside them."""

    sum = ("median", "mean", gt.TopK(3))

    def __init__(self, d_in: int, d_out: int, direction: str = "in"):
        self.src = gt.Parameter.glorot(d_in, d_out)
        self.dst = gt.Parameter.glorot(d_in, d_out)
        self.direction = direction

    def transform(self, node):
        return {"z": node.h @ self.src, "y": node.h @ self.dst}

    def gather(self, edge):
        return gt.tanh(edge.src.z + edge.dst.y)

    def apply(self, node, total):
        return gt.concat([total.median, total.mean, gt.flatten(total.top3)])


def example(integers: bool = False) -> gt.Graph:
    """A hub with more edges than a block, self loops, duplicate edges and isolated nodes; integer
    features make messages equal.
    """
    rng = np.random.default_rng(3)
    ends = rng.integers(0, N - 3, (2, E))
    ends[1, :90] = 3
    ends[0, 90:96] = ends[1, 90:96]
    ends[:, 100:110] = ends[:, 110:120]
    x = rng.integers(0, 3, (N, 3)).astype(float) if integers else rng.standard_normal((N, 3))
    return gt.Graph(ends, N, x=x, y=np.arange(N) % 2, train=np.arange(N) % 3 > 0)


def run(comm, graph, backend, dtype, direction, placement=("1d-src", "hash")):
    """Totals and gradients by original node, predicted and sent bytes of the forward pass."""
    part = build_partition(graph, comm, *placement, dtype=dtype)
    with dtype_scope(dtype), backend_scope(backend):
        layer = Orders(3, 20, direction)
        rng = np.random.default_rng(1)
        for p in (layer.src, layer.dst):
            # sums of small multiples of powers of two are exact, so that equal messages are equal
            # to the bit
            p.value = (rng.integers(-4, 5, p.shape) / 8).astype(dtype)

        class Net(gt.Model):
            def __init__(self):
                self.layer = layer

            def forward(self, graph):
                return self.layer(graph, graph.x)

        model = Net()
        active = ActiveGraph(global_view(part, probe(model, part).layers))
        with Tape(seed=1, all_sum=comm.all_sum) as tape:
            before = comm.ledger.snapshot()
            out = model.run(active)
            sent = comm.ledger.since(before).get("move", {"bytes": 0})["bytes"]
            found = tape.backward(out, np.ones(out.shape, dtype))
    values = np.zeros((N, *out.shape[1:]), dtype)
    values[part.masters] = out.value[: part.n_masters]
    grads = [comm.all_sum(np.array(found.of(p))) for p in (layer.src, layer.dst)]
    return comm.all_sum(values), grads, sum(t.forward for t in active.traffic), sent


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("integers", "direction"), [(False, "in"), (True, "both")])
def test_numbers_are_the_same_on_any_workers_and_back_end(integers: bool, direction: str) -> None:
    graph = example(integers)
    ((one, grads, _, _),) = run_simulated(1, run, graph, "reference", "float64", direction)
    for size, placement, backend in (
        (1, ("1d-src", "hash"), "fused"),
        (2, ("1d-dst", "block"), "fused"),
        (3, ("vertex-cut", "hash"), "fused"),
        (4, ("vertex-cut", "block"), "reference"),
    ):
        for values, found, predicted, sent in run_simulated(
            size, run, graph, backend, "float64", direction, placement
        ):
            np.testing.assert_allclose(values, one, rtol=1e-13, atol=1e-13)
            for a, b in zip(found, grads, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
            assert predicted == sent


def test_parts_of_hubs_know_the_pivot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphtheta.ops.edge.backend.edges.EDGES_PER_BLOCK", 10)
    ((fused, _, _, _),) = run_simulated(1, run, example(), "fused", "float64", "in")
    monkeypatch.undo()
    ((one, _, _, _),) = run_simulated(1, run, example(), "reference", "float64", "in")
    np.testing.assert_allclose(fused, one, rtol=1e-13)


@pytest.mark.second
def test_a_layer_equals_sorting() -> None:
    graph = example()
    ((values, _, _, _),) = run_simulated(1, run, graph, "fused", "float32", "in")
    rng = np.random.default_rng(1)
    src, dst = (rng.integers(-4, 5, (3, 20)) / 8 for _ in range(2))
    x = graph.x.astype(float)
    messages = np.tanh(x[graph.src] @ src + x[graph.dst] @ dst)
    for v in range(N):
        mine = np.sort(messages[graph.dst == v], axis=0)
        wanted = mine[(len(mine) - 1) // 2] if len(mine) else np.zeros(20)
        np.testing.assert_allclose(values[v, :20], wanted, atol=1e-5)
        np.testing.assert_allclose(values[v, 40:60], mine[-1] if len(mine) else 0, atol=1e-5)


def test_rounded_moves_keep_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With halos in 16 bits the result is still one of the messages."""
    from graphtheta.engine.partition.message import halo_scope

    def rounded(comm):
        with halo_scope("bf16"):
            return run(
                comm=comm,
                graph=example(),
                backend="fused",
                dtype="float32",
                direction="in",
                placement=("vertex-cut", "hash"),
            )[0]

    ((exact, _, _, _),) = run_simulated(1, run, example(), "fused", "float32", "in")
    for found in run_simulated(3, rounded):
        np.testing.assert_allclose(found[:, :20], exact[:, :20], atol=0.05)


def test_errors() -> None:
    for k in (0, 33):
        with pytest.raises(ConfigError, match="expected an integer from 1 to 32"):
            TopK(k)
    with pytest.raises(ConfigError, match=r"TopK: k is 2\.5; expected a whole number"):
        TopK(2.5)  # type: ignore[arg-type]
    of_numpy: Any = np.int64(3)
    assert TopK(3) == TopK(of_numpy) != TopK(2) and aggregator("median") is MEDIAN
