"""``gt.sample``: the sampled neighbourhood of some targets, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replaced
from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.graph.data.graph import Graph
from graphtheta.train.loader.batch import Block
from graphtheta.train.loader.loader import Loader
from graphtheta.train.loader.targets import ALL


@checked
def sample(
    graph: Graph,
    targets: Any,
    fanout: Sequence[int],
    *,
    sampler: str = "neighbour",
    replace: bool = False,
    seed: int = 0,
    step: int = 0,
    direction: str = "in",
) -> list[Block]:
    """Sample the neighbourhood of some targets once, in this process alone; in a loop use
    ``Loader``, which prepares the graph once.

    Args:
        graph: The graph.
        targets: Ids of the targets, each once, [n]; node numbers if the graph has no ids.
        fanout: Neighbours per node, one number per hop from the targets outwards; -1 for all.
        sampler: A sampler as in a job: ``NAME:field=value,...`` or FILE.py:NAME.
        replace: Sample with replacement.
        seed: Seed of the draws.
        step: Number of the batch; the draws differ from step to step.
        direction: "in" follows edges backwards to their sources, "out" forwards.

    Returns:
        One block per hop, the hop furthest from the targets first, with original ids as ``nodes``.
        The receiving nodes of the last block are the targets in the order given, and those of a
        block are the sending nodes of the next one.

    Raises:
        ConfigError: Unknown sampler, option or direction, or an option the sampler does not read.
        DataError: An id is unknown or given twice, or the sampler cannot use the values of a column
            that it reads.
    """
    loader = Loader(
        # features are not needed to choose edges
        graph.replace(x=None),
        targets=ALL,
        to="arrays",
        direction=direction,
        comm=SerialComm(),
        fanout=fanout,
        sampler=sampler,
        replace=replace,
        seed=seed,
    )
    blocks: list[Block] = loader.sample(targets, step).blocks
    ids = graph.original_ids
    return [replaced(block, nodes=ids[block.nodes]) for block in blocks]
