"""Mistakes between ranks are errors in simulation: never a hang, never silently right."""

from __future__ import annotations

import contextvars

import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import CommError, DataError, PeerError


def test_results_in_rank_order_and_arguments_passed():
    assert run_simulated(3, lambda comm, a, b: (comm.rank, comm.size, a, b), 1, b=2) == [
        (q, 3, 1, 2) for q in range(3)
    ]


def test_one_rank_runs_at_a_time_in_a_fixed_order():
    def program(comm):
        for step in range(3):
            order.append((step, comm.rank))
            comm.barrier()

    seen = []
    for _ in range(2):
        order = []
        run_simulated(3, program)
        seen.append(order)
    assert seen[0] == seen[1]
    assert [rank for step, rank in seen[0] if step == 0] == [0, 1, 2]


def test_each_rank_has_its_own_context():
    variable = contextvars.ContextVar("variable", default="outside")

    def program(comm):
        first = variable.get()
        variable.set(f"rank {comm.rank}")
        comm.barrier()
        return first, variable.get()

    assert run_simulated(2, program) == [("outside", "rank 0"), ("outside", "rank 1")]
    assert variable.get() == "outside"


def test_error_keeps_type_traceback_and_says_where():
    def program(comm):
        if comm.rank == 1:
            raise DataError("node 3 has no label")
        try:
            comm.barrier()
        except PeerError as error:
            peers.append(str(error))
            raise

    peers = []
    with pytest.raises(DataError, match="node 3 has no label") as caught:
        run_simulated(3, program)
    assert caught.traceback[-1].name == "program"
    if hasattr(caught.value, "add_note"):  # Python 3.11
        assert caught.value.__notes__ == ["on simulated rank 1"]
    assert len(peers) == 2 and all("rank 1 failed with DataError: node 3" in text for text in peers)


def test_a_rank_whose_message_has_come_goes_on_after_a_failure():
    def program(comm):
        comm.barrier()
        if comm.rank == 0:
            raise ValueError("late")
        reached.append(comm.rank)

    reached = []
    with pytest.raises(ValueError, match="late"):
        run_simulated(3, program)
    assert sorted(reached) == [1, 2]


def test_different_collectives():
    def program(comm):
        comm.all_sum(np.ones(2)) if comm.rank == 0 else comm.barrier()

    line = (
        r"(?s)rank 0: operation 1, all_sum\(float64, \(2,\)\) at .*test_simulate.py:\d+ in"
        r" program.*rank 1: operation 1, barrier"
    )
    with pytest.raises(CommError, match=line):
        run_simulated(2, program)


@pytest.mark.parametrize(
    "other", [np.ones(3), np.ones((1, 2)), np.ones(2, np.float32)], ids=["length", "shape", "dtype"]
)
def test_different_arrays_in_one_collective(other):
    with pytest.raises(CommError, match="ranks called different operations"):
        run_simulated(2, lambda comm: comm.all_sum(other if comm.rank else np.ones(2)))


def test_different_roots():
    with pytest.raises(CommError, match=r"(?s)broadcast\(0\).*broadcast\(1\)"):
        run_simulated(2, lambda comm: comm.broadcast(1, root=comm.rank))


def test_rank_that_returned_early():
    def program(comm):
        if comm.rank != 1:
            comm.barrier()

    line = (
        r"(?s)rank 0: waits in operation 1, barrier\(\) at .*rank 1: has returned\n.*rank 2: waits"
        r" in operation 1, barrier"
    )
    with pytest.raises(CommError, match=line):
        run_simulated(3, program)


def test_missing_send():
    def program(comm):
        if comm.rank == 0:
            comm.move_begin([], [(1, np.empty(4))], 1).end()
        else:
            comm.barrier()

    line = (
        r"(?s)rank 0: waits for 4 float64 from rank 1 \(to_mirrors\) at .*test_simulate.*rank 1:"
        r" waits in"
    )
    with pytest.raises(CommError, match=line):
        run_simulated(2, program)


def test_missing_receive():
    with pytest.raises(
        CommError, match=r"rank 0 sent 4 float64 to rank 1 \(move 33\), which did not receive them"
    ):
        run_simulated(
            2,
            lambda comm: (
                comm.move_begin([(1, np.ones(4))], [], 33).end() if comm.rank == 0 else None
            ),
        )


def test_missing_end():
    def program(comm):
        comm.move_begin([(1 - comm.rank, np.ones(4))], [(1 - comm.rank, np.empty(4))], 1)

    with pytest.raises(
        CommError, match=r"rank 0 returned without end\(\) of the move begun at .*test_simulate"
    ):
        run_simulated(2, program)


@pytest.mark.parametrize("box", [np.empty(3), np.empty(4, np.int64)], ids=["size", "dtype"])
def test_receiver_expects_something_else(box):
    def program(comm):
        (
            comm.move_begin([(1, np.ones(4))], [], 1).end()
            if comm.rank == 0
            else comm.move_begin([], [(0, box.copy())], 1).end()
        )

    with pytest.raises(CommError, match="got 4 float64"):
        run_simulated(2, program)


def test_buffers_are_out_of_bounds_between_begin_and_end():
    def changes_what_it_sends(comm):
        x = np.zeros(3)
        pending = comm.move_begin([(1 - comm.rank, x)], [(1 - comm.rank, np.empty(3))], 1)
        x += 1
        pending.end()

    def reads_too_early(comm):
        x = np.full(3, 1.0)
        box = np.zeros(3)
        pending = comm.move_begin([(1 - comm.rank, x)], [(1 - comm.rank, box)], 1)
        early = box.copy()
        pending.end()
        return early, box

    with pytest.raises(CommError, match="changed before end"):
        run_simulated(2, changes_what_it_sends)
    for early, box in run_simulated(2, reads_too_early):
        assert np.isnan(early).all() and (box == 1).all()


def test_runs_inside_a_rank():
    inner = run_simulated(
        2, lambda comm: sum(run_simulated(3, lambda c: int(c.all_sum(np.array(comm.rank)))))
    )
    assert inner == [0, 9]


def test_needs_a_rank():
    with pytest.raises(CommError, match="at least one rank"):
        run_simulated(0, lambda comm: None)
