"""Cache policies by name."""

from __future__ import annotations

from graphtheta.base.registry import Registry, named_class
from graphtheta.engine.store.cached import CachePolicy
from graphtheta.train.reuse.caching.offline import Belady, ByDegree, ByProbability
from graphtheta.train.reuse.caching.policies import Clock, Fifo, Lfu, Lru, S3Fifo

# The constructor of a policy receives those of these arguments that it names: ``capacity``, the
# number of slots, and ``scout``, which tells what batches will read
CACHE_POLICIES: Registry[type[CachePolicy]] = Registry(
    "cache policy",
    named_class(CachePolicy),
    (),
    (Fifo, Lru, Lfu, Clock, S3Fifo, ByDegree, ByProbability, Belady),
)
