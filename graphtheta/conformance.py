"""Conformance of a user's own layer: gradients, permutations, workers and partitions.

Everything runs in float64 on a small graph that has what breaks layers: a hub, isolated nodes, self loops and
duplicate edges.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.engine.comm import Comm
from graphtheta.engine.layer import Layer, Model, Module
from graphtheta.engine.partition import build_partition
from graphtheta.engine.probe import probe
from graphtheta.engine.reduce import reduce_gradients
from graphtheta.engine.serial import SerialComm
from graphtheta.engine.simulate import run_simulated
from graphtheta.engine.strategy import whole
from graphtheta.errors import CheckError, ConfigError, ShapeError, UserFunctionError
from graphtheta.ops.tape import Parameter, Tape, Var
from graphtheta.rng import Purpose, integers, key, normal, shuffle

N_NODES, N_EDGES = 24, 90
PARTITIONERS = ("1d-src", "1d-dst", "vertex-cut")


@dataclass
class Report:
    """Largest relative error of each check."""

    gradients: float
    permutation: float
    workers: float

    def __str__(self) -> str:
        return (f"gradients against finite differences: {self.gradients:.1e}\nrenumbered nodes: {self.permutation:.1e}\n"
                f"1 to 4 workers, {', '.join(PARTITIONERS)}: {self.workers:.1e}")


@dataclass(frozen=True)
class _Case:
    """A graph with inputs in float64, which a graph itself would round."""

    graph: Graph
    x: np.ndarray
    attr: np.ndarray


class _Alone(Model):
    """One layer as a model."""

    def __init__(self, layer: Layer):
        self.layer = layer

    def forward(self, graph: Any) -> Any:
        return self.layer(graph, graph.x)


def check(layer: Layer | Model, d_in: int | None = None, d_edge: int | None = None, *, tolerance: float = 1e-6) -> Report:
    """Check a layer (or a whole model that returns node values).

    Args:
        layer: With its parameters; it is copied, not changed.
        d_in: Width of its input; by default the leading size of one of its parameters that fits.
        d_edge: Width of the edge attributes it reads; likewise.
        tolerance: Largest relative error allowed for gradients; the other checks allow 1e-9.

    Returns:
        The errors found, all within bounds.

    Raises:
        CheckError: A check failed; says which and by how much.
        ConfigError: The widths cannot be guessed; give them. Or it is no layer.
    """
    if not isinstance(layer, (Layer, Model)):
        what = f"the class {layer.__name__}" if isinstance(layer, type) else f"a value of type {type(layer).__name__}"
        raise ConfigError(f"gt.check was given {what}; expected a layer that is made, such as gt.check(MyLayer(4, 3))")
    model = _double(layer)
    case = _case(*_widths(model, d_in, d_edge))
    report = Report(_gradients(model, case), _permutation(model, case), _workers(model, case))
    name = type(layer).__name__
    renumbered = "its values change when nodes are renumbered; it must not depend on ids or on the order of edges"
    for what, error, bound in (("its gradients differ from finite differences", report.gradients, tolerance),
                               (renumbered, report.permutation, 1e-9),
                               ("its values or gradients change with the number of workers or the partition", report.workers, 1e-9)):
        if not error <= bound:
            raise CheckError(f"{name}: {what} (relative error {error:.2e}, allowed {bound:.0e})")
    return report


def _double(layer: Layer | Model) -> Model:
    model = deepcopy(layer)
    made = model if isinstance(model, Model) else _Alone(model)
    for p in made.parameters():
        p.value = p.value.astype(np.float64)
    for m in made.modules():
        vars(m).pop("_traced", None)
    return made


def _widths(model: Module, d_in: int | None, d_edge: int | None) -> tuple[int, int]:
    if d_in is not None and d_edge is not None:
        return d_in, d_edge
    sizes = list(dict.fromkeys(p.shape[0] for p in model.parameters() if p.shape)) or [4]
    reasons = []
    for a in [d_in] if d_in is not None else sizes:
        for b in [d_edge] if d_edge is not None else sizes:
            try:
                assert isinstance(model, Model)
                probe(model, build_partition(_case(a, b).graph, SerialComm(), dtype=np.float64))
                return a, b
            except (ShapeError, UserFunctionError) as error:
                reasons.append(str(error))
    raise ConfigError(f"the layer does not run with inputs of width {d_in or sizes} and edge attributes of width {d_edge or sizes}: "
                      f"{reasons[0]}; give gt.check(layer, d_in=..., d_edge=...)")


def _case(d_in: int, d_edge: int) -> _Case:
    k, edges = key(0, Purpose.CHECK), np.arange(N_EDGES)
    src, dst = integers(k, edges, N_NODES - 3, 2).T
    dst[:25] = 2
    src[25:29] = dst[25:29]
    src[30:35], dst[30:35] = src[40:45], dst[40:45]
    return _with_inputs(np.stack((src, dst)), normal(k + 1, np.arange(N_NODES), d_in), normal(k + 2, edges, d_edge))


def _with_inputs(edge_index: np.ndarray, x: np.ndarray, attr: np.ndarray) -> _Case:
    return _Case(Graph(edge_index, N_NODES, x=x, edge_attr=attr), x, attr)


def _run(model: Model, case: _Case, comm: Comm, partitioner: str = "1d-src", training: bool = False) -> dict[str, np.ndarray]:
    """Values by global id, and gradients of their product with fixed numbers."""
    partition = build_partition(case.graph, comm, partitioner, dtype=np.float64)
    view = whole(partition, probe(model, partition).layers)
    x = Var(case.x[partition.masters], view.space, needs_grad=True)
    attr = Var(case.attr[partition.edge_gid], needs_grad=True)
    parameters = model.parameters()
    with Tape(training=training, all_sum=comm.all_sum) as tape:
        out = model(view, **{"x": x, "edge.attr": attr})
        gradients = tape.backward(out, _weights(partition.masters, out.shape))
    found = {f"gradient of {p.name}": g for p, g in zip(parameters, reduce_gradients(comm, parameters, gradients), strict=True)}
    for name, ids, like, rows in (("values", partition.masters, None, out.value),
                                  ("gradient of x", partition.masters, case.x, gradients.of(x)),
                                  ("gradient of edge.attr", partition.edge_gid, case.attr, gradients.of(attr))):
        everywhere = np.zeros((N_NODES, *out.shape[1:])) if like is None else np.zeros_like(like)
        if rows is not None:
            everywhere[ids] = rows
        found[name] = comm.all_sum(everywhere)
    return found


def _weights(ids: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return normal(key(1, Purpose.CHECK), ids, int(np.prod(shape[1:]))).reshape(shape)


def _gradients(model: Model, case: _Case) -> float:
    """Central differences along one random direction of every parameter and input."""
    comm, worst, step = SerialComm(), 0.0, 1e-6
    exact = _run(model, case, comm)

    def value(moved: _Case) -> float:
        out = _run(model, moved, comm)["values"]
        return float((out * _weights(np.arange(N_NODES), out.shape)).sum())

    for name, shape, put in _directions(model, case):
        d = normal(key(2, Purpose.CHECK), np.arange(int(np.prod(shape)))).reshape(shape)
        d /= max(float(np.linalg.norm(d)), 1e-300)
        numeric = (value(put(step * d)) - value(put(-step * d))) / (2 * step)
        put(0 * d)
        worst = max(worst, abs(numeric - float((exact[name] * d).sum())) / max(1.0, abs(numeric)))
    return worst


def _directions(model: Model, case: _Case) -> Iterator[tuple[str, tuple[int, ...], Callable[[np.ndarray], _Case]]]:
    """What can be moved: its gradient's name, its shape, and a function that moves it."""
    def parameter(p: Parameter, start: np.ndarray) -> Callable[[np.ndarray], _Case]:
        def put(d: np.ndarray) -> _Case:
            p.value = start + d
            return case
        return put

    for p in model.parameters():
        yield f"gradient of {p.name}", p.shape, parameter(p, p.value)
    yield "gradient of x", case.x.shape, lambda d: replace(case, x=case.x + d)
    yield "gradient of edge.attr", case.attr.shape, lambda d: replace(case, attr=case.attr + d)


def _permutation(model: Model, case: _Case) -> float:
    order = shuffle(key(3, Purpose.CHECK), np.arange(N_NODES))
    number = np.empty_like(order)
    number[order] = np.arange(N_NODES)
    edges = shuffle(key(4, Purpose.CHECK), np.arange(N_EDGES))
    renamed = _with_inputs(number[case.graph.edge_index][:, edges], case.x[order], case.attr[edges])
    return _difference(_run(model, case, SerialComm())["values"], _run(model, renamed, SerialComm())["values"][number])


def _workers(model: Model, case: _Case) -> float:
    """Values and gradients, with dropout on, against one worker."""
    expected = _run(deepcopy(model), case, SerialComm(), training=True)
    worst = 0.0
    for size in (2, 3, 4):
        for partitioner in PARTITIONERS:
            found = run_simulated(size, lambda comm, p=partitioner: _run(deepcopy(model), case, comm, p, training=True))[0]
            worst = max(worst, *(_difference(expected[n], found[n]) for n in expected))
    return worst


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a - b), initial=0) / max(1.0, np.max(np.abs(a), initial=0)))
