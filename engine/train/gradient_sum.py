"""Parameter gradients summed over all workers, in buckets that are sent during backward.

Sums are computed in rank order, as in ``Comm.all_sum``, so that all workers have the same bits.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import TapeError

from ...ops.autodiff.tape import Gradients, Parameter
from ..comm.channel import Tag
from ..comm.communicator import Comm
from ..comm.ordered_reduce import ONE_ROUND, fold

# a bucket of this size is sent: latency would dominate smaller ones, larger ones would be sent
# too late to overlap
BUCKET_BYTES = 1 << 16


class GradientSum:
    """Gradients of all workers, added up.

    Args:
        comm: The workers.
        parameters: In the same order on every worker.

    Collective: all ranks of comm call ``add`` for the same parameters in the same order, and then ``finish``.
    """

    def __init__(self, comm: Comm, parameters: list[Parameter]):
        self.comm, self.parameters = comm, parameters
        self._wanted = {p: p.value for p in parameters}
        self._known = set(parameters)
        self._bucket: list[tuple[Parameter, np.ndarray]] = []
        self._sent: list[tuple[list[Parameter], _Sum]] = []

    def add(self, parameter: Parameter, gradient: Any) -> None:
        """Add the final gradient of this worker; None if backward did not reach the parameter.

        Raises:
            TapeError: The parameter is not one of those whose gradients are summed.
        """
        if parameter not in self._known:
            raise TapeError(f"the forward pass uses a parameter {list(parameter.shape)} that the trainer does not have; a trainer "
                            "collects the parameters of its model when it is created: do not replace or add any afterwards (assign to "
                            "parameter.value instead), or create a new trainer")
        like = self._wanted.pop(parameter, None)
        if like is None:
            return
        if self.comm.size > 1 and self._bucket and like.dtype != self._bucket[0][1].dtype:
            self._send()
        # without a gradient zeros are sent, because the other workers wait for this one
        self._bucket.append((parameter, np.zeros_like(like) if gradient is None else np.asarray(gradient)))
        if self.comm.size > 1 and sum(g.nbytes for _, g in self._bucket) >= BUCKET_BYTES:
            self._send()

    def finish(self, gradients: Gradients) -> list[np.ndarray]:
        """The sums, one array per parameter, the same bits on every worker.

        Args:
            gradients: Gradients of this worker, for parameters that were not added.
        """
        for p in list(self._wanted):
            self.add(p, gradients.of(p))
        if self.comm.size == 1:
            alone = dict(self._bucket)
            return [alone[p] for p in self.parameters]
        if self._bucket:
            self._send()
        sums: dict[Parameter, np.ndarray] = {}
        with self.comm.ledger.stage("reduce"):
            for bucket, pending in self._sent:
                total = pending.end()
                ends = np.cumsum([p.value.size for p in bucket])
                sums.update({p: part.reshape(p.shape) for p, part in zip(bucket, np.split(total, ends[:-1]), strict=True)})
        return [sums[p] for p in self.parameters]

    def _send(self) -> None:
        with self.comm.ledger.stage("reduce"):
            flat = np.concatenate([g.reshape(-1) for _, g in self._bucket])
            self._sent.append(([p for p, _ in self._bucket], _Sum(self.comm, flat)))
        self._bucket = []


class _Sum:
    """A pending sum of one array over all ranks.

    A short array is sent to all ranks. Of a long one, each rank sums one slice and sends it to
    the others.
    """

    def __init__(self, comm: Comm, x: np.ndarray):
        self._comm, self._x = comm, x
        self._others = [q for q in range(comm.size) if q != comm.rank]
        short = x.nbytes * comm.size <= ONE_ROUND
        n = len(x)
        self._slices = [slice(0, n) if short else slice(n * q // comm.size, n * (q + 1) // comm.size) for q in range(comm.size)]
        self._short, self._own = short, self._slices[comm.rank]
        self._parts = np.empty((comm.size, self._own.stop - self._own.start), x.dtype)
        sends, recvs = [(q, x[self._slices[q]]) for q in self._others], [(q, self._parts[q]) for q in self._others]
        self._pending = comm.move_begin(sends, recvs, Tag.REDUCE)

    def end(self) -> np.ndarray:
        """Wait for the messages; returns the sum."""
        self._pending.end()
        self._parts[self._comm.rank] = self._x[self._own]
        total = fold(self._parts, np.add)
        if self._short:
            return total
        # what was sent has arrived, so its memory is free
        self._x[self._own] = total
        self._comm.move_begin([(q, total) for q in self._others], [(q, self._x[self._slices[q]]) for q in self._others], Tag.REDUCED).end()
        return self._x
