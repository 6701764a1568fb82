"""Skipped exchange: a worker sends its rows again only when they have changed enough.

For each move, a worker compares the rows that others read with those it sent last. If the norm of
the difference is at most ``threshold`` times the norm of what it sent, it sends nothing and the
others use the old rows. The decision is one bit of each worker, exchanged before the move.

Source: in the manner of SANCUS, https://doi.org/10.14778/3538598.3538614
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from graphtheta.engine.partition.exchange import NOTHING, Exchange, ToMasters, ToMirrors
from graphtheta.engine.partition.message import Columns
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.staleness.exchange import LaterRows, LaterSums, Merge, MovePolicy

# below this threshold a tightened one becomes 0
LEAST = 1e-4


class Skip(MovePolicy):
    """Rows are sent when they have changed.

    Args:
        threshold: Relative change above which a worker sends its rows; 0 is exact.

    Raises:
        ConfigError: The threshold is negative.
    """

    name = "skip"
    by_values = True
    knobs = ("threshold",)

    def __init__(self, threshold: float = 0.1):
        super().__init__()
        if not 0 <= threshold < np.inf:
            raise ConfigError(
                f"exchange=skip: threshold is {threshold}; expected a number of at least 0"
            )
        self.threshold = threshold
        self._sent = [0, 0]

    def begin(self, epoch: int) -> None:
        return

    def to_mirrors(self, slot: str, exchange: Exchange, columns: Columns) -> ToMirrors:
        plan = exchange.plan
        mine, own = self._decided(
            slot, {name: x[plan.rows] for name, x in columns.items()}, exchange
        )
        sent, halo = self._parts(mine, own, plan.rows, plan.recv_ptr)
        move = Exchange(exchange.comm, plan.subset(sent, halo)).to_mirrors_begin(columns)
        return LaterRows(lambda: self._updated(slot, halo, move.end(), plan.n_halo))

    def to_masters(self, slot: str, exchange: Exchange, columns: Columns) -> ToMasters:
        plan = exchange.plan
        mine, own = self._decided(slot, columns, exchange)
        halo, sent = self._parts(mine, own, np.arange(plan.n_halo), plan.send_ptr)
        some = Exchange(exchange.comm, plan.subset(sent, halo))
        move = some.to_masters_begin({name: x[halo] for name, x in columns.items()})

        def end(merge: Merge) -> None:
            parts = [{name: x[:0] for name, x in columns.items()}]
            move.end(lambda _, part: parts.append({name: x.copy() for name, x in part.items()}))
            arrived = {name: np.concatenate([part[name] for part in parts]) for name in columns}
            rows = self._updated(slot, sent, arrived, len(plan.rows))
            for a, b in pairwise(plan.send_ptr):
                if b > a:
                    merge(plan.rows[a:b], {name: x[a:b] for name, x in rows.items()})

        return LaterSums(end)

    def _decided(self, slot: str, rows: Columns, exchange: Exchange) -> tuple[bool, np.ndarray]:
        """Whether this worker sends these rows, and the workers that send theirs, [size] bool."""
        last = self.columns(f"{slot}/sent", rows)
        change = size = 0.0
        for name, x in rows.items() if last is not None else ():
            assert last is not None
            change += float(np.sum(np.square(x.astype(np.float64) - last[name])))
            size += float(np.sum(np.square(last[name], dtype=np.float64)))
        sends = last is None or not np.sqrt(change) <= self.threshold * np.sqrt(size)
        if sends:
            self.store(f"{slot}/sent", {name: x.copy() for name, x in rows.items()})
        self._sent[0] += sends
        self._sent[1] += 1
        comm = exchange.comm
        return sends, comm.all_sum((np.arange(comm.size) == comm.rank) * np.int64(sends)) > 0

    @staticmethod
    def _parts(
        mine: bool, senders: np.ndarray, own: np.ndarray, ptr: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the rows that this worker sends, and of those that it receives."""
        received = [
            np.arange(a, b) for on, (a, b) in zip(senders, pairwise(ptr), strict=True) if on
        ]
        return np.arange(len(own)) if mine else NOTHING, np.concatenate([NOTHING, *received])

    def _updated(self, slot: str, at: np.ndarray, new: Columns, n: int) -> Columns:
        """The n rows of the others: old ones, or 0, with new ones at some positions."""
        old = self.columns(f"{slot}/seen", new)
        rows = {
            name: np.zeros((n, *x.shape[1:]), x.dtype) if old is None else old[name].copy()
            for name, x in new.items()
        }
        for name, x in new.items():
            rows[name][at] = x
        return self.store(f"{slot}/seen", rows)

    def figures(self) -> dict[str, float]:
        sent = self._sent
        self._sent = [0, 0]
        return {"sent_share": sent[0] / max(sent[1], 1)}

    def tighten(self) -> str:
        if not self.threshold:
            return ""
        self.threshold = self.threshold / 2 if self.threshold > LEAST else 0.0
        return f"threshold={self.threshold:g}"
