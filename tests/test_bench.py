"""The harness of bench/, and that its contenders agree on a small graph."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from speed import IDEAL

import graphtheta as gt
from graphtheta.inspect.planning.plan import Row
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import NODES, PARTS, UPDATE_PASSES
from graphtheta.inspect.simulation.cluster import Cluster
from graphtheta.inspect.simulation.simulate import simulated

BENCH = Path(__file__).resolve().parent.parent / "bench"
GRAPH = "rmat:scale=8,edge_factor=4,features=8,classes=4"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    import harness

    return harness


def contender(harness: Any, tmp_path: Path, code: str, name: str = "one") -> Any:
    """One that runs a few lines of its own."""
    path = tmp_path / f"{name}.py"
    path.write_text(f"from contender import report\n{code}", encoding="utf-8")
    return harness.Contender(name, [sys.executable, str(path)])


def test_rounds_are_pooled_and_medians_taken(harness: Any, tmp_path: Path) -> None:
    one = contender(harness, tmp_path, 'report({"epoch": [1.0, 5.0, 2.0]}, {"epoch": [0.5]}, "v")')
    harness.race([one], rounds=2, threads=1)
    assert one.seconds == {"epoch": [1.0, 5.0, 2.0] * 2}
    assert one.median("epoch") == 2.0 and one.median("other") is None
    assert one.peak > 1 << 20 and one.version == "v" and not one.error


def test_threads_reach_the_contender(harness: Any, tmp_path: Path) -> None:
    one = contender(
        harness,
        tmp_path,
        'import os\nreport({}, {"threads": [float(os.environ["OMP_NUM_THREADS"])]}, "")',
    )
    harness.race([one], rounds=1, threads=3)
    assert one.checks == {"threads": [3.0]}


def test_a_contender_that_fails_says_why_and_leaves(harness: Any, tmp_path: Path) -> None:
    one = contender(harness, tmp_path, 'raise ValueError("too many edges")')
    harness.race([one], rounds=2, threads=1)
    assert one.error == "ValueError: too many edges"


@pytest.mark.parametrize(("other", "agree"), [(1.0005, True), (1.01, False), (float("nan"), False)])
def test_contenders_that_disagree_are_named(harness: Any, other: float, agree: bool) -> None:
    made = [
        harness.Contender(name, [], checks={"epoch": [2.0, x]})
        for name, x in (("one", 1.0), ("two", other))
    ]
    assert (harness.disagreement(made) == []) is agree


def test_a_table_aligns_numbers_and_leaves_gaps(harness: Any) -> None:
    rows = [
        {"name": "a", "seconds": 1.5},
        {"name": "long", "seconds": None},
        {"name": "b", "seconds": 1234.5},
    ]
    assert harness.table(rows, ["name", "seconds"]).splitlines() == [
        "name  seconds",
        "a         1.5",
        "long",
        "b        1234",
    ]


def rows_of(bench: str, tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    """What a bench without peers writes; it has compared its contenders."""
    return run_bench(bench, tmp_path, "--rounds", "1", "--folder", str(tmp_path), *words)


def run_bench(bench: str, tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    """What a bench writes."""
    out = tmp_path / "rows.jsonl"
    command = [sys.executable, str(BENCH / f"{bench}.py"), "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


# those marked reference say the same with kernels, which take longer to compile than to run
@pytest.mark.second
def test_epochs_are_timed(tmp_path: Path) -> None:
    words = (
        "--graph",
        GRAPH,
        "--models",
        "gcn",
        "gat_e",
        "--peers",
        "--epochs",
        "2",
        "--plot",
        str(tmp_path / "p.png"),
    )
    rows = rows_of("epoch", tmp_path, *words)
    assert [(row["model"], row["contender"]) for row in rows] == [
        ("gcn", "graphtheta"),
        ("gcn", "bfloat16"),
        ("gcn", "precomputed"),
        ("gat_e", "graphtheta"),
        ("gat_e", "bfloat16"),
    ]
    assert all((row["note"], row["runs"], len(row["losses"])) == ("", 2, 2) for row in rows)
    assert (tmp_path / "p.png").stat().st_size


@pytest.mark.second
@pytest.mark.reference
def test_epochs_with_relations_are_timed(tmp_path: Path) -> None:
    (row,) = rows_of("relations", tmp_path, "--graphs", "small", "--peers", "--epochs", "2")
    assert (row["graph"], row["note"], row["runs"], len(row["losses"])) == ("small", "", 2, 2)


@pytest.mark.second
@pytest.mark.reference
def test_steps_on_molecules_are_timed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rings = np.arange(120)
    y = np.where(rng.random((30, 2)) < [0, 0.2], np.nan, rng.integers(0, 2, (30, 2)))
    np.savez(
        tmp_path / "molecules-mol_tox21.npz",
        atom=rng.integers((0, 3), (3, 6), (120, 2)),
        bond=rng.integers(0, 2, (120, 1)),
        of=rings // 4,
        src=rings,
        dst=rings // 4 * 4 + (rings + 1) % 4,
        y=y,
        train=rng.random(30) < 0.8,
    )
    (row,) = rows_of("molecules", tmp_path, "--batch-size", "5", "--steps", "2", "--peers")
    assert (row["note"], row["runs"], len(row["losses"]), row["nodes"], row["edges"]) == (
        "",
        2,
        2,
        20,
        20,
    )


@pytest.mark.second
def test_the_hand_written_kernel_computes_the_same(tmp_path: Path) -> None:
    rows = rows_of(
        "gather",
        tmp_path,
        "--graph",
        GRAPH,
        "--kinds",
        "weight",
        "gated",
        "--widths",
        "16",
        "--peers",
        "numba",
        "--times",
        "1",
        "--triad",
        "4096",
    )
    assert [(row["case"], row["contender"]) for row in rows if "case" in row] == [
        ("weight 16", "graphtheta"),
        ("gated 128", "graphtheta"),
        ("gated 128", "numba"),
    ]


@pytest.mark.second
def test_samples_are_timed(tmp_path: Path) -> None:
    rows = rows_of(
        "sampling",
        tmp_path,
        "--graph",
        GRAPH,
        "--fanout",
        "3,2",
        "--targets",
        "20",
        "--batches",
        "2",
        "--peers",
    )
    assert [(row["sampler"], row["note"]) for row in rows] == [
        ("neighbour", ""),
        ("neighbour:replace", ""),
    ]
    assert all(0 < row["edges"] <= 20 * 3 + 80 * 2 and row["seconds"] > 0 for row in rows)


@pytest.mark.second
@pytest.mark.reference
def test_sampled_steps_are_timed(tmp_path: Path) -> None:
    words = (
        "--graph",
        GRAPH,
        "--fanout",
        "3,2",
        "--hidden",
        "8",
        "--targets",
        "20",
        "--batches",
        "2",
        "--peers",
    )
    rows = rows_of("minibatch", tmp_path, *words)
    assert [(row["contender"], row["sampler"], row["note"], row["runs"]) for row in rows] == [
        ("graphtheta", "neighbour", "", 2),
        ("bfloat16", "neighbour", "", 2),
    ]
    assert 20 < rows[0]["nodes"] <= 20 * 4 * 3 and 0 < rows[0]["sampling"] < rows[0]["seconds"]


@pytest.mark.second
def test_parts_of_steps_have_limits(tmp_path: Path) -> None:
    words = ("--limits", "--scale", "8", "--steps", "3", "--only", "gcn", "sampled")
    rows = run_bench("step", tmp_path, *words)
    parts = {(row["run"], row["part"]): row for row in rows}
    assert len(parts) == 2 * 8 and all(row["ms"] >= 0 for row in rows)
    for run, more in (("gcn", "evaluation"), ("sampled", "sampling")):
        for part in ("products", "sums over edges", "elementwise", "optimiser", more):
            assert parts[run, part]["ms"] > 0 and parts[run, part]["limit"] > 0
        assert parts[run, "interpreter"]["limit"] is None


@pytest.mark.second
@pytest.mark.reference
def test_accuracy_is_measured_over_seconds(tmp_path: Path) -> None:
    words = ("--graphs", GRAPH, "--ways", "global", "auto", "--seeds", "2", "--seconds", "0.01")
    plot = tmp_path / "curves.png"
    rows = rows_of("time_to_accuracy", tmp_path, *words, "--plot", str(plot), "--peers")
    curves = [row for row in rows if "contender" in row]
    assert [row["contender"] for row in curves] == ["global", "auto"]
    for row in curves:
        assert len(row["curves"]) == 2 and row["start"] > 0
        assert all(0 <= share <= 1 for curve in row["curves"] for _, share in curve)
    assert curves[1]["note"].startswith(("global", "mini")) and plot.is_file()


@pytest.mark.second
def test_batches_of_loaders_are_timed(tmp_path: Path) -> None:
    words = ("--graph", GRAPH, "--fanout", "3,2", "--targets", "20", "--batches", "2", "--peers")
    (row,) = rows_of("loader", tmp_path, *words)
    assert (row["contender"], row["note"], row["runs"]) == ("graphtheta", "", 2)
    assert 20 < row["nodes"] <= 20 * 4 * 3 and row["seconds"] > 0


@pytest.mark.second
def test_the_start_is_timed_by_part(tmp_path: Path) -> None:
    row, small = rows_of("build", tmp_path, "--graph", GRAPH, "--peers")
    assert [(r["contender"], r["note"], r["runs"]) for r in (row, small)] == [
        ("graphtheta", "", 1),
        ("small pages", "", 1),
    ]
    assert (
        0 < row["construction"] + row["partition"] < row["start"] < row["total"]
        and 0 < row["copy"] < row["first"]
    )
    assert {"construction", "partition", "copy", "start", "first", "second"} <= set(
        row["processor by part"]
    )


@pytest.mark.second
def test_dense_stages_are_timed(tmp_path: Path) -> None:
    rows = rows_of("dense", tmp_path, "--rows", "64", "--times", "1")
    assert len(rows) == 18 and all(row["seconds"] > 0 for row in rows)


@pytest.mark.second
def test_partitioners_are_compared(tmp_path: Path) -> None:
    rows = rows_of(
        "partitioners",
        tmp_path,
        "--graphs",
        GRAPH,
        "--workers",
        "2",
        "4",
        "--pairs",
        "ldg/1d-src",
        "hash/hdrf",
    )
    assert [(row["workers"], row["masters"], row["partitioner"]) for row in rows] == [
        (workers, *pair) for workers in (2, 4) for pair in (("ldg", "1d-src"), ("hash", "hdrf"))
    ]
    assert all(0 < row["cut"] < 1 < row["replication"] and row["seconds"] > 0 for row in rows)


@pytest.mark.second
def test_memory_of_workers_that_divide_edges_in_files(tmp_path: Path) -> None:
    one, two = rows_of("division", tmp_path, "--graph", GRAPH, "--pairs", "bgl/1d-src")
    assert (one["workers"], one["cut"], two["workers"], len(two["assigning"])) == (1, 0, 2, 2)
    assert 0 < two["cut"] < 1 and two["share"] == one["share"] / 2 and two["seconds"] > 0


@pytest.mark.second
def test_starts_are_timed(tmp_path: Path) -> None:
    rows = rows_of("start", tmp_path, "--graph", GRAPH, "--models", "sage")
    assert [(row.get("contender"), row.get("note")) for row in rows] == [
        ("cold", ""),
        ("warm", ""),
        (None, None),
    ]


@pytest.mark.second
@pytest.mark.reference
def test_ranks_are_timed_against_threads(tmp_path: Path) -> None:
    rows = rows_of("ranks", tmp_path, "--graph", GRAPH, "--partitioners", "1d-dst", "--epochs", "2")
    assert [(row["contender"], row["note"], row["runs"]) for row in rows] == [
        ("1 x 2", "", 2),
        ("2 x 1 1d-dst", "", 2),
    ]
    assert rows[0]["MB sent"] is None and rows[1]["MB sent"] > 0 and rows[1]["of one rank"] > 0


@pytest.mark.second
def test_sampled_sizes_fall_from_neighbour_sampling_to_labor_star(tmp_path: Path) -> None:
    words = (
        "--graph",
        "rmat:scale=10,edge_factor=20,features=8,classes=4",
        "--batch",
        "16",
        "--fanout",
        "5",
        "--steps",
        "2",
        "--window",
        "8",
    )
    rows = run_bench("sampled_sizes", tmp_path, *words)
    assert [row["sampler"] for row in rows if "sampler" in row][:4] == [
        "neighbour",
        "LABOR-0",
        "LABOR-1",
        "LABOR-*",
    ]
    assert [row["kappa"] for row in rows if "kappa" in row] == [1, 4, 16, 64, 256, 16]


@pytest.mark.second
def test_macrobatches_save_messages_and_features(tmp_path: Path) -> None:
    words = (
        "--graph",
        "rmat:scale=10,edge_factor=20,features=8,classes=4",
        "--batch",
        "20",
        "--workers",
        "2",
        "--groups",
        "4",
        "--sizes",
        "1",
        "4",
        "--orders",
        "random",
    )
    one, *_ = rows = run_bench("macrobatch", tmp_path, *words)
    assert [(row["size"], row["aggregated"]) for row in rows] == [
        (0, False),
        (1, False),
        (4, False),
        (1, True),
        (4, True),
    ]
    assert (
        rows[2]["vectors"] < one["vectors"] == rows[1]["vectors"]
        and 4 * rows[2]["messages"] == rows[1]["messages"] < one["messages"]
    )


@pytest.mark.second
def test_bytes_are_counted_and_no_halo_is_left(tmp_path: Path) -> None:
    rows = run_bench(
        "bytes",
        tmp_path,
        "--graphs",
        GRAPH,
        "--models",
        "gcn",
        "--strategies",
        "global",
        "mini",
        "--ranks",
        "3",
    )
    assert len(rows) == 6 and all(
        row["MB sent"] == row["MB predicted"] < row["MB all mirrors"] and row["halos left"] == 0
        for row in rows
    )


@pytest.mark.second
def test_damage_is_seen(tmp_path: Path) -> None:
    rows = run_bench("damage", tmp_path, "--times", "60")
    assert sum(row["times"] for row in rows) == 60 and all(row["loaded wrong"] == 0 for row in rows)


@pytest.mark.second
@pytest.mark.reference
def test_the_cost_of_safety_is_measured(tmp_path: Path) -> None:
    none, all_, *_ = rows_of("guards", tmp_path, "--jobs", "tiny", "--rounds", "1")
    assert none["checkpoints"] == none["write ms"] == 0 and none["note"] == all_["note"] == ""
    assert all_["checkpoints"] > 0 and all_["write ms"] > 0


@pytest.mark.second
def test_memory_of_depth_is_measured(tmp_path: Path) -> None:
    rows = rows_of(
        "recompute",
        tmp_path,
        "--graph",
        GRAPH,
        "--depths",
        "2",
        "6",
        "--steps",
        "20",
        "--long",
        GRAPH,
    )
    assert [(row["layers"], row["contender"], row["note"]) for row in rows[:4]] == [
        (depth, way, "") for depth in (2, 6) for way in ("keep", "recompute")
    ]
    assert all(row["predicted"] > row["MiB"] > 0 for row in rows[:4]) and rows[-1]["value"] >= 0


@pytest.mark.second
@pytest.mark.reference
def test_what_overlap_hides_is_measured(tmp_path: Path) -> None:
    rows = run_bench(
        "overlap",
        tmp_path,
        "--graph",
        GRAPH,
        "--scale",
        "9",
        "--ranks",
        "2",
        "--epochs",
        "2",
        "--rounds",
        "1",
    )
    assert [(row["contender"], row["note"]) for row in rows if "contender" in row] == [
        (name, "")
        for name in ("no links", "links", "links, blocking", "1 in flight", "4 in flight")
    ]
    assert rows[1]["links"] > 0 and [row["value"] > 0 for row in rows if "value" in row][-1]


@pytest.mark.second
@pytest.mark.reference
def test_duplicated_work_of_independent_workers_is_measured(tmp_path: Path) -> None:
    rows = run_bench(
        "modes",
        tmp_path,
        "--scale",
        "9",
        "--targets",
        "16",
        "--workers",
        "3",
        "--fanouts",
        "3,2",
        "--epochs",
        "1",
        "--rounds",
        "1",
    )
    counts = [row for row in rows if row.get("case") == "counts"]
    assert [row["workers"] for row in counts] == [3] and all(
        row["MiB"] > 0 and row["more nodes"] > 0 for row in counts
    )
    assert [row["note"] for row in rows if row.get("seconds")] == [""] * 3


@pytest.mark.second
def test_hits_of_caches_are_counted(tmp_path: Path) -> None:
    rows = run_bench(
        "caches",
        tmp_path,
        "--graphs",
        "rmat:scale=8,edge_factor=4,features=4,classes=4",
        "--workers",
        "2",
        "--targets",
        "8",
        "--fanout",
        "3,2",
        "--sizes",
        "5",
        "50",
        "--orders",
        "random",
    )
    assert [row["cache"] for row in rows] == ["5 %", "50 %"] and rows[0]["belady"] < rows[1][
        "belady"
    ] < 1
    assert all(0 < row["fifo"] <= row["belady"] and 0 < row["fewest"] < row["rows"] for row in rows)


@pytest.mark.second
@pytest.mark.reference
def test_hits_of_embeddings_are_counted(tmp_path: Path) -> None:
    rows = run_bench(
        "hec",
        tmp_path,
        "--graphs",
        "rmat:scale=8,edge_factor=4,features=4,classes=4",
        "--workers",
        "2",
        "--all-up-to",
        "1",
        "--batches",
        "4",
        "--epochs",
        "2",
    )
    base, pushed, aged = rows
    assert (pushed["nc"], aged["ls"]) == (-1, 8) and 0 < base["L0"] < 100
    assert (
        0 < base["L1"] < aged["L1"]
        and base["L1"] <= pushed["L1"]
        and base["MiB"] > 0
        and 0 <= base["imbalance"] < 100
    )


@pytest.mark.second
def test_totals_are_timed(tmp_path: Path) -> None:
    (row,) = rows_of("totals", tmp_path, "--graphs", GRAPH, "--workers", "2", "--times", "1")
    assert row["note"] == "" and row["processor"] > 0 and row["MiB"] > 0 and 0.5 <= row["edges"] < 1


@pytest.mark.second
@pytest.mark.reference
def test_idle_time_of_uneven_clusters_is_measured(tmp_path: Path) -> None:
    rows = run_bench("uneven", tmp_path, "--scale", "9", "--epochs", "1", "--rounds", "1")
    assert [row["note"] for row in rows if "contender" in row] == [""] * 4
    assert all(0 <= row["idle"] < 1 for row in rows if "contender" in row)


@pytest.mark.second
@pytest.mark.reference
def test_a_long_run_is_watched(tmp_path: Path) -> None:
    rows = run_bench("soak", tmp_path, "--steps", "100", "--every", "50", "--ranks", "2")
    looks = [row for row in rows if "rank" in row]
    assert [(row["rank"], row["step"]) for row in looks] == [
        (rank, step) for rank in (0, 1) for step in (50, 100)
    ]
    assert all(row["MiB"] > 1 and row["files"] > 0 and row["threads"] > 0 for row in looks)


@pytest.mark.second
def test_random_jobs_have_the_same_numbers_on_any_number_of_ranks(tmp_path: Path) -> None:
    rows = [
        row
        for row in run_bench("equality", tmp_path, "--jobs", "9", "--seed", "6", "--fused", "0.1")
        if "job" in row
    ]
    assert len(rows) == 9 and all(
        row["difference"] < 1e-9 and row["sensitive"] is None and not row["note"] for row in rows
    )
    assert len({row["model"] for row in rows}) == 8 and len({row["strategy"] for row in rows}) == 4
    assert {row["optimiser"] for row in rows if row["norm"] == "batch"} == {
        "adam",
        "adamw",
        "sgd",
        "momentum",
    }
    assert len({row["targets"] for row in rows}) == 5 and len({row["graph"] for row in rows}) == 9
    assert {row["back end"] for row in rows} == {"fused", "reference"}


@pytest.mark.second
def test_random_jobs_on_relations_graphs_triples_and_time_are_equal_on_any_number_of_ranks(
    tmp_path: Path,
) -> None:
    rows = [
        row
        for row in run_bench(
            "equality", tmp_path, "--draws", "typed", "--jobs", "5", "--fused", "0.1"
        )
        if "job" in row
    ]
    assert len(rows) == 5 and all(
        row["difference"] < 1e-9 and row["sensitive"] is None and not row["note"] for row in rows
    )
    assert {row["graph"] for row in rows} == {"types", "whole graphs", "triples", "time"}


@pytest.mark.second
def test_random_jobs_with_rounded_values_are_near_exact_ones(tmp_path: Path) -> None:
    rows = [
        row
        for row in run_bench(
            "equality", tmp_path, "--draws", "values", "--jobs", "6", "--fused", "0"
        )
        if "job" in row
    ]
    assert len(rows) == 6 and not any(row["note"] for row in rows)
    assert all(row["difference"] < 2**-10 and row["from exact"] > 0 for row in rows)
    assert {row["norm"] for row in rows} >= {"batch"}


@pytest.fixture
def equality(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bench as a module; there is another one of its name among the tests."""
    monkeypatch.syspath_prepend(BENCH)
    return loaded("equality")


