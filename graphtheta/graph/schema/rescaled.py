"""Values in the scale of another graph, those in files computed when they are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphtheta.base.lazy_array import LazyArray
from graphtheta.base.npy import in_files
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import NODES, TypedRows, blocks_of, of_blocks
from graphtheta.engine.store.column import Decoding, Read, Ready
from graphtheta.graph.data.scale import Scale
from graphtheta.graph.data.validation import frozen, is_column

# from some rows, [m, d], and their numbers, None for all, to other values of them
Change = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


class Recoded(LazyArray):
    """An array in a file whose values are changed when they are read.

    Args:
        values: The array, [n, ...].
        change: From some rows to other values of them, of the same shape.
        dtype: Of the other values; by default that of the array.
    """

    def __init__(self, values: Any, change: Callable[[np.ndarray], np.ndarray], dtype: Any = None):
        super().__init__(tuple(values.shape), values.dtype if dtype is None else dtype)
        self._values = values
        self._change = change

    def read(self, rows: np.ndarray) -> np.ndarray:
        return self._change(np.asarray(self._values[rows]))


class Rescaled(LazyArray):
    """A column whose rows are computed from those of another one.

    Args:
        values: The other column, or an array in a file, [n, d].
        change: From its rows to those of this column, float32.
        width: Columns of this one; by default those of the other.
    """

    sparse = False

    def __init__(self, values: Any, change: Change, width: int | None = None):
        super().__init__((values.shape[0], values.shape[1] if width is None else width), np.float32)
        self._values = values
        self._change = change

    @property
    def nbytes(self) -> int:
        return int(self._values.nbytes) if is_column(self._values) else 0

    def read(self, rows: np.ndarray) -> np.ndarray:
        values: np.ndarray = self.read_begin(rows).end()
        return values

    def read_begin(self, rows: np.ndarray | None) -> Read:
        """Begin to read; see ``Column``."""
        decoded = partial(self._decoded, rows)
        if is_column(self._values):
            return Decoding(self._values.read_begin(rows), decoded)
        return Ready(decoded(self._values if rows is None else self._values[rows]))

    def _decoded(self, rows: np.ndarray | None, values: Any) -> np.ndarray:
        return self._change(values.toarray() if is_sparse(values) else np.asarray(values), rows)


def picked(x: Any, columns: np.ndarray) -> Any:
    """Columns in another order, those of features in files picked when they are read.

    Args:
        x: The features, [n, d] in any form.
        columns: Number of each column, [k]; -1 for one of zeros.
    """

    def change(values: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        return np.where(columns < 0, np.float32(0), values[:, columns])

    if is_column(x) or in_files(x):
        return Rescaled(x, change, len(columns))
    return frozen(change(x.toarray() if is_sparse(x) else x))


def rescaled(
    x: Any,
    own: Scale | None,
    wanted: Scale | None,
    kind: np.ndarray | None = None,
    of: tuple[str, str, str, str] = NODES,
) -> Any:
    """Values in another scale; as they are if it is the same.

    Args:
        x: The values, [n, d] in any form.
        own: Their scale; None if they are as they were given.
        wanted: The other one.
        kind: Type of each row, [n] int, which a scale of types needs.
        of: What has types, for messages.

    Raises:
        DataError: A row is not 0 outside of the columns of its type.
    """
    if (own is None and wanted is None) or (own is not None and own.equals(wanted)):
        return x

    def change(values: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        types = kind if kind is None or rows is None else kind[rows]
        raw = values if own is None else own.unscaled(values, types)
        return raw.astype(np.float32) if wanted is None else wanted.scaled(raw, types)

    if isinstance(x, TypedRows) and all(scale is None or scale.widths for scale in (own, wanted)):
        return _of_types(x, own, wanted)
    if is_column(x) or in_files(x):
        return Rescaled(x, change)
    if (
        own is None
        and wanted is not None
        and wanted.widths
        and kind is not None
        and not isinstance(x, TypedRows)
    ):
        # rows of a type that the scale does not have have no columns
        widths = [*wanted.widths, *([0] if kind.max(initial=0) >= len(wanted.widths) else [])]
        parts = [*wanted.parts, Scale(np.zeros(0), np.zeros(0))]
        blocks = blocks_of(x=x, kind=kind, widths=widths, name="the graph", of=of)
        return of_blocks(
            kind,
            [part.scaled(block) for part, block in zip(parts, blocks, strict=False)],
            dense=not is_sparse(x),
        )
    return frozen(change(x.toarray() if is_sparse(x) else x, None))


def _of_types(x: TypedRows, own: Scale | None, wanted: Scale | None) -> TypedRows:
    """Rows of types in another scale of types; those in files are scaled when they are read."""
    scales = [
        [None] * len(x.parts) if scale is None else [*scale.parts, None] for scale in (own, wanted)
    ]

    def changed(block: Any, before: Scale | None, after: Scale | None) -> Any:
        def change(rows: np.ndarray) -> np.ndarray:
            raw = rows if before is None else before.unscaled(rows)
            return raw.astype(np.float32) if after is None else after.scaled(raw)

        return Recoded(block, change, np.float32) if in_files(block) else frozen(change(block))

    return x.mapped([changed(*each) for each in zip(x.parts, *scales, strict=False)])
