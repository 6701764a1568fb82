"""Exact inference layer by layer over blocks of nodes; values of all nodes are in files.

``forward`` runs once for each block and hop of a model. Layers of that hop are computed for the
block, earlier ones return the values in the files for the block and its neighbours, and the pass
ends when the layers of the hop have run. A last pass over each block computes what follows the
last layer. Nothing is sampled, so the results are those of a pass over the whole graph.

The idea is that of layer-wise inference of GraphSAGE, https://arxiv.org/abs/1706.02216, as DGL and
PyTorch Geometric apply it; any ``forward`` takes part here, with no code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

import numpy as np

from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.settings import pass_settings
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.train.step import QUIET
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.hop import Hop, depth
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.inference.forward.block_graph import (
    BlockGraph,
    Finished,
    LayerOutput,
    Sent,
    edge_name,
    sent_name,
    shapes,
    value_name,
)
from graphtheta.inference.forward.spill import RowValues
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.functions.rows import prefix

# the rows of the masters of each block of this worker; the same number of blocks on every worker
RowBlocks = list[np.ndarray]


class LayerWise:
    """Passes over the whole graph by blocks.

    Args:
        model: The model.
        partition: The partition.
        probe: Of the model.
        spill: Gets the values of all layers of this worker's masters and edges.
        blocks: Rows of masters whose values are computed at a time.
        sent: What becomes of the columns that edges read at senders; None if a pass computes all of
            them and keeps none.
        layer_outputs: What each layer makes, if it is known.

    Attributes:
        rows, edges: Rows and edges of all passes of this worker so far.
        layer_outputs: What each layer makes.
    """

    def __init__(
        self,
        model: Model,
        partition: Partition,
        probe: Probe,
        spill: RowValues,
        blocks: Callable[[list[Hop]], RowBlocks],
        sent: Sent | None = None,
        layer_outputs: list[LayerOutput] | None = None,
    ):
        self._sent = sent
        self._model = model
        self._partition = partition
        self._spill = spill
        self._blocks = blocks
        self._layers = probe.layers
        self._supersteps = probe.supersteps
        self.layer_outputs = (
            shapes(model, partition, probe.layers) if layer_outputs is None else layer_outputs
        )
        self.rows = self.edges = 0
        self._viewed: tuple[tuple[np.ndarray, list[Hop], np.ndarray], GraphView] | None = None

    def layer(self, superstep: int) -> np.ndarray:
        """The values of a superstep that sums messages for all masters, [n_masters, ...].

        Args:
            superstep: Its number among all that the model runs.

        Collective: all ranks of the partition.
        """
        summing = [
            i
            for i, step in enumerate(self._supersteps)
            if step.made_by is not None
            and step.made_by.sum is not None
            and pass_settings().ingredients(step.made_by) is None
        ]
        if superstep not in summing:
            # its total was computed before, so that it reads no neighbours
            return self._by_rows(lambda view: self._passed(view, superstep))
        number = summing.index(superstep)
        self.run(self._layers[number].from_end)
        return self._spill.read(value_name(number), np.arange(self._partition.n_masters))

    def outputs(self, view: GraphView) -> Var:
        """What the model returns for all masters, or for the pairs of a view of the whole graph.

        Raises:
            ConfigError: The view is of a part of the graph, or the model reads sums over all nodes.

        Collective: all ranks of the partition.
        """
        p = self._partition
        if view.rows is not None:
            raise ConfigError(
                "inference_memory: passes over a part of the graph, which evaluate targets at their"
                " times, have no limit; drop it"
            )
        self.run(0)
        if view.pairs is not None:
            return self._passed(replace(view, levels=[]))
        return Var(self._by_rows(self._passed), RowSpace(p.masters))

    def outputs_by_rows(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The masters of each block of the last pass, and what the model returns for them.

        Collective: all ranks of the partition.
        """
        self.run(0)
        yield from self._in_blocks(self._passed)

    def _by_rows(self, values: Callable[[GraphView], Var]) -> np.ndarray:
        """Values of all masters, computed for views of some of them without edges."""
        out = None
        for rows, value in self._in_blocks(values):
            out = (
                np.empty((self._partition.n_masters, *value.shape[1:]), value.dtype)
                if out is None
                else out
            )
            out[rows] = value
        assert out is not None
        return out

    def _in_blocks(
        self, values: Callable[[GraphView], Var]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The masters of each block, and values computed for a view of them without edges."""
        p = self._partition
        for rows in self._blocks([]):
            yield rows, np.asarray(values(GraphView(p, [], rows, RowSpace(p.masters[rows]))).value)

    def run(self, last: int) -> None:
        """Compute the layers that are at least ``last`` hops before the end.

        Collective: all ranks of the partition.
        """
        for hop in range(depth(self._layers) - 1, last - 1, -1):
            running = [i for i, x in enumerate(self._layers) if x.from_end == hop]
            self._create(running)
            for rows in self._blocks([self._layers[i] for i in running]):
                self._compute(running, rows)

    def _create(self, running: list[int]) -> None:
        """Make the files of some layers.

        Raises:
            FormatError: There is no space for them; on all ranks together.
        """
        with self._partition.halo_comm.agreed():
            for i in running:
                shape, dtype = self.layer_outputs[i].value
                self._spill.create(value_name(i), (self._partition.n_masters, *shape), dtype)
                for name, (shape, dtype) in self.layer_outputs[i].edges.items():
                    self._spill.create(
                        edge_name(i, name), (self._partition.n_local_edges, *shape), dtype
                    )
                for name, (shape, dtype) in (
                    self.layer_outputs[i].sent.items()
                    if self._sent is not None and self._sent.keeps
                    else ()
                ):
                    self._spill.create(
                        sent_name(i, name), (self._partition.n_masters, *shape), dtype
                    )

    def _compute(self, running: list[int], rows: np.ndarray) -> None:
        """Compute some layers for some masters, in ascending order."""
        fresh = (
            None
            if self._sent is None or self._sent.fresh is None
            else self._sent.fresh(self._layers[running[0]].from_end)
        )
        view = self._view(rows, [Hop(self._layers[i].direction, 0) for i in running], fresh)
        self.rows += len(rows)
        self.edges += sum(level.n_edges for level in {id(x): x for x in view.levels}.values())
        n = None
        if fresh is not None:
            assert view.rows is not None
            n = len(rows) + int(np.count_nonzero(fresh[view.rows[len(rows) :]]))
        graph = BlockGraph(
            view=view,
            layer_outputs=self.layer_outputs,
            running=running,
            spill=self._spill,
            sent=self._sent,
            n=n,
        )
        with (
            np.errstate(**QUIET),
            Tape(record=False, training=False, all_sum=refused),
            suppress(Finished),
        ):
            self._model.run(graph)
        for i, x in graph.results.items():
            self._spill.write(value_name(i), rows, np.asarray(x.value[: len(rows)]))
        for name, x in graph.sent_results.items():
            self._spill.write(name, rows, np.asarray(x.value[: len(rows)]))
        for name, (stored, values) in graph.edge_results.items():
            self._spill.write(name, stored, values)

    def _view(self, rows: np.ndarray, hops: list[Hop], fresh: np.ndarray | None) -> GraphView:
        """The view of some masters and those that send to them; with ``fresh``, its masters first.

        Layers of which few rows are computed often have the same view. It is not kept in passes
        over all rows, for which memory may be limited.

        Collective: all ranks of the partition.
        """
        p = self._partition
        if fresh is not None and self._viewed is not None:
            (viewed, along, first), view = self._viewed
            same = along == hops and np.array_equal(viewed, rows) and np.array_equal(first, fresh)
            if p.halo_comm.all_min(np.array(same)):
                return view
        targets = np.zeros(p.n_masters, bool)
        self._viewed = None
        targets[rows] = True
        view = k_hop_view(p, targets, hops, first=fresh)
        if fresh is not None:
            self._viewed = (rows, hops, fresh), view
        return view

    def _passed(self, view: GraphView, superstep: int = -1) -> Var:
        """The outputs, or those of a superstep, of a pass that computes no layer over edges."""
        graph = BlockGraph(view, self.layer_outputs, (), self._spill)
        graph.wanted = superstep
        with np.errstate(**QUIET), Tape(record=False, training=False, all_sum=refused):
            out = self._model.run(graph)
        out = out if graph.wanted_result is None else graph.wanted_result
        assert out.space is not None
        n = view.n_targets
        out = prefix(out, n) if out.space.kind == "node" and out.space.n > n else out
        return Var(out.value, out.space)


def refused(_: np.ndarray) -> NoReturn:
    """Sums over all nodes in a pass over some of them: always a ConfigError."""
    raise ConfigError(
        "the model reads a sum over all nodes (gt.graph_sum, gt.graph_mean), which a pass over some"
        " of them cannot compute; run it without a memory limit"
    )