def loaded(name: str) -> Any:
    """A script as a module."""
    spec = spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_plans_predict_what_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    row = Row(**dict.fromkeys((f.name for f in fields(Row)), 0))
    assert row.figures().keys() >= set(loaded("plan").PREDICTED)


_found: dict[int, Any] = {}


@pytest.fixture
def once(equality: Any) -> Callable[..., Any]:
    """``on_ranks`` of the bench for the job of these tests, which is run once by each number of
    ranks.
    """
    run = equality.on_ranks

    def on_ranks(size: int, plan: Any, mpi: bool) -> Any:
        if size not in _found:
            _found[size] = run(size, plan, mpi)
        return _found[size]

    return on_ranks


@pytest.mark.parametrize(
    ("spoil", "note"),
    [
        (lambda found: found, ""),
        (lambda found: {**found, "loss": found["loss"] * (1 + 1e-8)}, "differs"),
        (lambda found: {**found, "predictions": found["predictions"][::-1]}, "differs"),
        (lambda found: {name: x for name, x in found.items() if name != "test_loss"}, "differs"),
        (lambda found: {**found, "ranks that differ": np.array(1)}, "differs"),
        (lambda found: "ConfigError: no", "one rank: trains; 4 ranks: ConfigError: no"),
    ],
)
def test_a_job_that_differs_is_at_fault(
    equality: Any,
    once: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    spoil: Any,
    note: str,
) -> None:
    def spoilt(size: int, plan: Any, mpi: bool) -> Any:
        found = once(size, plan, mpi)
        return found if size == 1 or isinstance(found, str) else spoil(found)

    monkeypatch.setattr(equality, "on_ranks", spoilt)
    row = equality.one(4, 0, 0.0, False)
    assert row["note"].endswith(note) and bool(row["note"]) is bool(note)


