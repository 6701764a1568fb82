"""Gradients of all workers are added up while backward goes on."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.ops import Parameter, Tape, add, mul, square
from graphtheta.ops import sum as total_of
from graphtheta.ops.autodiff.checkpoint import run_segment

# less than a bucket, several of them in one, and one that goes in two rounds
SIZES = [(3,), (100, 7), (20_000,), (), (300_000,), (5, 5)]


def _parameters():
    return [Parameter(np.zeros(shape), name=f"w{i}") for i, shape in enumerate(SIZES)]


def _passed(rank, parameters):
    """A pass that reads each parameter twice, the last one never; its gradients are 3 (1 + rank) x
    number.
    """
    with Tape() as tape:
        out = None
        for number in (1, 2):
            for i, p in enumerate(parameters[:-1]):
                term = mul(p, float(number * (1 + rank) * (i + 1)))
                for _ in p.shape:
                    term = total_of(term, axis=-1)
                out = term if out is None else add(out, term)
    return tape, out


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_sums_are_those_of_all_sum(size):
    def program(comm):
        rng = np.random.default_rng(comm.rank)
        parameters = _parameters()
        grads = [rng.standard_normal(p.shape) for p in parameters]
        under_way = GradientSum(comm, parameters)
        for p, g in reversed(list(zip(parameters, grads, strict=True))):
            under_way.add(p, g)
        found = under_way.finish(None)
        for x, g in zip(found, grads, strict=True):
            np.testing.assert_allclose(x, comm.all_sum(g), rtol=1e-12, atol=1e-12)
            assert x.shape == g.shape
        return [x.tobytes() for x in found]

    first, *others = run_simulated(size, program)
    assert all(found == first for found in others)


@pytest.mark.parametrize("size", [2, 3, 6])
def test_ranks_complete_gradients_in_orders_of_their_own(size):
    def program(comm):
        rng = np.random.default_rng(comm.rank)
        parameters = [Parameter(np.zeros(shape)) for shape in [*SIZES, (300_000,), (), (3,), (3,)]]
        gradients = [np.full(p.shape, i + 1.0) for i, p in enumerate(parameters)]
        under_way = GradientSum(comm, parameters)
        # some are never added: backward did not reach them on this rank
        for i in rng.permutation(len(parameters))[comm.rank :]:
            under_way.add(parameters[i], gradients[i])
        missing = dict(zip(parameters, gradients, strict=True))
        return [x.reshape(-1)[:1] for x in under_way.finish(SimpleNamespace(of=missing.get))]

    for sums in run_simulated(size, program):
        np.testing.assert_array_equal(np.concatenate(sums), size * np.arange(1, len(sums) + 1))


@pytest.mark.parametrize("size", [2, 3, 6])
def test_ranks_begin_sums_before_or_after_messages_of_layers(size):
    def program(comm):
        parameters = [Parameter(np.zeros(3)), Parameter(np.zeros(40_000))]
        under_way = GradientSum(comm, parameters)
        for turn in range(4):
            for i, p in enumerate(parameters):
                if turn == (comm.rank + i) % 4:
                    under_way.add(p, np.full(p.shape, 1.0 + comm.rank))
            received = np.empty(1)
            comm.move_begin(
                [((comm.rank + 1) % size, np.array([10.0 * turn + comm.rank]))],
                [((comm.rank - 1) % size, received)],
                Tag.TO_MASTERS,
            ).end()
            assert received == 10 * turn + (comm.rank - 1) % size
            assert comm.all_sum(np.ones(1)) == size
        return [x[0] for x in under_way.finish(SimpleNamespace(of=lambda p: None))]

    for sums in run_simulated(size, program):
        assert sums == [size * (size + 1) / 2] * 2


@pytest.mark.parametrize("size", [1, 3])
def test_a_gradient_leaves_when_nothing_reads_its_parameter_any_more(size):
    def program(comm):
        parameters = _parameters()
        order = []
        tape, out = _passed(comm.rank, parameters)
        under_way = GradientSum(comm, parameters)

        def final(p, g):
            order.append(p.name)
            np.testing.assert_allclose(g, 3 * (1 + comm.rank) * (1 + int(p.name[1:])))
            under_way.add(p, g)

        found = under_way.finish(tape.backward(out, final=final))
        ranks = comm.size * (comm.size + 1) / 2
        for i, x in enumerate(found[:-1]):
            np.testing.assert_allclose(x, 3 * ranks * (i + 1))
        assert not found[-1].any()
        return order

    for order in run_simulated(size, program):
        assert order == [f"w{i}" for i in range(len(SIZES) - 2, -1, -1)]


def test_what_a_piece_reads_is_final_when_the_piece_is_passed():
    p, q, order = Parameter(np.ones(2), name="p"), Parameter(np.ones(2), name="q"), []
    with Tape() as tape:
        made = []

        def once():
            made.append(square(mul(p, q)))
            return [made[-1]]

        run_segment(once, once)
        out = add(mul(made[0], q), q)
        grads = tape.backward(out, final=lambda x, g: order.append((x.name, g.copy())))
    assert sorted(name for name, _ in order) == ["p", "q"]
    for name, g in order:
        np.testing.assert_array_equal(g, grads.of({"p": p, "q": q}[name]))


def test_the_order_is_that_of_the_operations_also_without_names():
    """Ranks with parameters in different orders would add gradients of different parameters."""
    parameters = [Parameter(np.full(2, float(i))) for i in range(30)]
    orders = []
    for _ in range(2):
        made, order = [], []
        with Tape() as tape:

            def once(made=made):
                out = parameters[0]
                for p in parameters[1:]:
                    out = mul(out, p)
                made.append(out)
                return [out]

            run_segment(once, once)
            tape.backward(made[0], final=lambda p, g, order=order: order.append(int(p.value[0])))
        orders.append(order)
    assert orders == [list(range(30))] * 2


def test_without_a_gradient_anywhere_there_are_zeros():
    def program(comm):
        parameters = _parameters()
        tape, out = _passed(comm.rank, parameters[:2])
        grads = tape.backward(out) if comm.rank else Tape().backward(mul(parameters[0], 0.0))
        return [float(np.abs(x).sum()) for x in GradientSum(comm, parameters).finish(grads)]

    first, second = run_simulated(2, program)
    assert first == second and not any(first[1:])
