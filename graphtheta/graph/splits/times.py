"""Sets by time: the earliest rows train, later ones validate, and the latest test."""

from __future__ import annotations

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import lacking, names_and_codes
from graphtheta.graph.data.validation import Origin, as_array
from graphtheta.graph.splits.nodes import Masks, check_shares, labelled_nodes

# the node or edge column that jobs split by, and the shares of validation and test links
TIME = "time"
LINK_SHARES = 0.85, 0.05


@checked
def time_split(
    times: np.ndarray, train: float = 0.6, val: float = 0.2, *, use: np.ndarray | None = None
) -> Masks:
    """Split rows by time. Rows of the same time are in the same part, so shares are not exact.

    Shares that add up to 1 leave no rows for testing.

    Every training row is earlier than every validation row, and these than every test row.

    Args:
        times: [n], numbers.
        train, val: Shares of the rows; the rest is for testing.
        use: Rows that take part, [n] bool; all if None.

    Returns:
        Masks (train, val, test), [n] bool each.

    Raises:
        ConfigError: Shares outside 0..1 or beyond 1 together.
        DataError: A time is not a number, or a part is empty because too many rows have the same
            time.
    """
    check_shares(train, val)
    times = as_array(times, Origin("", "times"))
    rows = times.shape[:1]
    use = np.ones(rows, bool) if use is None else as_array(use, Origin("", "use"))
    if use.dtype != bool or use.shape != rows:
        raise DataError(
            f"use: expected a bool mask of shape {list(rows)}, got {use.dtype}{list(use.shape)};"
            " give one entry for each time"
        )
    if times.ndim != 1 or times.dtype.kind not in "iuf" or not np.isfinite(times[use]).all():
        raise DataError(
            "a split by time needs one finite number per row, got"
            f" {times.dtype}{list(times.shape)}; give times such as seconds or days, and leave rows"
            " without a time out with use="
        )
    ordered = np.sort(times[use])
    first, second = (_before(times, ordered, share) for share in (train, train + val))
    masks = use & first, use & second & ~first, use & ~second
    empty = [
        name
        for name, mask, share in zip(
            ("training", "validation", "test"), masks, (train, val, 1 - train - val), strict=True
        )
        if share > 1e-9 and not mask.any()
    ]
    if empty:
        raise DataError(
            f"a split by time leaves no rows for {' and '.join(empty)}: {len(ordered)} rows have"
            f" {len(np.unique(ordered))} different times, and rows of the same time stay together;"
            " change the shares"
        )
    return masks


def _before(times: np.ndarray, ordered: np.ndarray, share: float) -> np.ndarray:
    """Rows earlier than the time at which the rest of them begins after a share, [n] bool.

    Args:
        times: [n].
        ordered: Times of the rows that take part, ascending.
        share: In 0..1.
    """
    if not len(ordered):
        return np.zeros(len(times), bool)
    if share > 1 - 1e-9:
        return np.ones(len(times), bool)
    return times < ordered[min(round(share * len(ordered)), len(ordered) - 1)]


def check_stated(
    graph: Graph, group: str, column: str, at: str, rows: np.ndarray | None = None
) -> None:
    """Check that some rows have times of their own, and not the 0 of a type or relation without
    times.

    Args:
        graph: The graph.
        group: "node" or "edge".
        column: Name of the column of times.
        at: What needs the times, for the message.
        rows: The rows, [n] bool; None for all.

    Raises:
        DataError: Some have none.
    """
    bad = lacking(graph, group, column)
    if bad is not None and rows is not None:
        bad &= rows
    if bad is not None and bad.any():
        names, codes = names_and_codes(graph, group)
        without = names[int(codes[int(np.argmax(bad))])]
        raise DataError(
            f"{at}: {without!r} has no values in the {group} column {column!r}; give them, such as"
            f" a time before all others for {group}s that are known from the start"
        )


def split_by_time(graph: Graph) -> Graph:
    """The graph with masks by its column "time": of nodes with labels, otherwise of edges.

    Raises:
        ConfigError: There is no such column.
        DataError: As for ``time_split``, or a type or a relation has no times.
    """
    what, columns = (
        ("node", graph.node_columns) if graph.y is not None else ("edge", graph.edge_columns)
    )
    if TIME not in columns:
        raise ConfigError(
            f"{graph.name}: split=time needs the {what} column {TIME!r}; add it with"
            f" graph.replace({what}_columns={{{TIME!r}: times}}), or choose another --split"
        )
    times = np.asarray(columns[TIME])
    labelled = None if graph.y is None else labelled_nodes(graph)
    check_stated(
        graph=graph, group=what, column=TIME, at=f"{graph.name}: split=time", rows=labelled
    )
    if labelled is not None:
        return graph.with_masks(*time_split(times, use=labelled))
    train, val, test = time_split(times, *(LINK_SHARES if graph.edge_y is None else ()))
    return graph.replace(edge_train=train, edge_val=val, edge_test=test)
