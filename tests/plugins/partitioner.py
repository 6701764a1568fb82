"""A node partitioner: linear deterministic greedy (LDG), which streams over the nodes."""
from dataclasses import dataclass

import numpy as np

import graphtheta as gt


@gt.PARTITIONERS.add
@dataclass(frozen=True)
class LDG(gt.Partitioner):
    """Gives each node to the worker with most of its neighbours so far, weighted by the room left.

    Source: Stanton and Kliot, KDD 2012, https://doi.org/10.1145/2339530.2339722
    """

    name = "ldg"
    slack: float = 0.1

    def assign(self, source, comm):
        n, size = source.n_nodes, comm.size
        room = (1 + self.slack) * n / size
        chunks = list(source.chunks())
        near = np.concatenate([end for c in chunks for end in (c.src, c.dst)])
        far = np.concatenate([end for c in chunks for end in (c.dst, c.src)])
        far, start = far[np.argsort(near, kind="stable")], np.searchsorted(np.sort(near), np.arange(n + 1))

        owner, load = np.full(n, -1), np.zeros(size)
        for node in range(n):
            workers = owner[far[start[node]:start[node + 1]]]
            score = np.bincount(workers[workers >= 0], minlength=size) * (1 - load / room)
            # the emptiest worker among those of equal score
            owner[node] = np.lexsort((load, -score))[0]
            load[owner[node]] += 1
        return gt.Assignment(lambda ids: owner[ids])
