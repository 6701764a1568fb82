"""Indexing of trailing axes with constants: ``x[..., 0]``, ``x[..., 1:3]``, ``x[..., [0, 2]]``."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import ShapeError

from ..autodiff.primitive import defvjp, primitive
from ..autodiff.traits import Traits
from .rows import has_rows, trailing

Key = tuple[tuple[Any, ...], ...]


def _written(texts: list[str], static: dict[str, Any]) -> str:
    return f"{texts[0]}[{', '.join(map(_index, static['key']))}]"


def _index(key: tuple[Any, ...]) -> str:
    """One entry of an index."""
    kind, *rest = key
    if kind == "slice":
        return ":".join("" if v is None else str(v) for v in rest[: 2 if rest[2] is None else 3])
    return {"new": "None", "...": "..."}.get(kind, str(rest[0] if kind == "int" else rest))


def _part(static: dict[str, Any]) -> Any:
    """The index, unless it has an entry twice."""
    return None if _repeats(static["key"]) else _decoded(static["key"])


def _repeats(key: Key) -> bool:
    return any(kind == "list" and len(set(rest)) < len(rest) for kind, *rest in key)


@primitive(
    "getitem",
    traits=Traits(work="none", structural=True, linear=(0,), part=_part, written=_written),
)
def getitem_p(x: Any, *, key: Key) -> Any:
    """Part of a value, by a key of hashable entries."""
    return x[_decoded(key)]


def _getitem_vjp(g: Any, y: Any, x: Any, key: Key) -> Any:
    out = np.zeros(x.shape, g.dtype)
    at = _decoded(key)
    if _repeats(key):
        np.add.at(out, at, g)
    else:
        out[at] = g
    return out


defvjp(getitem_p, x=_getitem_vjp)


def getitem(x: Any, key: Any) -> Any:
    """Part of a value, chosen by constants.

    Args:
        x: [n, ...] or rowless.
        key: Integers, slices, ``...``, None (a new axis), and one list of integers, or of a Boolean
            for each entry of the axis. For a row value it starts with ``...`` or ``:``, so that the
            row axis stays.

    Raises:
        ShapeError: The key reaches the row axis, is out of range, or has entries that are not
            constants.
    """
    parts = key if isinstance(key, tuple) else (key,)
    if has_rows(x):
        _check_rows(x, parts)
    encoded = tuple(_encoded(k, d) for k, d in zip(parts, _lengths(parts, x.shape), strict=True))
    kinds = [k[0] for k in encoded]
    if kinds.count("list") > 1 or ("list" in kinds and "int" in kinds):
        raise ShapeError(
            "an index may contain one list, and no integers together with a list; index twice"
            " instead"
        )
    return getitem_p(x, key=encoded)


def _check_rows(x: Any, parts: tuple[Any, ...]) -> None:
    all_rows = bool(parts) and isinstance(parts[0], slice) and parts[0] == slice(None)
    if not (all_rows or parts[:1] == (Ellipsis,)):
        raise ShapeError(
            "rows cannot be indexed in a user function, the row axis belongs to the engine; start"
            " the index with ... to reach trailing axes, as in x[..., 0]"
        )
    taken = sum(k is not None and k is not Ellipsis for k in parts[1:])
    if taken > len(trailing(x)):
        raise ShapeError(
            f"an index of {taken} trailing axes was used on a row value that has {len(trailing(x))}"
        )


def _lengths(parts: tuple[Any, ...], shape: tuple[int | None, ...]) -> list[int | None]:
    """Length of the axis that each entry of an index reads; None where it reads none, or rows."""
    lengths: list[int | None] = []
    axis = 0
    left = sum(k is not None and k is not Ellipsis for k in parts)
    for k in parts:
        if k is Ellipsis:
            # the entries after it read the last axes
            axis = len(shape) - left
        if k is None or k is Ellipsis:
            lengths.append(None)
            continue
        lengths.append(shape[axis] if 0 <= axis < len(shape) else None)
        axis += 1
        left -= 1
    return lengths


def _encoded(k: Any, length: int | None) -> tuple[Any, ...]:
    """A hashable form for an axis of some length; slices are not hashable before Python 3.12."""
    if k is None or k is Ellipsis:
        return ("new",) if k is None else ("...",)
    if isinstance(k, slice):
        return ("slice", *(None if v is None else int(v) for v in (k.start, k.stop, k.step)))
    if isinstance(k, (int, np.integer)) and not isinstance(k, bool):
        return ("int", int(k))
    listed = isinstance(k, (list, np.ndarray)) and np.ndim(k) == 1
    # of an empty list NumPy would make floats
    numbers = np.asarray(k, None if len(k) else np.int64) if listed else None
    if numbers is None or numbers.dtype.kind not in "iub":
        raise ShapeError(
            f"an index of type {type(k).__name__} is not a constant; use integers, slices or a list"
            " of integers"
        )
    if numbers.dtype.kind == "b":
        if len(numbers) != length:
            raise ShapeError(
                f"an index of {len(numbers)} Booleans was used on an axis of length {length}; give"
                " one for each entry"
            )
        numbers = np.flatnonzero(numbers)
    elif length is not None and len(numbers):
        least = numbers.min()
        most = numbers.max()
        if not -length <= least <= most < length:
            raise ShapeError(
                f"an index holds numbers from {least} to {most}, but the axis has the length"
                f" {length}"
            )
    # counted from the start, so that an entry that occurs twice is found
    return ("list", *(i + length if i < 0 and length is not None else i for i in numbers.tolist()))


def _decoded(key: Key) -> tuple[Any, ...]:
    makers: dict[str, Any] = {
        "new": lambda: None,
        "...": lambda: Ellipsis,
        "slice": slice,
        "int": int,
        "list": lambda *numbers: np.array(numbers, np.int64),
    }
    return tuple(makers[kind](*rest) for kind, *rest in key)
