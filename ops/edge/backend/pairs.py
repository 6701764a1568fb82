"""Pairs of a node and a code that have an edge, and the edges grouped by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ...kernels.batch import group, split
from .edges import EdgeLists
from .pair_kernels import PairBlocks

IN_ORDER = np.zeros(0, np.int32)
# pairs of one code that a product takes at a time
PAIRS_PER_BLOCK = 1024
# parts of the rows, and pairs of one code in each, that a smaller graph is divided into for the
# threads
FEW_PARTS, LEAST_PAIRS = 8, 64


def same_array(x: np.ndarray | None, y: np.ndarray) -> bool:
    """Whether both are the same memory, as repeated reads of a column in memory are, and not only
    equal numbers.
    """
    return x is y or (
        x is not None
        and x.ctypes.data == y.ctypes.data
        and (x.shape, x.strides, x.dtype) == (y.shape, y.strides, y.dtype)
    )


@dataclass
class NodeCodePairs:
    """The pairs at one end of the edges, ordered by code and then by row.

    Attributes:
        row: Row of the node of each pair, [n_pairs] int32.
        bounds: Bounds of the pairs of each code, [k + 1] int64.
        receivers: The edges by receiving row: the senders are pairs, or the receivers are.
    """

    row: np.ndarray
    bounds: np.ndarray
    receivers: EdgeLists
    _senders: Callable[[], EdgeLists]

    @property
    def n(self) -> int:
        return len(self.row)

    @cached_property
    def senders(self) -> EdgeLists:
        """The same edges by sender; only backpropagation to senders needs them."""
        return self._senders()

    def in_order(self, end: str) -> EdgeLists:
        """The same edges by "senders" or "receivers" as if they were stored in this order; for
        values that ``ordered`` returns.
        """
        if end not in self._in_order:
            lists = getattr(self, end)
            weight = (
                lists.weight[lists.at]
                if lists.weight is not None and len(lists.at)
                else lists.weight
            )
            self._in_order[end] = replace(
                lists, at=IN_ORDER, positions=None, start=0, offset=0, weight=weight
            )
        return self._in_order[end]

    def ordered(self, end: str, name: str, values: np.ndarray, carried: bool) -> np.ndarray:
        """Edge values in the order of senders or receivers; they are copied once for each array,
        which must not change.

        Args:
            end: "senders" or "receivers".
            name: Name of the values.
            values: One for each stored edge, or in the order of the level if they are ``carried``.
            carried: Which of both.
        """
        of, copied = self._ordered.get((end, name), (None, None))
        if copied is None or not same_array(of, values):
            lists: EdgeLists = getattr(self, end)
            at = lists.at if len(lists.at) else np.arange(lists.ptr[-1])
            rows = (
                lists.offset + at
                if carried
                else lists.start + (at if lists.positions is None else lists.positions[at])
            )
            copied = values[rows]
            self._ordered[end, name] = values, copied
        return copied

    @cached_property
    def _in_order(self) -> dict[str, EdgeLists]:
        return {}

    @cached_property
    def _ordered(self) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
        return {}

    @cached_property
    def numbers(self) -> np.ndarray:
        """The number of each pair, [n_pairs] int32."""
        return np.arange(self.n, dtype=np.int32)

    @cached_property
    def by_row(self) -> PairBlocks:
        """Blocks of pairs in parts of the rows that no two parts share."""
        k = len(self.bounds) - 1
        n = int(self.row.max(initial=-1)) + 1
        count = max(1, self.n // (PAIRS_PER_BLOCK * k), min(FEW_PARTS, self.n // (LEAST_PAIRS * k)))
        cuts = np.arange(1, count) * n // count
        ends = (
            np.stack(
                [
                    self.bounds[c]
                    + np.concatenate(
                        (
                            [0],
                            np.searchsorted(self.row[self.bounds[c] : self.bounds[c + 1]], cuts),
                            [self.bounds[c + 1] - self.bounds[c]],
                        )
                    )
                    for c in range(k)
                ]
            )
            .astype(np.int64)
            .tolist()
        )
        return PairBlocks(
            [
                [(c, ends[c][p], ends[c][p + 1]) for c in range(k) if ends[c][p] < ends[c][p + 1]]
                for p in range(count)
            ]
        )

    @cached_property
    def by_code(self) -> PairBlocks:
        """Blocks of pairs of ascending codes, each of which is a share."""
        bounds = self.bounds.tolist()
        return PairBlocks(
            [
                [(c, a, min(a + 4 * PAIRS_PER_BLOCK, end))]
                for c, (begin, end) in enumerate(pairwise(bounds))
                for a in range(begin, end, 4 * PAIRS_PER_BLOCK)
            ]
        )


def pairs_of_senders(
    receivers: EdgeLists, senders: EdgeLists, codes: np.ndarray, k: int
) -> NodeCodePairs:
    """Pairs of a sender and a code.

    Args:
        receivers, senders: The edges by both ends.
        codes: Code of each edge in the order of receivers, below k.
        k: Number of codes.
    """
    ptr, row, bounds, order = split(
        ptr=senders.ptr, row=senders.row, visit=IN_ORDER, codes=codes, at=senders.at, k=k
    )
    at = senders.at[order] if len(senders.at) else order
    pair = np.empty(len(codes), np.int32)
    pair[at] = np.repeat(np.arange(len(row), dtype=np.int32), np.diff(ptr))
    receivers_of = senders.other[order]
    numbers = np.arange(len(row), dtype=np.int32)
    return NodeCodePairs(
        row,
        bounds,
        replace(receivers, other=pair, at=IN_ORDER),
        lambda: replace(receivers, ptr=ptr, row=numbers, other=receivers_of, at=at),
    )


def pairs_of_receivers(
    receivers: EdgeLists, n_senders: int, codes: np.ndarray, k: int
) -> NodeCodePairs:
    """Pairs of a receiver and a code; edges are in the order of these pairs. Arguments as for
    ``pairs_of_senders``.
    """
    ascending = bool((receivers.row[1:] > receivers.row[:-1]).all())
    visit = IN_ORDER if ascending else np.argsort(receivers.row).astype(np.int32)
    ptr, row, bounds, order = split(
        ptr=receivers.ptr, row=receivers.row, visit=visit, codes=codes, at=IN_ORDER, k=k
    )
    numbers = np.arange(len(row), dtype=np.int32)
    by_pair = replace(
        receivers,
        ptr=ptr,
        row=numbers,
        other=receivers.other[order],
        at=IN_ORDER,
        positions=order if receivers.positions is None else receivers.positions[order],
        weight=None if receivers.weight is None else receivers.weight[order],
    )

    def by_sender() -> EdgeLists:
        bounds, first, at = group(ptr, numbers, by_pair.other, n_senders)
        senders = np.arange(n_senders, dtype=np.int32)
        return replace(by_pair, ptr=bounds, row=senders, other=first, at=at)

    return NodeCodePairs(row, bounds, by_pair, by_sender)
