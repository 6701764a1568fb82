"""Hashes of rows and of arrays, by which kept values of layers are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphtheta.inference.forward import spill
from graphtheta.inference.forward.spill import ArrayFiles
from graphtheta.inference.grown.fingerprints import array_hash, row_hashes, take_rows_checked

RNG = np.random.default_rng(0)


def test_fingerprints() -> None:
    """Hashes of rows differ where a bit does, signs included, and not with the padding of texts or
    the form of sparse rows.
    """
    x = RNG.normal(size=(50, 6))
    signs = x.copy()
    signs[7, [1, 4]] *= -1
    for dtype in (np.float32, np.float64):
        assert np.flatnonzero(
            row_hashes(x.astype(dtype)) != row_hashes(signs.astype(dtype))
        ).tolist() == [7]
    assert len(np.unique(row_hashes(np.arange(1000)))) == 1000
    # rows of one number have a loop of their own
    assert np.array_equal(
        row_hashes(x[:, 0]), row_hashes(np.stack((x[:, 0], np.zeros(50)), axis=1))
    )
    names = np.array(["a", "bc", "d"])
    assert np.array_equal(row_hashes(names), row_hashes(np.append(names, "longer text"))[:3])
    sparse = sp.random_array((30, 9), density=0.3, format="csr", rng=np.random.default_rng(1))
    again = sparse.copy()
    again.data[4] += 1
    assert np.count_nonzero(row_hashes(sparse) != row_hashes(again)) == 1
    zeros = sparse.copy()
    zeros.data[4] = 0
    stored = row_hashes(zeros)
    zeros.eliminate_zeros()
    assert np.array_equal(row_hashes(zeros), stored)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3])
def test_rows_of_zeros_count(dtype: type, width: int) -> None:
    """What is summed over the edges of a node, or compared with a file of zeros, is not 0."""
    assert (row_hashes(np.zeros((4, width), dtype)) != 0).all()


def test_rows_are_checked_while_they_are_copied() -> None:
    rows = RNG.integers(0, 50, 400)
    for x in (
        RNG.normal(size=(50, 3, 2)),
        RNG.normal(size=(50, 3)).astype(np.float32),
        RNG.integers(0, 9, 50),
        np.array(["a", "bc"] * 25),
    ):
        out = np.empty((400, *x.shape[1:]), x.dtype)
        hashes = row_hashes(x)
        assert take_rows_checked(x, rows, hashes, out) is None and np.array_equal(out, x[rows])
        hashes[rows[7]] += np.uint64(1)
        assert take_rows_checked(x, rows, hashes, out) == rows[7]


def test_rows_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adjacent rows are written as a whole, others one by one, and arrays without numbers have no
    pages.
    """
    monkeypatch.setattr(spill, "COPIED", 100)
    for k, x in enumerate(
        (
            RNG.normal(size=(50, 3, 2)),
            RNG.integers(0, 9, 50),
            np.array(["a", "bc"] * 25),
            np.zeros((50, 0)),
        )
    ):
        files = ArrayFiles(tmp_path)
        name = f"values-{k}"
        files.create(name, x.shape, x.dtype)
        for rows in (np.arange(20), np.arange(20, 50), np.zeros(0, np.int64)):
            files.write(name, rows, x[rows][:, ::-1] if x.ndim > 1 else x[rows])
        again = np.concatenate((np.arange(50)[::-1], [49, 0]))
        files.write(name, again, x[again])
        files.write(name, np.array([3, 1, 2]), x[[3, 1, 2]])
        assert np.array_equal(files.read(name, np.arange(50)), x)
        order = RNG.permutation(50)[:30]
        out = np.empty((30, *x.shape[1:]), x.dtype)
        assert files.read(name, order, out) is out and np.array_equal(out, x[order])


def test_hash_of_an_array() -> None:
    """It depends on values and places, not on rows behind the end or on the order in which rows are
    given.
    """
    hashes = row_hashes(np.arange(30) % 7)
    places = RNG.permutation(30)
    found = array_hash(hashes[places], places, 20)
    assert (
        found
        == array_hash(hashes[:20], np.arange(20), 20)
        != array_hash(hashes[:20], np.arange(20)[::-1].copy(), 20)
    )
    assert found != array_hash(hashes, np.arange(30), 21)
