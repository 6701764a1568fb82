"""A node partitioner: moves nodes to the worker of most of their neighbours."""

from dataclasses import dataclass

import numpy as np

import graphtheta as gt


@gt.PARTITIONERS.add
@dataclass(frozen=True)
class Majority(gt.Partitioner):
    """Deals nodes out in turn, then moves each to the worker of most of its neighbours while that
    has room.
    """

    name = "majority"
    slack: float = 0.1
    sweeps: int = 3

    def assign(self, source, comm):
        n, size = source.n_nodes, comm.size
        room = (1 + self.slack) * n / size
        chunks = list(source.chunks())
        near = np.concatenate([end for c in chunks for end in (c.src, c.dst)])
        far = np.concatenate([end for c in chunks for end in (c.dst, c.src)])
        far = far[np.argsort(near, kind="stable")]
        start = np.searchsorted(np.sort(near), np.arange(n + 1))

        owner = np.arange(n) % size
        load = np.bincount(owner, minlength=size)
        for node in [*range(n)] * self.sweeps:
            found = np.bincount(owner[far[start[node] : start[node + 1]]], minlength=size)
            best = np.where(load + 1 <= room, found, -1).argmax()
            if found[best] > found[owner[node]]:
                load[owner[node]] -= 1
                load[best] += 1
                owner[node] = best
        return gt.Assignment(lambda ids: owner[ids])
