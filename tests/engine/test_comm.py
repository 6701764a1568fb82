"""The contract of a communicator on one rank and on simulated ranks; ``test_start.py`` runs it
under mpiexec.
"""

from __future__ import annotations

import pytest
from comm_contract import CONTRACT

from graphtheta.engine.comm.call_site import collective
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
class TestContract:
    def test_serial(self, check):
        check(SerialComm())

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
    def test_simulated(self, check, size):
        run_simulated(size, check)


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
        "agree",
    ):
        assert (
            getattr(Comm, name)
            .__doc__.rstrip()
            .endswith("Collective: all ranks must call this together.")
        )

    @collective
    def bare() -> None:
        pass

    assert bare.__doc__ == "Collective: all ranks must call this together.\n"
