"""Rows of several types, each dense and of the width of its type.

They stand for a matrix that has the columns of all types side by side, and 0 outside of those of
the own type. Only the own values are stored, so rows of T types take the memory of their numbers,
where a dense matrix takes T times as much and a sparse one adds a column number to each value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.errors import DataError

# of a type; a graph has few
KIND = np.dtype(np.uint8)
MOST_TYPES = 1 << 8
# features of several types are stored apart if they have less than this share of the numbers of a
# matrix of all
WORTH = 0.75


class TypedRows:
    """A matrix [n, d] of rows of several types; it has the methods of SciPy's sparse matrices that
    the engine uses.

    Args:
        kind: Type of each row, [n] integers of type ``KIND``; that of the rest is the number of
            types.
        blocks: For each type its rows in order, [n of the type, width] each, of one float type. At
            least one.
        rest: Rows of no type, which have the columns of all types, [n of the rest, d], or of which
            all numbers are 0, [n of the rest, 0]; None for none.

    Attributes:
        bounds: Bounds of the columns of each type.
    """

    def __init__(
        self, kind: np.ndarray, blocks: Sequence[np.ndarray], rest: np.ndarray | None = None
    ):
        self.kind = kind
        self.blocks = tuple(blocks)
        self.rest = rest
        self.bounds: list[int] = np.cumsum([0, *(x.shape[1] for x in blocks)]).tolist()
        self.shape = (len(kind), self.bounds[-1])
        self.dtype = self.blocks[0].dtype
        self._at: np.ndarray | None = None
        self._flat: np.ndarray | None = None

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """The rows of each type, then the rest if there is one."""
        return self.blocks if self.rest is None else (*self.blocks, self.rest)

    @property
    def widths(self) -> list[int]:
        """Number of columns of each type."""
        return [x.shape[1] for x in self.blocks]

    @property
    def first(self) -> list[int]:
        """The first column of each of ``parts``."""
        return [*self.bounds[:-1], *([] if self.rest is None else [0])]

    @property
    def nnz(self) -> int:
        """Numbers that are stored."""
        return sum(x.size for x in self.parts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return (
            self.kind.nbytes
            + sum(x.nbytes for x in self.parts)
            + (0 if self._at is None else self._at.nbytes)
        )

    def types(self) -> Iterator[tuple[np.ndarray, slice, Any]]:
        """For each of ``parts`` its rows, its columns, and the numbers of its rows: a slice if they
        are adjacent.
        """
        for code, (block, first) in enumerate(zip(self.parts, self.first, strict=True)):
            own: Any = np.flatnonzero(self.kind == code)
            if len(own) and own[-1] - own[0] == len(own) - 1:
                own = slice(int(own[0]), int(own[-1]) + 1)
            yield block, slice(first, first + block.shape[1]), own

    def __getitem__(self, key: Any) -> TypedRows:
        """Rows by number, [m] int, by a mask [n], or adjacent ones, which are not copied."""
        if isinstance(key, slice):
            kind = self.kind[key]
            begin, _, step = key.indices(len(self.kind))
            assert step == 1
            before, count = (
                np.bincount(x, minlength=len(self.parts)) for x in (self.kind[:begin], kind)
            )
            return self.of_kind(
                kind, [x[a : a + n] for x, a, n in zip(self.parts, before, count, strict=True)]
            )
        return self.taken(key, lambda x, rows: x[rows])

    def taken(
        self, rows: np.ndarray, take: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> TypedRows:
        """Rows by number, [m] int, or by a mask; ``take`` copies rows [k] int64 of an array."""
        kind, at = self.kind[rows], self.positions[rows]
        return self.of_kind(
            kind, [take(x, at[kind == code].astype(np.int64)) for code, x in enumerate(self.parts)]
        )

    def of_kind(self, kind: np.ndarray, parts: Sequence[np.ndarray]) -> TypedRows:
        """Rows of the same types and columns as these.

        Args:
            kind: Type of each, [m].
            parts: Rows of each of ``parts``, in order.
        """
        n = len(self.blocks)
        return TypedRows(kind, parts[:n], None if self.rest is None else parts[n])

    @property
    def positions(self) -> np.ndarray:
        """Number of each row among those of its type, [n] int32."""
        if self._at is None:
            at = np.empty(len(self.kind), np.int32)
            for block, _, own in self.types():
                at[own] = np.arange(len(block))
            # compiled code has one form for arrays that may be changed and those that must not
            at.flags.writeable = False
            self._at = at
        return self._at

    @property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """All numbers, part after part and row after row, [nnz], and where each part begins; the
        parts are views of it from then on.
        """
        begin = np.cumsum([0, *(x.size for x in self.parts)])[:-1]
        if self._flat is None:
            data = np.concatenate([np.zeros(0, self.dtype), *(x.ravel() for x in self.parts)])
            data.flags.writeable = False
            views = [
                data[a : a + x.size].reshape(x.shape)
                for a, x in zip(begin, self.parts, strict=True)
            ]
            self.blocks = tuple(views[: len(self.blocks)])
            self.rest = None if self.rest is None else views[-1]
            self._flat = data
        return self._flat, begin

    def below(self, rest: np.ndarray) -> TypedRows:
        """These rows, and below them rows of no type, as ``rest``."""
        kind = np.full(len(rest), len(self.blocks), self.kind.dtype)
        parts = [rest] if self.rest is None else [self.rest, rest]
        width = max(x.shape[1] for x in parts)
        wide = [x if x.shape[1] == width else np.zeros((len(x), width), x.dtype) for x in parts]
        return TypedRows(np.concatenate((self.kind, kind)), self.blocks, np.concatenate(wide))

    def astype(self, dtype: Any, copy: bool = True) -> TypedRows:
        """The same rows of another float type."""
        return self.mapped([x.astype(dtype, copy=copy) for x in self.parts])

    def mapped(self, parts: Sequence[np.ndarray]) -> TypedRows:
        """Rows of the same types with other values, for each of ``parts`` those of equal shape."""
        return self.of_kind(self.kind, parts)

    def toarray(self) -> np.ndarray:
        """The matrix as an array."""
        out = np.zeros(self.shape, self.dtype)
        for block, columns, own in self.types():
            out[own, columns] = block
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The matrix, for functions of NumPy."""
        return self.toarray().astype(self.dtype if dtype is None else dtype, copy=False)

    def tocsr(self) -> Any:
        """The matrix as a CSR array, with all numbers of each row."""
        import scipy.sparse as sp

        widths = np.array([x.shape[1] for x in self.parts])[self.kind]
        ends = np.concatenate(([0], np.cumsum(widths)))
        first = np.asarray(self.first)[self.kind]
        at = np.arange(ends[-1]) - np.repeat(ends[:-1] - first, widths)
        data = np.empty(ends[-1], self.dtype)
        for block, _, own in self.types():
            begin = ends[:-1][own]
            data[begin[:, None] + np.arange(block.shape[1])] = block
        return sp.csr_array((data, at, ends), shape=self.shape)

    def padded(self) -> np.ndarray:
        """The type of each row, then its values and 0 up to the largest width, [n, 1 + width]."""
        out = np.zeros((len(self.kind), 1 + max(x.shape[1] for x in self.parts)), self.dtype)
        out[:, 0] = self.kind
        for block, _, own in self.types():
            out[own, 1 : 1 + block.shape[1]] = block
        return out

    def unpadded(self, rows: np.ndarray) -> TypedRows:
        """Rows of the same types and widths as these, from what ``padded`` returned for them."""
        kind = rows[:, 0].astype(KIND)
        return self.of_kind(
            kind, [rows[kind == code, 1 : 1 + x.shape[1]] for code, x in enumerate(self.parts)]
        )


