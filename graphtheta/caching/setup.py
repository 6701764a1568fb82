"""The caches of a run: of features that other workers hold, and of features on disk."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from graphtheta.caching.foresight import Foresight
from graphtheta.caching.scout import Scout
from graphtheta.console import amount
from graphtheta.described import name_and_options, options_of
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.cached import CachedColumn, CachePolicy, RowCache
from graphtheta.engine.store.column import Column
from graphtheta.engine.train.fetch import Features
from graphtheta.engine.view.strategy import Strategy
from graphtheta.errors import ConfigError
from graphtheta.job.job import Job
from graphtheta.job.sizes import rows_of
from graphtheta.models.user import accepted


@dataclass(frozen=True)
class Caches:
    """The caches of a run, which are empty when it begins or resumes.

    Attributes:
        features: Fetches the features of views that a worker computes alone.
        foresight: Tells the caches what is read next; None if no policy asks.
        caches: All of them.
        line: What they hold, for the log; empty if the job asks for none.
    """

    features: Features
    foresight: Foresight | None
    caches: list[RowCache]
    line: str

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they may hold."""
        return sum(cache.nbytes for cache in self.caches)

    def counts(self) -> np.ndarray:
        """Rows that were found so far and rows that were not, on this worker, [2] int64."""
        total = [(cache.counts.hits, cache.counts.misses) for cache in self.caches]
        return np.array(total, np.int64).reshape(-1, 2).sum(axis=0)


def with_cached_columns(job: Job, partition: Partition) -> Partition:
    """The partition, with columns that a cache can be attached to where rows are not in memory.

    Raises:
        ConfigError: The job asks for a cache, and the features are sparse.
    """
    if job.feature_cache == "0":
        return partition
    for name in partition.node.wide():
        if partition.node.column(name).sparse:
            raise ConfigError(f"feature_cache={job.feature_cache}: the node column {name!r} is sparse, and a cache holds rows of one "
                              "length; give it as a dense array, or drop --feature-cache")
    outside = {name: CachedColumn(name, column) for name, column in _wide(partition).items() if not _in_memory(column)}
    return partition.overlay(outside, {})


def make_caches(job: Job, strategy: Strategy, views_per_step: int, independent: bool) -> Caches:
    """The caches of a job; those of columns are attached to them.

    Args:
        job: The job.
        strategy: Makes the batches, from a partition as ``with_cached_columns`` returns it.
        views_per_step: Views of a step.
        independent: Whether each worker computes views of its own.

    Raises:
        ConfigError: Unknown policy or option; on all workers together.

    Collective: all ranks of the strategy's partition.
    """
    partition = strategy.partition
    if job.feature_cache == "0":
        return Caches(Features(partition), None, [], "")
    wide = _wide(partition)
    outside = {name: column for name, column in wide.items() if isinstance(column, CachedColumn)}
    for column in outside.values():
        column.cache = None
    scout = Scout(strategy, views_per_step, independent, bool(outside))
    # a wrong name is an error also where no cache is used
    make_policy(job.cache_policy, 0, scout)
    cached: Mapping[str, Column] = wide if independent else outside
    if not cached:
        return Caches(Features(partition), None, [], "feature cache: not used, as each worker has the features that it reads in its memory")
    most = partition.n_nodes if independent else int(partition.halo_comm.all_max(np.array(partition.n_masters)))
    width = sum(prod(column.shape[1:]) * column.dtype.itemsize for column in cached.values())
    capacity = min(rows_of(job.feature_cache, width, partition.n_nodes), most)
    features, caches = Features(partition), []
    if independent:
        caches = [RowCache(capacity, make_policy(job.cache_policy, capacity, scout), wide)]
        features = Features(partition, caches[0], bool(outside))
    else:
        for name, column in outside.items():
            column.cache = RowCache(capacity, make_policy(job.cache_policy, capacity, scout), {name: column})
            caches.append(column.cache)
    window = max((cache.policy.window for cache in caches if cache.policy is not None), default=0)
    what = "other workers" if independent and partition.halo_comm.size > 1 else "files"
    line = (f"feature cache: up to {capacity:,} rows of {what} per worker, {amount(capacity * width)}, policy {job.cache_policy}")
    return Caches(features, Foresight(scout, caches, window) if window else None, caches, line)


def make_policy(text: str, capacity: int, scout: Scout) -> CachePolicy | None:
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
    from graphtheta.caching.registry import CACHE_POLICIES

    name, written = name_and_options(text)
    made = CACHE_POLICIES.find(name)
    offered = {"capacity": capacity, "scout": scout}
    taken = accepted(f"the cache policy {made.name}", made, offered)
    options = options_of(made, text, "cache_policy", written, tuple(offered))
    return made(**taken, **options) if capacity else None


def _wide(partition: Partition) -> dict[str, Column]:
    return {name: partition.node.column(name) for name in partition.node.wide()}


def _in_memory(column: Column) -> bool:
    """Whether the memory of a column holds all its rows."""
    return column.nbytes >= prod(column.shape) * column.dtype.itemsize
