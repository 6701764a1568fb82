"""What is known of triples: the answers to each query, a triple without its head or its tail.

A query is a number: (2 relation + side) n_nodes + anchor, where the anchor is the head and the side
is 0 if the tail is asked for, and the anchor is the tail and the side is 1 if the head is. With
reciprocal relations (https://arxiv.org/abs/1806.07297, section 3) the head of (?, r, t) is asked
for as the tail of (t, r + R, ?), where R is the number of relations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.directory import LocalDirectory
from graphtheta.engine.partition.relation import RELATION
from graphtheta.engine.partition.table import Route, home_of
from graphtheta.graph.data.graph import Graph

TAIL, HEAD = SIDES = 0, 1


class Triples(NamedTuple):
    """Some triples.

    Attributes:
        head, relation, tail: Of each, [n] int64.
        sides: The sides of the queries that are asked about each.
        cutoff: ``Task.cutoffs`` of each, [n], or None.
        weight: What each weighs in the loss, [n] float64, or None.
    """

    head: np.ndarray
    relation: np.ndarray
    tail: np.ndarray
    sides: tuple[int, ...] = SIDES
    cutoff: np.ndarray | None = None
    weight: np.ndarray | None = None

    def queries(self, n_nodes: int) -> np.ndarray:
        """The queries about each, for the tail and for the head, [n, number of sides] int64."""
        anchors = self.head, self.tail
        return np.stack(
            [(2 * self.relation + side) * n_nodes + anchors[side] for side in self.sides], axis=1
        )

    def answers(self) -> np.ndarray:
        """The answers to these queries, [n, number of sides] int64."""
        ends = self.tail, self.head
        return np.stack([ends[side] for side in self.sides], axis=1)

    def some(self, rows: np.ndarray) -> Triples:
        """Some of these, given by a mask or by their positions."""
        cutoff, weight = (None if x is None else x[rows] for x in (self.cutoff, self.weight))
        return Triples(
            head=self.head[rows],
            relation=self.relation[rows],
            tail=self.tail[rows],
            sides=self.sides,
            cutoff=cutoff,
            weight=weight,
        )

    def with_reciprocal(self, relations: int) -> Triples:
        """These triples, and then their reciprocal ones; only tails are asked for.

        Args:
            relations: Number of relations.
        """
        ends = np.concatenate((self.head, self.tail)), np.concatenate((self.tail, self.head))
        cutoff, weight = (None if x is None else np.tile(x, 2) for x in (self.cutoff, self.weight))
        return Triples(
            head=ends[0],
            relation=np.concatenate((self.relation, self.relation + relations)),
            tail=ends[1],
            sides=(TAIL,),
            cutoff=cutoff,
            weight=weight,
        )


def anchor_of(query: np.ndarray, n_nodes: int) -> np.ndarray:
    """The node of a query."""
    return query % n_nodes


def relation_of(query: np.ndarray, n_nodes: int) -> np.ndarray:
    """The relation of a query."""
    return query // n_nodes // 2


def side_of(query: np.ndarray, n_nodes: int) -> np.ndarray:
    """What a query asks for, ``TAIL`` or ``HEAD``."""
    return query // n_nodes % 2


def without_reciprocal(query: np.ndarray, n_nodes: int, relations: int) -> np.ndarray:
    """Queries for the tail of a reciprocal relation as those for the head that they stand for, and
    all others as they are.

    Args:
        query: Queries.
        n_nodes: Nodes of the graph.
        relations: Number of relations.
    """
    return np.where(
        relation_of(query, n_nodes) >= relations, query + (HEAD - 2 * relations) * n_nodes, query
    )


def slice_of(
    graph: Graph,
    comm: Comm,
    chosen: np.ndarray | None = None,
    cutoff: np.ndarray | None = None,
    weight: str = "",
) -> Triples:
    """The triples of this worker's slice of the edges.

    Args:
        graph: The graph.
        comm: The workers.
        chosen: Mask of the edges; None for all.
        cutoff: ``Task.cutoffs`` of the edges, [n_edges], or None.
        weight: Edge column of the weights; empty for none.
    """
    begin, end = (graph.n_edges * (comm.rank + i) // comm.size for i in (0, 1))
    rows = slice(None) if chosen is None else chosen[begin:end]
    head, relation, tail = (
        np.asarray(x[begin:end])[rows].astype(np.int64)
        for x in (graph.src, graph.edge_columns[RELATION], graph.dst)
    )
    weights = (
        np.asarray(graph.edge_columns[weight][begin:end][rows], np.float64) if weight else None
    )
    return Triples(
        head,
        relation,
        tail,
        cutoff=None if cutoff is None else cutoff[begin:end][rows],
        weight=weights,
    )


@dataclass(frozen=True)
class Answers:
    """Answers to some queries of this worker.

    Attributes:
        queries: Ascending, each once, [q] int64.
        keys: Number of a query times n_nodes plus the answer, ascending, each once, [n] int64.
        n_nodes: Nodes of the graph.
    """

    queries: np.ndarray
    keys: np.ndarray
    n_nodes: int

    def has(self, number: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Whether nodes are answers to the queries of these numbers; both broadcast."""
        wanted = np.asarray(number * self.n_nodes + nodes)
        return (self._places.find(wanted.ravel()) >= 0).reshape(wanted.shape)

    @cached_property
    def _places(self) -> LocalDirectory:
        return LocalDirectory(self.keys)


class AnswerTable:
    """The answers of all triples to all queries, as a distributed table: those to one query at one
    worker.

    Args:
        comm: The workers.
        triples: Those that this worker contributes; the same triple may come from several.
        n_nodes: Nodes of the graph.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, triples: Triples, n_nodes: int):
        self._comm = comm
        self._n_nodes = n_nodes
        rows = np.stack((triples.queries(n_nodes).ravel(), triples.answers().ravel()), axis=1)
        route = Route(home_of(comm)(rows[:, 0]), comm.size)
        pairs = np.unique(np.concatenate(comm.all_to_all(route.parts(rows))), axis=0)
        self.queries, ptr = np.unique(pairs[:, 0], return_index=True)
        self._ptr = np.append(ptr, len(pairs))
        self._nodes = pairs[:, 1]

    def answers(self, queries: np.ndarray) -> Answers:
        """The answers to some queries, which are ascending, each once.

        Collective: all ranks of comm.
        """
        comm = self._comm
        route = Route(home_of(comm)(queries), comm.size)
        replies = [self._own_answers(part) for part in comm.all_to_all(route.parts(queries))]
        counts = route.back(comm.all_to_all([count for count, _ in replies]))
        nodes = np.concatenate(comm.all_to_all([nodes for _, nodes in replies]))
        number = np.repeat(route.order, counts[route.order])
        return Answers(queries, np.sort(number * self._n_nodes + nodes), self._n_nodes)

    def _own_answers(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number of answers to each query, and the answers."""
        if not len(self.queries):
            return np.zeros(len(queries), np.int64), self._nodes
        at = np.minimum(np.searchsorted(self.queries, queries), len(self.queries) - 1)
        counts = np.where(self.queries[at] == queries, np.diff(self._ptr)[at], 0)
        first = np.repeat(self._ptr[at] - (np.cumsum(counts) - counts), counts)
        return counts, self._nodes[first + np.arange(len(first))]
