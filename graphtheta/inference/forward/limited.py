"""The memory limit of a job: whether a pass over the whole graph fits, and passes by blocks if it
does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.hop import Hop
from graphtheta.engine.view.view import GraphView
from graphtheta.inference.forward.blocks import VALUES_ALIVE, divided, free_now
from graphtheta.inference.forward.layerwise import LayerWise
from graphtheta.inference.forward.spill import Spill
from graphtheta.ops.autodiff.tape import Var
from graphtheta.ops.parallel.buffers import release
from graphtheta.run.job.job import Job
from graphtheta.run.memory.bound import Extent

GIB = 1 << 30


class Limited:
    """Passes without training that stay below a memory limit.

    Args:
        job: Its ``inference_memory`` is that of this process, in GiB.
        partition: The partition.
        probe: Of the model.
    """

    def __init__(self, job: Job, partition: Partition, probe: Probe):
        self._partition = partition
        self._probe = probe
        self._limit = int(job.inference_memory * GIB)
        self._itemsize = np.dtype(job.dtype).itemsize

    @contextmanager
    def passes(self, model: Model) -> Iterator[LayerWise]:
        """Passes whose files are removed at the end.

        Raises:
            FormatError: There is no folder for them; on all ranks together.
        """
        with self._partition.halo_comm.agreed():
            spill = Spill()
        with spill:
            yield LayerWise(
                model=model,
                partition=self._partition,
                probe=self._probe,
                spill=spill,
                blocks=self.divided,
            )

    def divided(self, hops: list[Hop]) -> list[np.ndarray]:
        """Blocks of masters within the limit, for layers that run over them; an argument of
        ``LayerWise``.

        Collective: all ranks of the partition.
        """
        release()
        return divided(self._partition, self._probe, self._itemsize, self._limit, hops)

    def check(self) -> None:
        """Check, before training, that a block of one node is within the limit.

        Raises:
            MemoryLimitError: It is not; on all ranks together.

        Collective: all ranks of the partition.
        """
        self.divided([])

    def outputs(self, model: Model, view: GraphView) -> Var:
        """What the model returns for a view of the whole graph.

        Collective: all ranks of the partition.
        """
        with self.passes(model) as passes:
            return passes.outputs(view)

    def layer(self, model: Model, number: int) -> np.ndarray:
        """The values of a layer that runs over edges, for this worker's masters.

        Collective: all ranks of the partition.
        """
        with self.passes(model) as passes:
            return passes.layer(number)


def limited(job: Job, partition: Partition, probe: Probe) -> Limited | None:
    """Passes by blocks, if the job has a limit that a pass over the whole graph exceeds on some
    worker.

    Collective: all ranks of the partition.
    """
    if not job.inference_memory:
        return None
    comm = partition.halo_comm
    limit = int(job.inference_memory * GIB)
    # arrays from which the partition was made
    release()
    needed = limit - free_now(limit) + whole_bytes(partition, probe, np.dtype(job.dtype).itemsize)
    most = int(comm.all_max(np.array(needed)))
    if most <= limit:
        return None
    if comm.rank == 0:
        logger.info(
            f"inference_memory={job.inference_memory:g}: a pass over the whole graph needs about"
            f" {most / GIB:.2f} GiB on a worker, so it runs layer by layer over blocks of nodes"
        )
    return Limited(job, partition, probe)


def whole_bytes(partition: Partition, probe: Probe, itemsize: int) -> int:
    """Most bytes of the values of a pass over the whole graph without training, on this worker."""
    extent = Extent.of(partition)
    halo = probe.halo_width * (2 * extent.mirrors + extent.sent)
    return (
        VALUES_ALIVE * probe.widest * extent.rows + halo + 2 * probe.edge_width * extent.edges
    ) * itemsize
