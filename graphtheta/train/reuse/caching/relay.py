"""The second level of caches: rows of other machines, fetched once for all workers of a machine and
held in memory they share.

Each row of another machine has an *agent* on this one: the worker with the position of the row's
owner among the workers of its machine. A worker asks the agents for the rows that its own cache
does not hold, and the owners on its own machine for theirs. An agent looks up in its part of the
shared memory what its mates ask for, each row once, fetches the rest from the owners, and answers
with slots for rows that are there, and with the other rows themselves. A worker reads slots of
other agents without a message.

No worker reads a slot while its agent changes it. An agent changes slots only between the requests
of a fetch and its answer; by then all its mates have ended the fetch before, since workers fetch in
turns, and wait for the answer. Rows fetched now are therefore stored at the next fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.exchange import pointers
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.table import Route
from graphtheta.engine.store.cached import RowCache
from graphtheta.engine.store.slots import Slots
from graphtheta.engine.train.fetch import replied
from graphtheta.engine.train.scatter import Move
from graphtheta.ops.rows.by_number import assembled
from graphtheta.ops.rows.row_list import take_rows
from graphtheta.train.reuse.caching.shared_memory import mates

# a key is the owner of a row, and below it the row there
ROW_BITS = 32
Fetch = Callable[[np.ndarray, np.ndarray], dict[str, Any]]


class Agents:
    """Who asks whom for rows.

    Args:
        comm: The workers.

    Attributes:
        mates: Workers of this machine, ascending.
        asked: The worker of this machine that is asked for rows of each owner, [size].
        of_others: Workers that ask other machines for rows of this one's masters, one on each.
    """

    def __init__(self, comm: Comm):
        self.comm = comm
        self.mates = mates(comm)
        position = np.empty(comm.size, np.int64)
        on = [np.flatnonzero(comm.machines == machine) for machine in np.unique(comm.machines)]
        for workers in on:
            position[workers] = np.arange(len(workers))
        here = comm.machines[comm.rank]
        self.asked = np.where(
            comm.machines == here, np.arange(comm.size), self.mates[position % len(self.mates)]
        )
        self.of_others = [
            int(workers[position[comm.rank] % len(workers)])
            for workers in on
            if workers[0] not in self.mates
        ]
        self.far = comm.machines != here

    def requests(self, owner: np.ndarray, row: np.ndarray) -> tuple[Route, list[np.ndarray]]:
        """Ask the workers of this machine.

        Args:
            owner, row: Owners of some nodes and rows there, [n] int32.

        Returns:
            By whom this worker is answered, and the keys that each mate asks for.

        Collective: all ranks.
        """
        route = Route(self.asked[owner], self.comm.size)
        return route, self._among_mates(route.parts(owner.astype(np.int64) << ROW_BITS | row))

    def _among_mates(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """The arrays of numbers that the workers of a machine send to each other; ``parts`` has one
        for each rank.
        """
        comm = self.comm
        others = [int(q) for q in self.mates if q != comm.rank]
        n = {q: np.zeros(1, np.int64) for q in others}
        comm.move_begin(
            [(q, np.array([len(parts[q])])) for q in others], list(n.items()), Tag.ROWS
        ).end()
        got = {q: np.empty(int(n[q][0]), parts[q].dtype) for q in others}
        comm.move_begin([(q, parts[q]) for q in others], list(got.items()), Tag.ROWS).end()
        return [parts[q] if q == comm.rank else got[int(q)] for q in self.mates]

    def served(self, owner: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Keys of the rows of other machines that this worker's mates ask it for, ascending, each
        once; arguments as for ``requests``.

        Collective: all ranks.
        """
        far = self.far[owner]
        return np.unique(np.concatenate(self.requests(owner[far], row[far])[1]))


class MachineCache:
    """Rows of other machines in memory that the workers of a machine share; see
    ``engine.train.fetch.Relay``.

    Args:
        partition: This worker's part of the graph.
        agents: Who asks whom.
        cache: The rows that this worker is the agent of, in its part of the shared memory.
        parts: The slots of each worker of this machine.
    """

    def __init__(
        self, partition: Partition, agents: Agents, cache: RowCache, parts: Sequence[Slots]
    ):
        self._partition = partition
        self._agents = agents
        self.cache = cache
        self._parts = parts
        self._new: tuple[np.ndarray, dict[str, Any]] | None = None

    def rows(
        self, fetch: Fetch, owner: np.ndarray, row: np.ndarray, batches: int
    ) -> dict[str, Any]:
        """The wide columns of some nodes; see ``Relay.rows``.

        Collective: all ranks of the partition, in the same order of calls.
        """
        comm = self._partition.halo_comm
        mates = self._agents.mates
        route, arrived = self._agents.requests(owner, row)
        if self._new is not None:
            # all mates have ended the fetch before
            self.cache.offer(*self._new)
        keys, number = np.unique(np.concatenate(arrived), return_inverse=True)
        slots, far = self._slots(keys, batches)
        rest = np.flatnonzero(slots < 0)
        fetched = fetch(
            (keys[rest] >> ROW_BITS).astype(np.int32),
            (keys[rest] & (1 << ROW_BITS) - 1).astype(np.int32),
        )
        is_far = far[rest]
        self._new = (
            keys[rest[is_far]],
            {name: take_rows(x, np.flatnonzero(is_far)) for name, x in fetched.items()},
        )
        place = np.full(len(keys), -1, np.int64)
        place[rest] = np.arange(len(rest))
        by_mate = np.split(number, pointers([len(x) for x in arrived])[1:-1])
        answers: list[np.ndarray] = [np.zeros(0, np.int64)] * comm.size
        for q, numbers in zip(mates, by_mate, strict=True):
            answers[q] = numbers
        slot = (
            Move(
                comm,
                {"slot": slots[np.concatenate(answers)]},
                pointers(list(map(len, answers))),
                route.bounds,
            )
            .end()
            .columns["slot"]
        )
        sent = [place[x][slots[x] < 0] for x in answers]
        bounds = np.append(0, np.cumsum(slot < 0))[route.bounds]
        answered = {name: take_rows(x, np.concatenate(sent)) for name, x in fetched.items()}
        direct = replied(comm, answered, pointers(list(map(len, sent))), bounds)
        return assembled(len(owner), [(route.order[slot < 0], direct), *self._read(route, slot)])

    def _slots(self, keys: np.ndarray, batches: int) -> tuple[np.ndarray, np.ndarray]:
        """Slots of some keys, -1 for those that are not there, and whether they are of other
        machines.
        """
        far = self._agents.far[keys >> ROW_BITS]
        slots = np.full(len(keys), -1, np.int32)
        slots[far] = self.cache.find(keys[far], batches)
        return slots, far

    def _read(self, route: Route, slot: np.ndarray) -> list[tuple[np.ndarray, dict[str, Any]]]:
        """Rows in slots of the workers of this machine, with their positions.

        Args:
            route: By whom each was answered.
            slot: Their slots in the order of ``route``, [n] int32.
        """
        pieces = []
        for q, part in zip(self._agents.mates, self._parts, strict=True):
            begin, end = route.bounds[q : q + 2]
            at = begin + np.flatnonzero(slot[begin:end] >= 0)
            pieces.append((route.order[at], part.read(slot[at])))
        return pieces

    def foresee(self, batches: Sequence[np.ndarray]) -> None:
        """The next batches are known: global ids of the rows that this worker reads for each.

        Collective: all ranks of the partition.
        """
        locate = self._partition.directory.locate
        self.cache.foresee([self._agents.served(*locate(ids)) for ids in batches])
