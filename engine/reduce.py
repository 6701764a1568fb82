"""Reduce: parameter gradients summed over all workers, in flat buckets with one all-reduce each."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..ops.tape import Gradients, Parameter
from .comm import Comm

BUCKET_BYTES = 16 << 20


def reduce_gradients(comm: Comm, parameters: list[Parameter], gradients: Gradients) -> list[np.ndarray]:
    """Sum the gradients of all workers.

    A worker on which a parameter was not reached contributes zeros, so none waits for another.

    Args:
        parameters: In the same order on every worker.
        gradients: Of this worker's rows.

    Returns:
        One array per parameter, the same bits on every worker.

    Collective: all ranks of comm.
    """
    if comm.size == 1:
        return [_flat(p, gradients).reshape(p.value.shape) for p in parameters]
    reduced: list[np.ndarray] = []
    with comm.ledger.stage("reduce"):
        for bucket in _buckets(parameters):
            flat = np.concatenate([_flat(p, gradients) for p in bucket])
            total = comm.all_sum(flat)
            ends = np.cumsum([p.value.size for p in bucket])
            reduced += [part.reshape(p.value.shape) for p, part in zip(bucket, np.split(total, ends[:-1]), strict=True)]
    return reduced


def _flat(p: Parameter, gradients: Gradients) -> np.ndarray:
    g = gradients.of(p)
    return np.zeros(p.value.size, p.value.dtype) if g is None else np.asarray(g).reshape(-1)


def _buckets(parameters: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    """Consecutive parameters of one type, up to a size."""
    bucket: list[Parameter] = []
    for p in parameters:
        if bucket and (p.value.dtype != bucket[0].value.dtype or sum(q.value.nbytes for q in bucket) + p.value.nbytes > BUCKET_BYTES):
            yield bucket
            bucket = []
        bucket.append(p)
    if bucket:
        yield bucket