def stacked(parts: Sequence[TypedRows]) -> TypedRows:
    """Rows of the same types and widths below each other; at least one part."""
    return parts[0].of_kind(
        np.concatenate([x.kind for x in parts]),
        [np.concatenate(rows) for rows in zip(*(x.parts for x in parts), strict=True)],
    )


# what has types in a graph: their field, what they are, and what their types and values are called
NODES = ("x", "nodes", "type", "features")
EDGES = ("edge_attr", "edges", "relation", "attributes")


def blocks_of(
    x: Any,
    kind: np.ndarray,
    widths: Sequence[int],
    name: str,
    of: tuple[str, str, str, str] = NODES,
) -> list[np.ndarray]:
    """For each type its rows and columns of a matrix, [n of the type, width] each.

    Args:
        x: The matrix, [n, d] in any form.
        kind: Type of each row, [n] int.
        widths: Number of columns of each type; they are side by side.
        name: Of the graph, for messages.
        of: ``NODES`` or ``EDGES``, for messages.

    Raises:
        DataError: There are other columns, or a row is not 0 outside of those of its type.
    """
    field, what, type_, values = of
    apart = DataError(
        f"{name}: {what} of a {type_} have values in columns of {field} that belong to other"
        f" {type_}s, so that {values} cannot be standardised by {type_}; give {field} as a dict"
        f" by {type_}, or as columns of all {what} without '{type_}_widths' in meta"
    )
    if isinstance(x, TypedRows):
        if x.rest is not None and np.any(x.rest):
            raise apart
        return [np.asarray(block) for block in x.blocks]
    ends = np.cumsum(widths).tolist()
    if x.shape[1] != ends[-1]:
        raise DataError(
            f"{name}: {field} has {x.shape[1]} columns, but those of its {type_}s are {ends[-1]},"
            f" so that {values} cannot be standardised by {type_}; standardise them before columns"
            " are added"
        )
    rows = [
        x[np.flatnonzero(kind == code)][:, b - n : b]
        for code, (b, n) in enumerate(zip(ends, widths, strict=True))
    ]
    blocks = [part.toarray() if is_sparse(part) else part for part in rows]
    if sum(map(np.count_nonzero, blocks)) != (
        x.count_nonzero() if is_sparse(x) else np.count_nonzero(x)
    ):
        raise apart
    return blocks


def of_blocks(kind: np.ndarray, blocks: Sequence[np.ndarray], dense: bool) -> Any:
    """The matrix of what ``blocks_of`` returned: rows at the widths of their types if that saves
    memory and ``dense`` is not asked for.
    """
    shape = len(kind), sum(block.shape[1] for block in blocks)
    if (
        not dense
        and len(blocks) <= MOST_TYPES
        and sum(x.size for x in blocks) < WORTH * shape[0] * shape[1]
    ):
        return TypedRows(np.asarray(kind).astype(KIND), blocks)
    out = np.zeros(shape, blocks[0].dtype)
    b = 0
    for code, block in enumerate(blocks):
        out[kind == code, b : b + block.shape[1]] = block
        b += block.shape[1]
    return out
