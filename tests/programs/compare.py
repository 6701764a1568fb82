"""Runs a case eagerly, on each back end and on simulated ranks, and compares all numbers."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import eager
import emulator
import numpy as np
from program import Case

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer import context
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.settings import pass_scope
from graphtheta.engine.layer.superstep import PROGRAMS
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.engine.partition.partitioner import DEFAULT_PLACEMENT
from graphtheta.engine.store.mapped import MappedColumn
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.quantised import QuantisedColumn
from graphtheta.engine.strategy.strategy import whole, with_pairs
from graphtheta.engine.strategy.task import Seeds
from graphtheta.engine.train import gradient_sum
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.expand import induced
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.scored_pairs import PairPlan, ScoredPairs
from graphtheta.engine.view.view import GraphView
from graphtheta.inspect.checking import eager as on_edges
from graphtheta.ops import Tape, Var
from graphtheta.ops.autodiff import fusion, stored
from graphtheta.ops.edge.backend import edges as edge_lists
from graphtheta.ops.edge.backend import fused
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.edge.codegen import boundary, kernel, registers
from graphtheta.ops.functions import long_rows, recurrence
from graphtheta.ops.optimisers.optim import SGD
from graphtheta.ops.parallel import pool

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
    "LINE": context,
    "WIDE": stored,
    "BUCKET_BYTES": gradient_sum,
    "FEW_ROWS": recurrence,
    "LONG": recurrence,
    "SEGMENT": long_rows,
}


# the evaluation that runs several passes
OF_SEQUENCE = {"sequence": "reference", "emulated sequence": "emulator"}


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of the product, which drawn programs cause by the hundred."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@dataclass
class Difference:
    """What two evaluations disagree on.

    Attributes:
        kind: The evaluation that was compared, of ``evaluations``, "differences" or "rounded";
            "arrays" is that of ``gt.check``.
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
        other = " of another type" if self.text.startswith("type") else ""
        return f"{self.kind}: {self.name.split(' ')[0]}{other}"


class Unfit(Exception):
    """A case whose numbers are not comparable: not finite, too large, or too near to a kink."""


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """What a result is multiplied by to make a loss."""
    return np.random.default_rng(5).integers(-64, 65, shape) / 32


