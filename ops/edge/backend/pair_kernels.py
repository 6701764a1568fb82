"""Kernels for the products of pairs: rows that are read or added where they are, and matrices
chosen by a code.

A kernel keeps a tile of the result in registers: some rows against a panel of columns. Each number
of a result is summed in one fixed order, whatever the tiles, so that results do not depend on the
processor's registers or on which pairs are in a block. Nothing is copied, and all blocks of a
thread run in one call, which the interpreter lock does not interrupt; BLAS would be called for each
code of each part of the rows, on copied rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property

import numpy as np

from ...compile.generated import compiled
from ...kernels import vector_header
from ...kernels.products.shapes import registers
from ...kernels.turn import turns
from ...parallel import buffers
from ...parallel.pool import run_threads

# pairs whose rows stay in the first-level cache while a tile of the gradient of a matrix is summed
CHUNK = 48


class PairBlocks:
    """Blocks of pairs of one code, in shares that a thread takes at a time.

    Args:
        shares: Of each share, its blocks (code, begin, end).
    """

    def __init__(self, shares: list[list[tuple[int, int, int]]]):
        self.n = len(shares)
        blocks = np.array([block for share in shares for block in share], np.int64).reshape(-1, 3)
        self.arrays = (
            np.append(0, np.cumsum([len(share) for share in shares], dtype=np.int64)),
            blocks,
        )

    @property
    def codes(self) -> np.ndarray:
        """The code of each block, [n_blocks] int64."""
        return self.arrays[1][:, 0]

    @cached_property
    def first(self) -> np.ndarray:
        """The first block of each code that has one, where codes ascend."""
        return np.flatnonzero(np.diff(self.codes, prepend=-1))


def times(
    x: np.ndarray,
    at: np.ndarray,
    weight: np.ndarray,
    blocks: PairBlocks,
    out: np.ndarray,
    to: np.ndarray | None,
) -> None:
    """Multiply a row for each pair by the matrix of its code.

    Args:
        x: Rows, [n, d].
        at: The row of each pair, [n_pairs].
        weight: A matrix for each code, [k, d, d_out].
        blocks: The pairs; no two shares have pairs of the same row of ``to``.
        out: Changed: product p is stored in row p, or added to row ``to[p]``; [..., d_out].
        to: Rows of the results, [n_pairs], or None.
    """
    kernel = _times(weight.shape[2], to is not None, x.dtype)
    matrices = _read(weight.reshape(-1, weight.shape[2]))
    _run(kernel, blocks, (_read(x), at, matrices, out, at if to is None else to))


def outer_sums(
    x: np.ndarray, at_x: np.ndarray, y: np.ndarray, at_y: np.ndarray, blocks: PairBlocks
) -> np.ndarray:
    """The sum of the outer products of the rows of x and y of each pair in a block, [n_blocks, d_x,
    d_y].

    Args:
        x, y: Rows, [..., d_x] and [..., d_y]; it is faster if those of y are the wider ones.
        at_x, at_y: The rows of each pair, [n_pairs].
        blocks: The pairs.
    """
    kernel = _outer_sums(x.shape[1], y.shape[1], x.dtype)
    n_blocks = len(blocks.arrays[1])
    out = buffers.full((n_blocks * x.shape[1], y.shape[1]), 0, x.dtype)
    _run(kernel, blocks, (_read(x), at_x, _read(y), at_y, out))
    return out.reshape(n_blocks, x.shape[1], y.shape[1])


def _read(x: np.ndarray) -> np.ndarray:
    """For reading only: one kernel for arrays that may be changed and those that must not."""
    x = np.ascontiguousarray(x).view()
    x.flags.writeable = False
    return x


def _run(kernel: Callable[..., None], blocks: PairBlocks, arrays: tuple[np.ndarray, ...]) -> None:
    """Call a kernel with its arrays, in the order of its text, on all threads."""
    counters = turns()
    run_threads(
        lambda place: kernel(counters, place % 2, blocks.n, *blocks.arrays, *arrays), blocks.n
    )


# ---- sources


@cache
def _tile() -> tuple[int, int]:
    """Vectors of the result that registers hold beside those of a row, and most of them side by
    side.
    """
    # 32 registers of 64 bytes, or 16 of 32, of which a vector takes two
    return (24, 4) if registers().size == 64 else (6, 1)


def _panels(width: int, dtype: str) -> Iterator[tuple[str, list[int], int]]:
    """Panels of the columns of a result: a loop or an assignment of the first column, numbers in
    each vector, and rows of a tile.
    """
    most, side = _tile()
    lanes = 64 // np.dtype(dtype).itemsize
    whole = width // (lanes * side) * lanes * side
    if whole:
        yield f"for c in range(0, {whole}, {lanes * side}):", [lanes] * side, most // side
    if rest := [min(lanes, width - first) for first in range(whole, width, lanes)]:
        yield f"for c in range({whole}, {whole + 1}):", rest, min(most // len(rest), 12)


class _Writer:
    """Lines of a kernel over the blocks of a share."""

    def __init__(self, arguments: str, dtype: str):
        self.lanes = 64 // np.dtype(dtype).itemsize
        self._functions = {"load1 = lanes.loader(1)": None}
        self._lines = [
            "@kernel_form",
            f"def kernel(turn, side, shares, ptr, blocks, {arguments}):",
            "    while True:",
            "        s = next_turn(turn, shares, side)",
            "        if s >= shares:",
            "            break",
            "        for b in range(ptr[s], ptr[s + 1]):",
            "            code, begin, end = blocks[b, 0], blocks[b, 1], blocks[b, 2]",
        ]

    def put(self, depth: int, *lines: str) -> None:
        self._lines += ["    " * (2 + depth) + line for line in lines]

    def load(self, active: int, array: str, row: str, vector: int) -> str:
        self._functions[f"load{active} = lanes.loader({active})"] = None
        return f"load{active}({array}, {row}, c + {vector * self.lanes})"

    def store(self, depth: int, active: int, array: str, row: str, vector: int, text: str) -> None:
        self._functions[f"store{active} = lanes.storer({active})"] = None
        self.put(depth, f"store{active}({array}, {row}, c + {vector * self.lanes}, {text})")

    def zero(self, depth: int, active: int, name: str) -> None:
        self._functions[f"zeros{active} = lanes.zeros({active}, ELEMENT)"] = None
        self.put(depth, f"{name} = zeros{active}()")

    def products(
        self,
        depth: int,
        rows: int,
        vectors: list[int],
        numbers: Callable[[int], str],
        array: str,
        row: str,
    ) -> None:
        """Add one number of each row, times a row of vectors, to the tile."""
        for j, active in enumerate(vectors):
            self.put(depth, f"v{j} = {self.load(active, array, row, j)}")
        for r in range(rows):
            self.put(
                depth,
                f"n = {numbers(r)}",
                *(f"t{r}_{j} = t{r}_{j} + n * v{j}" for j in range(len(vectors))),
            )

    def compiled(self, dtype: str) -> Callable[..., None]:
        return compiled(
            "\n".join([*self._functions, "", "", *self._lines]) + "\n", dtype, vector_header
        )


@cache
def _times(width: int, onto: bool, type_: np.dtype) -> Callable[..., None]:
    dtype = type_.name
    w = _Writer("x, at, weight, out, to", dtype)
    w.put(1, "first = code * x.shape[1]")
    for loop, vectors, most in _panels(width, dtype):
        w.put(1, loop)
        w.put(2, f"whole = begin + (end - begin) // {most} * {most}")
        for rows, bounds in ((most, f"begin, whole, {most}"), (1, "whole, end")):
            w.put(2, f"for p in range({bounds}):")
            w.put(3, *(f"x{r} = entry(at, p + {r})" for r in range(rows)))
            for r in range(rows):
                for j, active in enumerate(vectors):
                    w.zero(3, active, f"t{r}_{j}")
            w.put(3, "for i in range(x.shape[1]):")
            w.products(
                depth=4,
                rows=rows,
                vectors=vectors,
                numbers=lambda r: f"load1(x, x{r}, i)",
                array="weight",
                row="first + i",
            )
            for r in range(rows):
                w.put(3, f"o = entry(to, p + {r})" if onto else f"o = p + {r}")
                for j, active in enumerate(vectors):
                    before = f"{w.load(active, 'out', 'o', j)} + " if onto else ""
                    w.store(3, active, "out", "o", vector=j, text=f"{before}t{r}_{j}")
    return w.compiled(dtype)


@cache
def _outer_sums(height: int, width: int, type_: np.dtype) -> Callable[..., None]:
    dtype = type_.name
    w = _Writer("x, at_x, y, at_y, out", dtype)
    w.put(1, f"for chunk in range(begin, end, {CHUNK}):")
    w.put(2, f"last = min(chunk + {CHUNK}, end)")
    for loop, vectors, most in _panels(width, dtype):
        whole = height // most * most
        w.put(2, loop)
        for rows, bounds in (
            (most, f"0, {whole}, {most}"),
            (height - whole, f"{whole}, {whole + 1}"),
        ):
            if not rows or (rows == most and not whole):
                continue
            w.put(3, f"for f in range({bounds}):")
            w.put(4, f"o = b * {height} + f")
            for r in range(rows):
                for j, active in enumerate(vectors):
                    w.put(4, f"t{r}_{j} = {w.load(active, 'out', f'o + {r}', j)}")
            w.put(4, "for p in range(chunk, last):", "    px, py = entry(at_x, p), entry(at_y, p)")
            w.products(
                depth=5,
                rows=rows,
                vectors=vectors,
                numbers=lambda r: f"load1(x, px, f + {r})",
                array="y",
                row="py",
            )
            for r in range(rows):
                for j, active in enumerate(vectors):
                    w.store(4, active, "out", f"o + {r}", vector=j, text=f"t{r}_{j}")
    return w.compiled(dtype)
