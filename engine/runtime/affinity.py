"""How many threads a rank may use, from the cores it may run on and the ranks it shares them with."""
from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from dataclasses import dataclass

from graphtheta.cgroup import cpu_quota

from ..comm.call_site import collective
from ..comm.communicator import Comm


@dataclass(frozen=True)
class Threads:
    """The threads of one rank.

    Attributes:
        count: Threads that dense products and compiled kernels may use, at least 1.
        cores: Cores this rank may run on.
        ranks_on_node: Ranks on this machine.
        crowded: Whether there are more ranks than cores for them, so that a rank that waits must make room.
        blas: Whether BLAS was told to use one thread; it can only be with threadpoolctl installed.
    """

    count: int
    cores: int
    ranks_on_node: int
    crowded: bool
    blas: bool

    def __str__(self) -> str:
        told = "" if self.blas else "; BLAS not limited, install threadpoolctl"
        return f"{self.count} threads per rank ({self.cores} cores, {self.ranks_on_node} ranks on this machine{told})"


@collective
def place_threads(comm: Comm) -> Threads:
    """Choose the number of threads of each rank and hand it to Numba; BLAS gets one, for each of these threads calls it.

    A core that several ranks may use counts for each of them in equal parts, so that pinned and unpinned ranks both
    get their share. A CPU quota of the control group and OMP_NUM_THREADS are upper bounds.

    Args:
        comm: All ranks.

    Returns:
        What was chosen for this rank.
    """
    cores = available_cores()
    neighbours = [others for node, others in comm.all_gather((platform.node(), cores)) if node == platform.node()]
    fair = share(cores, neighbours, cpu_quota(), os.environ.get("OMP_NUM_THREADS", ""))
    count = max(1, int(fair + 1e-6))
    if "numba" in sys.modules:
        numba = sys.modules["numba"]
        numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    else:
        os.environ.setdefault("NUMBA_NUM_THREADS", str(count))
    return Threads(count, len(cores), len(neighbours), fair < 1 - 1e-6, _limit_blas())


def share(cores: list[int], neighbours: list[list[int]], quota: float | None, omp: str) -> float:
    """Cores that fall to one rank.

    Args:
        cores: Cores it may use.
        neighbours: The same for every rank of the machine, this one included.
        quota: CPUs all ranks of the machine may use together, or None.
        omp: Text of OMP_NUM_THREADS; only its first number counts.

    Returns:
        Their number; a fraction if ranks must take turns.
    """
    users = Counter(core for others in neighbours for core in others)
    fair = sum(1.0 / users[core] for core in cores)
    if quota is not None:
        fair = min(fair, quota / len(neighbours))
    first = omp.split(",")[0].strip()
    if first.isdigit() and int(first) > 0:
        fair = min(fair, int(first))
    return fair


def available_cores() -> list[int]:
    """Numbers of the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _limit_blas() -> bool:
    """One thread for BLAS: blocks of rows are spread over threads by us, so that sums do not depend on their number."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return False
    threadpool_limits(limits=1)
    return True
