"""The two moves: adjoint to each other, in rank order, and no byte more than the plan says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.exchange import Exchange, add_into, plan_requests, pointers
from graphtheta.engine.partition.message import MessageLayout

TYPES = (np.float64, np.float32, np.int64, np.int32, np.uint64, np.bool_)
SHAPES = ((), (1,), (3,), (2, 2), (0,), (3, 0))


def requests(size, seed, rows=6, chance=0.5):
    """Masters per rank and, for each rank, the rows it wants of every other, any of them possibly
    none.
    """
    rng = np.random.default_rng(seed)
    counts = [int(rng.integers(0, rows)) for _ in range(size)]
    wanted = [
        [np.flatnonzero(rng.random(counts[q]) < (chance if q != r else 0)) for q in range(size)]
        for r in range(size)
    ]
    return counts, wanted


def columns(n, seed):
    """Columns of every type and shape."""
    rng = np.random.default_rng(seed)
    return {
        f"{np.dtype(t)}{s}": (rng.integers(0, 2 if t is np.bool_ else 9, (n, *s))).astype(t)
        for t in TYPES
        for s in SHAPES
    }


def dot(a, b):
    return sum(float(np.vdot(a[n].astype(np.float64), b[n].astype(np.float64))) for n in a)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10**6), st.booleans(), st.booleans())
def test_adjoint(size, seed, restricted, renumbered):
    counts, wanted = requests(size, seed)

    def program(comm):
        rng = np.random.default_rng([seed, comm.rank])
        n = counts[comm.rank]
        plan = plan_requests(comm, n, wanted[comm.rank])
        if restricted:
            plan = plan.restrict(comm, np.flatnonzero(rng.random(plan.n_halo) < 0.5))
        if renumbered:
            plan = plan.renumbered(rng.permutation(n + 2)[:n], n + 2)
            n += 2
        exchange = Exchange(comm, plan)
        x = {
            name: rng.standard_normal((n, *s))
            for name, s in (("a", ()), ("b", (3,)), ("none", (0,)))
        }
        y = {name: rng.standard_normal((plan.n_halo, *v.shape[1:])) for name, v in x.items()}
        halo = exchange.to_mirrors(x)
        back = {name: np.zeros_like(v) for name, v in x.items()}
        exchange.to_masters_add(y, back)
        assert {n: v.shape for n, v in halo.items()} == {n: v.shape for n, v in y.items()}
        return dot(halo, y), dot(x, back)

    left, right = np.sum(run_simulated(size, program), axis=0)
    assert left == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_type_and_shape_arrives(size):
    counts, wanted = requests(size, size)

    def program(comm):
        exchange = Exchange(comm, plan_requests(comm, counts[comm.rank], wanted[comm.rank]))
        return exchange.to_mirrors(columns(counts[comm.rank], comm.rank))

    for rank, halo in enumerate(run_simulated(size, program)):
        masters = [columns(counts[q], q) for q in range(size)]
        for name, got in halo.items():
            expected = np.concatenate([masters[q][name][wanted[rank][q]] for q in range(size)])
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


def test_restricted_plan_serves_only_what_is_wanted():
    wanted = [
        [np.arange(4) if q != r else np.zeros(0, np.int64) for q in range(3)] for r in range(3)
    ]

    def program(comm):
        plan = plan_requests(comm, 4, wanted[comm.rank])
        keep = np.array([[0, 7], [2, 3, 4], []][comm.rank], np.int64)
        narrow = plan.restrict(comm, keep)
        x = {"v": np.arange(4) + 10 * comm.rank}
        twice = narrow.restrict(comm, np.arange(narrow.n_halo)[1:])
        return (
            Exchange(comm, narrow).to_mirrors(x)["v"],
            Exchange(comm, plan).to_mirrors(x)["v"][keep],
            Exchange(comm, twice).to_mirrors(x)["v"],
            len(narrow.rows),
        )

    found = run_simulated(3, program)
    for narrow, full, twice, _ in found:
        np.testing.assert_array_equal(narrow, full)
        np.testing.assert_array_equal(twice, full[1:])
    assert sum(f[3] for f in found) == 5


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_narrowed_plan_serves_readers_of_active_masters(size, seed):
    counts, wanted = requests(size, seed)

    def program(comm):
        active = np.random.default_rng([seed, comm.rank]).random(counts[comm.rank]) < 0.5
        plan = plan_requests(comm, counts[comm.rank], wanted[comm.rank])
        narrow, halo = plan.narrow(comm, active)
        x = {"on": active, "v": np.arange(counts[comm.rank]) + 100 * comm.rank}
        full = Exchange(comm, plan).to_mirrors(x)
        part = Exchange(comm, narrow).to_mirrors(x)
        np.testing.assert_array_equal(halo, np.flatnonzero(full["on"]))
        np.testing.assert_array_equal(part["v"], full["v"][halo])

    run_simulated(size, program)


def test_masters_take_mirrors_in_rank_order():
    def program(comm):
        wanted = [
            np.array([0]) if comm.rank and q == 0 else np.zeros(0, np.int64) for q in range(4)
        ]
        seen = []
        exchange = Exchange(comm, plan_requests(comm, 1, wanted))
        move = exchange.to_masters_begin({"v": np.full(exchange.plan.n_halo, comm.rank)})
        move.end(lambda rows, part: seen.append((rows.tolist(), part["v"].tolist())))
        return seen

    assert run_simulated(4, program) == [[([0], [1]), ([0], [2]), ([0], [3])], [], [], []]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_bytes_are_rows_times_width_and_one_message_a_pair(size):
    counts, wanted = requests(size, 7, rows=9)

    def program(comm):
        plan = plan_requests(comm, counts[comm.rank], wanted[comm.rank])
        exchange = Exchange(comm, plan)
        x = columns(counts[comm.rank], 0)
        readers = np.count_nonzero(np.diff(plan.send_ptr))
        owners = np.count_nonzero(np.diff(plan.recv_ptr))
        width = sum(int(np.prod(v.shape[1:])) * v.itemsize for v in x.values())
        assert MessageLayout(x).width == width
        before = comm.ledger.snapshot()
        halo = exchange.to_mirrors(x)
        out = comm.ledger.since(before)["other"]
        assert (out["bytes"], out["messages"]) == (len(plan.rows) * MessageLayout(x).width, readers)
        before = comm.ledger.snapshot()
        exchange.to_masters_begin(halo).end(lambda rows, part: None)
        back = comm.ledger.since(before)["other"]
        assert (back["bytes"], back["messages"]) == (plan.n_halo * MessageLayout(x).width, owners)
        before = comm.ledger.snapshot()
        exchange.to_mirrors({"nothing": np.zeros((counts[comm.rank], 0))})
        assert comm.ledger.since(before)["other"]["messages"] == 0

    run_simulated(size, program)


def test_no_mirror_anywhere_sends_nothing():
    def program(comm):
        exchange = Exchange(comm, plan_requests(comm, 2, [np.zeros(0, np.int64)] * 3))
        before = comm.ledger.snapshot()
        halo = exchange.to_mirrors({"v": np.ones((2, 3))})["v"]
        assert exchange.plan.restrict(comm, np.zeros(0, np.int64)) is exchange.plan
        return halo.shape, comm.ledger.since(before)["other"]["messages"]

    assert run_simulated(3, program) == [((0, 3), 0)] * 3


def test_columns_may_change_while_a_move_is_under_way():
    def program(comm):
        other = 1 - comm.rank
        exchange = Exchange(
            comm,
            plan_requests(
                comm, 1, [np.array([0]) if q == other else np.zeros(0, np.int64) for q in range(2)]
            ),
        )
        x = np.array([float(comm.rank)])
        move = exchange.to_mirrors_begin({"v": x})
        x[:] = np.nan
        return float(move.end()["v"][0])

    assert run_simulated(2, program) == [1.0, 0.0]


def test_helpers():
    np.testing.assert_array_equal(pointers([2, 0, 3]), [0, 2, 2, 5])
    np.testing.assert_array_equal(pointers([]), [0])
    into = {"v": np.zeros(3)}
    add_into(into, np.array([2, 0]), {"v": np.array([5.0, 1.0])})
    np.testing.assert_array_equal(into["v"], [1, 0, 5])
