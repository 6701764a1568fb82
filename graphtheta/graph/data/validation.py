"""Checks of the arrays of a graph, made once where they enter.

Each function returns the array in its canonical form (dtype, shape, read-only) or raises an error
that names where the array came from, the field, the first bad row and value, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from graphtheta.base.npy import in_files
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows
from graphtheta.base.wording import shown
from graphtheta.errors import DataError, ShapeError
from graphtheta.graph.data.labels import LabelForm, label_form

if TYPE_CHECKING:
    import scipy.sparse as sp

SPARSE_BELOW = 0.25
# more classes than this, and more than nodes, are taken for codes and rejected
MOST_CLASSES = 1 << 16
# float32 and float64 hold all integers up to these
WHOLE32, WHOLE64 = 1 << 24, 1 << 53


class Origin:
    """Where an array comes from, for messages: file or caller, and field."""

    def __init__(self, where: str, field: str):
        self.text = f"{where}: {field}" if where else field

    def shape(self, problem: str, remedy: str) -> ShapeError:
        return ShapeError(f"{self.text}: {problem}; {remedy}")

    def data(self, problem: str, remedy: str) -> DataError:
        return DataError(f"{self.text}: {problem}; {remedy}")


def is_column(x: Any) -> bool:
    """Whether x is a column that is read by rows (``engine.store``) instead of an array, without
    importing the engine.
    """
    return hasattr(x, "read_begin")


def as_array(x: Any, origin: Origin, remedy: str = "give as many values in each") -> np.ndarray:
    """Rows as an array.

    Raises:
        ShapeError: Lists of different lengths.
        DataError: It is no array, or an object of another library, or values are masked.
    """
    try:
        a = x if isinstance(x, np.ndarray) else np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(x, (list, tuple)):
            raise origin.shape("rows have different lengths", remedy) from None
        raise origin.data(f"{shown(x)} is no array ({error})", "give an array or a list") from None
    if not a.ndim and a.dtype == object:
        raise origin.data(f"{shown(x)} is no array", "give an array or a list")
    if isinstance(a, np.ma.MaskedArray):
        if hidden := int(np.ma.getmaskarray(a).sum()):
            raise origin.data(f"{hidden:,} values are masked", "fill or drop them first")
        return a.data
    return a


def frozen(a: np.ndarray) -> np.ndarray:
    """A read-only view of the array, contiguous in memory."""
    a = np.ascontiguousarray(a).view() if a.ndim else a
    a.flags.writeable = False
    return a


def private(a: np.ndarray, source: Any) -> np.ndarray:
    """A read-only array that its giver cannot change: a copy if it shares the memory of its source,
    which could be written to.

    Args:
        a: The array in canonical form.
        source: What it was made of.
    """
    if isinstance(source, (list, tuple)):
        return frozen(a)
    source = np.asarray(source)
    return frozen(a.copy() if source.flags.writeable and np.may_share_memory(a, source) else a)


def check_rows(a: Any, n: int, kind: str, origin: Origin) -> None:
    """The first axis has one row per node or edge."""
    if list(a.shape[:1]) != [n]:
        raise origin.shape(
            f"expected {n} rows, one per {kind}, got shape {list(a.shape)}",
            f"give one row for each of the {n} {kind}s",
        )


def check_features(x: Any, n: int, kind: str, field: str, where: str) -> Any:
    """Finite float32 rows [n, d]: CSR if sparse enough, else dense; a column is left as it is."""
    if x is None:
        return None
    origin = Origin(where, field)
    if is_column(x):
        check_column(x, n, kind, origin)
        return x
    if isinstance(x, TypedRows):
        check_rows(x, n, kind, origin)
        return x.mapped(
            [
                check_features(
                    x=rows, n=len(rows), kind=kind, field=f"{field} of type {code}", where=where
                )
                for code, rows in enumerate(x.parts)
            ]
        )
    if is_sparse(x):
        return check_sparse(x, n, kind, origin)
    a = as_array(x, origin)
    a = a[:, None] if a.ndim == 1 else a
    if a.ndim != 2:
        raise origin.shape(
            f"expected shape [{n}, d], got {list(a.shape)}", "give one row of features each"
        )
    check_rows(a, n, kind, origin)
    return private(to_float(a, kind, origin, exact=True), x)


def check_column(x: Any, n: int, kind: str, origin: Origin) -> None:
    """Check shape and type of features that are read by rows; their values are not checked."""
    missing = [name for name in ("shape", "dtype", "sparse", "nbytes") if not hasattr(x, name)]
    if missing:
        raise origin.data(
            f"{type(x).__name__} has the method read_begin of a feature store, but no attribute"
            f" {missing[0]}",
            "give it shape, dtype, sparse and nbytes, as docs/extending.md says",
        )
    if kind != "node":
        raise origin.data(
            "a feature store that is read by rows cannot hold edge values", "give it as an array"
        )
    check_rows(x, n, kind, origin)
    if len(x.shape) != 2:
        raise origin.shape(
            f"expected shape [{n}, d], got {list(x.shape)}", "give one row of features each"
        )
    if np.dtype(x.dtype).kind != "f":
        raise origin.data(
            f"the column has values of dtype {x.dtype}", "let it return floating-point numbers"
        )


def check_sparse(x: Any, n: int, kind: str, origin: Origin) -> sp.csr_array | np.ndarray:
    """Sparse features as sorted float32 CSR without duplicates; dense from a density of 0.25 on."""
    import scipy.sparse as sp

    check_rows(x, n, kind, origin)
    if x.dtype.kind not in "fiub":
        raise origin.data(f"values have dtype {x.dtype}", "features must be real numbers")
    source = x
    x = sp.csr_array(x)
    try:
        # compiled code uses the indices unchecked
        x.check_format(full_check=True)
    except ValueError as error:
        raise origin.data(
            f"not a valid sparse matrix ({error})",
            "create it again, for example from its coordinates",
        ) from None
    if not (x.has_canonical_format and x.dtype == np.float32):
        check_exact(x, kind, origin)
        x = x.astype(np.float32)
        x.sum_duplicates()
    if x.nnz >= SPARSE_BELOW * max(1, x.shape[0] * x.shape[1]):
        return frozen(to_float(x.toarray(), kind, origin))
    bad = np.flatnonzero(~np.isfinite(x.data))
    if len(bad):
        row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1
        raise not_finite(
            origin=origin,
            kind=kind,
            row=row,
            column=int(x.indices[bad[0]]),
            value=x.data[bad[0]],
            count=len(bad),
        )
    # a new matrix with read-only parts: SciPy shares the parts of the given one
    parts = (
        private(getattr(x, part), getattr(source, part, getattr(x, part)))
        for part in ("data", "indices", "indptr")
    )
    return sp.csr_array(tuple(parts), shape=x.shape)


def to_float(
    a: np.ndarray,
    kind: str,
    origin: Origin,
    dtype: Any = np.float32,
    *,
    allow_nan: bool = False,
    exact: bool = False,
) -> np.ndarray:
    """Real numbers as floats of a type.

    Refuses NaN (unless allowed), infinities, values beyond the float32 range, in which models read
    them, and with ``exact`` columns of integers that float32 would round.
    """
    if a.dtype.kind not in "fiub":
        raise origin.data(
            f"values have dtype {a.dtype}",
            "give real numbers; texts become numbers by np.unique(values, return_inverse=True)[1]"
            if a.dtype.kind in "US"
            else "give real numbers",
        )
    with np.errstate(over="ignore"):
        out = a.astype(dtype, copy=False)
        narrow = out.astype(np.float32, copy=False)
    # the sum is not finite if an entry is not, or if it overflows; only then look for the entry
    with np.errstate(over="ignore", invalid="ignore"):
        total = narrow.sum()
    if not np.isfinite(total):
        wrong = np.isinf(narrow) if allow_nan else ~np.isfinite(narrow)
        if wrong.any():
            first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            column = int(first[1]) if len(first) > 1 else None
            raise not_finite(
                origin=origin,
                kind=kind,
                row=int(first[0]),
                column=column,
                value=a[first],
                count=int(wrong.sum()),
            )
    if exact:
        check_exact(np.nan_to_num(a) if allow_nan and a.dtype.kind == "f" else a, kind, origin)
    return out


def check_exact(a: Any, kind: str, origin: Origin) -> None:
    """Check that float32 rounds no column of integers, which are codes, ids or times.

    Integers may be given as such or as float64. A float64 column with fractions, or with numbers
    above 2^53, which float64 rounds as well, holds measurements and is not checked.

    Args:
        a: [n], [n, d], or CSR [n, d].
        kind: "node" or "edge".
        origin: Where the array comes from, for the message.

    Raises:
        DataError: There is such a column.
    """
    values = a.data if is_sparse(a) else a
    if values.dtype.itemsize < 4 or values.dtype == np.float32 or not largest(values) > WHOLE32:
        return
    for column, rows, x in large_columns(a):
        at = first_rounded(x)
        if at is not None:
            where = f"{kind} {at if rows is None else int(rows[at])}" + (
                f", column {column}" if a.ndim > 1 else ""
            )
            raise origin.data(
                f"{where} is {int(x[at])}, which float32 would round to {int(np.float32(x[at]))}",
                f"give codes, ids and times as integers in {kind}_columns={{name: array}}, and"
                " rescale measured quantities",
            )


def check_beside_floats(values: np.ndarray, kind: str, origin: Origin) -> None:
    """Check that a part of a named column loses no integers beside floats: columns [n] become
    float64, others float32.

    Raises:
        DataError: It does.
    """
    if values.dtype.kind not in "iu":
        return
    if values.ndim > 1:
        check_exact(values, kind, origin)
        return
    at = np.flatnonzero((values > WHOLE64) | (values < -WHOLE64))
    first = next((x for x in map(int, values.reshape(-1)[at]) if int(float(x)) != x), None)
    if first is not None:
        raise origin.data(
            f"float64, the type in common with other values, would round {first} to"
            f" {int(float(first))}",
            "give integers only, or this one a column of another name",
        )


def largest(x: np.ndarray) -> Any:
    """The largest absolute value as a Python number; 0 without any."""
    return max(x.max().item(), -x.min().item()) if x.size else 0


def large_columns(a: Any) -> Iterator[tuple[int, np.ndarray | None, np.ndarray]]:
    """Columns with values beyond ``WHOLE32``: number, rows (None for all) and values of each."""
    if is_sparse(a):
        large = np.unique(a.indices[np.abs(a.data) > WHOLE32])
        a = a.tocsc()
        for column in large.tolist():
            part = slice(*a.indptr[column : column + 2])
            yield column, a.indices[part], a.data[part]
    else:
        a = a[:, None] if a.ndim == 1 else a
        for column in np.flatnonzero(
            (a.max(axis=0) > WHOLE32) | (a.min(axis=0) < -WHOLE32)
        ).tolist():
            yield column, None, np.ascontiguousarray(a[:, column])


def first_rounded(x: np.ndarray) -> int | None:
    """Position of the first integer that float32 rounds; None without any, or for fractions."""
    if x.dtype.kind == "f":
        if largest(x) > WHOLE64 or not np.array_equal(x, np.rint(x)):
            return None
        x = x.astype(np.int64)
    size = np.abs(x).astype(np.uint64)
    # without its trailing zero bits, an integer that float32 holds has at most 24 bits
    wrong = size // np.maximum(size & (~size + np.uint64(1)), np.uint64(1)) >= WHOLE32
    return int(np.argmax(wrong)) if wrong.any() else None


def not_finite(
    origin: Origin, kind: str, row: int, column: int | None, value: Any, count: int
) -> DataError:
    """The error for NaN and infinite values."""
    at = f"{kind} {row}" + ("" if column is None else f", column {column}")
    more = "" if count == 1 else f" ({count} such values)"
    return origin.data(
        f"{at} is {float(value)}{more}",
        "replace or drop values that are not finite float32 numbers first",
    )


def check_vector(x: Any, n: int, kind: str, field: str, where: str) -> np.ndarray | None:
    """One finite float32 per row."""
    if x is None:
        return None
    origin = Origin(where, field)
    a = as_array(x, origin)
    check_rows(a, n, kind, origin)
    if a.ndim != 1:
        raise origin.shape(
            f"expected shape [{n}], got {list(a.shape)}", f"give one number per {kind}"
        )
    return private(to_float(a, kind, origin, exact=True), x)


def check_targets(x: Any, n: int, where: str) -> np.ndarray | None:
    """Edge targets, float32 [n] or [n, k]; NaN marks an edge without a target."""
    if x is None:
        return None
    origin = Origin(where, "edge_y")
    a = as_array(x, origin)
    check_rows(a, n, "edge", origin)
    if a.ndim > 2:
        raise origin.shape(
            f"expected shape [{n}] or [{n}, k], got {list(a.shape)}",
            "flatten the targets of an edge",
        )
    return private(to_float(a, "edge", origin, allow_nan=True, exact=True), x)


def check_labels(
    y: Any, n: int, n_classes: int | None, multilabel: bool | None, where: str
) -> tuple[np.ndarray | None, int, bool]:
    """Node labels in canonical form, the number of classes (0 for regression), and whether there
    are several per node.

    What labels are follows from their type and width, see ``graphtheta.graph.data.labels``;
    ``multilabel`` says that they are 0/1 labels, or are not.
    """
    if y is None:
        return None, int(n_classes or 0), bool(multilabel)
    origin = Origin(where, "y")
    source = y
    y = as_array(y, origin, "give a column of 0 and 1 for each class")
    check_rows(y, n, "node", origin)
    if y.ndim > 2:
        raise origin.shape(
            f"expected [n_nodes] classes or [n_nodes, C] targets, got {list(y.shape)}",
            "flatten the targets of a node",
        )
    y = y[:, None] if y.ndim == 1 else y
    if not y.shape[1]:
        raise origin.shape(
            f"expected [{n}, C] targets, got {list(y.shape)}",
            "give at least one column, or leave y out",
        )
    if label_form(y.dtype.kind, y.shape[1]) is LabelForm.CLASSES and not multilabel:
        classes = y[:, 0]
        # a graph has at least one node; unsigned labels may be beyond int64
        n_classes = max(int(classes.max()), -1) + 1 if n_classes is None else int(n_classes)
        check_classes(classes, n_classes, origin)
        return private(classes.astype(np.int64, copy=False), source), n_classes, False
    out = to_float(y, "node", origin, allow_nan=True, exact=True)
    binary = bool(np.all((out == 0) | (out == 1) | np.isnan(out)))
    if multilabel and not binary:
        row, column = (int(i) for i in np.argwhere(~((out == 0) | (out == 1) | np.isnan(out)))[0])
        raise origin.data(
            f"node {row}, column {column} is {float(out[row, column])}",
            "multi-label targets are 0, 1 or NaN (unknown)",
        )
    several = binary and y.shape[1] > 1 if multilabel is None else bool(multilabel)
    if n_classes and several and n_classes != out.shape[1]:
        raise origin.shape(
            f"{out.shape[1]} columns for {n_classes} classes", "give one column per class"
        )
    return private(out, source), out.shape[1] if several else 0, several


def check_classes(y: np.ndarray, n_classes: int, origin: Origin) -> None:
    """Class numbers 0..n_classes-1, or -1 for unlabelled."""
    if n_classes > max(len(y), MOST_CLASSES):
        raise origin.data(
            f"{n_classes} classes for {len(y)} nodes; the largest label is {int(y.max())}",
            "number the classes 0..C-1, for example by np.unique(y, return_inverse=True)[1]",
        )
    wrong = np.flatnonzero((y < -1) | (y >= n_classes))
    if len(wrong):
        node = int(wrong[0])
        raise origin.data(
            f"node {node} has label {int(y[node])}, outside 0..{n_classes - 1} (or -1 for"
            " unlabelled)",
            f"there are {n_classes} classes; renumber the labels or state a larger n_classes",
        )


def check_mask(x: Any, n: int, kind: str, field: str, where: str) -> np.ndarray | None:
    """Boolean masks with one entry per row: [n], or [n, S] for S splits."""
    if x is None:
        return None
    origin = Origin(where, field)
    mask = as_array(x, origin)
    if mask.dtype != np.bool_:
        binary = mask.dtype.kind in "iuf" and mask.shape[:1] == (n,) and np.isin(mask, (0, 1)).all()
        raise origin.data(
            f"expected a bool mask, got dtype {mask.dtype}",
            "make 0 and 1 truth values by np.asarray(mask).astype(bool)"
            if binary
            else f"a list of {kind} numbers becomes a mask by mask = np.zeros({n}, bool);"
            " mask[numbers] = True",
        )
    if mask.ndim not in (1, 2) or (mask.ndim == 2 and not mask.shape[1]):
        raise origin.shape(
            f"expected shape [{n}], or [{n}, S] for S splits, got {list(mask.shape)}",
            f"give one entry per {kind}",
        )
    check_rows(mask, n, kind, origin)
    return private(mask, x)


def count_splits(masks: dict[str, np.ndarray | None], where: str) -> int:
    """The number of splits, of which a mask [n, S] has one in each column; 1 without such masks."""
    wide = [
        (name, mask.shape[1]) for name, mask in masks.items() if mask is not None and mask.ndim == 2
    ]
    for name, n in wide:
        if n != wide[0][1]:
            raise Origin(where, name).shape(
                f"{n} columns, but {wide[0][0]} has {wide[0][1]}",
                "give all masks a column for each split",
            )
    return wide[0][1] if wide else 1


def splits_of(mask: np.ndarray) -> np.ndarray:
    """Masks as [n, S], or [n, 1] for one that belongs to all splits."""
    return mask if mask.ndim == 2 else mask[:, None]


def check_disjoint(masks: dict[str, np.ndarray | None], kind: str, where: str) -> None:
    """No row is in two masks of a split."""
    splits = [(name, splits_of(mask)) for name, mask in masks.items() if mask is not None]
    for (first, a), (second, b) in combinations(splits, 2):
        both = np.flatnonzero((a & b).any(axis=1))
        if len(both):
            raise Origin(where, f"{first} and {second}").data(
                f"{len(both)} {kind}s are in both, the first is {kind} {int(both[0])}",
                "a row may be in only one of the masks",
            )


def labelled(y: np.ndarray) -> np.ndarray:
    """Rows with a label or target, [n] bool, of labels or targets in canonical form."""
    if y.dtype.kind == "i":
        return np.asarray(y) >= 0
    values = ~np.isnan(np.asarray(y))
    return values if values.ndim == 1 else values.any(axis=1)


def check_labelled(
    y: np.ndarray | None, masks: dict[str, np.ndarray | None], kind: str, field: str, where: str
) -> None:
    """Every row in a mask has a label or target."""
    if y is None:
        return
    missing = ~labelled(y)
    if not missing.any():
        return
    for name, mask in masks.items():
        inside = missing[:0] if mask is None else splits_of(mask).any(axis=1) & missing
        bad = np.flatnonzero(inside)
        if len(bad):
            raise Origin(where, name).data(
                f"{kind} {int(bad[0])} is in the mask but has no {field} ({len(bad)} such {kind}s)",
                f"take {kind}s without {field} out of the mask",
            )


def check_node_ids(ids: Any, n: int, where: str) -> np.ndarray | None:
    """Original ids: unique integers or strings, one per node. Those in files stay there and are not
    compared with each other.
    """
    if ids is None:
        return None
    origin = Origin(where, "node_ids")
    source = ids
    ids = ids if hasattr(ids, "dtype") and in_files(ids) else as_array(ids, origin)
    if ids.dtype.kind not in "iuU":
        raise origin.data(
            f"expected integers or strings, got dtype {ids.dtype}",
            "convert the ids, for example with str()",
        )
    if ids.dtype.kind == "u" and largest(ids) > np.iinfo(np.int64).max:
        raise origin.data(
            f"the id {ids.max()} is beyond int64", "give the ids as texts, ids.astype(str)"
        )
    if ids.ndim != 1:
        raise origin.shape(f"expected shape [{n}], got {list(ids.shape)}", "give one id per node")
    check_rows(ids, n, "node", origin)
    if in_files(ids):
        return frozen(ids.astype(np.int64, copy=False)) if isinstance(ids, np.ndarray) else ids
    unique, first, count = np.unique(ids, return_index=True, return_counts=True)
    if len(unique) != n:
        again = int(np.argmax(count > 1))
        raise origin.data(
            f"id {unique[again]} belongs to {int(count[again])} nodes, first to node"
            f" {int(first[again])}",
            "original ids must be unique",
        )
    return private(ids.astype(np.int64) if ids.dtype.kind in "iu" else ids, source)
