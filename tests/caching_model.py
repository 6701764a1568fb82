"""Cache policies written plainly, with lists and dictionaries: what the compiled ones are compared
with.
"""

from __future__ import annotations

from typing import Any


class Plain:
    """A cache as a list of keys, in the order that a policy needs.

    A batch is read as the engine reads it: first all hits are found, then all misses are stored.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.keys = list[int]()

    def read(self, batch: list[int]) -> int:
        """Read a batch; returns the number of hits."""
        hits = [key for key in batch if self.holds(key)]
        misses = [key for key in batch if not self.holds(key)]
        for key in hits:
            self.hit(key)
        for key in misses:
            self.store(key)
        return len(hits)

    def holds(self, key: int) -> bool:
        return key in self.keys

    def hit(self, key: int) -> None:
        """Nothing."""

    def store(self, key: int) -> None:
        """Evict the first key of the list, and append this one."""
        if len(self.keys) == self.capacity:
            self.keys.pop(0)
        self.keys.append(key)


class PlainLru(Plain):
    def hit(self, key: int) -> None:
        self.keys.remove(key)
        self.keys.append(key)


class PlainClock(Plain):
    """A ring of slots, with a hand and a bit for each."""

    def __init__(self, capacity: int):
        super().__init__(capacity)
        self.ring: list[Any] = [None] * capacity
        self.used = [False] * capacity
        self.hand = 0

    def holds(self, key: int) -> bool:
        return key in self.ring

    def hit(self, key: int) -> None:
        self.used[self.ring.index(key)] = True

    def store(self, key: int) -> None:
        while self.used[self.hand]:
            self.used[self.hand] = False
            self.hand = (self.hand + 1) % self.capacity
        self.ring[self.hand] = key
        self.hand = (self.hand + 1) % self.capacity


class PlainLfu(Plain):
    """Keys with their number of uses and the time of the last one."""

    def __init__(self, capacity: int):
        super().__init__(capacity)
        self.uses: dict[int, tuple[int, int]] = {}
        self.time = 0

    def holds(self, key: int) -> bool:
        return key in self.uses

    def hit(self, key: int) -> None:
        self.time += 1
        self.uses[key] = self.uses[key][0] + 1, self.time

    def store(self, key: int) -> None:
        self.time += 1
        if len(self.uses) == self.capacity:
            self.uses.pop(min(self.uses, key=lambda k: self.uses[k]))
        self.uses[key] = 1, self.time


class PlainS3(Plain):
    """Two queues and the ghosts of the first."""

    def __init__(self, capacity: int):
        super().__init__(capacity)
        self.small = list[int]()
        self.main = list[int]()
        self.uses = dict[int, int]()
        self.most_small = max(1, round(0.1 * capacity))
        # a ring, in which a removed ghost leaves a gap
        self.ghosts: list[Any] = [None] * max(1, capacity - self.most_small)
        self.next = 0

    def holds(self, key: int) -> bool:
        return key in self.uses

    def hit(self, key: int) -> None:
        self.uses[key] = min(3, self.uses[key] + 1)

    def store(self, key: int) -> None:
        seen = key in self.ghosts
        if seen:
            self.ghosts[self.ghosts.index(key)] = None
        if len(self.uses) == self.capacity:
            self.evict()
        self.uses[key] = 0
        (self.main if seen else self.small).append(key)

    def evict(self) -> None:
        while True:
            if not self.main or len(self.small) >= self.most_small:
                key = self.small.pop(0)
                if self.uses[key] < 2:
                    self.ghosts[self.next] = key
                    self.next = (self.next + 1) % len(self.ghosts)
                    del self.uses[key]
                    return
                self.uses[key] = 0
                self.main.append(key)
            else:
                key = self.main.pop(0)
                if not self.uses[key]:
                    del self.uses[key]
                    return
                self.uses[key] -= 1
                self.main.append(key)


def most_hits(batches: list[list[int]], capacity: int) -> int:
    """The most hits that any cache can have: between two uses of a key it holds the key or not.

    Each pair of successive uses is an interval; at most ``capacity`` intervals may cover a gap
    between batches. Taking intervals by their ends, each if there is room, takes the most.
    """
    last: dict[int, int] = {}
    intervals = []
    for time, batch in enumerate(batches):
        for key in batch:
            if key in last:
                intervals.append((time, -last[key]))
            last[key] = time
    load = [0] * len(batches)
    taken = 0
    for end, begin in sorted(intervals):
        gaps = range(-begin, end)
        if all(load[gap] < capacity for gap in gaps):
            taken += 1
            for gap in gaps:
                load[gap] += 1
    return taken
