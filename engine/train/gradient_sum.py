"""Parameter gradients summed over all workers, in buckets that are sent during backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import TapeError

from ...ops.autodiff.gradients import Gradients
from ...ops.autodiff.tape import Parameter
from ..comm.communicator import Comm
from .doubling import PendingSum

# a bucket of this size is sent: latency would dominate smaller ones, larger ones would be sent
# too late to overlap
BUCKET_BYTES = 1 << 16


class GradientSum:
    """Gradients of all workers, added up.

    Which parameters share a bucket, and the order of the buckets, follow from the parameters alone:
    workers may complete gradients in different orders, for instance where one has so few rows that
    it computes at once what another defers (``ops/autodiff/fusion.py``).

    Args:
        comm: The workers.
        parameters: In the same order on every worker.

    Attributes:
        sums: Those of the buckets, in the order in which they began.

    Collective: all ranks of comm call ``finish``.
    """

    def __init__(self, comm: Comm, parameters: list[Parameter]):
        self.comm = comm
        self.parameters = parameters
        self._gradients: dict[Parameter, np.ndarray | None] = dict.fromkeys(parameters)
        self._values = {p: p.value for p in parameters}
        self._buckets = buckets(parameters)
        self.sums: list[PendingSum] = []

    def add(self, parameter: Parameter, gradient: Any) -> None:
        """Add the final gradient of this worker; None if backward did not reach the parameter.

        Raises:
            TapeError: The parameter is not one of those whose gradients are summed.
        """
        if parameter not in self._gradients:
            raise TapeError(
                f"the forward pass uses a parameter {list(parameter.shape)} that the trainer does"
                " not have; a trainer collects the parameters of its model when it is created: do"
                " not replace or add any afterwards (assign to parameter.value instead), or create"
                " a new trainer"
            )
        if self._gradients[parameter] is not None:
            return
        # without a gradient zeros are sent, because the other workers wait for this one
        self._gradients[parameter] = (
            np.zeros_like(self._values[parameter]) if gradient is None else np.asarray(gradient)
        )
        if self.comm.size > 1:
            self._send_complete()

    def finish(self, gradients: Gradients) -> list[np.ndarray]:
        """The sums, one array per parameter, the same bits on every worker.

        Args:
            gradients: Gradients of this worker, for parameters that were not added.
        """
        for p in self.parameters:
            if self._gradients[p] is None:
                self.add(p, gradients.of(p))
        sums = self._gradients if self.comm.size == 1 else self._received()
        return [g for p in self.parameters if (g := sums[p]) is not None]

    def _send_complete(self) -> None:
        """Begin the sums of the next buckets whose gradients are all there."""
        while len(self.sums) < len(self._buckets):
            gradients = [self._gradients[p] for p in self._buckets[len(self.sums)]]
            complete = [g.reshape(-1) for g in gradients if g is not None]
            if len(complete) < len(gradients):
                return
            with self.comm.ledger.stage("reduce"):
                self.sums.append(PendingSum(self.comm, np.concatenate(complete)))

    def _received(self) -> dict[Parameter, np.ndarray]:
        with self.comm.ledger.stage("reduce"):
            pending = self.sums
            # messages of all buckets are under way together
            while pending:
                pending = [bucket for bucket in pending if bucket.advance()]
        sums: dict[Parameter, np.ndarray] = {}
        for bucket, members in zip(self.sums, self._buckets, strict=True):
            ends = np.cumsum([p.value.size for p in members])
            parts = np.split(bucket.total, ends[:-1])
            sums.update((p, part.reshape(p.shape)) for p, part in zip(members, parts, strict=True))
        return sums


def buckets(parameters: list[Parameter]) -> list[list[Parameter]]:
    """Parameters of one dtype that are sent together, the last ones first, as backward completes
    them.
    """
    divided: list[list[Parameter]] = []
    n_bytes = BUCKET_BYTES
    for p in reversed(parameters):
        if n_bytes >= BUCKET_BYTES or p.value.dtype != divided[-1][0].value.dtype:
            divided.append([])
            n_bytes = 0
        divided[-1].append(p)
        n_bytes += p.value.nbytes
    return divided
