"""Parameter gradients summed over all workers, in buckets that are sent during backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import TapeError

from ...ops.autodiff.tape import Gradients, Parameter
from ..comm.communicator import Comm
from .doubling import PendingSum

# a bucket of this size is sent: latency would dominate smaller ones, larger ones would be sent
# too late to overlap
BUCKET_BYTES = 1 << 16


class GradientSum:
    """Gradients of all workers, added up.

    Args:
        comm: The workers.
        parameters: In the same order on every worker.

    Attributes:
        sums: Those of the buckets, in the order in which they began.

    Collective: all ranks of comm call ``add`` for the same parameters in the same order, and then
    ``finish``.
    """

    def __init__(self, comm: Comm, parameters: list[Parameter]):
        self.comm = comm
        self.parameters = parameters
        self._wanted = {p: p.value for p in parameters}
        self._expected = set(parameters)
        self._bucket: list[tuple[Parameter, np.ndarray]] = []
        self.sums: list[PendingSum] = []
        self._members: list[list[Parameter]] = []

    def add(self, parameter: Parameter, gradient: Any) -> None:
        """Add the final gradient of this worker; None if backward did not reach the parameter.

        Raises:
            TapeError: The parameter is not one of those whose gradients are summed.
        """
        if parameter not in self._expected:
            raise TapeError(
                f"the forward pass uses a parameter {list(parameter.shape)} that the trainer does"
                " not have; a trainer collects the parameters of its model when it is created: do"
                " not replace or add any afterwards (assign to parameter.value instead), or create"
                " a new trainer"
            )
        like = self._wanted.pop(parameter, None)
        if like is None:
            return
        if self.comm.size > 1 and self._bucket and like.dtype != self._bucket[0][1].dtype:
            self._send()
        # without a gradient zeros are sent, because the other workers wait for this one
        self._bucket.append(
            (parameter, np.zeros_like(like) if gradient is None else np.asarray(gradient))
        )
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
            pending = self.sums
            # messages of all buckets are under way together
            while pending:
                pending = [bucket for bucket in pending if bucket.advance()]
        for bucket, members in zip(self.sums, self._members, strict=True):
            ends = np.cumsum([p.value.size for p in members])
            sums.update(
                {
                    p: part.reshape(p.shape)
                    for p, part in zip(members, np.split(bucket.total, ends[:-1]), strict=True)
                }
            )
        return [sums[p] for p in self.parameters]

    def _send(self) -> None:
        with self.comm.ledger.stage("reduce"):
            self.sums.append(
                PendingSum(self.comm, np.concatenate([g.reshape(-1) for _, g in self._bucket]))
            )
        self._members.append([p for p, _ in self._bucket])
        self._bucket = []
