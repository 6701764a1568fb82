"""Products by tiles: packed factors, and the compiled loops over blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.base.costs import TILED_CACHED

from ...compile.jit import OPTIONS, cached
from ..prefetch import LINE
from .code import PAIRS, SHORT, Tile, tile_function
from .shapes import fastest, registers
from .short import expand_rows, pair_rows
from .tiles import panel_of_rows, row_ahead, rows_tile, transposed_tile

# steps of the inner axis that are added in registers, and added to what is stored afterwards: of a
# product of rows, and of a transposed product
CHAIN = 1024
BLOCK = 128
# tiles of a block of rows, which take turns with a panel of a large second factor, or a single one
TILES = 6


@cache
def _rows_kernel(tile: Tile) -> Any:
    """The loops of ``Factor.times``. Rows of bfloat16 numbers are expanded into a buffer of a block
    of rows and ``CHAIN`` numbers of each, unless they are multiplied in pairs.
    """
    expands = tile.factor == SHORT
    multiply = tile_function(rows_tile, _expanded(tile))
    rows, width, itemsize = tile.rows, tile.width, tile.itemsize
    # bytes of a number or pair where it is stored
    read = 2 if expands else itemsize

    def kernel(  # type: ignore[no-untyped-def]
        begin,
        end,
        base,
        stride,
        numbers,
        inner,
        odd,
        panels,
        buffer,
        out,
        out_stride,
        columns,
        block,
    ):
        # from a row that is multiplied to one that is prefetched
        ahead = block if expands else rows
        for top in range(begin, end, block):
            bottom = min(top + block, end)
            # of half a pair alone, a part without steps
            for k in range(0, max(inner, odd), CHAIN):
                stop = min(k + CHAIN, inner)
                rest = odd if stop == inner else 0
                if expands:
                    buffer_stride = (stop - k) * itemsize
                    expand_rows(
                        base=base + 2 * k,
                        stride=stride,
                        numbers=numbers,
                        begin=top,
                        end=bottom,
                        width=stop - k,
                        out=buffer,
                        out_stride=buffer_stride,
                    )
                    # number k of row ``top`` is the first of the buffer
                    place = buffer - top * buffer_stride - k * itemsize, buffer_stride, 0
                else:
                    place = base, stride, numbers
                for column in range(0, columns, width):
                    # to the next panel, or to the first one and the next block
                    if column + width < columns:
                        further = width * itemsize
                    else:
                        further = block * out_stride - column * itemsize
                    for first in range(top, bottom, rows):
                        place_out = out + first * out_stride + column * itemsize
                        multiply(
                            base=place[0],
                            stride=place[1],
                            numbers=place[2],
                            first=first,
                            active=min(rows, bottom - first),
                            later=base,
                            later_stride=stride,
                            later_numbers=numbers,
                            later_first=first + ahead,
                            last=end - 1,
                            later_size=read,
                            start=k,
                            stop=stop,
                            panel=panels + column * (inner + odd) * itemsize,
                            out=place_out,
                            later_out=place_out + further,
                            out_stride=out_stride,
                            columns=columns - column,
                            odd=rest,
                        )

    return _compiled(kernel, tile)


@cache
def _transposed_kernel(tile: Tile) -> Any:
    """The loops of ``LongProduct.add``. A block of the second factor is packed into panels, in the
    order in which tiles read it. One of bfloat16 rows is put into the form that tiles multiply.
    Meanwhile tiles prefetch the next block of both.
    """
    expanded = _expanded(tile)
    multiply = tile_function(transposed_tile, expanded)
    copy = tile_function(panel_of_rows, expanded)
    prefetch = tile_function(row_ahead, expanded)
    short = tile.factor in (SHORT, PAIRS)
    pack = pair_rows if tile.factor == PAIRS else expand_rows
    later_step = 2 if tile.factor == PAIRS else 1
    rows, width, itemsize = tile.rows, tile.width, tile.itemsize
    # bytes of a number where it is stored, and lines of a row of a panel there
    read = 2 if short else itemsize
    lines = max(1, width * read // LINE)

    def kernel(  # type: ignore[no-untyped-def]
        begin,
        end,
        base,
        stride,
        numbers,
        inner,
        side,
        side_stride,
        columns,
        packed,
        packed_stride,
        panels,
        out,
        out_stride,
    ):
        # the first block, which no tile has prefetched
        for i in range(begin, min(begin + BLOCK, end)):
            for line in range(0, columns * read, LINE):
                prefetch(base=side + line, stride=side_stride, numbers=0, i=i)
            for line in range(0, inner * read, LINE):
                prefetch(base=base + line, stride=stride, numbers=numbers, i=i)
        for top in range(begin, end, BLOCK):
            bottom = min(top + BLOCK, end)
            for column in range(0, columns, width):
                if short:
                    pack(
                        base=side + column * read,
                        stride=side_stride,
                        numbers=0,
                        begin=top,
                        end=bottom,
                        width=min(width, columns - column),
                        out=panels + column * BLOCK * itemsize,
                        out_stride=width * itemsize,
                    )
                else:
                    copy(
                        base=side + column * read,
                        stride=side_stride,
                        first=top,
                        stop=bottom,
                        columns=columns - column,
                        panel=panels + column * BLOCK * itemsize,
                    )
            if short:
                stop = pack(
                    base=base,
                    stride=stride,
                    numbers=numbers,
                    begin=top,
                    end=bottom,
                    width=inner,
                    out=packed,
                    out_stride=packed_stride,
                )
                place = packed, packed_stride, 0, 0, stop
            else:
                place = base, stride, numbers, top, bottom
            for k in range(0, inner, rows):
                # the last tile begins inside the one before
                start = min(k, inner - rows)
                # rows of a pair in turns, and lines of a panel
                turn = k // rows
                line = turn // later_step % lines * LINE
                for column in range(0, columns, width):
                    multiply(
                        base=place[0],
                        stride=place[1],
                        numbers=place[2],
                        first=place[3],
                        stop=place[4],
                        column=start,
                        done=k - start,
                        later=base + start * read,
                        later_stride=stride,
                        later_numbers=numbers,
                        later_first=bottom + turn % later_step,
                        later_step=later_step,
                        last=end - 1,
                        later_side=side + column * read + line,
                        later_side_stride=side_stride,
                        panel=panels + column * BLOCK * itemsize,
                        out=out + start * out_stride + column * itemsize,
                        out_stride=out_stride,
                    )

    return _compiled(kernel, tile)


def _expanded(tile: Tile) -> Tile:
    """The tile that multiplies what was stored as bfloat16 and expanded."""
    return replace(tile, factor=tile.dtype) if tile.factor == SHORT else tile


def _compiled(kernel: Callable[..., None], tile: Tile) -> Any:
    name = f"{__name__}.{kernel.__qualname__} {tile}"
    return cached(numba.njit(**OPTIONS)(kernel), name, frozenset({__name__}))


def _address(x: np.ndarray) -> int:
    """Where an array begins."""
    return int(x.__array_interface__["data"][0])


class Rows(NamedTuple):
    """Rows of an array, whose numbers are adjacent.

    Attributes:
        array: [n, d].
        numbers: Which rows of the array they are, [m] int64; None for all, in order.
        first: The number of the first row, if the array has a block of them.
    """

    array: np.ndarray
    numbers: np.ndarray | None = None
    first: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """Address of row 0, bytes between two rows, and address of the numbers, or 0."""
        numbers = 0 if self.numbers is None else _address(self.numbers)
        stride = self.array.strides[0]
        return _address(self.array) - self.first * stride, stride, numbers


class Factor:
    """The second factor of products of rows, in the order in which tiles read it.

    Args:
        w: [d, width], float32, float64 or ``BFLOAT16``.
    """

    def __init__(self, w: np.ndarray):
        inner, self._columns = w.shape
        size, shapes, _, pairs = registers()
        self._tile = fastest(self._columns, w.dtype, shapes, size, pairs)
        self._odd = 0
        if self._tile.factor == PAIRS:
            w = _pairs(w)
            self._odd = inner % 2
        elif self._tile.factor == SHORT:
            w = (w.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        width = self._tile.width
        self._panels = np.zeros((-(-self._columns // width), len(w), width), w.dtype)
        for panel, first in zip(self._panels, range(0, self._columns, width), strict=True):
            part = w[:, first : first + width]
            panel[:, : part.shape[1]] = part

    def times(self, begin: int, end: int, rows: Rows, out: np.ndarray) -> None:
        """out[begin:end] = rows[begin:end] @ w.

        Args:
            begin, end: Bounds of the rows.
            rows: [n, d], of the type of w.
            out: [n, width], of the same type, or float32 for ``BFLOAT16``; in C order.
        """
        count, inner, _ = self._panels.shape
        base, stride, numbers = rows.place
        # a tile after the other writes whole rows
        by_rows = count > 1 and self._panels.nbytes <= TILED_CACHED
        block = self._tile.rows * (1 if by_rows else TILES)
        expands = self._tile.factor == SHORT
        buffer = np.empty((block, min(inner, CHAIN)) if expands else 0, np.float32)
        _rows_kernel(self._tile)(
            begin=begin,
            end=end,
            base=base,
            stride=stride,
            numbers=numbers,
            inner=inner - self._odd,
            odd=self._odd,
            panels=_address(self._panels),
            buffer=_address(buffer),
            out=_address(out),
            out_stride=out.strides[0],
            columns=self._columns,
            block=block,
        )


def _pairs(x: np.ndarray) -> np.ndarray:
    """Pairs of rows of ``BFLOAT16``, [d, width], as uint32, [d / 2 rounded up, width]."""
    out = np.zeros((-(-len(x) // 2), x.shape[1]), np.uint32)
    bits = x.view(np.uint16)
    out[...] = bits[::2]
    out[: len(x) // 2] |= bits[1::2].astype(np.uint32) << np.uint32(16)
    return out


class LongProduct:
    """The product of transposed rows with rows, rows.T @ side, over ranges of the rows.

    Args:
        inner: Numbers of each row.
        side: [n, width], float32, float64 or ``BFLOAT16``; the numbers of a row are adjacent.

    Attributes:
        columns: Columns of outputs: width, rounded up to whole tiles.
    """

    def __init__(self, inner: int, side: np.ndarray):
        size, _, shapes, pairs = registers()
        # as many rows in each as the least number of tiles needs, or the last would repeat more
        shapes = {vectors: -(-inner // -(-inner // most)) for vectors, most in shapes.items()}
        self._side = side
        self._tile = fastest(side.shape[1], side.dtype, shapes, size, pairs)
        self.columns = -(-side.shape[1] // self._tile.width) * self._tile.width

    def add(self, begin: int, end: int, rows: Rows, out: np.ndarray) -> None:
        """out[:, :width] += rows[begin:end].T @ side[begin:end].

        Args:
            begin, end: Bounds of the rows.
            rows: [n, inner], of the type of side.
            out: [d, columns], of the type of the factors, or float32 for ``BFLOAT16``; in C order.
                The last columns are those of a side that is filled up with zeros.
        """
        base, stride, numbers = rows.place
        side, inner = self._side, rows.array.shape[1]
        # an odd number of lines lies between two rows, so that a column of them fits into the cache
        line = LINE // np.dtype(np.float32).itemsize
        short = side.dtype == BFLOAT16
        packed = np.empty((BLOCK if short else 0, (-(-inner // line) | 1) * line), np.float32)
        panels = np.zeros((BLOCK, self.columns), out.dtype)
        _transposed_kernel(self._tile)(
            begin=begin,
            end=end,
            base=base,
            stride=stride,
            numbers=numbers,
            inner=inner,
            side=_address(side),
            side_stride=side.strides[0],
            columns=side.shape[1],
            packed=_address(packed),
            packed_stride=packed.strides[0],
            panels=_address(panels),
            out=_address(out),
            out_stride=out.strides[0],
        )