def test_a_job_that_rounding_decides_is_told_apart(
    equality: Any, once: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may differ as far as it moves on one rank when last bits change, and not much further."""
    monkeypatch.setattr(
        equality,
        "on_ranks",
        lambda size, plan, mpi: {
            name: x * (1 + 1e-8 * (size > 1)) for name, x in once(size, plan, mpi).items()
        },
    )
    for moved, note in ((1e-7, ""), (2e-9, ""), (1e-11, "differs"), (1e-8 / 101, "differs")):
        monkeypatch.setattr(equality, "sensitivity", lambda plan, alone, moved=moved: moved)
        row = equality.one(4, 0, 0.0, False)
        assert row["note"] == note and row["sensitive"] == moved


def test_rounded_values_that_are_far_from_exact_ones_are_at_fault(
    equality: Any, once: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they are so on all ranks alike."""
    plan = equality.DRAWS["plain"][1](4, 0, 0, 0.0)
    exact = once(1, plan, False)
    monkeypatch.setattr(equality, "run_simulated", lambda size, f, *of: [exact])
    far = {**exact, "predictions": exact["predictions"] * 1.1}
    assert equality.from_exact(plan, exact, exact)[0] == 0
    for rounded in ((far, exact), (exact, far)):
        distance, of, bound = equality.from_exact(plan, *rounded)
        assert distance > bound == equality.FROM_EXACT and of == "predictions"
    # where rounding the weights moves numbers further than they are large, no distance is a fault
    monkeypatch.setattr(equality, "sensitivity", lambda plan, alone, by: 1.5)
    assert equality.from_exact(plan, far, exact)[2] == np.inf


def test_a_number_that_changed_is_named(tmp_path: Path) -> None:
    before = tmp_path / "before.jsonl"

    def bits(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            str(BENCH / "bits.py"),
            "--only",
            "edge_factor=6 gcn global",
            *words,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    assert bits("--write", str(before)).returncode == 0
    rows = [json.loads(line) for line in before.read_text().splitlines()]
    assert len(rows) == 2
    rows[1]["losses"][0] = "0x1.0p+0"
    before.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changed = bits("--against", str(before))
    assert (
        changed.returncode == 1
        and "1 runs differ" in changed.stdout
        and changed.stdout.count("DIFFERS") == 1
    )


def test_gradients_and_updates_of_a_larger_graph_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    from scaled import Larger

    # only node bytes take time; "bytes" are those of halo moves and of sums of gradients
    speed = replace(IDEAL, seconds=tuple(1e-9 * (part == NODES) for part in range(len(PARTS))))
    job = gt.Job(dataset="ring:n=64", model="gcn", hidden=8, backend="reference", keep=0)
    held = skeleton(job, gt.load("ring:n=64"))
    parameters = sum(p.value.nbytes for p in held.prepared.model.parameters())
    rows = []
    for times in (1, 2, 5):
        cluster = Larger(**asdict(Cluster.of(speed, 0.0, 1e9)), times=times)
        rows.append(
            cluster.corrected(simulated(held, [job], [4], cluster, [""])[0].row, parameters)
        )
    one, two, five = rows
    moved, summed = (each / one.workers / 1e9 for each in (one.moved, one.summed))
    # without updates and sums, work and bytes are in proportion to the size
    updates = UPDATE_PASSES * parameters * 1e-9
    assert 0 < updates < one.compute and 0 < summed < one.carried and moved > 0
    for row, times in ((two, 2), (five, 5)):
        assert row.compute - updates == pytest.approx(times * (one.compute - updates))
        assert row.carried - summed == pytest.approx(times * (one.carried - summed))
        assert row.transfer - row.carried == pytest.approx(one.transfer - one.carried)
