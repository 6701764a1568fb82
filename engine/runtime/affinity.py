"""The number of threads of a rank, from the cores it may run on and the ranks that share them."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from dataclasses import dataclass

from graphtheta.base.cgroup import cpu_quota

from ..comm.communicator import Comm


@dataclass(frozen=True)
class Threads:
    """The threads of one rank.

    Attributes:
        count: Threads that dense products and compiled kernels may use, at least 1.
        cores: Cores this rank may run on.
        ranks_on_node: Ranks on this machine.
        crowded: Whether there are more ranks than cores, so that a waiting rank must yield its
            core.
    """

    count: int
    cores: int
    ranks_on_node: int
    crowded: bool

    def __str__(self) -> str:
        return (
            f"{self.count} threads per rank ({self.cores} cores, {self.ranks_on_node} ranks on this"
            " machine)"
        )


def choose_threads(comm: Comm) -> Threads:
    """Choose the number of threads of this rank for kernels; BLAS gets one thread.

    A core that several ranks may use is divided equally among them, so pinned and unpinned ranks
    both get their share. A CPU quota of the control group and OMP_NUM_THREADS are upper bounds.

    Args:
        comm: All ranks.

    Returns:
        The threads of this rank.

    Collective: all ranks of comm.
    """
    cores = available_cores()
    neighbours = [
        others
        for node, others in comm.all_gather((platform.node(), cores))
        if node == platform.node()
    ]
    fair = share(cores, neighbours, cpu_quota(), os.environ.get("OMP_NUM_THREADS", ""))
    count = max(1, int(fair + 1e-6))
    if "numba" in sys.modules:
        from ...ops.parallel.pool import set_threads

        set_threads(min(count, sys.modules["numba"].config.NUMBA_NUM_THREADS))
    else:
        os.environ.setdefault("NUMBA_NUM_THREADS", str(count))
    # a help text needs no threads
    from threadpoolctl import threadpool_limits

    # the engine divides rows among threads itself, so that sums do not depend on their number
    threadpool_limits(limits=1)
    return Threads(
        count=count,
        cores=len(cores),
        ranks_on_node=len(neighbours),
        crowded=fair < 1 - 1e-6,
    )


def share(cores: list[int], neighbours: list[list[int]], quota: float | None, omp: str) -> float:
    """The share of the cores of a machine that one rank may use.

    Args:
        cores: Cores the rank may run on.
        neighbours: Cores of every rank on the machine, including this one.
        quota: CPUs that all ranks on the machine may use together, or None.
        omp: Text of OMP_NUM_THREADS; only its first number counts.

    Returns:
        Number of cores; a fraction if ranks must take turns.
    """
    users = Counter(core for others in neighbours for core in others)
    fair = sum(1.0 / users[core] for core in cores)
    if quota is not None:
        fair = min(fair, quota / len(neighbours))
    first = omp.split(",")[0].strip()
    if first.isdigit() and int(first) > 0:
        fair = min(fair, int(first))
    return fair


def own_processors(comm: Comm) -> list[int]:
    """Processors that no other rank takes as its own, as many as this rank has threads, or fewer
    if ranks must share.

    Processors that several ranks may use are divided among them. Simulated ranks run one at a
    time, so each has all.

    Args:
        comm: All ranks.

    Collective: all ranks of comm.
    """
    cores = available_cores()
    everyone = comm.all_gather((platform.node(), cores))
    if not comm.takes_threads:
        return cores
    here = {rank: its for rank, (node, its) in enumerate(everyone) if node == platform.node()}
    return dealt(here)[comm.rank][: comm.cores]


def dealt(allowed: dict[int, list[int]]) -> dict[int, list[int]]:
    """Processors of each rank of a machine, no two of them the same.

    Args:
        allowed: Processors that each rank may use.
    """
    users: dict[int, list[int]] = {}
    for rank, cores in allowed.items():
        for core in cores:
            users.setdefault(core, []).append(rank)
    alike: dict[tuple[int, ...], list[int]] = {}
    for core in sorted(users):
        alike.setdefault(tuple(users[core]), []).append(core)
    own: dict[int, list[int]] = {rank: [] for rank in allowed}
    for ranks, cores in alike.items():
        for place, rank in enumerate(ranks):
            begin = place * len(cores) // len(ranks)
            end = (place + 1) * len(cores) // len(ranks)
            own[rank] += cores[begin:end]
    return {rank: sorted(cores) for rank, cores in own.items()}


def available_cores() -> list[int]:
    """Numbers of the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
