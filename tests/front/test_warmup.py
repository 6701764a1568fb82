"""``graphtheta warmup``: afterwards a job compiles nothing, and workers share what they compile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.cli import doctor
from graphtheta.cli.warmup import jobs_of, shortened, small
from graphtheta.run.job.job import Job

MPIEXEC = doctor.find_mpiexec()
TINY = (
    "--dataset",
    "sbm:n_nodes=300,n_edges=2400,classes=3,features=8",
    "--hidden",
    "8",
    "--epochs",
    "2",
    "--model",
)
# the command, which also prints the name of each kernel that it keeps
PROGRAM = """
import sys
from graphtheta.__main__ import main
from graphtheta.base import private
write = private.write
def told(path, content):
    sys.stdout.write(f"\\nkept {path.name}\\n")
    sys.stdout.flush()
    write(path, content)
private.write = told
sys.exit(main())
"""


def kept(folder: Path, *words: str, ranks: int = 1) -> Counter[str]:
    """Run a command with its kernels in a folder; how often each kernel was compiled and kept."""
    launch = [str(MPIEXEC), "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(
        [*launch, sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "GRAPHTHETA_CACHE": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return Counter(re.findall(r"kept (\w+)", done.stdout))


@pytest.mark.second
@pytest.mark.skipif(MPIEXEC is None, reason="MPI is not installed")
def test_afterwards_training_compiles_nothing_and_workers_compile_each_kernel_once(
    tmp_path: Path,
) -> None:
    """What one worker alone compiled is what two use; a job that samples compiles more. One test,
    because all models have most kernels in common, and these take a minute to compile.
    """
    dropped = [*TINY, "gat_e", "--attention-dropout", "0.3"]
    once = kept(tmp_path, "warmup", *dropped, ranks=2)
    assert len(once) > 2 and set(once.values()) == {1}
    # a few that one worker alone needs
    assert not kept(tmp_path, "warmup", *dropped).keys() & once.keys()
    assert not kept(tmp_path, "train", *dropped)
    assert kept(tmp_path, "warmup", *TINY, "gcn")
    assert not kept(tmp_path, "train", *TINY, "gcn", "--partitioner", "vertex-cut", ranks=2)
    sampled = [*TINY, "sage", "--strategy", "mini", "--batch-size", "40", "--fanout", "3"]
    assert kept(tmp_path, "warmup", *sampled)
    assert not kept(tmp_path, "train", *sampled)


def test_the_small_graph_has_the_same_columns() -> None:
    graph = gt.load("sbm:n_nodes=3000,n_edges=9000,classes=40,features=8")
    made = small(graph)
    assert made.n_nodes <= 48 and made.n_edges <= 192
    assert (made.n_features, made.n_edge_features, made.n_classes) == (
        graph.n_features,
        graph.n_edge_features,
        graph.n_classes,
    )
    assert all(getattr(made, m).any() for m in ("train", "val", "test"))


def test_the_small_graph_keeps_labels_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 100, (2, 400))
    several = rng.integers(0, 2, (100, 5)).astype(np.float32)
    third = np.arange(100) % 3
    masks = dict(train=third == 0, val=third == 1, test=third == 2)
    for y in (several, rng.standard_normal((100, 5)), rng.integers(0, 7, 100)):
        graph = gt.Graph(
            edges,
            100,
            x=rng.standard_normal((100, 4)),
            y=y,
            edge_y=rng.standard_normal(400),
            **masks,
        )
        assert small(graph).label_kind == graph.label_kind


def test_without_flags_every_published_model_is_meant() -> None:
    jobs = jobs_of({})
    assert {job.model for job in jobs} >= {"gcn", "gat", "gat_e", "gipa", "sage", "gin"}
    assert jobs_of({"model": "gat"}) == [Job(model="gat")]


def test_the_job_is_shortened_as_its_strategy_allows() -> None:
    assert shortened(Job(strategy="mini", batch_size=1000, epochs=50, seeds=3)) == Job(
        strategy="mini", batch_size=8, epochs=1
    )
    assert shortened(Job(strategy="cluster", clusters=100, clusters_per_batch=20)).clusters == 4
    assert shortened(Job(strategy="mini", vertex_limit=9)) == shortened(Job(strategy="mini"))
    assert shortened(Job(strategy="mini", sampler="saint_node:budget=9")).batch_size == 0
    assert shortened(Job(steps=7)).steps == 0
