"""Cache policies by name."""

from __future__ import annotations

from inspect import isclass
from typing import Any

from graphtheta.base.registry import Registry
from graphtheta.engine.store.cached import CachePolicy
from graphtheta.train.reuse.caching.known import Belady, Degree, Probability
from graphtheta.train.reuse.caching.policies import Clock, Fifo, Lfu, Lru, S3Fifo


def is_policy(x: Any) -> bool:
    """Whether x is a class of cache policies."""
    return isclass(x) and issubclass(x, CachePolicy) and isinstance(getattr(x, "name", None), str)


# The constructor of a policy receives those of these arguments that it names: ``capacity``, the
# number of slots, and ``scout``, which tells what batches will read
CACHE_POLICIES: Registry[type[CachePolicy]] = Registry(
    "cache policy", is_policy, (), (Fifo, Lru, Lfu, Clock, S3Fifo, Degree, Probability, Belady)
)
