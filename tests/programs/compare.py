"""Runs a case eagerly, on each back end and on simulated ranks, and compares all numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import eager
import emulator
import numpy as np
from program import Case

import graphtheta as gt
from graphtheta.checking import eager as on_edges
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.settings import pass_scope
from graphtheta.engine.layer.superstep import PROGRAMS
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.engine.partition.partitioner import DEFAULT_PLACEMENT
from graphtheta.engine.strategy.strategy import whole, with_pairs
from graphtheta.engine.strategy.task import Seeds
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.expand import induced
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.scored_pairs import PairPlan, Pairs
from graphtheta.engine.view.view import GraphView
from graphtheta.ops import Tape, Var
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.backend import edges as edge_lists
from graphtheta.ops.backend import fused
from graphtheta.ops.backend.fused import backend_scope
from graphtheta.ops.codegen import boundary, kernel, registers
from graphtheta.ops.kernels import pool

Numbers = dict[str, np.ndarray]
# allowed relative errors by float type of the job
TOLERANCE = {"float64": 1e-8, "float32": 5e-4}
# a kink must be further away than this
MARGIN = {"float64": 1e-7, "float32": 1e-3}
# larger numbers than these lose digits by cancellation
LARGEST = {"float64": 1e6, "float32": 1e3}
BOUNDS: dict[str, Any] = {
    "MOST_VECTORS": kernel,
    "STRETCH": kernel,
    "MOST_SUMMED": registers,
    "MOST_STEPS": registers,
    "MOST_SAVED": boundary,
    "EDGES_PER_BLOCK": edge_lists,
    "SMALLEST": fusion,
}


@dataclass
class Difference:
    """What two evaluations disagree on.

    Attributes:
        kind: The evaluation that was compared, of ``evaluations``, or "differences"; "arrays" is that of ``gt.check``.
        name: The result that differs, or "error".
        text: Both numbers, or the message of the error.
    """

    kind: str
    name: str
    text: str

    @property
    def signature(self) -> str:
        """The same for failures that are probably one fault."""
        if self.name == "error":
            return f"{self.kind}: {re.sub(r'[0-9]+', 'N', self.text)[:90]}"
        return f"{self.kind}: {self.name.split(' ')[0]}{' of another type' if self.text.startswith('type') else ''}"


class Unfit(Exception):
    """A case whose numbers are not comparable: not finite, too large, or too near to a kink."""


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """What a result is multiplied by to make a loss."""
    return np.random.default_rng(5).integers(-64, 65, shape) / 32


def run_eagerly(case: Case, data: Mapping[str, np.ndarray] | None = None) -> tuple[Numbers, float]:
    """Values and gradients of a case by the independent evaluation, and its margin."""
    data = case.data() if data is None else data
    state = eager.begin(case.training)
    scope = {"gt": eager, "data": data}
    exec(compile(case.text, "<program>", "exec"), scope)
    model = scope["Net"]()
    column = lambda x: eager.Value(x, True, exact=True, learned=x.dtype.kind == "f")
    # a graph stores masks as integers
    stored = lambda x: eager.Value(x.astype(np.int32) if x.dtype == bool else x, True, exact=True)
    part = lambda kind: {
        n.partition(".")[2]: stored(x) for n, x in data.items() if n.startswith(kind)
    }
    nodes, edges = part("node."), part("edge.")
    nodes["x"] = column(data["x"])
    edges["weight"] = eager.Value(data.get("weight", np.ones(len(case.src))), True, exact=True)
    if "attr" in data:
        edges["attr"] = column(data["attr"])
    ends = (np.array(e, np.int64) for e in (case.src, case.dst))
    graph = eager.Graph(
        case.n,
        *ends,
        nodes,
        edges,
        np.asarray(data.get("scale", np.ones(len(case.src))), np.float64),
        data.get("seen"),
        data.get("kept"),
    )
    with np.errstate(all="ignore"):
        out = model.forward(graph)
        rows, n = (
            (graph.pairs, len(case.src)) if case.decodes else (np.flatnonzero(graph.seen), case.n)
        )
        out = eager._spread(out if case.decodes else eager._rows(out, rows), rows, n)
        eager.backward(out, weights(out.x.shape))
    found = {"values": out.x}
    learned = {
        "x": nodes["x"],
        **({"attr": edges["attr"]} if "attr" in data else {}),
        **model.parameters(),
    }
    for name, v in learned.items():
        found[f"gradient of {name}"] = np.zeros(v.x.shape) if v.gradient is None else v.gradient
    return found, state.margin


def run_product(case: Case, comm: Any = None, placement: str = DEFAULT_PLACEMENT) -> Numbers:
    """The same by the product, on one rank of ``comm``."""
    comm = SerialComm() if comm is None else comm
    data = case.data()
    scope: dict[str, Any] = {"gt": gt, "data": data}
    exec(compile(case.text, "<program>", "exec"), scope)
    model = scope["Net"]()
    part = lambda kind: {n.partition(".")[2]: x for n, x in data.items() if n.startswith(kind)}
    # a graph holds finite numbers; the inputs of the pass are given below
    finite = lambda x: np.nan_to_num(x, nan=0, posinf=0, neginf=0)
    graph = gt.Graph(
        np.array([case.src, case.dst], np.int64).reshape(2, -1),
        case.n,
        x=finite(data["x"]),
        edge_attr=finite(data["attr"]) if "attr" in data else None,
        edge_weight=data.get("weight"),
        node_columns=part("node."),
        edge_columns=part("edge."),
    )
    dtype = np.dtype(case.dtype)
    partition = build_partition(graph, comm, placement, dtype=dtype)
    with np.errstate(all="ignore"):
        view = view_of(case, data, partition, probe(model, partition).layers)
        masters = partition.masters if view.rows is None else partition.masters[view.rows]
        x = Var(data["x"].astype(dtype)[masters], view.space, needs_grad=True)
        inputs = {"x": x}
        if "attr" in data:
            inputs["edge.attr"] = Var(
                data["attr"].astype(dtype)[partition.edge_gid], needs_grad=True
            )
        parameters = model.parameters()
        ids, n = masters, case.n
        if case.decodes:
            assert view.pairs is not None
            ids, n = view.pairs.pairs.gid[view.pairs.order], len(case.src)
        with Tape(training=case.training, all_sum=comm.all_sum) as tape:
            out = model(view, **inputs)
            total = GradientSum(comm, parameters)
            like = np.zeros((n, *out.shape[1:]), dtype)
            gradients = tape.backward(out, weights(like.shape)[ids], final=total.add)
        found: Numbers = {}
        for name, at, like, rows in (
            ("values", ids, like, out.value),
            ("gradient of x", masters, data["x"], gradients.of(x)),
            (
                "gradient of attr",
                partition.edge_gid,
                data.get("attr"),
                gradients.of(inputs.get("edge.attr")),
            ),
        ):
            if like is None:
                continue
            everywhere = np.zeros(like.shape, dtype)
            if rows is not None:
                everywhere[at] = rows
            found[name] = comm.all_sum(everywhere)
        return found | {
            f"gradient of {p.name}": np.asarray(g)
            for p, g in zip(parameters, total.finish(gradients), strict=True)
        }


def view_of(case: Case, data: Numbers, partition: Partition, layers: Layers) -> GraphView:
    """The view of a case: of the whole graph, or of some nodes and edges."""
    gid, sampled = partition.edge_gid, "seen" in data or "kept" in data
    seen = data.get("seen", np.ones(case.n, bool))
    scale = data["scale"].astype(case.dtype)[gid] if "scale" in data else None
    if sampled:
        view = induced(
            partition,
            seen[partition.masters],
            layers,
            excluded=~data.get("kept", np.ones(len(case.src), bool))[gid],
            weights=None if scale is None else {False: scale, True: scale},
        )
    else:
        view = whole(partition, layers)
        for level in view.levels if scale is not None else []:
            for s in (s for p in level.passes for s in p.selections):
                s.weight = scale[s.stored]
    if not case.decodes:
        return view
    src, dst = (np.asarray(end, np.int64)[gid] for end in (case.src, case.dst))
    stored = np.flatnonzero(seen[src] & seen[dst] & (gid % 3 != 2))
    pairs = Pairs(src[stored], dst[stored], gid[stored], stored, np.zeros(len(stored)))
    plan = PairPlan(partition, pairs)
    return with_pairs(view, Seeds(plan.needed, plan))


@contextmanager
def bounds(changed: Mapping[str, int]) -> Iterator[None]:
    """Change bounds of the planner and the code generator; programs of others are forgotten."""
    before = {name: getattr(BOUNDS[name], name) for name in changed if name in BOUNDS}
    worth = fused.worth_saving
    if changed.get("SAVE"):
        fused.worth_saving = lambda phase, receiver, sender: kernel.residuals_of(phase, sender)
    for name in before:
        setattr(BOUNDS[name], name, changed[name])
    try:
        yield
    finally:
        for name, x in before.items():
            setattr(BOUNDS[name], name, x)
        fused.worth_saving = worth


def forget() -> None:
    """Forget planned programs, whose kernels depend on the bounds."""
    PROGRAMS.__init__()  # type: ignore[misc]


def outcome(
    kind: str, run: Callable[[], Numbers], expected: Numbers, case: Case
) -> Difference | None:
    """Run and compare; an error of any kind is a difference."""
    forget()
    try:
        got = run()
    except Exception as error:
        return Difference(
            kind,
            "error",
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        )
    return compared(kind, expected, got, case.dtype)


def compared(
    kind: str, expected: Numbers, got: Numbers, dtype: str, tolerance: float = 0
) -> Difference | None:
    """The first result that differs."""
    for name, x in expected.items():
        if name not in got:
            return Difference(kind, name, "there is none")
        y = np.asarray(got[name])
        if y.shape != x.shape:
            return Difference(kind, name, f"shape {y.shape}, expected {x.shape}")
        finite = np.isfinite(x)
        if kind != "differences" and y.dtype != dtype:
            return Difference(kind, name, f"type {y.dtype}, expected {dtype}")
        largest = max(1.0, float(np.abs(x[finite]).max(initial=0)))
        same = np.where(
            finite,
            np.abs(np.where(finite, y, 0) - np.where(finite, x, 0))
            <= (tolerance or TOLERANCE[dtype]) * largest,
            # in another order of additions, infinity is NaN
            ~np.isfinite(y),
        )
        if not same.all():
            at = tuple(np.argwhere(~same)[0].tolist())
            return Difference(
                kind,
                name,
                f"{(~same).sum()} of {x.size} numbers, such as {y[at]:.9g} in place of {x[at]:.9g} at {list(at)}",
            )
    return None


def checked(case: Case) -> Numbers:
    """The expected numbers of a case; with NaN and infinities the values, and not the gradients.

    Raises:
        Unfit: They are not comparable.
    """
    found, margin = run_eagerly(case)
    found = {"values": found["values"]} if case.special else found
    for name, x in found.items():
        if not case.special and not np.isfinite(x).all():
            raise Unfit(f"{name} is not finite")
        if np.abs(x[np.isfinite(x)]).max(initial=0) > LARGEST[case.dtype]:
            raise Unfit(f"{name} is too large")
    if margin < MARGIN[case.dtype]:
        raise Unfit(f"a kink is {margin:.1e} away")
    return found


def evaluations(case: Case) -> dict[str, Callable[[], Numbers]]:
    """All evaluations by name."""

    # without compiled kernels, elementwise functions of nodes are computed at once
    plain = replace(case, bounds={name: x for name, x in case.bounds.items() if name != "SMALLEST"})

    def on(backend: str, run: Callable[[], Numbers], case: Case = plain) -> Numbers:
        with backend_scope(backend), bounds(case.bounds):
            return run()

    def emulated(run: Callable[[], Numbers]) -> Numbers:
        with emulator.running():
            return on("fused", run, case)

    def threaded() -> Numbers:
        before = pool.threads()
        pool.set_threads(3)
        try:
            return on("fused", lambda: run_product(case))
        finally:
            pool.set_threads(before)

    def on_arrays() -> Numbers:
        with pass_scope(on_edges.settings()):
            return on("reference", lambda: run_product(case))

    def on_ranks(backend: str) -> Numbers:
        seed = len(case.src) + case.n
        size, placement = min(2 + seed % 3, case.n), ("1d-src", "1d-dst", "vertex-cut")[seed % 3]

        def program(comm: Any) -> Numbers:
            with backend_scope(backend):
                return run_product(case, comm, placement)

        return run_simulated(size, program)[0]

    return {
        "reference": lambda: on("reference", lambda: run_product(case)),
        "emulator": lambda: emulated(lambda: run_product(case)),
        "compiled": lambda: on("fused", lambda: run_product(case), case),
        "threads": threaded,
        "ranks": lambda: on_ranks("reference"),
        "arrays": on_arrays,
        "emulated ranks": lambda: emulated(lambda: on_ranks("fused")),
    }


def differences(case: Case, kinds: tuple[str, ...]) -> list[Difference]:
    """All evaluations of a case that differ from the eager one.

    Raises:
        Unfit: The numbers of the case are not comparable.
    """
    expected = checked(case)
    # draws of dropout belong to the edge program
    left = {"arrays"} if case.training and "dropout" in case.text else set()
    found = [
        outcome(kind, run, expected, case)
        for kind, run in evaluations(case).items()
        if kind in kinds and kind not in left
    ]
    if "differences" in kinds:
        found.append(by_differences(case, expected))
    return [d for d in found if d is not None]


def by_differences(case: Case, expected: Numbers) -> Difference | None:
    """The eager gradients against central differences along a random direction of every input; of float64 only."""
    if case.dtype != "float64" or case.special or "stop_gradient" in case.text or eager.now.tied:
        return None
    data, step = case.data(), 1e-5
    names = {name: name.removeprefix("gradient of ") for name in expected if name != "values"}
    rng = np.random.default_rng(1)
    for name, of in names.items():
        array = of if of in data else of.partition(".")[2]
        # a parameter that several layers read
        if sum(other.partition(".")[2] == array for other in names.values()) > 1:
            continue
        direction = rng.standard_normal(data[array].shape)
        direction /= max(1.0, float(np.linalg.norm(direction)))
        above, below = (
            _loss(case, {**data, array: data[array] + sign * step * direction}) for sign in (1, -1)
        )
        slope = (above - below) / (2 * step)
        want = float((expected[name] * direction).sum())
        size = max(1.0, abs(slope), float(np.abs(expected["values"]).sum()))
        if not math.isclose(slope, want, abs_tol=3e-5 * size):
            return Difference(
                "differences", name, f"{want:.9g} eagerly, differences give {slope:.9g}"
            )
    return None


def _loss(case: Case, data: Mapping[str, np.ndarray]) -> float:
    values = run_eagerly(case, data)[0]["values"]
    return float((values * weights(values.shape)).sum())
