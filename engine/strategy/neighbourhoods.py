"""The neighbourhoods of several batches of targets, found by one search of all workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ..partition.partition import Partition
from ..sampling.sampler import Sampler
from ..sampling.search import ByView, Search, SearchResult
from ..view.expand import all_passes
from ..view.hop import Layers, depth, hops
from ..view.scored_pairs import PairPlan, ScoredPairs
from .task import NodeTask, Task

__all__ = ["ByView", "Searched", "neighbourhoods"]


class Searched(NamedTuple):
    """This worker's nodes and edges of some views, and their pairs by view; None if targets are
    nodes.
    """

    result: SearchResult
    pairs: list[ScoredPairs] | None


def neighbourhoods(
    partition: Partition,
    layers: Layers,
    task: Task,
    own: Sequence[np.ndarray],
    steps: Sequence[int],
    sampler: Sampler | None,
) -> Searched | None:
    """Search the neighbourhoods of batches, of as many hops as the model has; None if only some
    batches exclude edges.

    Args:
        own: This worker's targets of each batch, as ``Task.seeds`` takes them.
        steps: Number of the training step of each batch.

    Collective: all ranks of the partition.
    """
    if isinstance(task, NodeTask) and type(task).seeds is NodeTask.seeds:
        targets: list[_Targets] = [(task.rows[positions], None, None, None) for positions in own]
    else:
        targets = partition.halo_comm.together(
            [partial(_targets, task, *x) for x in zip(own, steps, strict=True)]
        )
    pairs = [x for _, x, *_ in targets if x is not None]
    excluded = [x for *_, x, _ in targets if x is not None]
    cutoffs = [x for *_, x in targets if x is not None]
    if 0 < len(excluded) < len(targets):
        return None
    search = Search(
        partition=partition,
        targets=ByView.joined([rows for rows, *_ in targets]),
        sampler=sampler,
        steps=steps,
        excluded=ByView.joined(excluded) if excluded else None,
        cutoff=np.concatenate(cutoffs) if cutoffs else None,
    )
    supersteps = hops(layers)
    result = search.run(
        [
            all_passes(partition, [x for x in supersteps if x.from_end == i])
            for i in range(depth(layers))
        ]
    )
    for plan, outside in zip(
        pairs,
        result.outside([np.flatnonzero(plan.needed) for plan in pairs]) if pairs else [],
        strict=True,
    ):
        plan.check(outside)
    return Searched(result, [plan.pairs for plan in pairs] or None)


# master rows, pairs, storage positions of excluded edges, and cutoffs
_Targets = tuple[np.ndarray, PairPlan | None, np.ndarray | None, np.ndarray | None]


def _targets(task: Task, own: np.ndarray, step: int) -> _Targets:
    """The targets of a batch, without arrays that are as long as the graph."""
    seeds = task.seeds(own, step)
    return (
        np.flatnonzero(seeds.nodes),
        seeds.pairs,
        None if seeds.excluded is None else np.flatnonzero(seeds.excluded),
        seeds.cutoff,
    )
