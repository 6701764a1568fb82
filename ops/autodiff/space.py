"""Row spaces: which nodes or edges the rows of a value belong to.

Rows of one view are ordered so that the active set of every layer is a prefix of the active set of
the layer before. A value of an early layer is therefore brought to a later one by cutting it short,
without an index.
"""

from __future__ import annotations

import numpy as np


class RowSpace:
    """The rows of a frame on this rank.

    Attributes:
        n: Number of rows.
        gid: Global ids of the rows, [n] int64; random draws are keyed by them.
        kind: ``"node"`` or ``"edge"``.
        counted: Which rows belong to the statistics of batch norm, [n] bool; None for all.
    """

    __slots__ = ("counted", "gid", "kind", "n", "root")

    def __init__(
        self,
        gid: np.ndarray,
        kind: str = "node",
        root: RowSpace | None = None,
        counted: np.ndarray | None = None,
    ):
        self.gid = gid
        self.counted = counted
        self.n = len(gid)
        self.kind = kind
        self.root = root if root is not None else self

    def prefix(self, n: int) -> RowSpace:
        """The first n rows, as a space nested in this one; itself if that is all of them."""
        if n == self.n:
            return self
        return RowSpace(
            self.gid[:n], self.kind, self.root, None if self.counted is None else self.counted[:n]
        )

    def nested_with(self, other: RowSpace) -> bool:
        """Whether one of the two spaces is a prefix of the other."""
        return self.root is other.root
