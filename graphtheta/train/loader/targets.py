"""The targets of a loader: a split, all nodes, or nodes that are given."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.engine.partition.partition import Partition
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.validation import Origin, as_array

SPLITS = ("train", "val", "test")
ALL = "all"


class Nodes:
    """The nodes of a graph, by what users call them.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self._ids = None if graph.node_ids is None else np.asarray(graph.node_ids)

    @cached_property
    def _by_id(self) -> np.ndarray:
        """The nodes in the order of their ids."""
        assert self._ids is not None
        return np.argsort(self._ids)

    def rows(self, targets: Any, partition: Partition) -> np.ndarray:
        """Master rows of this worker's targets, ascending, [n] int64.

        Args:
            targets: A split, "all", or numbers of nodes, [n] int64.
            partition: This worker's part of the graph.

        Raises:
            ConfigError: There is no such split.
            DataError: The graph has no mask for it.
        """
        if not isinstance(targets, str):
            chosen = np.zeros(self._graph.n_nodes, bool)
            chosen[targets] = True
            return np.flatnonzero(chosen[partition.masters])
        if targets == ALL:
            return np.arange(partition.n_masters)
        if targets not in SPLITS:
            raise ConfigError(
                f"targets={targets!r} is no set of nodes; choose from {', '.join(SPLITS)}, {ALL},"
                " or give their ids"
            )
        if targets not in partition.node:
            raise DataError(
                f"targets={targets!r}: the graph has no mask of that name; give it masks"
                " (graph.with_masks), or give targets='all' or ids"
            )
        return np.flatnonzero(partition.node.read(targets))

    def numbers(self, targets: Any) -> np.ndarray:
        """Numbers of the nodes that are given, in this order, [n] int64.

        Args:
            targets: Ids of ``Graph.node_ids``, or node numbers if the graph has none, [n]; a mask
                of all nodes, [n_nodes] bool; or a pair of a type and numbers of this type.

        Raises:
            DataError: An id is unknown, or given twice; or there is no such type.
        """
        n = self._graph.n_nodes
        if isinstance(targets, tuple) and len(targets) == 2 and isinstance(targets[0], str):
            kind, targets = targets
            nodes = self._graph.nodes_of(kind)
            given = as_array(targets, Origin("", "targets"))
            return nodes[_checked(given, given, self._numbered(given, len(nodes)))]
        given = as_array(targets, Origin("", "targets"))
        if given.dtype == bool and given.shape == (n,):
            return np.flatnonzero(given)
        if self._ids is None:
            return _checked(given, given, self._numbered(given, n))
        if given.dtype.kind == "u" and np.all(given <= np.iinfo(np.int64).max):
            # as the graph has its ids
            given = given.astype(np.int64)
        if given.ndim != 1 or given.dtype.kind != self._ids.dtype.kind:
            return _checked(given, given, np.zeros(given.shape, bool))
        at = np.searchsorted(self._ids, given, sorter=self._by_id)
        numbers = self._by_id[np.minimum(at, n - 1)]
        return _checked(given, numbers, self._ids[numbers] == given)

    @staticmethod
    def _numbered(given: np.ndarray, n: int) -> np.ndarray:
        """Which of some values are numbers below n."""
        return (
            (given >= 0) & (given < n) if given.dtype.kind in "iu" else np.zeros(given.shape, bool)
        )


def _checked(given: np.ndarray, numbers: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The nodes that were found for some ids, if all are known and none is given twice."""
    if given.ndim != 1:
        raise DataError(f"targets: expected ids of shape [n], got {list(given.shape)}")
    if not np.all(valid):
        first = shown(given[~valid].tolist()[0])
        raise DataError(
            f"targets: the graph has no node {first} ({np.count_nonzero(~valid)} unknown ids); "
            "give ids of Graph.node_ids, or node numbers if it has none"
        )
    if len(np.unique(numbers)) < len(numbers):
        raise DataError("targets: an id is given twice; give each target once")
    return numbers.astype(np.int64)
