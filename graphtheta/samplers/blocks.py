"""Samplers without the engine: blocks of sampled edges as arrays, for training loops of other
libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.wording import shown
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.sampling.node_set import NodeSetSampler
from graphtheta.engine.sampling.sampler import Checked
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.level import Level
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.validation import Origin, as_array
from graphtheta.samplers.make_sampler import make_sampler

DIRECTIONS = ("in", "out")


@dataclass(frozen=True)
class Block:
    """The sampled edges of one hop.

    Attributes:
        nodes: Ids of the sending nodes, [n] as ``Graph.node_ids``, or node numbers without these.
            The receiving nodes come first.
        n_out: Number of receiving nodes.
        src, dst: Positions in ``nodes`` of the sending and of the receiving end of each edge,
            [n_edges] int64; ``dst`` ascends and is below ``n_out``.
        edge: Position of each edge in the arrays of the graph, [n_edges] int64.
        weight: Importance weights, [n_edges] float64: an edge of weight w stands for w edges of its
            receiving node.
    """

    nodes: np.ndarray
    n_out: int
    src: np.ndarray
    dst: np.ndarray
    edge: np.ndarray
    weight: np.ndarray


class BlockSampler:
    """Samples the neighbourhoods of batches of targets.

    Args:
        graph: The graph; it is prepared once.
        fanout: Neighbours per node, one number per hop from the targets outwards; -1 for all.
        sampler: A sampler as in a job: ``NAME:field=value,...`` or FILE.py:NAME.
        replace: Sample with replacement.
        seed: Seed of the draws.
        direction: "in" follows edges backwards to their sources, "out" forwards.

    Raises:
        ConfigError: Unknown sampler, option or direction, or an option the sampler does not read.
        DataError: The sampler cannot use the values of a column that it reads.

    Examples:
        >>> sampler = gt.BlockSampler(gt.load("sbm"), [10, 5])
        >>> blocks = sampler([7, 2], step=3)
        >>> [block.n_out for block in blocks][-1], blocks[-1].nodes[:2].tolist()
        (2, [7, 2])
    """

    @checked
    def __init__(
        self,
        graph: Graph,
        fanout: Sequence[int],
        *,
        sampler: str = "neighbour",
        replace: bool = False,
        seed: int = 0,
        direction: str = "in",
    ):
        if direction not in DIRECTIONS:
            raise ConfigError(
                f"direction {direction!r} is not known; choose from {', '.join(DIRECTIONS)}"
            )
        if not len(fanout):
            raise ConfigError(
                "fanout is empty; give a number of neighbours for each hop, such as [10, 5]"
            )
        offered = {
            "fanouts": tuple(int(k) for k in fanout)[::-1],
            "seed": seed,
            "replace": replace,
            "shared": False,
            "relation_names": graph.relation_names,
        }
        made, taken = make_sampler(sampler, offered)
        if isinstance(made, NodeSetSampler):
            raise ConfigError(
                f"sampler={sampler} chooses the nodes of a batch and not neighbours of targets;"
                " choose another sampler"
            )
        self._sampler = made
        if replace and "replace" not in taken:
            raise ConfigError(
                f"replace=True has no meaning with sampler={sampler}; choose a sampler that"
                " reads it"
            )
        self._layers = [direction] * len(fanout)
        self._ids = None if graph.node_ids is None else np.asarray(graph.node_ids)
        self._by_id = None if self._ids is None else np.argsort(self._ids)
        # features are not needed to choose edges
        self._partition = build_partition(graph.replace(x=None), SerialComm())
        if isinstance(self._sampler, Checked):
            self._sampler.check(self._partition)
        self._row = np.empty(graph.n_nodes, np.int64)
        self._row[self._partition.masters] = np.arange(graph.n_nodes)

    @checked
    def __call__(self, targets: Any, step: int = 0) -> list[Block]:
        """The blocks of a batch, the hop furthest from the targets first.

        Args:
            targets: Ids of the targets, each once, [n]; node numbers if the graph has no ids.
            step: Number of the batch; the draws differ from step to step.

        Returns:
            One block per hop. The receiving nodes of the last block are the targets in the order
            given, and those of a block are the sending nodes of the next one.

        Raises:
            DataError: An id is unknown or given twice.
        """
        rows = self._row[self._numbers(as_array(targets, Origin("", "targets")))]
        if len(np.unique(rows)) < len(rows):
            raise DataError("targets: an id is given twice; give each target once")
        mask = np.zeros(len(self._row), bool)
        mask[rows] = True
        view = k_hop_view(self._partition, mask, self._layers, sampler=self._sampler, step=step)
        assert view.rows is not None
        # the view orders the targets by row, the caller by the order given
        at = np.arange(len(view.rows))
        at[: len(rows)] = np.argsort(rows)
        nodes = np.empty(len(at), np.int64)
        nodes[at] = self._partition.masters[view.rows]
        named = nodes if self._ids is None else self._ids[nodes]
        return [self._block(level, at, named) for level in view.levels]

    def _numbers(self, targets: np.ndarray) -> np.ndarray:
        """Node numbers of some ids."""
        if targets.ndim != 1:
            raise DataError(f"targets: expected ids of shape [n], got {list(targets.shape)}")
        found = targets
        known = np.zeros(len(targets), bool)
        if self._by_id is None and targets.dtype.kind in "iu":
            known = (targets >= 0) & (targets < len(self._row))
        elif (
            self._ids is not None
            and self._by_id is not None
            and targets.dtype.kind == self._ids.dtype.kind
        ):
            found = self._by_id[
                np.minimum(
                    np.searchsorted(self._ids, targets, sorter=self._by_id), len(self._row) - 1
                )
            ]
            known = self._ids[found] == targets
        if not np.all(known):
            first = shown(targets[~known].tolist()[0])
            raise DataError(
                f"targets: the graph has no node {first} ({np.count_nonzero(~known)} unknown ids); "
                "give ids of Graph.node_ids, or node numbers if it has none"
            )
        return found.astype(np.int64)

    def _block(self, level: Level, at: np.ndarray, nodes: np.ndarray) -> Block:
        (sweep,) = level.passes
        parts = [
            (
                at[s.other],
                at[np.repeat(s.row, np.diff(s.ptr))],
                s.gid[s.stored],
                np.ones(s.n_edges) if s.weight is None else s.weight.astype(np.float64),
            )
            for s in sweep.selections
        ]
        none = np.zeros(0, np.int64)
        src, dst, edge, weight = (
            np.concatenate(x) for x in zip((none, none, none, np.zeros(0)), *parts, strict=True)
        )
        order = np.lexsort((edge, dst))
        return Block(
            nodes=nodes[: level.n_in],
            n_out=level.n_out,
            src=src[order],
            dst=dst[order],
            edge=edge[order],
            weight=weight[order],
        )


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
    """Sample the neighbourhood of some targets once; in a loop over batches use ``BlockSampler``,
    which prepares the graph once.

    Args:
        graph, fanout, sampler, replace, seed, direction: As ``BlockSampler`` takes them.
        targets, step: As its call takes them.

    Returns:
        One block per hop, the hop furthest from the targets first.

    Raises:
        ConfigError: Unknown sampler, option or direction, or an option the sampler does not read.
        DataError: An id is unknown or given twice, or the sampler cannot use the values of a column
            that it reads.
    """
    return BlockSampler(
        graph, fanout, sampler=sampler, replace=replace, seed=seed, direction=direction
    )(targets, step)
