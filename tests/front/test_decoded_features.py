"""Features in fewer bits: products decode them a block at a time, and jobs are those of decoded
features in memory, to the bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
from covering import covering

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.store.column import Coded
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.store import PrefixReader
from graphtheta.errors import UserFunctionError
from graphtheta.graph.store.from_graph import write_store
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.autodiff.stored import StoredRows

N = 90
UNLABELLED = dict.fromkeys(("edge_y", "edge_train", "edge_val", "edge_test"))
GRAPH = graphs.random_graph(
    N, 600, x=np.random.default_rng(2).standard_normal((N, 21)).astype(np.float32), **UNLABELLED
)
KEYS: dict[str, Any] = {
    "layers": 2,
    "hidden": 16,
    "optimiser": "sgd",
    "lr": 0.05,
    "backend": "reference",
}
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "sage": {"model": "sage"},
    "gat": {"model": "gat", "heads": 2},
    "edges": {"model": "sage", "aggregator": "max"},
    "recomputed": {"model": "gcn", "recompute": True},
}
MINI = {"strategy": "mini", "batch_size": 16, "fanout": "4,3"}
BATCHES: dict[str, dict[str, Any]] = {
    "whole": {},
    "batches": MINI,
    "cached": {**MINI, "feature_cache": "20"},
    "independent": {**MINI, "mode": "independent"},
    "cluster": {"strategy": "cluster", "cluster_method": "metis", "clusters": 4},
}
# type of the features of a store, and keys
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "int8": ("int8", {}),
    "float16": ("float16", {}),
    "float32 in a job of float64": ("stored", {"dtype": "float64"}),
    "int8 as bfloat16": ("int8", {"values": "bfloat16"}),
    "float32 as bfloat16": ("stored", {"values": "bfloat16"}),
}


def trained(comm: Comm, graph: gt.Graph, **keys: Any) -> tuple[list[float], dict[str, float]]:
    """Losses of two epochs, and test metrics."""
    trainer = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    return [trainer.train_epoch(i) for i in range(2)], trainer.evaluate("test")


def stored(folder: Path, kind: str) -> gt.Graph:
    """The graph from a store."""
    write_store(GRAPH, folder / "g.store", SerialComm(), kind)
    return gt.load(str(folder / "g.store"))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "form, model, batches, dropout, placement",
    covering(list(FORMS), list(MODELS), list(BATCHES), [0.0, 0.4], graphs.PLACEMENTS),
)
def test_jobs_are_those_of_decoded_features(
    form: str,
    model: str,
    batches: str,
    dropout: float,
    placement: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fusion, "SMALLEST", 1)
    kind, keys = FORMS[form]
    graph = stored(tmp_path, kind)
    keys = {**MODELS[model], **BATCHES[batches], **keys, "dropout": dropout}
    keys |= dict(zip(("partitioner", "masters"), placement, strict=True))
    found = {size: run_simulated(size, trained, graph, **keys)[0] for size in (1, 2, 3)}
    if batches != "independent":
        # its batches depend on the number of workers
        near = 2e-3 if "bfloat16" in form else 2e-5
        for size in (2, 3):
            np.testing.assert_allclose(found[size][0], found[1][0], rtol=near)
    held = graph.replace(x=np.asarray(graph.x[:], np.float32))
    in_memory = run_simulated(2, trained, held, **keys)[0]
    np.testing.assert_allclose(found[2][0], in_memory[0], rtol=2e-5)
    monkeypatch.setattr(PrefixReader, "decoding", lambda *_: None)
    assert run_simulated(2, trained, graph, **keys)[0] == found[2]


@pytest.mark.parametrize("values, batches", [("float32", "whole"), ("bfloat16", "cached")])
def test_features_that_products_read_are_decoded_in_blocks_only(
    values: str, batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusion, "SMALLEST", 1)
    graph = stored(tmp_path, "int8")
    read = []
    copy = StoredRows._copy

    def watched(rows: StoredRows) -> Any:
        # a dry run reads columns without rows
        read.extend([rows.name] if rows.shape[0] else [])
        return copy(rows)

    monkeypatch.setattr(StoredRows, "_copy", watched)
    for model, dropout in (("gcn", 0.0), ("gcn", 0.4), ("gat", 0.4), ("sage", 0.0)):
        keys = {**MODELS[model], **BATCHES[batches], "dropout": dropout, "values": values}
        # products come before sums
        run_simulated(2, trained, graph, **keys, hidden=4, partitioner="vertex-cut")
        assert "node.x" not in read, (model, dropout)
    run_simulated(1, trained, graph, **MODELS["edges"], values=values, dropout=0.0)
    assert "node.x" in read


class Users:
    """A column of one's own with codes, from which too few numbers are decoded."""

    sparse = False
    dtype = np.dtype(np.float32)
    shape = (N, 21)
    nbytes = 0

    def __init__(self) -> None:
        self.coded = Coded(
            MemoryColumn(np.ones(self.shape, np.int8)), lambda rows: rows[:, 1:].astype(np.float32)
        )

    def read_begin(self, rows: np.ndarray | None) -> Any:
        raise AssertionError("the codes are read")


def test_what_a_column_of_ones_own_decodes_is_checked() -> None:
    partition = build_partition(GRAPH.replace(x=Users()), SerialComm(), "1d-dst")
    rows = partition.node.prefixes(None).decoding("x", N)
    assert rows is not None
    with pytest.raises(UserFunctionError, match=r"Users: a read of 5 rows returned.*\[5, 20\]"):
        rows(0, 5)
    with pytest.raises(UserFunctionError, match=rf"Users: a read of {N} rows returned"):
        partition.node.read("x")
