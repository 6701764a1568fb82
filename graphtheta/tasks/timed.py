"""Evaluation of nodes at their times: messages of later edges reach no metric and no prediction."""
from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.described import name_and_options
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import Checked, Timed
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.hop import Layers, depth
from graphtheta.engine.view.view import GraphView
from graphtheta.evaluation.evaluate import NodeEvaluator
from graphtheta.evaluation.threshold import Threshold
from graphtheta.logger import logger
from graphtheta.ops.autodiff.tape import Var
from graphtheta.samplers.make_sampler import make_sampler
from graphtheta.samplers.registry import SAMPLERS

# so many views make an evaluation long
MANY = 200


def timed_sampler(job: Any) -> Timed | None:
    """The sampler of a job if it looks at times, and None otherwise."""
    if job.strategy != "mini" or not job.fanout or not issubclass(SAMPLERS.find(name_and_options(job.sampler)[0]), Timed):
        return None
    return make_sampler(job.sampler, {"fanouts": (-1,), "seed": job.seed, "replace": False, "shared": False})[0]  # type: ignore[return-value]


class TimedNodeEvaluator(NodeEvaluator):
    """Evaluator of node labels that reads all edges up to the cutoff of each node, and no others.

    Nodes of the same cutoff share a view, as they do in a batch; those of different cutoffs do not,
    so that each sees all that is allowed.

    Args:
        partition, layers, task, threshold: As for ``NodeEvaluator``.
        sampler: Gives the cutoffs; its other choices do not matter.

    Raises:
        ConfigError, DataError: The sampler cannot use a column that it reads.

    Collective: all ranks of job_comm.
    """

    def __init__(self, partition: Partition, layers: Layers, task: Task, threshold: Threshold | None, sampler: Timed):
        super().__init__(partition, layers, task, threshold)
        if isinstance(sampler, Checked):
            sampler.check(partition)
        self._past = sampler.complete(depth(layers))
        self._cutoffs = sampler.cutoffs(partition, np.arange(partition.n_masters))
        self._times = np.unique(np.concatenate(partition.halo_comm.all_gather(np.unique(self._cutoffs))))
        if len(self._times) > MANY and partition.halo_comm.rank == 0:
            logger.warning(f"nodes have {len(self._times):,} different times, and an evaluation computes a view for each; round the times "
                           "with the option grain of the sampler, or evaluate less often with --eval-every")

    def run(self, model: Model, view: GraphView) -> Any:
        """The outputs of all masters, each computed at its own time; ``view`` is not used."""
        found: np.ndarray | None = None
        for time in self._times:
            chosen = self._cutoffs == time
            past = k_hop_view(self.partition, chosen, self.layers, sampler=self._past)
            value = super().run(model, past).value
            found = np.zeros((len(chosen), *value.shape[1:]), value.dtype) if found is None else found
            found[chosen] = value
        assert found is not None
        return Var(found, view.space)
