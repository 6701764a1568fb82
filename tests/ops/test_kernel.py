"""Generated kernels as machine code, and the folder they are kept in."""
from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.errors import ConfigError
from graphtheta.ops import fused
from graphtheta.ops.aggregator import Aggregator
from graphtheta.ops.edges import EdgeLists
from graphtheta.ops.kernels import cache, compile
from graphtheta.ops.kernels.compile import compiled
from graphtheta.ops.program import Phase, trace
from graphtheta.ops.reference import Columns

pytestmark = pytest.mark.fused
F = np.float32
CPU = Path("/proc/cpuinfo")
FLAGS = set(re.findall(r"\w+", CPU.read_text(encoding="utf-8"))) if CPU.exists() else set()
W = gt.Parameter(np.ones((16, 4), F))
HEADS = {"z": ((4, 32), F, True), "s": ((4,), F, True), "t": ((4,), F, True)}
PROGRAMS = {
    "gcn": (lambda e: e.src.z * e.weight, {"z": ((128,), F, True)}, {"weight": ((), F, False)}),
    "gat": (lambda e: gt.softmax(gt.leaky_relu(e.src.s + e.dst.t, 0.2)) * e.src.z, HEADS, {}),
    "gated": (lambda e: gt.sigmoid(e.src.s + e.dst.t + gt.matmul(e.attr, W)) * e.src.z, HEADS, {"attr": ((16,), F, False)}),
}


def run(phase: Phase, agg: Aggregator, operands: list, shapes: dict) -> None:
    """Forward and backward on a small ring, which compiles the kernels."""
    n, rows = 6, np.arange(6, dtype=np.int32)
    ptr, none = np.arange(n + 1), np.zeros(0, np.int32)
    receivers = EdgeLists(ptr, rows, np.roll(rows, 1), none, None, 0, 0, 0, None)
    senders = EdgeLists(ptr, rows, np.roll(rows, -1), np.roll(rows, -1), None, 0, 0, 0, None)
    made = {kind: {x: np.ones((n, *shapes[x]), F) for x in phase.reads[kind]} for kind in ("src", "dst", "edge")}
    columns = Columns(*made.values(), frozenset(), dict(enumerate(operands)))
    state = agg.start(n, [e.shape for e in phase.message], F)
    fused.forward(phase, columns, receivers, np.arange(n), {"": state}, {})
    total = agg.finish(state)
    zeros = [{k: np.zeros_like(x) for k, x in made[kind].items()} for kind in ("src", "dst")]
    grads = Columns(*zeros, {}, frozenset(), {i: np.zeros(p.shape, F) for i, p in enumerate(operands) if isinstance(p, gt.Parameter)})
    fused.backward(phase, columns, receivers, senders, np.arange(n), {"": agg.spread(state, total, np.ones_like(total))}, {}, grads)


@pytest.mark.skipif(not {"avx2", "fma"} <= FLAGS, reason="this processor has no AVX2")
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_over_columns_are_vector_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # what was loaded from a cache has no assembly to show
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(tmp_path))
    monkeypatch.setattr(compile, "_loaded", {})
    gather, nodes, edges = PROGRAMS[name]
    program = trace(gather, nodes, edges, "sum", "Mine")
    (phase,) = program.phases
    run(phase, phase.aggregators[""], program.operands, {n: s for n, (s, _, _) in {**nodes, **edges}.items()})
    modes = {variant.mode: function for variant, (_, function) in phase.__dict__["_kernels"].items()}
    assert {"forward", "sender"} <= modes.keys()
    for mode, function in modes.items():
        (text,) = function.inspect_asm().values()
        wide = [line for line in text.splitlines() if re.search(r"\tv(?:fn?m(?:add|sub)\d+|mul|add)ps\t.*[yz]mm", line)]
        assert sum("(%" in line for line in wide) >= 2, f"{name} {mode} works on rows without vectors:\n{text}"
        assert "prefetch" in text, f"{name} {mode} asks for no row ahead"


