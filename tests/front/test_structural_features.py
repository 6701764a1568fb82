"""Structural features of a job, and the command ``graphtheta analyse``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import fill, random_graph

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.analytics.features import with_structural_features
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError

pytestmark = pytest.mark.reference

CHOSEN = "pagerank:damping=0.5+core_number"


def graph_of(**fields: object) -> gt.Graph:
    return random_graph(24, 90, **fields).symmetrised()


def features(graph: gt.Graph, chosen: str = CHOSEN) -> gt.Graph:
    return with_structural_features(gt.Job(structural_features=chosen), graph, SerialComm())


def test_columns_follow_the_features() -> None:
    graph = graph_of()
    x = features(graph).x
    assert np.array_equal(x[:, :4], graph.x) and x.shape == (24, 6)
    for k, values in enumerate((gt.pagerank(graph, 0.5), gt.core_number(graph))):
        logs = np.log1p(values / values.mean())
        np.testing.assert_allclose(x[:, 4 + k], (logs - logs.mean()) / logs.std(), atol=1e-5)


def test_graphs_without_features_and_with_sparse_ones() -> None:
    graph = graph_of()
    alone = features(graph.replace(x=None)).x
    sparse = features(graph.replace(x=sp.csr_array(np.eye(24, dtype=np.float32)))).x
    assert (
        alone.shape == (24, 2)
        and sp.issparse(sparse)
        and np.array_equal(sparse.toarray()[:, 24:], alone)
    )
    # all nodes of a ring are equal
    ring = fill(np.arange(8), (np.arange(8) + 1) % 8, 8)
    assert not features(ring, "pagerank").x[:, 4:].any()


@pytest.mark.parametrize(
    ("chosen", "text"),
    [("components", "values of components"), ("bfs", "values of bfs"), ("pagrank", "did you mean")],
)
def test_values_that_are_no_features_are_refused(chosen: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        features(fill([0], [1], 3), chosen)


def test_features_in_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((24, 2), np.float32))
    with pytest.raises(DataError, match="in files"):
        features(graph_of().replace(x=gt.MappedColumn(tmp_path / "x.npy")))


def test_links_that_are_held_out_do_not_count() -> None:
    graph = graph_of(
        y=None,
        edge_y=None,
        n_classes=None,
        train=None,
        val=None,
        test=None,
        edge_train=None,
        edge_val=None,
        edge_test=None,
    )
    x = features(graph, "degree").x[:, 4]
    every = gt.degree(graph)
    ordered = np.argsort(every, kind="stable")
    assert (np.diff(x[ordered]) < 0).any() and (np.diff(every[ordered]) >= 0).all()


def test_a_job_trains_on_them_alike_on_any_number_of_workers() -> None:
    def losses(comm: object) -> list[float]:
        trainer = gt.Trainer(
            "gcn",
            graph_of(),
            comm=comm,
            structural_features=CHOSEN,
            dtype="float64",
            hidden=4,
            epochs=2,
            out="",
        )
        return [trainer.train_epoch(i) for i in range(2)]

    one = run_simulated(1, losses)[0]
    two = run_simulated(2, losses)[0]
    np.testing.assert_allclose(one, two, rtol=1e-12)


def test_the_command_writes_original_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(
        "g.npz",
        edge_index=np.array([[0, 1, 2], [1, 0, 1]]),
        x=np.eye(4, dtype=np.float32),
        node_ids=np.array(["d", "c", "b", "a"]),
    )
    assert main(["analyse", "components", "--dataset", "g.npz", "--to", "parts.csv"]) == 0
    assert Path("parts.csv").read_text(encoding="utf-8") == "id,components\nd,d\nc,d\nb,d\na,a\n"
    assert (
        main(
            [
                "analyse",
                "random_walks:paths=1,length=1",
                "--dataset",
                "g.npz",
                "--to",
                "paths",
                "--format",
                "parquet",
            ]
        )
        == 0
    )
    assert main(["analyse", "degree", "--dataset", "g.npz"]) == 0
    with np.load("degree.npz") as z:
        assert z["id"].tolist() == ["d", "c", "b", "a"] and z["degree"].tolist() == [1, 2, 0, 0]
    assert main(["analyse", "core_number", "--dataset", "g.npz"]) == 1
    assert main(["analyse", "core_number", "--dataset", "g.npz", "--symmetric", "yes"]) == 0
    assert main(["analyse", "degree", "--to", "x.txt"]) == 2


def test_an_own_algorithm_is_read_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from dataclasses import dataclass\nimport graphtheta as"
        " gt\n\n@dataclass(frozen=True)\nclass Doubled(gt.Algorithm):\n    name = 'doubled'\n   "
        " times: int = 2\n\n    def run(self, partition, graph):\n        return"
        " partition.node.read('in_degree') * self.times\n",
        encoding="utf-8",
    )
    assert (
        main(["analyse", "mine.py:Doubled:times=3", "--dataset", "ring:n=8", "--to", "out.csv"])
        == 0
    )
    assert len(Path("out.csv").read_text(encoding="utf-8").splitlines()) == 9
