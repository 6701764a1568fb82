"""Evaluation of nodes and edges at their times."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.described import name_and_options
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import Checked, Timed, TimedPairs
from graphtheta.engine.strategy.task import EdgeTask, Seeds, Task
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.view import GraphView
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Var
from graphtheta.samplers.make_sampler import make_sampler
from graphtheta.samplers.registry import SAMPLERS
from graphtheta.tasks.evaluation.evaluate import EdgeEvaluator, NodeEvaluator
from graphtheta.tasks.evaluation.past import Past
from graphtheta.tasks.evaluation.threshold import Threshold


def timed_sampler(job: Any) -> Timed | None:
    """The sampler of a job if it looks at times, and None otherwise."""
    if (
        job.strategy != "mini"
        or not job.fanout
        or not issubclass(SAMPLERS.find(name_and_options(job.sampler)[0]), Timed)
    ):
        return None
    return make_sampler(
        job.sampler, {"fanouts": (-1,), "seed": job.seed, "replace": False, "shared": False}
    )[0]  # type: ignore[return-value]


def timed_pairs(job: Any, partition: Partition) -> TimedPairs | None:
    """The sampler of a job if it looks at times of edges and links, which are its targets.

    Raises:
        ConfigError, DataError: It cannot use a column that it reads.

    Collective: all ranks of the partition.
    """
    sampler = timed_sampler(job)
    if not isinstance(sampler, TimedPairs):
        return None
    checked = sampler.of_pairs()
    if isinstance(checked, Checked):
        checked.check(partition)
    return sampler


class TimedNodeEvaluator(NodeEvaluator):
    """Evaluator of node labels that reads all edges up to the cutoff of each node, and no others.

    Args:
        partition, layers, task, threshold, positive: As for ``NodeEvaluator``.
        sampler: Gives the cutoffs; its other choices do not matter.

    Raises:
        ConfigError, DataError: The sampler cannot use a column that it reads.

    Collective: all ranks of job_comm.
    """

    past: Past

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        threshold: Threshold | None,
        sampler: Timed,
        positive: int = 1,
    ):
        super().__init__(partition, layers, task, threshold, positive)
        if isinstance(sampler, Checked):
            sampler.check(partition)
        self.past = Past(partition, layers, sampler)
        self._cutoffs = sampler.cutoffs(partition, np.arange(partition.n_masters))
        self._times = self.past.times(self._cutoffs)

    def run(self, model: Model, view: GraphView) -> Any:
        """The outputs of all masters, each computed at its own time; ``view`` is not used."""
        out: np.ndarray | None = None
        for time in self._times:
            chosen = self._cutoffs == time
            value = super().run(model, self.past.view(Seeds(chosen), time)).value
            out = np.zeros((len(chosen), *value.shape[1:]), value.dtype) if out is None else out
            out[chosen] = value
        assert out is not None
        return Var(out, view.space)


class TimedEdgeEvaluator(EdgeEvaluator):
    """Evaluator of edge labels that reads all edges up to the cutoff of each edge, and no others.

    Args:
        partition, layers, task, masks: As for ``EdgeEvaluator``.
        sampler: Gives the cutoffs; its other choices do not matter.

    Collective: all ranks of job_comm.
    """

    past: Past

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: EdgeTask,
        masks: dict[str, np.ndarray],
        sampler: TimedPairs,
    ):
        super().__init__(partition, layers, task, masks)
        self._edges = task
        self.past = Past(partition, layers, sampler)
        self._cutoffs = sampler.edge_cutoffs(partition.edge.exact, earlier=False)
        times = self.past.times(self._cutoffs)
        # of a graph without edges, one view gives outputs without rows
        self._times = times if len(times) else np.zeros(1, self._cutoffs.dtype)

    def run(self, model: Model, view: GraphView) -> Any:
        """The outputs of all edges of ``view``, each computed at its own time."""
        out: np.ndarray | None = None
        for time in self._times:
            past = self.past.view(self._edges.masked(self._cutoffs == time), time)
            value = super().run(model, past).value
            assert past.pairs is not None
            out = (
                np.zeros((len(self._cutoffs), *value.shape[1:]), value.dtype)
                if out is None
                else out
            )
            out[past.pairs.stored] = value
        assert out is not None and view.pairs is not None
        return Var(out[view.pairs.stored], RowSpace(view.pairs.gid, "edge"))
