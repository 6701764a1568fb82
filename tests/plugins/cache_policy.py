"""A cache policy that evicts at random."""

import numpy as np

import graphtheta as gt


@gt.CACHE_POLICIES.add
class Shuffled(gt.CachePolicy):
    """Evicts a random row."""

    name = "shuffled"

    def __init__(self, capacity, seed: int = 0):
        self.capacity = capacity
        self.filled = 0
        self.rng = np.random.default_rng(seed)

    def place(self, keys):
        slots = self.rng.integers(0, self.capacity, len(keys))
        # empty slots first
        free = np.arange(self.filled, min(self.filled + len(keys), self.capacity))
        slots[: len(free)] = free
        self.filled += len(free)
        return slots.astype(np.int32)
