"""Named columns of nodes and edges, which user functions read by name: ``node.kind``,
``edge.type``.

Integers stay integers of 32 or 64 bits, so that codes and times are exact. A column of one float64
number per row stays float64, so that times with fractions are exact where they are compared; models
read it in the float type of the job. Other floats are float32, as everywhere in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from types import MappingProxyType
from typing import Any
from unicodedata import normalize

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.errors import DataError
from graphtheta.graph.data.validation import Origin, as_array, check_rows, private, to_float

Columns = Mapping[str, np.ndarray]
NO_COLUMNS: Columns = MappingProxyType({})
# names that user functions, networkx or the engine use for other values of nodes and edges
TAKEN = frozenset(
    {
        "x",
        "y",
        "train",
        "val",
        "test",
        "node_ids",
        "edge_attr",
        "edge_weight",
        "edge_y",
        "edge_train",
        "edge_val",
        "edge_test",
        "h",
        "in_degree",
        "out_degree",
        "reversed",
        "attr",
        "weight",
        "gid",
        "src",
        "dst",
        "precomputed",
    }
)

# type of the floats that a column [n] keeps
DOUBLE = np.dtype(np.float64)

# units of columns of times, by the word that states the type of a column of an import
TIME_UNITS = {"time": "ns", "time_s": "s", "time_ms": "ms", "time_us": "us"}

# names that a summary lists
SHOWN = 12


def check_columns(columns: Mapping[str, Any] | None, n: int, kind: str, where: str) -> Columns:
    """Named columns in canonical form.

    Args:
        columns: Arrays [n] or [n, k] by name; None for none.
        n: Number of rows.
        kind: "node" or "edge".
        where: File or caller, for messages.

    Returns:
        Read-only arrays by name. Types that int32 holds, and bools (0 and 1), become int32, other
        integers int64; columns [n] of float64 stay float64, other floats become float32.

    Raises:
        ShapeError: A column has another number of rows or of axes.
        DataError: A name cannot be used; values are neither numbers nor bools, or not finite; an
            integer does not fit int64, or is given in a column [n, k] as a float that float32 would
            round.
    """
    if columns is None:
        return NO_COLUMNS
    field = f"{kind}_columns"
    return MappingProxyType(
        {
            _checked_name(name, Origin(where, field)): _checked(
                x, n, kind, Origin(where, f"{field}[{name!r}]")
            )
            for name, x in columns.items()
        }
    )


def take_rows(columns: Columns, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Some rows of all columns, by number."""
    return {name: x[rows] for name, x in columns.items()}


def described(columns: Columns, categories: Callable[[str], Sequence[str]]) -> str:
    """Names, kinds and texts of codes in words: "type int32 (a, b), stamp int64 [2]".

    Args:
        columns: The columns.
        categories: Texts that the codes of a column stand for.
    """
    texts = {name: f" ({listed(words)})" for name in columns if (words := categories(name))}
    return ", ".join(
        f"{name} {x.dtype}" + (f" [{x.shape[1]}]" if x.ndim == 2 else "") + texts.get(name, "")
        for name, x in columns.items()
    )


def listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    )


def added_rows(columns: Columns, name: str, value: Any, n: int) -> np.ndarray:
    """Rows of one value for edges that are added, [n] or [n, k].

    Their dtype is that of the column, or int64 for an integer that does not fit it.

    Args:
        columns: The columns of the graph.
        name: Name of the column.
        value: A number, or k of them.
        n: Number of rows.

    Raises:
        DataError: The value does not have the kind or the shape of the column.
    """
    old = columns[name]
    row = np.asarray(value)
    whole = old.dtype.kind == "i"
    number = row.dtype.kind in "iub" and _fits(row, np.int64) if whole else row.dtype.kind in "iubf"
    if not number or row.shape not in ((), old.shape[1:]):
        wanted = ("an integer" if whole else "a number") + (
            f", or {old.shape[1]} of them" if old.ndim == 2 else ""
        )
        raise DataError(
            f"edge column {name!r}: the value of added edges is {value!r}; expected {wanted}"
        )
    dtype = old.dtype if not whole or _fits(row, old.dtype) else np.int64
    return np.broadcast_to(row, (n, *old.shape[1:])).astype(dtype)


def unit_of(graph: Any, group: str, name: str) -> str:
    """The unit of a column of times, "s", "ms", "us" or "ns"; empty if nothing states it.

    Args:
        graph: The graph.
        group: "node" or "edge".
        name: Name of the column.
    """
    return str(graph.meta.get(f"{group}_units", {}).get(name, ""))


def is_attribute(name: Any) -> bool:
    """Whether user functions can read a column of a name as ``node.NAME``."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        return False
    # Python reads some characters of identifiers as others
    return not iskeyword(name) and normalize("NFKC", name) == name


def _checked_name(name: Any, origin: Origin) -> str:
    if not is_attribute(name):
        raise origin.data(
            f"the name {name!r} cannot be read as an attribute such as node.NAME",
            "choose a Python identifier that does not begin with '_'",
        )
    if name in TAKEN:
        raise origin.data(
            f"the name {name!r} is reserved", f"choose another name, such as '{name}_code'"
        )
    return name


def _checked(x: Any, n: int, kind: str, origin: Origin) -> np.ndarray:
    if is_sparse(x):
        raise origin.data(
            "a sparse matrix cannot be a column", "give it as x, or make it dense with toarray()"
        )
    a = as_array(x, origin)
    check_rows(a, n, kind, origin)
    if a.ndim > 2:
        raise origin.shape(
            f"expected shape [{n}] or [{n}, k], got {list(a.shape)}", "flatten the values of a row"
        )
    if a.dtype.kind in "iub":
        return private(_integers(a, kind, origin), x)
    if a.dtype.kind == "f":
        exact = a.ndim == 1 and a.dtype.itemsize >= DOUBLE.itemsize
        return private(
            to_float(a, kind, origin, DOUBLE) if exact else to_float(a, kind, origin, exact=True), x
        )
    raise origin.data(
        f"values have dtype {a.dtype}",
        "a column holds numbers: encode texts and categories as codes with "
        "np.unique(values, return_inverse=True)[1], times with values.astype('int64')",
    )


def _integers(a: np.ndarray, kind: str, origin: Origin) -> np.ndarray:
    """Integers as int32 if it holds all values of their dtype, else as int64."""
    if not (a.dtype.kind == "b" or np.can_cast(a.dtype, np.int64) or _fits(a, np.int64)):
        row = int(np.argmax(a.reshape(len(a), -1).max(axis=1)))
        raise origin.data(
            f"{kind} {row} is {int(a[row].max())}",
            f"the largest integer of a column is {np.iinfo(np.int64).max}; number "
            "the values with np.unique(values, return_inverse=True)[1]",
        )
    return a.astype(np.int32 if np.can_cast(a.dtype, np.int32) else np.int64, copy=False)


def _fits(a: np.ndarray, dtype: Any) -> bool:
    """Whether a type holds all of some integers."""
    info = np.iinfo(dtype)
    return not a.size or (info.min <= int(a.min()) and int(a.max()) <= info.max)
