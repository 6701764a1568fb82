"""The contract of a communicator on one rank and on simulated ranks; ``test_start.py`` runs it
under mpiexec.
"""

from __future__ import annotations

import pytest
from comm_contract import CONTRACT

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import CommError, DataError, PeerError


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
class TestContract:
    def test_serial(self, check):
        check(SerialComm())

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
    def test_simulated(self, check, size):
        run_simulated(size, check)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), KeyboardInterrupt(), OSError(28, "full")]
)
def test_ranks_do_not_wait_for_one_with_another_error(size, error):
    seen = {}

    def program(comm: Comm) -> None:
        try:
            with comm.agreed():
                if comm.rank == size - 1:
                    raise error
        except BaseException as raised:
            seen[comm.rank] = raised
            raise

    with pytest.raises(type(error)) as caught:
        run_simulated(size, program)
    assert caught.value is error and seen.pop(size - 1) is error
    assert len(seen) == size - 1 and all(type(other) is PeerError for other in seen.values())


def test_a_message_in_a_block_is_named_if_a_rank_fails_before_it():
    def program(comm: Comm) -> None:
        with comm.agreed():
            if comm.rank == 0:
                raise DataError("row 7 is bad")
            comm.barrier()

    with pytest.raises(CommError, match="called different operations") as caught:
        run_simulated(2, program)
    assert "agreed()" in str(caught.value) and "barrier()" in str(caught.value)


def test_collective_is_said_in_the_docstring():
    for name in (
        "barrier",
        "all_sum",
        "all_max",
        "all_min",
        "all_gather",
        "broadcast",
        "gather_rows",
        "all_to_all",
        "agreed",
    ):
        assert getattr(Comm, name).__doc__.rstrip().endswith("Collective: all ranks.")
