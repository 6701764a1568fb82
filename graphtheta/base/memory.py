"""Memory of this process, and of the machine, container or Slurm job that it runs in."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from functools import cache

import psutil

from graphtheta.base.cgroup import memory_left, memory_limit


@cache
def total_bytes() -> int:
    """Bytes of memory that processes of this machine, container or Slurm job may use.

    Found once: reading the limits takes half of the time of making a small graph.
    """
    machine = psutil.virtual_memory().total
    limit = memory_limit()
    return machine if limit is None else min(machine, limit)


def available_bytes() -> int:
    """Bytes that they may still allocate."""
    free = psutil.virtual_memory().available
    left = memory_left()
    return free if left is None else min(free, left)


def resident_bytes() -> int:
    """Memory of this process now."""
    return int(psutil.Process().memory_info().rss)


def peak_bytes() -> int:
    """Peak memory of this process so far, or since ``/proc/self/clear_refs`` was written."""
    # psutil does not give it on Linux
    with suppress(OSError, StopIteration), open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))
    # a process inherits this peak from the one that started it
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
