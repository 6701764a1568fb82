"""What macrobatches send, and what the same views would send one after another.

The cost model of BatchGNN, for views of which each takes M rounds of messages and bytes T to
expand, and features of S bytes a node:

    one by one      sum T + M C + S sum |f_i|
    B together      sum T + M C / B + S sum |A_k|

C is the cost of a message, f_i are the nodes whose features view i lacks, and A_k is the union of
those of F views.

Source: BatchGNN, https://arxiv.org/abs/2306.13814
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from graphtheta.base.console import amount
from graphtheta.engine.comm.communicator import Comm


@dataclass
class RelayCounts:
    """Counts of one worker, or sums over all.

    Attributes:
        views: Views that were expanded.
        alone_messages, alone_bytes: What the expansions would send one by one.
        messages, n_bytes: What they have sent.
        alone_rows: Features of other workers' nodes that the views read, counted for each view, and
            with those that a cache holds.
        rows: The same without those that several views fetched together have in common.
        measured_rows, measured_bytes: Some nodes, and the bytes of their features.
    """

    views: int = 0
    alone_messages: int = 0
    alone_bytes: int = 0
    messages: int = 0
    n_bytes: int = 0
    alone_rows: int = 0
    rows: int = 0
    measured_rows: int = 0
    measured_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a node, on average."""
        return self.measured_bytes // max(self.measured_rows, 1)

    def summed(self, comm: Comm) -> RelayCounts:
        """The counts of all workers.

        Collective: all ranks of comm.
        """
        names = [field.name for field in fields(self)]
        total = comm.all_sum(np.array([getattr(self, name) for name in names], np.int64))
        # the number of views is the same on every worker
        total[0] //= comm.size
        return RelayCounts(*total.tolist())

    def __str__(self) -> str:
        text = (
            f"{self.messages:,} messages of {amount(self.n_bytes)} expanded {self.views:,} views,"
            f" in place of {self.alone_messages:,} of {amount(self.alone_bytes)}"
        )
        if self.alone_rows:
            text += (
                f"; {self.rows:,} features of other workers' nodes"
                f" ({amount(self.rows * self.row_bytes)}) were read, in place of"
                f" {self.alone_rows:,} ({amount(self.alone_rows * self.row_bytes)})"
            )
        return text
