"""Pipelined exchange: an epoch computes with the boundary values and gradients of the epoch before.

Messages of an epoch are read in the next one, so that they arrive while the epoch computes. The
first epoch waits for its own messages.

    f_t = c f_{t-1} + (1 - c) f   received values (c = feat_corr), sums of gradients (grad_corr)

Source: PipeGCN, https://arxiv.org/abs/2203.10428
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from graphtheta.engine.partition.exchange import Exchange, ToMasters, ToMirrors
from graphtheta.engine.partition.message import Columns
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.staleness.exchange import LaterRows, LaterSums, MovePolicy

# the longest interval that an audit halves: an interval of 0 counts as this
LONGEST = 16


class PipeGcn(MovePolicy):
    """Boundary values and gradients of the epoch before.

    Args:
        feat_corr: Share of the last value in the smoothed values, such as 0.95; 0 does not smooth.
        grad_corr: The same for gradients.
        refresh: Every so many epochs wait for their own messages; 1 is exact, 0 only the first.

    Raises:
        ConfigError: An option is out of range.
    """

    name = "pipegcn"
    knobs = ("refresh",)

    def __init__(self, feat_corr: float = 0.0, grad_corr: float = 0.0, refresh: int = 0):
        super().__init__()
        for name, share in (("feat_corr", feat_corr), ("grad_corr", grad_corr)):
            if not 0 <= share < 1:
                raise ConfigError(
                    f"exchange=pipegcn: {name} is {share}; expected a number of at least 0 and"
                    " below 1"
                )
        if refresh < 0:
            raise ConfigError(
                f"exchange=pipegcn: refresh is {refresh}; expected a number of epochs, or 0"
            )
        self._shares = (feat_corr, grad_corr)
        self.refresh = refresh
        self._waits = True
        self._pending: list[Callable[[], None]] = []

    def begin(self, epoch: int) -> None:
        self._waits = self.refresh > 0 and epoch % self.refresh == 0

    def to_mirrors(self, slot: str, exchange: Exchange, columns: Columns) -> ToMirrors:
        move = exchange.to_mirrors_begin(columns)
        last = None if self._waits else self.columns(slot, columns)
        if last is None:
            return LaterRows(lambda: self.store(slot, move.end()))
        self._pending.append(lambda: self._take(slot, last, move.end(), self._shares[0]))
        return LaterRows(lambda: last)

    def to_masters(self, slot: str, exchange: Exchange, columns: Columns) -> ToMasters:
        sums = _Sums(exchange, columns)
        last = None if self._waits else self.columns(slot, columns)
        if last is None:
            return LaterSums(lambda merge: merge(sums.rows, self.store(slot, sums.end())))
        self._pending.append(lambda: self._take(slot, last, sums.end(), self._shares[1]))
        return LaterSums(lambda merge: merge(sums.rows, last))

    def _take(self, slot: str, old: Columns, new: Columns, share: float) -> None:
        smooth = {
            n: share * old[n] + (1 - share) * x if share and x.dtype.kind == "f" else x
            for n, x in new.items()
        }
        self.store(slot, {n: x.astype(new[n].dtype, copy=False) for n, x in smooth.items()})

    def settle(self) -> None:
        pending = self._pending
        self._pending = []
        for end in pending:
            end()

    def figures(self) -> dict[str, float]:
        return {"age": 0.0 if self.refresh == 1 else 1.0}

    def tighten(self) -> str:
        if self.refresh == 1:
            return ""
        self.refresh = max(1, (self.refresh or LONGEST) // 2)
        return f"refresh={self.refresh}"


class _Sums:
    """A begun backward move, whose rows are summed by master.

    Attributes:
        rows: Master rows that other workers read, ascending, [n].
    """

    def __init__(self, exchange: Exchange, columns: Columns):
        self.rows, self._at = np.unique(exchange.plan.rows, return_inverse=True)
        self._bounds = exchange.plan.send_ptr
        # the columns are sent in place and must stay until the end
        self._columns = columns
        self._move = exchange.to_masters_begin(columns)

    def end(self) -> Columns:
        """The sum of all workers by row, [n, ...] per column."""
        total = {
            name: np.zeros((len(self.rows), *x.shape[1:]), x.dtype)
            for name, x in self._columns.items()
        }
        groups = ((a, b) for a, b in pairwise(self._bounds) if b > a)

        def add(rows: np.ndarray, part: Columns) -> None:
            a, b = next(groups)
            for name, x in part.items():
                total[name][self._at[a:b]] += x

        self._move.end(add)
        return total
