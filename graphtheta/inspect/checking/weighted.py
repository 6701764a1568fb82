"""A sampled view with importance weights, and aggregators that are given repeated edges instead.

An edge of importance weight k represents k edges, so it must count as k equal ones. The weights
here are integers, so that an aggregator can be given these edges themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np

from graphtheta.base.rng import Purpose, integers, key
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.layer.staged import Pooling
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.candidates import Frontier, Sample
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.view import GraphView
from graphtheta.ops.edge.aggregator import Aggregator, Segments, Shape, State, aggregators

MOST = 3


class _Sampler:
    """Keeps most edges, with weights from 1 to 3, the same in every hop.

    Layers that share edge values need one sample.
    """

    name: ClassVar[str] = "weighted"
    hops = None

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """See ``Sampler.choose``."""
        chosen = []
        for candidates in frontier.candidates:
            edges = candidates.listed()
            edges, times = edges.selected(_weights(frontier.relation.gid[edges.stored]))
            chosen.append(edges.weighted(times.astype(np.float64)))
        return Sample(chosen)


def _weights(gid: np.ndarray) -> np.ndarray:
    """How many edges each edge represents, [n] int32; 0 for one that is left out."""
    return integers(key(6, Purpose.CHECK), gid, MOST + 1).astype(np.int32)


def sampled(partition: Partition, layers: Layers) -> GraphView:
    """The view of every other node as a target, with sampled edges.

    Collective: all ranks of the partition.
    """
    return k_hop_view(partition, partition.masters % 2 == 0, layers, sampler=_Sampler())


def repeating(model: Model) -> Iterator[tuple[str, str, Model]]:
    """For each aggregator in which weights count, a model that repeats edges for it.

    Yields the names of layer and aggregator before it.
    """
    layers = [
        (path, layer)
        for path, layer in model.named_modules()
        if isinstance(layer, (Layer, Pooling))
    ]
    for path, layer in layers:
        by_name = aggregators(layer.sum)
        for name, aggregator in by_name.items():
            if isinstance(aggregator, Aggregator) and aggregator.weighted:
                other = deepcopy(model)
                changed: Any = dict(other.named_modules())[path]
                repeated = _Repeated(aggregator)
                # also of a layer that refuses assignments
                vars(changed)["sum"] = {**by_name, name: repeated} if name else repeated
                yield type(layer).__name__, type(aggregator).__name__, other


class _Repeated(Aggregator):
    """An aggregator that is given k equal edges in place of one of weight k."""

    def __init__(self, inner: Aggregator):
        self.inner = inner
        self.name = inner.name
        self.partial = inner.partial
        self.shared = inner.shared

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        return self.inner.start(n, shapes, dtype)

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        at, first = _copies(gid, scale)
        self.inner.accumulate(
            state,
            Segments(seg.row, first[seg.start], seg.of_edge[at]),
            [x[at] for x in parts],
            gid[at],
            None,
        )

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        self.inner.merge(state, rows, other)

    def passes(self, dtype: Any) -> int:
        return self.inner.passes(dtype)

    def refine(self, state: State, number: int) -> None:
        self.inner.refine(state, number)

    def beside(self, given: State, n: int, shapes: list[Shape], dtype: Any) -> State:
        return self.inner.beside(given, n, shapes, dtype)

    def finish(self, state: State) -> np.ndarray:
        return self.inner.finish(state)

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return self.inner.backward_state(state, total, g)

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        at, first = _copies(gid, scale)
        repeated = {name: x[at] for name, x in columns.items()}
        return [
            np.add.reduceat(g, first)
            for g in self.inner.backward(repeated, [x[at] for x in parts], gid[at], None)
        ]


def _copies(gid: np.ndarray, scale: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The edge of each copy, and the first copy of each edge."""
    times = np.ones(len(gid), np.int64) if scale is None else np.rint(scale).astype(np.int64)
    return np.repeat(np.arange(len(gid)), times), np.cumsum(times) - times
