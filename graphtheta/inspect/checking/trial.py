"""Runs a user's layer on a small graph with a hub, isolated nodes, self loops and duplicate edges.

Everything is float64, and the results of a run are ordered by global id, so that runs can be
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphtheta.base.rng import Purpose, integers, key, normal, shuffle
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import Probe, probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.engine.partition.partitioner import DEFAULT_PLACEMENT
from graphtheta.engine.strategy.strategy import whole
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError, DataError, GraphThetaError, ShapeError, UserFunctionError
from graphtheta.graph.data.columns import take_rows
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import mean_of_in_edges
from graphtheta.inference.forward.self_loops import check_loops, with_loops
from graphtheta.ops.autodiff.tape import Parameter, Tape, Var

N_NODES, N_EDGES = 24, 90
# results of a run by name: "values", "gradient of NAME"
Numbers = dict[str, np.ndarray]
# named columns of nodes and of edges, or arrays from whose rows they are drawn
Samples = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """A graph, and its inputs in float64, which the graph itself would round to float32."""

    graph: Graph
    x: np.ndarray
    attr: np.ndarray

    def renumbered(self, reorder: bool) -> tuple[Case, np.ndarray]:
        """The case with renumbered nodes, and the new number of each node; with other edge ids if
        ``reorder``.
        """
        order = shuffle(key(3, Purpose.CHECK), np.arange(N_NODES))
        edges = np.arange(self.graph.n_edges)
        edges = shuffle(key(4, Purpose.CHECK), edges) if reorder else edges
        number = np.empty_like(order)
        number[order] = np.arange(N_NODES)
        columns = (
            take_rows(self.graph.node_columns, order),
            take_rows(self.graph.edge_columns, edges),
        )
        return (
            _with_inputs(
                number[self.graph.edge_index][:, edges], self.x[order], self.attr[edges], columns
            ),
            number,
        )

    def with_loops(self, loops: str, model: Model) -> tuple[Case, frozenset[str]]:
        """The case with the self loops that a job adds or drops.

        Args:
            loops: As the key ``self_loops`` of a job.
            model: The model of the job.

        Returns:
            The case, and the names of integer edge columns without a value for added loops.
        """
        looped = with_loops(self.graph, loops, model)
        # also float64
        stored = self.attr if looped.info.edges is None else self.attr[looped.info.edges]
        added = mean_of_in_edges(self.graph, self.attr, looped.graph.dst[looped.info.n_edges :])
        return replace(
            self, graph=looped.graph, attr=np.concatenate((stored, added))
        ), looped.unknown


class _SingleLayer(Model):
    """One layer as a model."""

    def __init__(self, layer: Layer):
        self.layer = layer

    def forward(self, graph: Any) -> Any:
        return self.layer(graph, graph.x)

    def named_parameters(self, path: str = "") -> Iterator[tuple[str, Parameter]]:
        return self.layer.named_parameters(path)


def copied(layer: Layer | Model) -> Model:
    """A copy of a layer or model, as a model."""
    model = deepcopy(layer)
    return model if isinstance(model, Model) else _SingleLayer(model)


def make_double(model: Model) -> None:
    """Give all parameters float64."""
    for p in model.parameters():
        p.value = p.value.astype(np.float64)


def move_parameters(model: Model, draw: int, size: float = 0.1) -> None:
    """Perturb all parameters, away from zeros and ones, where gradients may vanish by chance."""
    for i, p in enumerate(model.parameters()):
        p.value = p.value + size * normal(
            key(5 + draw, Purpose.CHECK, i), np.arange(p.value.size)
        ).reshape(p.shape)


def sample(columns: Mapping[str, Any] | None, kind: str) -> dict[str, np.ndarray]:
    """Arrays to draw named columns from.

    Raises:
        DataError: One has no rows.
    """
    arrays = {name: np.asarray(rows) for name, rows in (columns or {}).items()}
    for name, rows in arrays.items():
        if not rows.ndim or not len(rows):
            raise DataError(
                f"{kind}_columns[{name!r}] has no rows to draw from; give an array of the values it"
                " may have, such as range(4)"
            )
    return arrays


@dataclass(frozen=True)
class Fitting:
    """Inputs that fit a model.

    Attributes:
        case: The case on which it is checked.
        other: A case of the same widths with other edges and values.
        probe: Its dry run.
    """

    case: Case
    other: Case
    probe: Probe


def fitting(
    model: Model, d_in: int | None, d_edge: int | None, samples: Samples, loops: str
) -> Fitting:
    """Cases of widths that fit the model, and the model's dry run.

    Raises:
        ConfigError: The widths cannot be inferred.
        DataError: The model reads a column that self loops lack that a job adds.
        GraphThetaError: The model does not run, whatever the widths.
    """
    parameters = model.parameters()
    sizes = list(dict.fromkeys(p.shape[0] for p in parameters if p.shape)) or [4]
    dtype = parameters[0].dtype if parameters else np.dtype(np.float64)
    reasons: dict[str, GraphThetaError] = {}
    for node_width in [d_in] if d_in is not None else sizes:
        for edge_width in [d_edge] if d_edge is not None else sizes:
            try:
                case, unknown = _case(node_width, edge_width, samples, draw=0).with_loops(
                    loops, model
                )
                other, _ = _case(node_width, edge_width, samples, draw=1).with_loops(loops, model)
                partition = build_partition(case.graph, SerialComm(), dtype=dtype)
                dry_run = probe(model, partition)
                check_loops(model, partition, unknown)
                return Fitting(case, other, dry_run)
            except (ShapeError, UserFunctionError) as error:
                reasons.setdefault(str(error), error)
    first = next(iter(reasons.values()))
    if (d_in is not None and d_edge is not None) or (
        len(reasons) == 1 and isinstance(first, UserFunctionError)
    ):
        raise first
    raise ConfigError(
        f"the layer does not run with inputs of width {d_in or sizes} and edge attributes of width"
        f" {d_edge or sizes}: {first}; give gt.check(layer, d_in=..., d_edge=...)"
    )


def _case(d_in: int, d_edge: int, samples: Samples, draw: int) -> Case:
    k = key(10 * draw, Purpose.CHECK)
    nodes = np.arange(N_NODES)
    edges = np.arange(N_EDGES)
    src, dst = integers(k, edges, N_NODES - 3, 2).T
    dst[:25] = 2
    src[25:29] = dst[25:29]
    src[30:35], dst[30:35] = src[40:45], dst[40:45]
    columns = _drawn(samples[0], nodes, draw), _drawn(samples[1], edges, draw)
    return _with_inputs(
        np.stack((src, dst)), normal(k + 1, nodes, d_in), normal(k + 2, edges, d_edge), columns
    )


def _drawn(columns: dict[str, np.ndarray], ids: np.ndarray, draw: int) -> dict[str, np.ndarray]:
    return {
        name: rows[integers(key(2 + 10 * draw, Purpose.CHECK, len(ids), i), ids, len(rows))]
        for i, (name, rows) in enumerate(columns.items())
    }


def _with_inputs(edge_index: np.ndarray, x: np.ndarray, attr: np.ndarray, columns: Samples) -> Case:
    return Case(
        Graph(
            edge_index,
            N_NODES,
            x=x,
            edge_attr=attr,
            node_columns=columns[0],
            edge_columns=columns[1],
        ),
        x,
        attr,
    )


def run(
    model: Model,
    case: Case,
    layers: Layers,
    comm: Comm | None = None,
    edge_placement: str = DEFAULT_PLACEMENT,
    *,
    training: bool = False,
    view_of: Callable[[Partition, Layers], GraphView] = whole,
) -> Numbers:
    """Values of a model, and gradients of their product with fixed weights, by global id.

    Args:
        layers: Supersteps of the model, as its dry run found them.
        view_of: Makes the view; values and gradients of other nodes than those in it are 0.

    Collective: all ranks of comm.
    """
    comm = comm if comm is not None else SerialComm()
    partition = build_partition(case.graph, comm, edge_placement, dtype=np.float64)
    view = view_of(partition, layers)
    rows_of = partition.masters if view.rows is None else partition.masters[view.rows]
    x = Var(case.x[rows_of], view.space, needs_grad=True)
    attr = Var(case.attr[partition.edge_gid], needs_grad=True)
    parameters = model.parameters()
    with Tape(training=training, all_sum=comm.all_sum) as tape:
        out = model(view, **{"x": x, "edge.attr": attr})
        total = GradientSum(comm, parameters)
        targets = rows_of[: out.shape[0]]
        gradients = tape.backward(out, weights(targets, out.shape), final=total.add)
    numbers: Numbers = {}
    for name, ids, like, rows in (
        ("values", targets, None, out.value),
        ("gradient of x", rows_of, case.x, gradients.of(x)),
        ("gradient of edge.attr", partition.edge_gid, case.attr, gradients.of(attr)),
    ):
        everywhere = np.zeros((N_NODES, *out.shape[1:])) if like is None else np.zeros_like(like)
        if rows is not None:
            everywhere[ids] = rows
        numbers[name] = comm.all_sum(everywhere)
    return numbers | {
        f"gradient of {p.name}": g for p, g in zip(parameters, total.finish(gradients), strict=True)
    }


def weights(ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Fixed random weights by global id."""
    return normal(key(1, Purpose.CHECK), ids, int(np.prod(shape[1:]))).reshape(shape)


