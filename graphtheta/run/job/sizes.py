"""Sizes of caches as jobs give them: rows, bytes, or a share of the nodes."""

from __future__ import annotations

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
EXPECTED = (
    "expected a number of rows such as 5000, a size such as 64MiB or 1.5GiB, or a share of the"
    " nodes such as 10%"
)


def rows_of(text: str, width: int, n_nodes: int) -> int:
    """Rows of a cache.

    Args:
        text: A number of rows, "64MiB" or "10%".
        width: Bytes of a row.
        n_nodes: Nodes of the graph.

    Raises:
        ValueError: It is no such size.
    """
    number = text.strip()
    unit = next((ending for ending in (*UNITS, "%") if number.endswith(ending)), "")
    number = number.removesuffix(unit)
    try:
        size = float(number) * UNITS.get(unit, 1) if unit else int(number)
    except ValueError:
        raise ValueError(EXPECTED) from None
    if not 0 <= size < float("inf") or (unit == "%" and size > 100):
        raise ValueError(EXPECTED)
    if unit == "%":
        return int(size / 100 * n_nodes)
    return int(size / max(width, 1)) if unit else int(size)
