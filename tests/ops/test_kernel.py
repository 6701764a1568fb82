"""Generated kernels as machine code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from traced import trace

import graphtheta.ops as gt
from graphtheta.ops.compile import generated
from graphtheta.ops.edge.aggregator import Aggregator
from graphtheta.ops.edge.backend import fused
from graphtheta.ops.edge.backend.edges import EdgeLists
from graphtheta.ops.edge.backend.reference import PhaseColumns
from graphtheta.ops.edge.codegen import edges_ahead
from graphtheta.ops.edge.program import Phase

pytestmark = [pytest.mark.fused, pytest.mark.second]
F = np.float32
CPU = Path("/proc/cpuinfo")
FLAGS = set(re.findall(r"\w+", CPU.read_text(encoding="utf-8"))) if CPU.exists() else set()
W = gt.Parameter(np.ones((16, 4), F))
HEADS = {"z": ((4, 32), F, True), "s": ((4,), F, True), "t": ((4,), F, True)}
PROGRAMS = {
    "gcn": (lambda e: e.src.z * e.weight, {"z": ((128,), F, True)}, {"weight": ((), F, False)}),
    "gat": (lambda e: gt.softmax(gt.leaky_relu(e.src.s + e.dst.t, 0.2)) * e.src.z, HEADS, {}),
    "gated": (
        lambda e: gt.sigmoid(e.src.s + e.dst.t + gt.matmul(e.attr, W)) * e.src.z,
        HEADS,
        {"attr": ((16,), F, False)},
    ),
}


def run(phase: Phase, agg: Aggregator, operands: list, shapes: dict) -> None:
    """Forward and backward on a small ring, which compiles the kernels."""
    n = 6
    rows = np.arange(6, dtype=np.int32)
    ptr = np.arange(n + 1)
    none = np.zeros(0, np.int32)
    receivers = EdgeLists(
        ptr=ptr,
        row=rows,
        other=np.roll(rows, 1),
        at=none,
        positions=None,
        start=0,
        offset=0,
        tie_shift=0,
        weight=None,
    )
    senders = EdgeLists(
        ptr=ptr,
        row=rows,
        other=np.roll(rows, -1),
        at=np.roll(rows, -1),
        positions=None,
        start=0,
        offset=0,
        tie_shift=0,
        weight=None,
    )
    made = {
        kind: {x: np.ones((n, *shapes[x]), F) for x in phase.reads[kind]}
        for kind in ("src", "dst", "edge")
    }
    columns = PhaseColumns(*made.values(), frozenset(), dict(enumerate(operands)))
    state = agg.start(n, [e.dims for e in phase.message], F)
    fused.forward(phase, columns, receivers, np.arange(n), {"": state}, {})
    total = agg.finish(state)
    zeros = [{k: np.zeros_like(x) for k, x in made[kind].items()} for kind in ("src", "dst")]
    grads = PhaseColumns(
        *zeros,
        {},
        frozenset(),
        {i: np.zeros(p.shape, F) for i, p in enumerate(operands) if isinstance(p, gt.Parameter)},
    )
    fused.backward(
        phase,
        columns,
        receivers,
        senders,
        np.arange(n),
        {"": agg.backward_state(state, total, np.ones_like(total))},
        {},
        grads,
    )


@pytest.mark.skipif(not {"avx2", "fma"} <= FLAGS, reason="this processor has no AVX2")
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_over_columns_are_vector_code(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what was loaded from a cache has no assembly to show
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(tmp_path))
    monkeypatch.setattr(generated, "_loaded", {})
    gather, nodes, edges = PROGRAMS[name]
    program = trace(gather, nodes, edges, "sum", "Mine")
    (phase,) = program.phases
    run(
        phase,
        phase.aggregators[""],
        program.operands,
        {n: s for n, (s, _, _) in {**nodes, **edges}.items()},
    )
    # a kernel that adds up what was saved reads no row of another node
    modes = {
        variant.mode: function
        for variant, (kernel, function) in phase.__dict__["_kernels"].items()
        if kernel.scattered
    }
    assert {"forward", "sender"} <= modes.keys()
    for mode, function in modes.items():
        (text,) = function.inspect_asm().values()
        wide = [
            line
            for line in text.splitlines()
            if re.search(r"\tv(?:fn?m(?:add|sub)\d+|mul|add)ps\t.*[yz]mm", line)
        ]
        assert sum("(%" in line for line in wide) >= 2, (
            f"{name} {mode} works on rows without vectors:\n{text}"
        )
        assert "prefetch" in text, f"{name} {mode} asks for no row ahead"


@pytest.mark.parametrize(
    ("name", "second", "left"),
    [("gat", "receiver", {"kept"}), ("gated", "sender", {"kept", "spread__g"})],
)
def test_one_direction_reads_what_the_other_saved(name: str, second: str, left: set[str]) -> None:
    """A row of a weight and a gradient per head, or of a gradient alone, instead of scores made of
    columns and attributes once more.
    """
    gather, nodes, edges = PROGRAMS[name]
    program = trace(gather, nodes, edges, "sum", "Mine")
    (phase,) = program.phases
    run(
        phase,
        phase.aggregators[""],
        program.operands,
        {n: s for n, (s, _, _) in {**nodes, **edges}.items()},
    )
    made = {variant.mode: kernel for variant, (kernel, _) in phase.__dict__["_kernels"].items()}
    read = [
        n
        for n in made[second].arguments
        if n.startswith(("src", "dst", "edge", "spread", "kept")) and n != "edge_gid"
    ]
    assert set(read) == left
    assert fused.saved_width(phase) == 8
    assert "softmax" not in made[second].source and "sigmoid" not in made[second].source
    assert "kept" in made["sender" if second == "receiver" else "receiver"].arguments


def test_a_second_call_compiles_nothing() -> None:
    gather, nodes, edges = PROGRAMS["gcn"]
    counts = []
    for _ in range(2):
        program = trace(gather, nodes, edges, "sum", "Mine")
        (phase,) = program.phases
        run(phase, phase.aggregators[""], program.operands, {"z": (128,), "weight": ()})
        counts.append({id(f): len(f.signatures) for _, f in phase.__dict__["_kernels"].values()})
    assert counts[0] == counts[1]


def test_rows_that_stay_in_the_cache_are_not_prefetched(monkeypatch: pytest.MonkeyPatch) -> None:
    gather, nodes, edges = PROGRAMS["gcn"]
    program = trace(gather, nodes, edges, "sum", "Mine")
    (phase,) = program.phases
    asked: list[int] = []
    monkeypatch.setattr(
        fused, "edges_ahead", lambda n_bytes: asked.append(n_bytes) or edges_ahead(n_bytes)
    )
    run(
        phase,
        phase.aggregators[""],
        program.operands,
        {n: s for n, (s, _, _) in {**nodes, **edges}.items()},
    )
    # the rows of the ring at the other end of the edges, and by sender their weights
    assert asked == [6 * 128 * 4, 6 * (128 + 1) * 4]
    assert edges_ahead(asked[0]) > 1 << 32 and edges_ahead(1 << 30) < 64
