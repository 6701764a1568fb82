"""Inference on a grown graph from the values of an earlier one: only rows whose values can differ
are computed.

The earlier inference keeps the values of every layer, and a fingerprint of each node: of what the
model reads at it, and of its edges. On the grown graph, nodes without values or with other
fingerprints are changed, and from hop to hop the nodes that receive from changed ones. Values of
all others are read. The result is that of a pass over the whole graph, up to the rounding of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.strategy import whole as whole_view
from graphtheta.engine.train.step import QUIET
from graphtheta.engine.view.hop import Hop, depth
from graphtheta.errors import ConfigError
from graphtheta.inference.forward.block_graph import Sent, edge_name, sent_name, value_name
from graphtheta.inference.forward.embedding import asked_ids, embedded, of_nodes, superstep_of
from graphtheta.inference.forward.layerwise import LayerWise, RowBlocks
from graphtheta.inference.forward.on_graph import ModelOnGraph
from graphtheta.inference.grown.comparison import (
    DEGREES,
    changes_since,
    check_comparison,
    degrees_read_by,
    directions_of,
    fingerprints,
    ids_of,
    program_hash,
    ranks_of,
    weights_hash,
)
from graphtheta.inference.grown.frontier import READ, changed_rows, needed_rows
from graphtheta.inference.grown.layer_files import ROW, EarlierValues, LayerFiles, writing
from graphtheta.inference.outputs.formats import OutputRows
from graphtheta.inference.outputs.predictions import (
    TARGETS,
    PredictionChoice,
    choice_of,
    embedding_rows,
    is_all,
    named_rows,
)
from graphtheta.ops.rows.row_list import take_rows
from graphtheta.samplers.hidden import refuse
from graphtheta.tasks.evaluation.evaluate import RowEvaluator

# the array of outputs that is kept
OUTPUTS = "outputs"
# share of the edges above which a pass over the whole graph, which lists no rows, is faster
MOST = 0.5


class InferenceWork(NamedTuple):
    """What an inference computed, of all workers.

    Attributes:
        appended: Nodes that the earlier graph did not have.
        changed: Nodes with other values or edges, with those.
        rows, edges: Rows and edges of all layers that were computed.
        all_rows, all_edges: Those of a pass over the whole graph.
        comparing, computing: Seconds of rank 0.
    """

    appended: int
    changed: int
    rows: int
    edges: int
    all_rows: int
    all_edges: int
    comparing: float
    computing: float

    def __str__(self) -> str:
        return (
            f"{self.appended:,} appended and {self.changed - self.appended:,} changed nodes:"
            f" computed {self.rows:,} of {self.all_rows:,} rows and {self.edges:,} of"
            f" {self.all_edges:,} edges of all layers, in {self.computing:.2f} s after"
            f" {self.comparing:.2f} s of comparing"
        )


class _LayerValues:
    """Values that are computed now, and those kept for all other rows."""

    def __init__(self, earlier: EarlierValues):
        self._earlier = earlier
        self._computed: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._computed

    def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        """Make an array, of which no row is computed yet."""
        self._computed[name] = np.zeros(0, np.int64), np.zeros((0, *shape[1:]), dtype)

    def write(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Add rows that were computed; those of edges are in the order in which the view lists
        them.
        """
        earlier, old = self._computed[name]
        if len(earlier):
            rows = np.concatenate((earlier, rows))
            values = np.concatenate((old, values))
        if np.any(rows[1:] < rows[:-1]):
            order = np.argsort(rows)
            rows, values = rows[order], values[order]
        self._computed[name] = rows, values

    def read(self, name: str, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Some rows, not to be changed; a copy in ``out``, contiguous, if it is given."""
        if name not in self._computed:
            return self._earlier.read(name, rows, out)
        computed, values = self._computed[name]
        if out is None and np.array_equal(computed, rows):
            return values
        at = np.minimum(np.searchsorted(computed, rows), max(len(computed) - 1, 0))
        here = computed[at] == rows if len(computed) else np.zeros(len(rows), bool)
        if here.all() and len(computed):
            return np.asarray(take_rows(values, at, out))
        out = np.empty((len(rows), *values.shape[1:]), values.dtype) if out is None else out
        out[here] = values[at[here]]
        if not here.all():
            out[~here] = self._earlier.read(name, rows[~here])
        return out


class Grown:
    """A model on a graph that has grown since its layers were kept.

    Args:
        model: On the grown graph.
        folder: What ``keep_layers`` wrote on the earlier graph. Nodes are the same by their
            original ids; without, in a graph of several types, by their type and their number in
            it.
        compare: How nodes of both graphs are compared: by all "values" that the model reads, and
            all edges; or by "degrees" alone, which is faster, and enough if nodes and edges were
            only appended.

    Attributes:
        new: Masters that the earlier graph did not have, [n_masters] bool.
        appended: Their original ids.
        work: What the last call computed.

    Raises:
        ConfigError: The values are those of another model, the model cannot be computed by parts,
            or there is no such comparison.
        FormatError: The folder cannot be read.
        Each on all ranks together.

    Collective: all ranks, here and in every method.
    """

    work: InferenceWork

    def __init__(self, model: ModelOnGraph, folder: str | Path, compare: str = "values"):
        self._on = model
        self._folder = Path(folder).resolve()
        began = perf_counter()
        p = model.partition
        layers = model.probe.layers
        check_comparison(model, compare)
        with model.setup.scope():
            now = fingerprints(model, values=compare == "values")
            with model.comm.agreed():
                earlier = EarlierValues(
                    Path(folder),
                    ids_of(model),
                    ranks_of(model),
                    weights_hash(model),
                    program_hash(model),
                )
                changes = changes_since(earlier, now, degrees_read_by(model), directions_of(layers))
            self._earlier = earlier
            self._given = changes.values
            self._changed = changed_rows(p, layers, changes)
        self.new = ~earlier.present
        any_change = changes.values | np.logical_or.reduce(list(changes.edges.values()))
        total = model.comm.all_sum(np.array([self.new.sum(), any_change.sum()]))
        self._counts = int(total[0]), int(total[1])
        self._seconds = perf_counter() - began
        self.appended = np.asarray(model.setup.info.ids(p.masters[self.new]))

    def predict(
        self, nodes: Any = None, *, appended: bool = False
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Original ids and outputs, on rank 0; None elsewhere.

        Args:
            nodes: Original ids, in the order of the result, or a mask of all nodes, the same on all
                workers; "all" for all; None for those of the types that have labels.
            appended: Only the nodes that the earlier graph did not have.

        Raises:
            ConfigError: There is no such node; on all ranks together.
        """
        every = is_all(nodes)
        nodes = self._asked(None if every else nodes, predicted=True)
        # nodes that are asked for have rows whatever their type
        every = every or (nodes is not None and self._on.setup.info.whole is None)
        wanted = self._wanted(nodes, appended, predicted=True)
        rows = self._predictions(wanted, True, PredictionChoice(every, own=False))
        return None if rows is None else of_nodes(rows.ids, rows.values, nodes)

    def embed(
        self, nodes: Any = None, layer: Any = -1, *, appended: bool = False
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What a layer inside the model returns; arguments and result as of ``predict``, and
        ``layer`` as of ``Trainer.embed``.
        """
        nodes = self._asked(nodes)
        rows = self.embeddings(self._wanted(nodes, appended), layer)
        return None if rows is None else of_nodes(rows.ids, rows.values, nodes)

    def predictions(
        self,
        wanted: np.ndarray | None = None,
        *,
        whole: bool = True,
        nodes: str = TARGETS,
        columns: Any = None,
    ) -> OutputRows | None:
        """Predictions with the classes by name.

        Args:
            wanted: The masters that count, [n_masters] bool; None for all.
            whole: Those of all workers on rank 0, and None elsewhere; otherwise those of each
                worker.
            nodes, columns: As of ``Trainer.predictions``.
        """
        return self._predictions(wanted, whole, choice_of(nodes, columns))

    def _predictions(
        self, wanted: np.ndarray | None, whole: bool, choice: PredictionChoice
    ) -> OutputRows | None:
        setup = self._on.setup
        assert isinstance(setup.evaluator, RowEvaluator)
        threshold = setup.evaluator.threshold
        # it is chosen on the validation rows of all workers, in the order of the evaluator
        chosen = threshold is not None and bool(threshold.goal)
        every = np.ones(self._on.partition.n_masters, bool)
        rows, out = self._computed(every if chosen else wanted, None)
        return named_rows(
            rows=rows,
            out=out,
            evaluator=setup.evaluator,
            kind=setup.kind,
            info=setup.info,
            whole=whole,
            choice=choice,
            wanted=wanted if chosen else None,
        )

    def embeddings(
        self, wanted: np.ndarray | None = None, layer: Any = -1, *, whole: bool = True
    ) -> OutputRows | None:
        """Embeddings; arguments as of ``predictions``, and ``layer`` as of ``Trainer.embed``."""
        on = self._on
        rows, out = self._computed(wanted, superstep_of(on.model, on.probe, layer))
        return embedding_rows(rows=rows, out=out, comm=on.comm, info=on.setup.info, whole=whole)

    @np.errstate(**QUIET)
    def keep_layers(self, folder: str | Path) -> None:
        """Keep the values of all layers on the grown graph, as ``Inference.keep_layers``, but
        compute only what has changed.

        Raises:
            ConfigError: It is the folder that values are read from.
            FormatError: The folder holds other files, or cannot be written; on all ranks together.
        """
        on = self._on
        p = self._on.partition
        if Path(folder).resolve() == self._folder:
            raise ConfigError(
                f"{folder}: later calls read the earlier values from this folder; choose"
                " another one"
            )
        every = np.arange(p.n_masters)
        with on.setup.scope(), _writing(on, folder) as files:
            passes, layer_values, needed = self._passes(np.ones(p.n_masters, bool), keeps=True)
            out = self._outputs(passes, needed[0] if needed else np.ones(p.n_masters, bool), every)
            for i, output in enumerate(passes.layer_outputs):
                for name in (value_name(i), *(sent_name(i, column) for column in output.sent)):
                    values = layer_values.read(name, every)
                    files.create(name, values.shape, values.dtype)
                    files.write(name, every, values)
            files.add(OUTPUTS, out, ranks_of(on))

    def _passes(
        self, wanted: np.ndarray, keeps: bool = False
    ) -> tuple[LayerWise, _LayerValues, list[np.ndarray]]:
        """Passes over the rows that some masters need, the values that they find, and these rows by
        hop.
        """
        on = self._on
        layer_values = _LayerValues(self._earlier)
        needed = list[np.ndarray]()
        # values that a layer reads are changed where they were computed one hop before
        sent = Sent(keeps, lambda hop: needed[hop + 1] if hop + 1 < len(needed) else self._given)
        passes = LayerWise(
            model=on.model,
            partition=on.partition,
            probe=on.probe,
            spill=layer_values,
            blocks=lambda hops: self._blocks(needed, hops),
            sent=sent,
            layer_outputs=on.layer_outputs,
        )
        carrying = {
            hop.from_end
            for hop, output in zip(on.probe.layers, passes.layer_outputs, strict=True)
            if output.edges
        }
        needed += needed_rows(
            partition=on.partition,
            layers=on.probe.layers,
            changed=self._changed,
            wanted=wanted,
            carrying=carrying,
        )
        return passes, layer_values, needed

    @np.errstate(**QUIET)
    def _computed(
        self, wanted: np.ndarray | None, superstep: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the wanted masters, and their outputs, or the values of a superstep."""
        on = self._on
        began = perf_counter()
        p = on.partition
        layers = on.probe.layers
        if wanted is None:
            # rows of files are in this order, and so is the result
            wanted = np.ones(p.n_masters, bool)
            rows = np.empty(p.n_masters, np.int64)
            rows[ranks_of(on)] = np.arange(p.n_masters)
        else:
            rows = np.flatnonzero(wanted)
        with on.setup.scope():
            passes, layer_values, needed = self._passes(wanted)
            if self._share(needed) > MOST:
                out = np.asarray(
                    embedded(on.model, p, on.probe, superstep)
                    if superstep is not None
                    else on.setup.evaluator.run(on.model, whole_view(p, layers)).value
                )[rows]
                self.work = InferenceWork(
                    *self._counts, *whole_work(p, layers) * 2, self._seconds, perf_counter() - began
                )
                return p.masters[rows], out
            if superstep is None:
                out = self._outputs(passes, needed[0] if needed else wanted, rows)
            else:
                number = on.probe.layer_numbers.index(superstep)
                passes.run(layers[number].from_end)
                out = layer_values.read(value_name(number), rows)
        n_rows, n_edges = on.comm.all_sum(np.array([passes.rows, passes.edges])).tolist()
        self.work = InferenceWork(
            *self._counts,
            n_rows,
            n_edges,
            *whole_work(p, layers),
            self._seconds,
            perf_counter() - began,
        )
        return p.masters[rows], out

    def _share(self, needed: list[np.ndarray]) -> float:
        """The share of the edges of all layers that the needed rows read; 0 if a pass over the
        whole graph exceeds the memory limit.
        """
        p = self._on.partition
        layers = self._on.probe.layers
        degrees = {reverse: p.node.read(name) for reverse, name in DEGREES.items()}
        each = {(hop.from_end, hop.direction) for hop in layers}
        read = sum(
            float(degrees[reverse][needed[hop]].sum())
            for hop, direction in each
            for reverse in READ[direction]
        )
        total = whole_work(p, layers)[1]
        share = float(self._on.comm.all_sum(np.array(read))) / total if total else 0.0
        return share if self._on.setup.limit is None else 0.0

    def _outputs(self, passes: LayerWise, computed: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Outputs of some masters: of those that are computed now, and kept ones."""
        blocks = list(passes.outputs_by_rows())
        at, now = (np.concatenate(part) for part in zip(*blocks, strict=True))
        out = np.empty((len(rows), *now.shape[1:]), now.dtype)
        fresh = computed[rows]
        n = len(rows) - int(np.count_nonzero(fresh))
        # blocks are in the order of rows
        out[fresh] = now[np.searchsorted(at, rows[fresh])]
        if fresh[:n].any():
            out[~fresh] = self._earlier.read(OUTPUTS, rows[~fresh])
        else:
            self._earlier.read(OUTPUTS, rows[:n], out[:n])
        return out

    def _blocks(self, needed: list[np.ndarray], hops: list[Hop]) -> RowBlocks:
        """The rows to compute at a hop or after the last one, in blocks within the memory limit."""
        n = self._on.partition.n_masters
        rows = needed[hops[0].from_end if hops else 0] if needed else np.ones(n, bool)
        limit = self._on.setup.limit
        return (
            [np.flatnonzero(rows)]
            if limit is None
            else [block[rows[block]] for block in limit.divided(hops)]
        )

    def _ids(self, predicted: bool) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and ids of the nodes that have predictions, or of all."""
        info = self._on.setup.info
        n = self._on.partition.n_nodes
        return info.reported(n) if predicted else (np.arange(n), info.ids(np.arange(n)))

    def _asked(self, nodes: Any, predicted: bool = False) -> np.ndarray | None:
        """The ids that are asked for; the arguments are those of ``_wanted``."""
        return None if nodes is None else asked_ids(self._ids(predicted)[1], nodes)

    def _wanted(self, nodes: Any, appended: bool, predicted: bool = False) -> np.ndarray | None:
        """The masters that count.

        Args:
            nodes: Original ids, those of ``predicted`` or of all nodes; None for all.
            appended: Only new ones.
            predicted: Whether ids are those of predictions.
        """
        if nodes is None:
            return self.new if appended else None
        with self._on.comm.agreed():
            reported, ids = self._ids(predicted)
            numbers = of_nodes(ids, reported, nodes)[1]
        return np.isin(self._on.partition.masters, numbers)


@np.errstate(**QUIET)
def keep_layers(model: ModelOnGraph, folder: str | Path) -> None:
    """Compute all layers on a graph, and keep their values and outputs in a folder.

    Args:
        model: The model.
        folder: New, empty, or an earlier one, which is replaced; on a file system that all workers
            share.

    Raises:
        ConfigError: The model cannot be computed by parts, or was trained by time; on all ranks
            together.
        FormatError: The folder holds other files, or cannot be written; on all ranks together.

    Collective: all ranks.
    """
    refuse("keep_layers", model.setup.job, "keep_layers")
    p = model.partition
    limit = model.setup.limit
    with model.setup.scope(), _writing(model, folder) as files:
        blocks: Callable[[list[Hop]], RowBlocks] = (
            (lambda _: [np.arange(p.n_masters)]) if limit is None else limit.divided
        )
        passes = LayerWise(
            model=model.model,
            partition=p,
            probe=model.probe,
            spill=files,
            blocks=blocks,
            sent=Sent(keeps=True),
        )
        files.add(
            OUTPUTS,
            np.asarray(passes.outputs(whole_view(p, model.probe.layers)).value),
            ranks_of(model),
        )
        # their order depends on the workers; they are computed again where they are needed
        for i, output in enumerate(passes.layer_outputs):
            for name in output.edges:
                files.remove(edge_name(i, name))


@contextmanager
def _writing(model: ModelOnGraph, folder: str | Path) -> Iterator[LayerFiles]:
    """The files of this worker, with ids and fingerprints; see ``writing``."""
    p = model.partition
    ranks = ranks_of(model)
    arrays = {"ids": ids_of(model), ROW: np.arange(p.n_masters), **fingerprints(model)}
    with writing(
        folder=Path(folder),
        weights=weights_hash(model),
        program=program_hash(model),
        n_nodes=p.n_nodes,
        comm=model.comm,
    ) as files:
        for name, values in arrays.items():
            files.add(name, values, ranks)
        yield files


def whole_work(partition: Partition, layers: list[Hop]) -> tuple[int, int]:
    """Rows and edges of the layers of a pass over the whole graph, of all workers; layers side by
    side count once.
    """
    each = {(hop.from_end, hop.direction) for hop in layers}
    return (
        depth(layers) * partition.n_nodes,
        sum(len(READ[direction]) for _, direction in each) * partition.n_edges,
    )
