"""The caches of a run: of features that other workers hold, and of features on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from graphtheta.base.console import amount
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.cached import CachedColumn, CachePolicy, RowCache
from graphtheta.engine.store.column import Column, coded
from graphtheta.engine.store.slots import Slots
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.train.fetch import Features
from graphtheta.run.job.job import Job
from graphtheta.run.job.sizes import rows_of
from graphtheta.train.reuse.caching.foresight import Foreseeing, Foresight
from graphtheta.train.reuse.caching.relay import Agents, MachineCache
from graphtheta.train.reuse.caching.scout import MachineScout, Reader, Scout
from graphtheta.train.reuse.caching.shared_memory import share

# of the rows of a sparse column, so many fit into a slot; they are estimated from some rows of each
# worker
SHARE_OF_ROWS = 0.99
MEASURED_ROWS = 4096


@dataclass(frozen=True)
class Caches:
    """The caches of a run, which are empty when it begins or resumes.

    Attributes:
        features: Fetches the features of views that a worker computes alone.
        foresight: Tells the caches what is read next; None if no policy asks.
        caches: Those of this worker alone.
        machine: That of this worker's machine; None if there is none.
        line: What they hold, for the log; empty if the job asks for none.
    """

    features: Features
    foresight: Foresight | None = None
    caches: list[RowCache] = field(default_factory=list)
    machine: MachineCache | None = None
    line: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they may hold."""
        return sum(cache.nbytes for cache in (*self.caches, *self._shared))

    @property
    def _shared(self) -> list[RowCache]:
        return [] if self.machine is None else [self.machine.cache]

    def counts(self) -> np.ndarray:
        """Rows that were found so far and rows that were not, on this worker, [2] int64."""
        return _counts(self.caches)

    def machine_counts(self) -> np.ndarray:
        """The same for the rows of other machines that this worker looked up for its own, [2]
        int64.
        """
        return _counts(self._shared)


def _counts(caches: Sequence[RowCache]) -> np.ndarray:
    total = [(cache.counts.hits, cache.counts.misses) for cache in caches]
    return np.array(total, np.int64).reshape(-1, 2).sum(axis=0)


def with_cached_columns(job: Job, partition: Partition) -> Partition:
    """The partition, with columns that a cache can be attached to where rows are not in memory.

    They are the same columns on all workers, also on one without rows, since policies communicate.

    Collective: all ranks of the partition.
    """
    if job.feature_cache == "0":
        return partition
    wide = _wide(partition)
    outside = partition.halo_comm.all_max(
        np.array([not _in_memory(x) for x in wide.values()], bool)
    )
    return partition.overlay(
        {
            name: CachedColumn(name, column)
            for (name, column), cached in zip(wide.items(), outside, strict=True)
            if cached
        },
        {},
    )


def make_caches(job: Job, strategy: Strategy, views_per_step: int, independent: bool) -> Caches:
    """The caches of a job; those of columns are attached to them.

    Args:
        job: The job.
        strategy: Makes the batches, from a partition as ``with_cached_columns`` returns it.
        views_per_step: Views of a step.
        independent: Whether each worker computes views of its own.

    Raises:
        ConfigError: Unknown policy or option; on all workers together.
        MemoryLimitError: The workers of a machine cannot share so much memory; on all workers
            together.

    Collective: all ranks of the strategy's partition.
    """
    partition = strategy.partition
    if job.feature_cache == job.machine_cache == "0":
        return Caches(Features(partition))
    wide = {name: partition.node.coded(name).column for name in partition.node.wide()}
    outside = {
        name: column
        for name, column in _wide(partition).items()
        if isinstance(column, CachedColumn)
    }
    for column in outside.values():
        column.cache = None
    scout = Scout(strategy, views_per_step, independent, bool(outside))
    # a wrong name is an error also where no cache is used
    make_policy(job.cache_policy, 0, scout)
    longest = _longest(partition)
    caches, line = _own(
        job=job,
        partition=partition,
        wide=wide if independent else {},
        outside=outside,
        longest=longest,
        scout=scout,
    )
    machine = None
    if independent and job.machine_cache != "0":
        machine, more = _of_machine(
            job=job, partition=partition, wide=wide, longest=longest, scout=scout
        )
        line = f"{line}; {more}" if line else more
    features = Features(
        partition, caches[0] if independent and caches else None, bool(outside), machine
    )
    windows = [
        cache.policy.window
        for cache in (*caches, *([] if machine is None else [machine.cache]))
        if cache.policy is not None
    ]
    foreseeing: list[Foreseeing] = [*caches, *([] if machine is None else [machine])]
    foresight = Foresight(scout, foreseeing, max(windows)) if any(windows) else None
    return Caches(features=features, foresight=foresight, caches=caches, machine=machine, line=line)