def directions(
    model: Model, case: Case
) -> Iterator[tuple[str, np.ndarray, Callable[[np.ndarray], Case]]]:
    """Of each trained parameter and input: its gradient's name, random unit direction, shift."""

    def parameter(p: Parameter, start: np.ndarray) -> Callable[[np.ndarray], Case]:
        def put(d: np.ndarray) -> Case:
            p.value = start + d
            return case

        return put

    movable: list[tuple[str, tuple[int, ...], Callable[[np.ndarray], Case]]]
    movable = [
        (f"gradient of {p.name}", p.shape, parameter(p, p.value))
        for p in model.parameters()
        if p.requires_grad
    ]
    movable += [
        ("gradient of x", case.x.shape, lambda d: replace(case, x=case.x + d)),
        ("gradient of edge.attr", case.attr.shape, lambda d: replace(case, attr=case.attr + d)),
    ]
    for name, shape, put in movable:
        d = normal(key(2, Purpose.CHECK), np.arange(int(np.prod(shape)))).reshape(shape)
        yield name, d / max(float(np.linalg.norm(d)), 1e-300), put


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference over the largest value of a, or over 1; infinite if one is not finite."""
    if a.shape != b.shape or not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        return float("inf")
    return float(np.max(np.abs(a - b), initial=0) / max(1.0, np.max(np.abs(a), initial=0)))


def furthest(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> tuple[float, str]:
    """The largest ``difference`` of two runs, and the name of the result that differs."""
    return max((difference(x, b[name]), name) for name, x in a.items())
