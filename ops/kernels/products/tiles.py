"""The two tiles of products: rows times a matrix, and the transposed product of two long factors;
and how rows of the second of these are packed.

Each output is one chain of multiply-adds in the order of the inner axis, in parts of fixed lengths
which are added in order. So outputs do not depend on the width of vectors, on the shape of tiles,
or on where rows are cut into blocks. Where the first factor is stored in pairs, k and r below count
pairs, and a multiply-add adds two products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .code import NUMBER, PAIRS, Code, Vectors

# steps of the inner axis after which each row of the next tile has been prefetched once: a line of
# single precision
TURNS = 16
# steps after which the outputs of the next tile have been prefetched: a power of two above their
# vectors
PLACES = 32


def rows_tile(
    code: Code,
    base: Any,
    stride: Any,
    numbers: Any,
    first: Any,
    active: Any,
    later: Any,
    later_stride: Any,
    later_numbers: Any,
    later_first: Any,
    last: Any,
    later_size: Any,
    start: Any,
    stop: Any,
    panel: Any,
    out: Any,
    later_out: Any,
    out_stride: Any,
    columns: Any,
    odd: Any,
) -> None:
    """out[i, :] = or += sum over k of row[first + i, k] * panel[k, :]; it is added unless start is
    0.

    Args:
        code: Writes the instructions.
        base, stride, numbers: The rows: address, bytes between two, and addresses of their numbers
            or 0.
        first, active: The first row, and how many of the tile's there are.
        later, later_stride, later_numbers: The same of the rows that are prefetched.
        later_first, last, later_size: The first and the last of them, and bytes of a number.
        start, stop: Bounds of k.
        panel: Address of the vectors of each k, one after another.
        out, later_out: Addresses of the first output, and of the one whose tile is prefetched.
        out_stride: Bytes between rows of outputs.
        columns: Columns of outputs from the first on; those of the tile that are beyond are not
            stored.
        odd: 1 if half a pair follows after ``stop``, else 0; read for pairs only.
    """
    b, tile = code.b, code.tile
    rows = range(tile.rows)

    def row(i: int) -> Any:
        there = b.add(first, code.least(NUMBER(i), b.sub(active, NUMBER(1))))
        return code.row_of(base, stride, numbers, there)

    def later_row(i: int) -> Any:
        there = code.least(b.add(later_first, NUMBER(i)), last)
        return code.row_of(later, later_stride, later_numbers, there)

    here = [row(i) for i in rows]
    ahead = [later_row(i) for i in rows]
    # both lists share an address, which takes one register
    turns = b.alloca(NUMBER, NUMBER(TURNS + PLACES))
    places = b.gep(turns, [NUMBER(TURNS)])
    for i in range(TURNS):
        b.store(ahead[i % tile.rows], b.gep(turns, [NUMBER(i)]))

    def place(i: int, v: int, origin: Any = out) -> Any:
        there = code.least(NUMBER(i), b.sub(active, NUMBER(1)))
        return code.at_vector(b.add(origin, b.mul(there, out_stride)), v)

    # one at a time, since a tile of a short inner axis would wait for many at once
    for i in range(PLACES):
        address = place(i // tile.vectors % tile.rows, i % tile.vectors, later_out)
        b.store(address, b.gep(places, [NUMBER(i)]))

    def step(k: Any) -> tuple[list[Any], list[Any]]:
        code.prefetch(b.load(b.gep(places, [b.and_(k, NUMBER(PLACES - 1))])), writes=True)
        turn = b.and_(k, NUMBER(TURNS - 1))
        address = b.load(b.gep(turns, [turn]))
        code.prefetch(b.add(address, b.mul(b.sub(k, turn), later_size)))
        vectors = b.add(panel, b.mul(k, NUMBER(tile.width * tile.itemsize)))
        offset = code.bytes(k)
        return (
            [code.factor(b.add(address, offset)) for address in here],
            [code.load(code.at_vector(vectors, v), code.side) for v in range(tile.vectors)],
        )

    def half(sums: Vectors) -> Vectors:
        vectors = b.add(panel, b.mul(stop, NUMBER(tile.width * tile.itemsize)))
        numbers = [code.half_pair(b.add(address, code.bytes(stop))) for address in here]
        side = [code.load(code.at_vector(vectors, v), code.side) for v in range(tile.vectors)]
        return code.added(numbers, side, sums)

    sums = code.sums(start, stop, step)
    if tile.factor == PAIRS:
        sums = _changed(code, sums, b.icmp_signed("!=", odd, NUMBER(0)), half)
    left = [b.sub(columns, NUMBER(v * tile.lanes)) for v in range(tile.vectors)]
    masks = [code.first_lanes(n) for n in left]

    def plus_stored(sums: Vectors) -> Vectors:
        return [
            [b.fadd(x, code.masked_load(place(i, v), masks[v])) for v, x in enumerate(row)]
            for i, row in enumerate(sums)
        ]

    sums = _changed(code, sums, b.icmp_signed(">", start, NUMBER(0)), plus_stored)
    whole = b.icmp_signed(">=", columns, NUMBER(tile.width))
    with b.if_else(whole) as (all_columns, some_columns):
        with all_columns:
            for i in rows:
                with b.if_then(b.icmp_signed("<", NUMBER(i), active)):
                    for v, x in enumerate(sums[i]):
                        code.store(x, place(i, v))
        with some_columns:
            for i in rows:
                with b.if_then(b.icmp_signed("<", NUMBER(i), active)):
                    for v, x in enumerate(sums[i]):
                        code.masked_store(x, place(i, v), masks[v])


def _changed(code: Code, sums: Vectors, when: Any, change: Callable[[Vectors], Vectors]) -> Vectors:
    """change(sums) if ``when``, else the sums."""
    b = code.b
    before = b.block
    with b.if_then(when, likely=False):
        changed = change(sums)
        inside = b.block
    out = []
    for row, new in zip(sums, changed, strict=True):
        out.append([b.phi(code.vector) for _ in row])
        for phi, x, y in zip(out[-1], row, new, strict=True):
            phi.add_incoming(x, before)
            phi.add_incoming(y, inside)
    return out


def transposed_tile(
    code: Code,
    base: Any,
    stride: Any,
    numbers: Any,
    first: Any,
    stop: Any,
    column: Any,
    done: Any,
    later: Any,
    later_stride: Any,
    later_numbers: Any,
    later_first: Any,
    later_step: Any,
    last: Any,
    later_side: Any,
    later_side_stride: Any,
    panel: Any,
    out: Any,
    out_stride: Any,
) -> None:
    """out[i, :] += sum over rows r of row[r, column + i] * panel[r - first, :].

    Args:
        code: Writes the instructions.
        base, stride, numbers: The rows: address, bytes between two, and address of their numbers or
            0.
        first, stop: Bounds of r.
        column: The first column; there are as many as the tile has rows.
        done: How many of them were added by the tile before.
        later, later_stride, later_numbers: What is prefetched, as of the rows.
        later_first, later_step, last: The row that is prefetched with the first one, how many rows
            further it is with the next, and the last that may be.
        later_side, later_side_stride: What is prefetched of the second factor: address in row 0,
            and bytes between rows.
        panel: Address of the vectors of each row, one after another.
        out, out_stride: Of the first output, and bytes between rows.
    """
    b, tile = code.b, code.tile
    origin = b.add(base, code.bytes(column))

    def step(r: Any) -> tuple[list[Any], list[Any]]:
        i = b.sub(r, first)
        # one block of rows further, which is more than the first cache holds
        ahead = code.least(b.add(later_first, b.mul(i, later_step)), last)
        code.prefetch(code.row_of(later, later_stride, later_numbers, ahead), later=True)
        code.prefetch(b.add(later_side, b.mul(ahead, later_side_stride)), later=True)
        row = code.row_of(origin, stride, numbers, r)
        side = b.add(panel, b.mul(i, NUMBER(tile.width * tile.itemsize)))
        return (
            [code.factor(b.add(row, NUMBER(i * tile.itemsize))) for i in range(tile.rows)],
            [code.load(code.at_vector(side, v), code.side) for v in range(tile.vectors)],
        )

    def place(i: int, v: int) -> Any:
        return code.at_vector(b.add(out, b.mul(NUMBER(i), out_stride)), v)

    for i in range(tile.rows):
        for v in range(tile.vectors):
            code.prefetch(place(i, v), writes=True)
    for i, row in enumerate(code.sums(first, stop, step)):
        with b.if_then(b.icmp_signed(">=", NUMBER(i), done)):
            for v, x in enumerate(row):
                code.store(b.fadd(code.load(place(i, v), code.vector), x), place(i, v))


def panel_of_rows(
    code: Code, base: Any, stride: Any, first: Any, stop: Any, columns: Any, panel: Any
) -> None:
    """panel[r - first, :] = row[r, :] for rows r from first to stop; 0 beyond the last column.

    Args:
        code: Writes the instructions.
        base, stride: The rows: address, and bytes between two.
        first, stop: Bounds of r.
        columns: Numbers of a row, of which the panel has as many as the tile has columns at most.
        panel: Address of the vectors of each row, one after another.
    """
    b, tile = code.b, code.tile
    left = [b.sub(columns, NUMBER(v * tile.lanes)) for v in range(tile.vectors)]
    masks = [code.first_lanes(n) for n in left]

    def step(r: Any, _: list[Any]) -> list[Any]:
        row = b.add(base, b.mul(r, stride))
        place = b.add(panel, b.mul(b.sub(r, first), NUMBER(tile.width * tile.itemsize)))
        for v, mask in enumerate(masks):
            code.store(code.masked_load(code.at_vector(row, v), mask), code.at_vector(place, v))
        return []

    code.loop(first, stop, [], step)


def row_ahead(code: Code, base: Any, stride: Any, numbers: Any, i: Any) -> None:
    """Prefetch a line of row i."""
    code.prefetch(code.row_of(base, stride, numbers, i), later=True)