@pytest.mark.parametrize("name", ["gat", "gated"])
def test_senders_read_what_receivers_kept(name: str) -> None:
    """A row of a weight and a gradient per head, instead of scores made of columns and attributes once more."""
    gather, nodes, edges = PROGRAMS[name]
    program = trace(gather, nodes, edges, "sum", "Mine")
    (phase,) = program.phases
    run(phase, phase.aggregators[""], program.operands, {n: s for n, (s, _, _) in {**nodes, **edges}.items()})
    made = {variant.mode: kernel for variant, (kernel, _) in phase.__dict__["_kernels"].items()}
    read = [n for n in made["sender"].arguments if n.startswith(("src", "dst", "edge", "spread", "kept")) and n != "edge_gid"]
    assert read == ["kept", "spread__g"] or read == ["spread__g", "kept"]
    assert fused.kept_width(phase) == 8
    assert "exp(" not in made["sender"].source and "kept" in made["receiver"].arguments


def test_a_second_call_compiles_nothing() -> None:
    gather, nodes, edges = PROGRAMS["gcn"]
    counts = []
    for _ in range(2):
        program = trace(gather, nodes, edges, "sum", "Mine")
        (phase,) = program.phases
        run(phase, phase.aggregators[""], program.operands, {"z": (128,), "weight": ()})
        counts.append({id(f): len(f.signatures) for _, f in phase.__dict__["_kernels"].values()})
    assert counts[0] == counts[1]


SOURCE = """@kernel_form
def kernel(x, n):
    for i in range(n):
        x[i] = number(softplus(single(x[i])) + sigmoid(single(x[i])))
"""
PROCESS = """
import numpy as np
from graphtheta.ops.kernels.compile import compiled
kernel = compiled({source!r}, "float64")
for dtype in {dtypes}:
    x = np.ones(5, dtype)
    kernel(x, 5)
    print(dtype, x.sum(), sum(kernel.stats.cache_misses.values()))
"""


def test_processes_may_compile_at_once(tmp_path: Path) -> None:
    """The same kernel for different argument types, which Numba would save under the same number."""
    env = {**os.environ, "GRAPHTHETA_CACHE": str(tmp_path)}
    orders = [["float32", "float64"], ["float64", "float32"]]
    code = [textwrap.dedent(PROCESS).format(source=SOURCE, dtypes=dtypes) for dtypes in orders]
    for again in (False, True):
        started = [subprocess.Popen([sys.executable, "-c", c], env=env, stdout=subprocess.PIPE, text=True) for c in code]
        lines = [p.communicate(timeout=120)[0].split() for p in started]
        assert all(p.returncode == 0 for p in started)
        found = [{words[i]: (float(words[i + 1]), int(words[i + 2])) for i in range(0, 6, 3)} for words in lines]
        expected = 5 * (np.log1p(np.e) + 1 / (1 + np.exp(-1)))
        assert all(abs(x - expected) < 1e-5 for f in found for x, _ in f.values())
        if again:
            assert all(misses == 0 for f in found for _, misses in f.values())
    assert not [f for f in tmp_path.iterdir() if f.suffix not in (".py", ".lock", "")]


def test_a_given_folder_that_cannot_be_written_to_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(tmp_path / "file" / "kernels"))
    with pytest.raises(ConfigError, match=r"GRAPHTHETA_CACHE = .*cannot be written to.*unset it"):
        compiled(SOURCE + "    pass\n", "float32")


def test_a_folder_that_all_may_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "graphtheta"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(shared))
    with pytest.raises(ConfigError, match=r"every user of this machine.*chmod o-w"):
        cache.cache_folder()
    monkeypatch.delenv("GRAPHTHETA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() not in (shared, tmp_path)
    shared.chmod(0o770)
    assert cache.cache_folder() == shared


def test_without_a_home_kernels_are_kept_for_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHTHETA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine" / "graphtheta"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = cache.cache_folder()
    assert folder.is_dir() and folder.stat().st_mode & 0o777 == 0o700 and cache.cache_folder() == folder
    monkeypatch.delenv("XDG_CACHE_HOME")

    def nowhere() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(Path, "home", nowhere)
    assert cache.cache_folder() == folder