def masks(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Of the nodes and edges in the view of a case."""
    each = lambda name, n: (
        case.arrays[name].array(case.dtype) if name in case.arrays else np.ones(n, bool)
    )
    return each("seen", case.n), each("kept", len(case.src))


def rows_of(case: Case) -> np.ndarray:
    """The nodes, or those edges that a decoder scores, that have values."""
    seen = masks(case)[0]
    if not case.decodes:
        return np.flatnonzero(seen)
    src, dst = (np.asarray(end, np.int64) for end in (case.src, case.dst))
    return np.flatnonzero(seen[src] & seen[dst] & (np.arange(len(src)) % 3 != 2))


def run_eagerly(case: Case, data: Mapping[str, np.ndarray] | None = None) -> tuple[Numbers, float]:
    """Values and gradients of a case by the independent evaluation, and its margin."""
    data = case.data() if data is None else data
    state = eager.begin(case.training)
    scope = {"gt": eager, "data": data}
    exec(compile(case.text, "<program>", "exec"), scope)
    model = scope["Net"]()
    column = lambda x: eager.Value(x, True, exact=True, learned=x.dtype.kind == "f")
    # a graph stores masks as integers
    given = lambda x: eager.Value(x.astype(np.int32) if x.dtype == bool else x, True, exact=True)
    part = lambda kind: {
        n.partition(".")[2]: given(x) for n, x in data.items() if n.startswith(kind)
    }
    nodes = part("node.")
    edges = part("edge.")
    nodes["x"] = given(data["x"]) if case.stored else column(data["x"])
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
        *masks(case),
    )
    with np.errstate(all="ignore"):
        out = model.forward(graph)
        rows = rows_of(case)
        n = len(case.src) if case.decodes else case.n
        out = eager._spread(out if case.decodes else eager._rows(out, rows), rows, n)
        eager.backward(out, weights(out.x.shape))
    found = {"values": out.x}
    learned = {
        **({} if case.stored else {"x": nodes["x"]}),
        **({"attr": edges["attr"]} if "attr" in data else {}),
        **model.parameters(),
    }
    for name, v in learned.items():
        found[f"gradient of {name}"] = np.zeros(v.x.shape) if v.gradient is None else v.gradient
    return found, state.margin


def features(case: Case, x: np.ndarray) -> Any:
    """Features as the graph of a case stores them."""
    kind, _, place = case.stored.partition(" ")
    if kind == "int8":
        halves = np.full(x.shape[1], 0.5, np.float32)
        # a code and a half are a half each
        return QuantisedColumn(MemoryColumn((x * 2 - 1).astype(np.int8)), halves, halves)
    x = x.astype(kind or x.dtype)
    if not place:
        return x
    with TemporaryDirectory() as folder:
        np.save(Path(folder, "x.npy"), x)
        return MappedColumn(Path(folder, "x.npy"))


class Job:
    """A case on one rank of ``comm``: passes of its model by the product.

    Args:
        short: Whether wide values of nodes are stored as bfloat16.
    """

    def __init__(
        self,
        case: Case,
        comm: Any = None,
        placement: str = DEFAULT_PLACEMENT,
        short: bool = False,
    ):
        self.comm = SerialComm() if comm is None else comm
        self.data = data = case.data()
        self.dtype = np.dtype(case.dtype)
        scope: dict[str, Any] = {"gt": gt, "data": data}
        exec(compile(case.text, "<program>", "exec"), scope)
        self.model = scope["Net"]()
        part = lambda kind: {n.partition(".")[2]: x for n, x in data.items() if n.startswith(kind)}
        # a graph holds finite numbers; the inputs of the pass are given below
        finite = lambda x: np.nan_to_num(x, nan=0, posinf=0, neginf=0)
        graph = gt.Graph(
            np.array([case.src, case.dst], np.int64).reshape(2, -1),
            case.n,
            x=features(case, finite(data["x"])),
            edge_attr=finite(data["attr"]) if "attr" in data else None,
            edge_weight=data.get("weight"),
            node_columns=part("node."),
            edge_columns=part("edge."),
        )
        self.partition = build_partition(graph, self.comm, placement, dtype=self.dtype, short=short)

    def numbers(self, case: Case, more: Callable[[Var], Var] | None = None) -> Numbers:
        """Values and gradients of a pass over the view of a case.

        Args:
            case: Describes the view.
            more: Computes from the outputs what nobody has read when the pass ends; see
                ``self.late``.
        """
        data = self.data
        dtype = self.dtype
        partition = self.partition
        model = self.model
        comm = self.comm
        with np.errstate(all="ignore"):
            view = view_of(case, partition, probe(model, partition).layers)
            masters = partition.masters if view.rows is None else partition.masters[view.rows]
            x = Var(data["x"].astype(dtype)[masters], view.space, needs_grad=True)
            inputs = {} if case.stored else {"x": x}
            if "attr" in data:
                inputs["edge.attr"] = Var(
                    data["attr"].astype(dtype)[partition.edge_gid], needs_grad=True
                )
            parameters = model.parameters()
            ids = masters
            n = case.n
            if case.decodes:
                assert view.pairs is not None
                ids = view.pairs.pairs.gid[view.pairs.order]
                n = len(case.src)
            with Tape(training=case.training, all_sum=comm.all_sum) as tape:
                out = model(view, **inputs)
                self.late = out if more is None else more(out)
                self.rows = ids
                total = GradientSum(comm, parameters)
                shape = (n, *out.shape[1:])
                gradients = tape.backward(out, weights(shape)[ids], final=total.add)
            found: Numbers = {}
            for name, at, like, rows in (
                ("values", ids, np.zeros(shape), out.value),
                ("gradient of x", masters, None if case.stored else data["x"], gradients.of(x)),
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


def run_product(
    case: Case, comm: Any = None, placement: str = DEFAULT_PLACEMENT, short: bool = False
) -> Numbers:
    """Values and gradients of a case by the product, on one rank of ``comm``."""
    return Job(case, comm, placement, short).numbers(case)


def late_of(out: Any, parameters: Mapping[str, Any]) -> Any:
    """What is computed from the outputs of a pass, with all parameters that fit, and read after the
    update.
    """
    late = out * 0.5 + 0.25
    for _, p in sorted(parameters.items()):
        late = late * p + out if p.shape in ((), out.shape[1:]) else late
    return late * 0.5


def run_sequence(case: Case, rate: float) -> Numbers:
    """A pass over the view of a case, an update, and a pass over the whole graph.

    What the first pass computed last is read after the second.
    """
    job = Job(case)
    parameters = job.model.parameters()
    names = {p.name: p for p in parameters}
    first = job.numbers(case, lambda out: late_of(out, names))
    late, rows = job.late, job.rows
    SGD(parameters, rate).step([first[f"gradient of {p.name}"] for p in parameters])
    second = job.numbers(whole_of(case))
    everywhere = np.zeros((len(first["values"]), *late.shape[1:]), late.dtype)
    everywhere[rows] = late.value
    return {"late values": everywhere} | {f"second {name}": x for name, x in second.items()}


def whole_of(case: Case) -> Case:
    """A case on the view of the whole graph."""
    arrays = {n: a for n, a in case.arrays.items() if n not in ("seen", "kept")}
    return replace(case, arrays=arrays)


def expected_sequence(case: Case, expected: Numbers) -> tuple[Numbers, float] | None:
    """The eager numbers of ``run_sequence``, and its rate; None if they are not comparable."""
    learned = {name.partition(" of ")[2]: g for name, g in expected.items() if "." in name}
    arrays = {name: name.rpartition(".")[2] for name in learned}
    # a parameter that several layers read, or gradients that are not compared
    if case.special or not learned or len(set(arrays.values())) < len(arrays):
        return None
    largest = max(float(np.abs(g).max(initial=0)) for g in learned.values())
    data = case.data()
    rate = 1 / 16 / max(1.0, largest)
    before = {name: eager.Parameter(data[arrays[name]]) for name in learned}
    late = late_of(eager.Value(expected["values"], True), before).x
    unseen = np.ones(len(late), bool)
    unseen[rows_of(case)] = False
    late[unseen] = 0
    changed = {arrays[name]: data[arrays[name]] - rate * g for name, g in learned.items()}
    found, margin = run_eagerly(whole_of(case), {**data, **changed})
    largest = max(float(np.abs(x).max(initial=0)) for x in found.values())
    if margin < MARGIN[case.dtype] or not largest < LARGEST[case.dtype]:
        return None
    return {"late values": late} | {f"second {name}": x for name, x in found.items()}, rate


def view_of(case: Case, partition: Partition, layers: Layers) -> GraphView:
    """The view of a case: of the whole graph, or of some nodes and edges."""
    gid, (seen, kept) = partition.edge_gid, masks(case)
    scale = None
    if "scale" in case.arrays:
        scale = case.arrays["scale"].array(case.dtype)[gid]
    if "seen" in case.arrays or "kept" in case.arrays:
        view = induced(
            partition,
            seen[partition.masters],
            layers,
            excluded=~kept[gid],
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
    stored = np.flatnonzero(np.isin(gid, rows_of(case)))
    pairs = ScoredPairs(src[stored], dst[stored], gid[stored], stored, np.zeros(len(stored)))
    plan = PairPlan(partition, pairs)
    return with_pairs(view, Seeds(plan.needed, plan))


@contextmanager
def bounds(changed: Mapping[str, int]) -> Iterator[None]:
    """Change bounds of the planner and the code generator; programs of others are forgotten."""
    before = {name: getattr(BOUNDS[name], name) for name in changed if name in BOUNDS}
    in_turn = fused.in_turn
    if order := changed.get("SAVE"):
        fused.in_turn = lambda phase, *pair: kernel.saving(phase, *pair[:: -1 if order == 2 else 1])
    for name in before:
        setattr(BOUNDS[name], name, changed[name])
    try:
        yield
    finally:
        for name, x in before.items():
            setattr(BOUNDS[name], name, x)
        fused.in_turn = in_turn


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
                f"{(~same).sum()} of {x.size} numbers, such as {y[at]:.9g} in place of {x[at]:.9g}"
                f" at {list(at)}",
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


def evaluations(
    case: Case, runs: Callable[..., Numbers] = run_product
) -> dict[str, Callable[[], Numbers]]:
    """All evaluations by name of what runs."""

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
            return on("fused", lambda: runs(case))
        finally:
            pool.set_threads(before)

    def on_arrays() -> Numbers:
        with pass_scope(on_edges.settings()):
            return on("reference", lambda: runs(case))

    def on_ranks(backend: str) -> Numbers:
        seed = len(case.src) + case.n
        size = min(2 + seed % 3, case.n)
        placement = ("1d-src", "1d-dst", "vertex-cut")[seed % 3]

        def program(comm: Any) -> Numbers:
            with backend_scope(backend):
                return runs(case, comm, placement)

        return run_simulated(size, program)[0]

    return {
        "reference": lambda: on("reference", lambda: runs(case)),
        "emulator": lambda: emulated(lambda: runs(case)),
        "compiled": lambda: on("fused", lambda: runs(case), case),
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
    if "rounded" in kinds:
        found.append(by_rounding(case))
    sequences = [kind for kind in kinds if kind.endswith("sequence")]
    if sequences and (wanted := expected_sequence(case, expected)) is not None:
        runs = evaluations(case, lambda case: run_sequence(case, wanted[1]))
        found += [outcome(kind, runs[OF_SEQUENCE[kind]], wanted[0], case) for kind in sequences]
    return [d for d in found if d is not None]


def by_rounding(case: Case) -> Difference | None:
    """Passes that store values as bfloat16: on ranks and in the emulator against one by the
    reference.
    """
    if case.special:
        return None
    runs = evaluations(case, partial(run_product, short=True))
    forget()
    expected = runs["reference"]()
    found = (
        outcome("rounded", runs[kind], expected, case) for kind in ("emulator", "emulated ranks")
    )
    return next(filter(None, found), None)


def by_differences(case: Case, expected: Numbers) -> Difference | None:
    """The eager gradients against central differences along a random direction of every input; of
    float64 only.
    """
    if case.dtype != "float64" or case.special or "stop_gradient" in case.text or eager.now.tied:
        return None
    data = case.data()
    step = 1e-5
    names = {name: name.removeprefix("gradient of ") for name in expected if name != "values"}
    rng = np.random.default_rng(1)
    for name, of in names.items():
        array = of if of in data else of.rpartition(".")[2]
        # a parameter that several layers read
        if sum(other.rpartition(".")[2] == array for other in names.values()) > 1:
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