def _own(
    job: Job,
    partition: Partition,
    wide: Mapping[str, Column],
    outside: Mapping[str, CachedColumn],
    longest: Mapping[str, int],
    scout: Scout,
) -> tuple[list[RowCache], str]:
    """The caches of this worker alone, and what they hold.

    Args:
        wide: Columns that workers fetch from each other, in their narrower form; none in
            cooperative mode.
        outside: Columns that are not in memory; their caches are attached in cooperative mode.
        longest: Most entries of a row of each sparse column that a cache holds.

    Collective: all ranks of the partition.
    """
    cached = wide or {name: column.coded.column for name, column in outside.items()}
    if job.feature_cache == "0":
        return [], ""
    if not cached:
        return (
            [],
            "feature cache: not used, as each worker has the features that it reads in its memory",
        )
    most = (
        partition.n_nodes
        if wide
        else int(partition.halo_comm.all_max(np.array(partition.n_masters)))
    )
    width = Slots.row_bytes(cached, longest)
    capacity = min(rows_of(job.feature_cache, width, partition.n_nodes), most)
    caches = []
    for columns in [wide] if wide else [{name: column} for name, column in cached.items()]:
        lengths = {name: n for name, n in longest.items() if name in columns}
        caches.append(
            RowCache(
                capacity,
                make_policy(job.cache_policy, capacity, scout),
                Slots(capacity, columns, lengths),
            )
        )
        if not wide:
            outside[next(iter(columns))].cache = caches[-1]
    what = "other workers" if wide and partition.halo_comm.size > 1 else "files"
    return (
        caches,
        (
            f"feature cache: up to {capacity:,} rows of {what} per worker,"
            f" {amount(capacity * width)}, policy {job.cache_policy}"
        ),
    )


def _of_machine(
    job: Job,
    partition: Partition,
    wide: Mapping[str, Column],
    longest: Mapping[str, int],
    scout: Scout,
) -> tuple[MachineCache | None, str]:
    """The cache of this worker's machine, and what it holds; None if there is only one machine.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    if not wide or len(np.unique(comm.machines)) == 1:
        return None, "machine cache: not used, as all workers are on one machine"
    agents = Agents(comm)
    masters = np.array(comm.all_gather(partition.n_masters))
    mine = int(masters[agents.far & (agents.asked == comm.rank)].sum())
    asked = rows_of(job.machine_cache, Slots.row_bytes(wide, longest), partition.n_nodes)
    # policies communicate, so all workers have one, or none
    capacity = min(-(-asked // len(agents.mates)), max(mine, 1))
    capacities = np.array(comm.all_gather(capacity))[agents.mates].tolist()
    parts = share(comm, Slots.room(capacity, wide, longest))
    slots = [Slots(n, wide, longest, part) for n, part in zip(capacities, parts, strict=True)]
    slots_here = slots[int(np.searchsorted(agents.mates, comm.rank))]
    policy = make_policy(job.cache_policy, capacity, MachineScout(scout, agents))
    line = (
        f"machine cache: up to {sum(capacities):,} rows of other machines in memory that"
        f" {len(agents.mates)} workers share, {amount(sum(x.nbytes for x in slots))}, policy"
        f" {job.cache_policy}"
    )
    return MachineCache(partition, agents, RowCache(capacity, policy, slots_here), slots), line


def _longest(partition: Partition) -> dict[str, int]:
    """Most entries of a row of each sparse column that a slot takes: of nearly all rows, not of
    all, as a few may be very long.

    Collective: all ranks of the partition.
    """
    longest = {}
    for name, column in _wide(partition).items():
        if coded(column).column.sparse:
            some = np.unique(
                np.linspace(
                    0, partition.n_masters - 1, min(MEASURED_ROWS, partition.n_masters)
                ).astype(np.int64)
            )
            lengths = np.diff(partition.node.read(name, some).indptr)
            most = int(np.quantile(lengths, SHARE_OF_ROWS, method="higher")) if len(lengths) else 0
            longest[name] = max(1, int(partition.halo_comm.all_max(np.array(most))))
    return longest


def make_policy(text: str, capacity: int, scout: Reader) -> CachePolicy | None:
    """A policy for so many slots, None for no slot.

    Args:
        text: ``NAME:field=value,...``, with a name in ``gt.CACHE_POLICIES`` or FILE.py:NAME.
        capacity: Slots.
        scout: Tells what batches will read.

    Raises:
        ConfigError: Unknown name, unknown option, or a value of another type.

    Collective: all ranks of the scout's partition.
    """
    # numba takes longer to import than many programs to run
    from graphtheta.train.reuse.caching.registry import CACHE_POLICIES

    kind, named, options = CACHE_POLICIES.described(
        text, "cache_policy", {"capacity": capacity, "scout": scout}
    )
    return kind(**named, **options) if capacity else None


def _wide(partition: Partition) -> dict[str, Column]:
    return {name: partition.node.column(name) for name in partition.node.wide()}


def _in_memory(column: Column) -> bool:
    """Whether the memory of a column holds all its rows."""
    narrow = coded(column).column
    # sparse rows may have no entries
    return narrow.nbytes >= (1 if narrow.sparse else prod(narrow.shape) * narrow.dtype.itemsize)
