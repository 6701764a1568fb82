"""Functions that share their messages get what each would get alone, whatever they do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from comm_contract import CONTRACT

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import CommError
from graphtheta.train.reuse.macrobatch.merged import MergedComm


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("size", [1, 3])
def test_outside_of_functions_it_is_the_communicator_inside(check, size):
    run_simulated(size, lambda comm: check(MergedComm(comm)))


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
def test_functions_keep_the_contract(check):
    def program(comm):
        merged = MergedComm(comm)
        merged.together([partial(check, merged) for _ in range(3)])

    run_simulated(3, program)


def rounds(comm, number):
    """Operations of all kinds; numbers of rounds, and what is sent, differ between functions."""
    found = []
    rng = np.random.default_rng(10 * comm.rank + number)
    for i in range(number + 1):
        found.append(comm.all_sum(np.arange(5.0) * (number + i) + comm.rank))
        found.append(comm.all_max(np.full(9000, number * comm.rank)))
        found += comm.all_to_all(
            [rng.integers(0, 99, rng.integers(0, 4)) for _ in range(comm.size)]
        )
        found.append(comm.broadcast(np.arange(number + 3) * comm.rank, root=i % comm.size))
        if number % 2:
            to = (comm.rank + 1) % comm.size
            fro = (comm.rank - 1) % comm.size
            into = np.zeros(6, np.int32)
            pending = comm.move_begin(
                [(to, np.arange(number, dtype=np.int32))], [(fro, into)], Tag.ROWS, at_most=True
            )
            found.append(comm.all_gather((number, i)))
            pending.end()
            found.append(into[:number])
    return found


def test_functions_of_different_lengths_share_their_messages():
    def program(comm, together):
        merged = MergedComm(comm)
        before = comm.ledger.snapshot()["other"]
        work = [partial(rounds, merged, number) for number in range(4)]
        found = merged.together(work) if together else [function() for function in work]
        after = comm.ledger.snapshot()["other"]
        return (
            found,
            [int(after[field] - before[field]) for field in ("messages", "bytes")],
            merged.alone.tolist(),
        )

    for one, (same, (messages, n_bytes), alone) in zip(
        run_simulated(3, program, False), run_simulated(3, program, True), strict=True
    ):
        assert repr(same) == repr(one[0])
        # as many as the longest function alone, and moves of several kinds in one
        assert alone == one[1] and messages < 0.7 * alone[0] and n_bytes < 1.3 * alone[1]


def test_functions_of_functions_share_their_messages_too():
    def program(comm):
        merged = MergedComm(comm)

        def inner(group, together):
            work = [partial(rounds, merged, number) for number in group]
            return merged.together(work) if together else [function() for function in work]

        sent = [comm.ledger.snapshot()["other"]["messages"]]
        one = [inner(group, False) for group in ((2, 3), (2, 3))]
        sent.append(comm.ledger.snapshot()["other"]["messages"])
        found = merged.together([partial(inner, group, True) for group in ((2, 3), (2, 3))])
        sent.append(comm.ledger.snapshot()["other"]["messages"])
        return (
            repr(one) == repr(found),
            np.diff(sent).tolist(),
            merged.alone.tolist(),
            merged.merged.tolist(),
        )

    for same, (apart, together), alone, sent in run_simulated(3, program):
        # those that each group merges count as what it sends alone
        assert same and together == sent[0] < 0.6 * alone[0] and alone[0] < apart


def test_an_error_of_one_function_stops_the_others():
    def program(comm):
        merged = MergedComm(comm)
        stopped = []

        def waits(number):
            try:
                for _ in range(9):
                    merged.barrier()
                    if number == 1:
                        raise KeyError("this one")
            finally:
                stopped.append(number)

        with pytest.raises(KeyError, match="this one"):
            merged.together([partial(waits, number) for number in range(3)])
        assert sorted(stopped) == [0, 1, 2]
        assert comm.all_sum(np.array(1)) == 2

    run_simulated(2, program)


def test_a_message_of_another_size_is_an_error():
    def program(comm):
        merged = MergedComm(comm)

        def move():
            other = 1 - comm.rank
            merged.move_begin(
                [(other, np.zeros(2 + comm.rank))], [(other, np.zeros(2))], Tag.TO_MIRRORS
            ).end()

        merged.together([move, move])

    with pytest.raises(CommError):
        run_simulated(2, program)
