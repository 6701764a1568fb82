"""Features of types at their own widths: the numbers of the matrix that has them side by side,
wherever rows are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.base.npy import in_files
from graphtheta.base.typed_rows import KIND, TypedRows
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, FormatError
from graphtheta.graph.store.from_graph import write_store
from graphtheta.ops.rows.products import long_product, product
from graphtheta.ops.rows.row_list import take_rows

RNG = np.random.default_rng(0)
SIZES = {"paper": 40, "author": 50, "venue": 5, "topic": 6}
WIDTHS = {"paper": 7, "author": 4, "venue": 2}
ENDS = {
    ("author", "writes", "paper"): 150,
    ("paper", "in", "venue"): 40,
    ("topic", "of", "paper"): 60,
    ("author", "knows", "author"): 60,
}
GRAPH = gt.Graph(
    {
        name: (RNG.integers(0, SIZES[name[0]], n), RNG.integers(0, SIZES[name[2]], n))
        for name, n in ENDS.items()
    },
    SIZES,
    x={name: RNG.standard_normal((SIZES[name], d)) for name, d in WIDTHS.items()},
    y={"paper": RNG.integers(0, 3, 40)},
    **{
        split: {"paper": np.arange(40) % 3 == i} for i, split in enumerate(("train", "val", "test"))
    },
).with_inverse_relations()
BESIDE = GRAPH.replace(x=GRAPH.x.tocsr())
KEYS: dict[str, Any] = {
    "model": "rgcn",
    "hidden": 5,
    "epochs": 2,
    "dtype": "float64",
    "backend": "reference",
    "seed": 4,
    "dropout": 0.3,
    "normalise_features": "none",
}
MINI: dict[str, Any] = {"strategy": "mini", "batch_size": 5}
CASES: dict[str, dict[str, Any]] = {
    "global": {},
    "hgt": {"model": "hgt", "heads": 2, "hidden": 6},
    "raw features on edges": {"model": "sage", "dropout": 0.0},
    "mini": {**MINI, "fanout": (3, 2), "views_in_flight": 2},
    "cluster": {"strategy": "cluster", "clusters": 4},
    "alone": {**MINI, "mode": "independent", "views_per_step": 2, "model": "gat"},
    "cache": {**MINI, "mode": "independent", "views_per_step": 2, "feature_cache": "20"},
    "macrobatch": {
        **MINI,
        "mode": "independent",
        "views_per_step": 4,
        "macrobatch": "2",
        "fetch_batch": 2,
    },
    "history": {"strategy": "cluster", "clusters": 4, "history": "gas", "model": "gcn"},
    "stale": {"exchange": "pipegcn", "model": "gcn", "partitioner": "1d-dst"},
    "learned": {"embedding": 3, "embedding_types": "topic"},
}


def numbers(comm: Any, graph: gt.Graph, **keys: Any) -> np.ndarray:
    trainer = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    losses = [row["loss"] for row in trainer.fit().history]
    return np.concatenate(
        [losses, *(np.ravel(x) for _, x in sorted(trainer.model.state().items()))]
    )


def rows(n: int, seed: int, types: tuple[int, ...] = (0, 1, 2)) -> TypedRows:
    rng = np.random.default_rng(seed)
    kind = rng.choice(types, n).astype(KIND)
    return TypedRows(
        kind,
        [rng.standard_normal((int((kind == code).sum()), d)) for code, d in enumerate((3, 0, 5))],
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_a_matrix_of_all_types(name: str) -> None:
    assert isinstance(GRAPH.x, TypedRows) and not isinstance(BESIDE.x, TypedRows)
    # stale values depend on the division
    stale = name in ("history", "stale")
    size = 3 if stale else (1, 2, 4)[list(CASES).index(name) % 3]
    expected = run_simulated(3 if stale else 1, numbers, BESIDE, **CASES[name])[0]
    keys = {
        **CASES[name],
        **({"masters": "block", "partitioner": "vertex-cut"} if size == 4 else {}),
    }
    np.testing.assert_allclose(
        run_simulated(size, numbers, GRAPH, **keys)[0], expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("types", [(0, 1, 2), (0, 2), (1,), (2,)], ids=str)
def test_rows_are_those_of_the_array(types: tuple[int, ...]) -> None:
    x = rows(60, 1, types)
    whole = x.toarray()
    at = np.random.default_rng(2).integers(0, 60, 80)
    assert x.shape == whole.shape == (60, 8) and x.nnz == sum(block.size for block in x.blocks)
    for key in (at, at[:0], slice(13, 41), slice(0, 0), slice(None), np.arange(60) % 3 == 0):
        np.testing.assert_array_equal(x[key].toarray(), whole[key])
    np.testing.assert_array_equal(take_rows(x, at).toarray(), whole[at])
    np.testing.assert_array_equal(x[at].tocsr().toarray(), whole[at])
    np.testing.assert_array_equal(x[:0].unpadded(x[at].padded()).toarray(), whole[at])
    w = np.random.default_rng(3).standard_normal((8, 4))
    g = np.random.default_rng(4).standard_normal((80, 4))
    np.testing.assert_allclose(product(x[at], w), whole[at] @ w, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(long_product(x[at], g), whole[at].T @ g, rtol=1e-12, atol=1e-12)


def test_the_form_follows_the_features() -> None:
    def of(**x: Any) -> Any:
        return gt.Graph({("a", "to", "b"): ([0], [1])}, {"a": 4, "b": 6}, x=x).x

    dense = np.ones((4, 3)), np.ones((6, 3))
    assert isinstance(of(a=dense[0], b=dense[1]), TypedRows) and isinstance(
        of(a=dense[0]), TypedRows
    )
    # of little gain, or mostly 0
    assert not isinstance(of(a=np.eye(4, 40), b=np.eye(6)), (TypedRows, np.ndarray))
    whole = gt.Graph({("a", "to", "b"): ([0], [1])}, {"a": 1, "b": 60}, x={"b": np.ones((60, 3))}).x
    assert isinstance(whole, np.ndarray)
    with pytest.raises(DataError, match=r"type 1.*node 2, column 1 is nan"):
        of(a=dense[0], b=np.where(np.arange(18).reshape(6, 3) == 7, np.nan, 1))


def test_a_store_has_the_rows_of_each_type(tmp_path: Path) -> None:
    write_store(GRAPH, tmp_path / "store", SerialComm())
    held = gt.load(str(tmp_path / "store"))
    assert isinstance(held.x, TypedRows) and held.digest() == GRAPH.digest()
    assert all(in_files(block) for block in held.x.blocks if block.size)
    keys = {**MINI, "mode": "independent", "views_per_step": 2}
    expected = run_simulated(1, numbers, BESIDE, **keys)[0]
    np.testing.assert_allclose(
        run_simulated(3, numbers, held, **keys)[0], expected, rtol=1e-9, atol=1e-9
    )
    with pytest.raises(ConfigError, match="features of each type are stored apart"):
        gt.transform_store(
            tmp_path / "store", to=tmp_path / "other", component="largest", comm=SerialComm()
        )
    (tmp_path / "store" / "node.x.type.npy").unlink()
    with pytest.raises(FormatError):
        gt.load(str(tmp_path / "store"))


def test_memory_is_that_of_the_numbers() -> None:
    stored = sum(SIZES[name] * d for name, d in WIDTHS.items())
    n = sum(SIZES.values())
    assert GRAPH.x.nnz == stored and GRAPH.x[np.arange(n)].nbytes == 4 * stored + n
    assert GRAPH.nbytes == BESIDE.nbytes - BESIDE.x.nbytes + 4 * stored + n


def test_other_ways_to_change_features() -> None:
    for change in (
        lambda g: g.with_row_normalised_features(),
        lambda g: g.with_standardised_features(),
        lambda g: g.replace(x=g.x[np.arange(g.n_nodes)]),
        lambda g: g.without_self_loops(),
        lambda g: g.with_inverse_relations(),
    ):
        dense = [
            x if isinstance(x, np.ndarray) else x.toarray()
            for x in (change(GRAPH).x, change(BESIDE).x)
        ]
        np.testing.assert_allclose(*dense, rtol=1e-6)
    assert GRAPH.has_sparse_features and GRAPH.digest() != BESIDE.digest()
