"""Rows of mirrors, sent by the workers that own them: pushed, as the owner chooses, or fetched on
request.

A message of pushed rows is

    number of rows, position of each in the group of the receiver, values

so it needs no round for its size: both sides know the group, the rows that the receiver has as
mirrors, which bounds it (the db_halo of DistGNN-MB).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from graphtheta.engine.comm.channel import Pending, Tag
from graphtheta.engine.partition.exchange import NOTHING, MovePlan
from graphtheta.engine.partition.partition import Partition

NO_LIMIT = -1
COUNT, POSITION = np.dtype(np.int64), np.dtype(np.int32)


class MirrorRows:
    """Sends rows of masters to the workers that have them as mirrors.

    Args:
        partition: This worker's part of the graph.
        plan: Brings rows of masters to mirrors.
        mirrors: The mirrors that it serves, in the order of its halo rows.
    """

    def __init__(self, partition: Partition, plan: MovePlan, mirrors: np.ndarray):
        self.comm = partition.halo_comm
        self.plan = plan
        self.mirrors = mirrors.astype(np.int64)
        self._halo = np.zeros(partition.n_mirrors, np.int64)
        self._halo[mirrors] = np.arange(len(mirrors))

    def push(self, chosen: Sequence[np.ndarray], rows: Sequence[np.ndarray], most: int) -> Push:
        """Begin to send rows.

        Args:
            chosen: For each worker, positions of its rows in its group of the plan, [k].
            rows: Their values, [k, ...].
            most: Most rows of a message, the same on all workers; -1 for no limit.

        Collective: all ranks of the partition.
        """
        like = rows[0][:0]
        sent = []
        received = []
        for q, n in enumerate(np.diff(self.plan.send_ptr)):
            if n:
                parts = (
                    np.array([len(chosen[q])], COUNT),
                    chosen[q].astype(POSITION),
                    np.ascontiguousarray(rows[q]),
                )
                sent.append((q, np.concatenate([x.reshape(-1).view(np.uint8) for x in parts])))
        each = POSITION.itemsize + prod(like.shape[1:]) * like.dtype.itemsize
        for q, n in enumerate(np.diff(self.plan.recv_ptr).tolist()):
            if n:
                received.append(
                    (
                        q,
                        np.empty(
                            COUNT.itemsize + (n if most == NO_LIMIT else min(n, most)) * each,
                            np.uint8,
                        ),
                    )
                )
        return Push(
            self, self.comm.move_begin(sent, received, Tag.ROWS, at_most=True), received, like
        )

    def fetch(
        self, mirrors: np.ndarray, answer: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of some mirrors, from their owners, and whether these have any.

        Args:
            mirrors: Mirror rows, none twice, [n].
            answer: From rows of masters [k] to whether they have a value [k] bool, and values
                [k, ...], which are not read where they have none.

        Returns:
            Values [n, ...] and found [n] bool.

        Collective: all ranks of the partition.
        """
        plan = self.plan
        halo = self._halo[mirrors]
        order = np.argsort(halo)
        bounds = np.searchsorted(halo[order], plan.recv_ptr)
        begins = plan.recv_ptr[:-1]
        wanted = self.comm.all_to_all(
            [
                halo[order[a:b]] - begin
                for (a, b), begin in zip(pairwise(bounds), begins, strict=True)
            ]
        )
        exists, rows = zip(
            *(
                answer(plan.rows[start + at])
                for start, at in zip(plan.send_ptr[:-1], wanted, strict=True)
            ),
            strict=True,
        )
        arrived = np.concatenate(self.comm.all_to_all(list(rows)))
        values = np.empty_like(arrived)
        present = np.empty(len(mirrors), bool)
        values[order] = arrived
        present[order] = np.concatenate(self.comm.all_to_all(list(exists)))
        return values, present


class Push(NamedTuple):
    """A started push.

    Attributes:
        of: What it belongs to.
        pending: Its messages.
        received: Sender and buffer of each message that arrives.
        like: No rows, of the type and shape of the values.
    """

    of: MirrorRows
    pending: Pending
    received: list[tuple[int, np.ndarray]]
    like: np.ndarray

    def end(self) -> tuple[np.ndarray, np.ndarray]:
        """Wait; returns mirrors [n] int64 and their values [n, ...]."""
        self.pending.end()
        halo = [NOTHING]
        values = [self.like]
        for q, message in self.received:
            begin = COUNT.itemsize
            n = int(message[: COUNT.itemsize].view(COUNT)[0])
            end = begin + n * POSITION.itemsize
            halo.append(self.of.plan.recv_ptr[q] + message[begin:end].view(POSITION))
            size = n * prod(self.like.shape[1:]) * self.like.dtype.itemsize
            # values may not be aligned in the message; they are copied below
            values.append(
                message[end : end + size].view(self.like.dtype).reshape(n, *self.like.shape[1:])
            )
        return self.of.mirrors[np.concatenate(halo)], np.concatenate(values)
